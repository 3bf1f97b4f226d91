// The domain of a local report: the sites of a tiling in the order of their hierarchical codes, and its fingerprint.
// As mapveil/local/randomizers/domain.py; public throughout.

import { sha256, utf8 } from "./bytes.mjs";
import { NumberText, write } from "./exact_json.mjs";
import { insist } from "./refusal.mjs";

/** Lists of numbers as the collector writes them: with a point, even where they are whole. */
function floats(value) {
  if (Array.isArray(value)) return value.map(floats);
  if (value instanceof NumberText && /^-?\d+$/.test(value.text)) return new NumberText(`${value.text}.0`);
  return value;
}

/** The record of a tiling (parsed with exact numbers) as the collector's own tiling writes it. */
function normal(record) {
  const region = new Map(record.get("region"));
  for (const name of ["bounds", "bbox"]) region.set(name, floats(region.get(name)));
  const made = new Map(record).set("region", region);
  for (const name of ["lon", "lat"]) if (made.has(name)) made.set(name, floats(made.get(name)));
  return made;
}

/** 16 bytes that tell this domain from every other, and from other versions of itself. */
export async function domainFingerprint(record) {
  const text = write(normal(record), { ascii: true });
  return (await sha256(utf8(`mapveil domain 1 ${text}`))).slice(0, 16);
}

/** The blocks of sites that share the first bits of their codes, in the order of the codes. */
export class Blocks {
  constructor(codes, threshold) {
    const step = 2 ** Math.max(codes.bits - threshold, 0);
    const size = codes.code.length;
    this.ofRank = new Int32Array(size);
    const first = [0];
    let before = Math.floor(codes.code[0] / step);
    for (let rank = 1; rank < size; rank += 1) {
      const prefix = Math.floor(codes.code[rank] / step);
      if (prefix !== before) {
        first.push(rank);
        before = prefix;
      }
      this.ofRank[rank] = first.length - 1;
    }
    this.first = first;
    this.size = first.map((start, at) => (first[at + 1] ?? size) - start);
  }
}

/** Sites and their codes: `code` ascending, the `site` of each, the `rank` of each site, the `bits` of a code. */
export class Domain {
  constructor(tiling, fingerprint) {
    insist(tiling.size >= 2, "The map has fewer than two cells: there is nothing to report.");
    this.tiling = tiling;
    this.fingerprint = fingerprint;
    this.size = tiling.size;
  }

  get codes() {
    this.kept ??= sorted(this.tiling.codes());
    return this.kept;
  }
}

function sorted({ code, bits }) {
  const site = new Uint32Array(code.length);
  for (let at = 0; at < site.length; at += 1) site[at] = at;
  if (!code.every((value, at) => at === 0 || code[at - 1] <= value)) site.sort((a, b) => code[a] - code[b] || a - b);
  let ordered = new Float64Array(site.length);
  for (let rank = 0; rank < site.length; rank += 1) ordered[rank] = code[site[rank]];
  let length = bits;
  // Sites of one code get further bits that tell them apart.
  const number = new Uint32Array(site.length);
  let most = 0;
  for (let rank = 1; rank < site.length; rank += 1) {
    number[rank] = ordered[rank] === ordered[rank - 1] ? number[rank - 1] + 1 : 0;
    most = Math.max(most, number[rank]);
  }
  if (most) {
    const spare = 2 * Math.floor((Math.floor(Math.log2(most)) + 2) / 2);
    insist(bits + spare <= 53, "Too many of the map's places lie at one point for this page.");
    ordered = ordered.map((value, rank) => value * 2 ** spare + number[rank]);
    length += spare;
  }
  const rank = new Uint32Array(site.length);
  site.forEach((at, place) => { rank[at] = place; });
  return { code: ordered, site, rank, bits: length };
}
