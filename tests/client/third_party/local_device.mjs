// A device for local collections, written from docs/reference/device-specification.md alone: it imports nothing of
// Mapveil. Run as `node local_device.mjs COLLECTOR TOKEN FOLDER LONGITUDE LATITUDE`; it answers method grr on quadtrees.

import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const sha256 = (data) => createHash("sha256").update(data).digest();
const RULES = { lifetime: [4n, 1n], collection: [2n, 1n], minimum: 20 };

// Budget: exact fractions [top, bottom].
export function fraction(text) {
  const found = /^(\d+)(?:\/(\d+)|\.(\d+))?$/.exec(text);
  if (!found) throw new Error("no epsilon");
  const decimals = found[3] ?? "";
  return [BigInt(found[1] + decimals), found[2] ? BigInt(found[2]) : 10n ** BigInt(decimals.length)];
}
const plus = ([a, b], [c, d]) => [a * d + c * b, b * d];
const exceeds = ([a, b], [c, d]) => a * d > c * b;
export function allowed(epsilon, spent) {
  const wanted = fraction(epsilon);
  const all = spent.map(fraction).reduce(plus, wanted);
  return wanted[0] > 0n && !exceeds(wanted, RULES.collection) && !exceeds(all, RULES.lifetime);
}

// Terms: one encoding, whose digest the list announced. Keys are sorted and numbers keep their text.
export function tilingText(terms) {
  const from = terms.indexOf('"tiling":') + '"tiling":'.length;
  return terms.slice(from, terms.indexOf(',"title":', from));
}
export function whyNot(terms) {
  const { trust, method, minimum, options, tiling } = terms;
  if (trust !== "local" || method !== "grr" || tiling.kind !== "quadtree" || tiling.region.polygon) return "not of my kind";
  if (Object.keys(options).some((name) => !["estimator", "place", "outside"].includes(name))) return "an option that I do not know";
  return minimum < RULES.minimum ? "too few devices" : null;
}

// Cells: the equal-area cylinder of the region's crs, then rows from the north and columns from the west, interleaved.
const E2 = (1 / 298.257223563) * (2 - 1 / 298.257223563);
const E = Math.sqrt(E2);
export function cellOf({ region, depth }, lon, lat) {
  const [west, south, east, north] = region.bbox;
  if (!(lon >= west && lon <= east && lat >= south && lat <= north)) return -1;
  const [, parallel, meridian] = /^\+proj=cea \+lat_ts=(\S+) \+lon_0=(\S+) \+datum=WGS84 \+units=m \+no_defs$/.exec(region.crs);
  const phi = parallel * (Math.PI / 180);
  const k0 = Math.cos(phi) / Math.sqrt(1 - E2 * Math.sin(phi) ** 2);
  const s = Math.sin(lat * (Math.PI / 180));
  const q = (s * (1 - E2)) / (1 - E2 * s * s) + Math.log((1 + E * s) / (1 - E * s)) * ((1 - E2) / (2 * E));
  const [x, y] = [(lon - meridian) * (k0 * 6378137 * (Math.PI / 180)), q * (6378137 / (2 * k0))];
  const [x0, y0, x1, y1] = region.bounds;
  const side = 2 ** depth;
  const clip = (value) => Math.trunc(Math.min(Math.max(value, 0), side - 1));
  const [row, column] = [clip((y1 - y) * (side / (y1 - y0))), clip((x - x0) * (side / (x1 - x0)))];
  let cell = 0;
  for (let bit = depth - 1; bit >= 0; bit -= 1) cell = 4 * cell + 2 * ((row >> bit) & 1) + ((column >> bit) & 1);
  return cell;
}

// Weights: floor(2^200 (1 - 10^-90) e^epsilon) / 2^200, then whole numbers.
export function weights(epsilon, moreBits, lessBits) {
  const [[top, bottom], one] = [exceeds(fraction(epsilon), [128n, 1n]) ? [128n, 1n] : fraction(epsilon), 10n ** 220n];
  let [power, term] = [0n, one];
  for (let k = 1n; term > 0n; k += 1n) {
    power += term;
    term = (term * top) / (bottom * k);
  }
  const scaled = ((power * (10n ** 90n - 1n)) << 200n) / (one * 10n ** 90n);
  for (let bits = lessBits; bits >= 0; bits -= 1) {
    const more = scaled >> BigInt(200 - bits);
    if (more < 1n << BigInt(moreBits)) return [more, 1n << BigInt(bits)];
  }
  return [(1n << BigInt(moreBits)) - 1n, 1n];
}

// The report of generalized randomized response, given a uniform number below the total.
const bitLength = (value) => value.toString(2).length;
export const grrWeights = (size, epsilon) => weights(epsilon, 60, Math.min(61 - bitLength(size), 40));
export function symbolOf(cell, [more, less], uniform) {
  const drawn = uniform - (more - less);
  return drawn < 0n ? BigInt(cell) : drawn / less;
}
export function uniformBelow(bound) {
  for (;;) {
    const word = randomBytes(8).readBigUInt64LE();
    if (word < (1n << 64n) - ((1n << 64n) % bound)) return word % bound;
  }
}
function head(major, number) {
  if (number < 24n) return Buffer.of((major << 5) | Number(number));
  const width = [1, 2, 4, 8].find((bytes) => number < 1n << BigInt(8 * bytes));
  const digits = Buffer.from(number.toString(16).padStart(2 * width, "0"), "hex");
  return Buffer.concat([Buffer.of((major << 5) | (24 + Math.log2(width))), digits]);
}
export function report(tiling, size, [more, less], symbol) {
  const domain = sha256(`mapveil domain 1 ${tiling}`).subarray(0, 16);
  const setting = sha256(`mapveil local setting 1 1 ${size} generalized ${more}:${less}`).subarray(0, 16);
  const bytes = (data) => Buffer.concat([head(2, BigInt(data.length)), data]);
  return Buffer.concat([head(4, 5n), head(0, 1n), head(0, 1n), bytes(domain), bytes(setting), head(0, symbol)]);
}

// Identity and signed requests.
export const enrolmentStatement = (token, key) => Buffer.concat([Buffer.from("mapveil enrolment 1\0"), sha256(token), key]);
export function requestStatement(method, path, body) {
  return Buffer.concat([Buffer.from(`mapveil request 1\0${method}\0${path}\0`), sha256(body)]);
}
export const publicOf = (key) => Buffer.from(createPublicKey(key).export({ format: "jwk" }).x, "base64url");

export async function main(collector, token, folder, lon, lat) {
  const file = `${folder}/account.json`;
  const keep = (state) => { // on the disk before anything leaves
    const open = openSync(`${file}.new`, "w", 0o600);
    writeSync(open, JSON.stringify(state));
    fsyncSync(open);
    closeSync(open);
    renameSync(`${file}.new`, file);
  };
  const drawn = () => generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" });
  const state = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { key: drawn(), device: null, answers: {} };
  keep(state);
  const key = createPrivateKey(state.key);
  if (state.device === null) {
    const signature = sign(null, enrolmentStatement(token, publicOf(key)), key).toString("hex");
    const body = JSON.stringify({ token, public_key: publicOf(key).toString("hex"), signature });
    const told = await fetch(`${collector}/v1/devices`, { method: "POST", body, headers: { "Content-Type": "application/json" } });
    state.device = (await told.json()).device;
    keep(state);
  }
  for (const { id, terms: announced } of await (await fetch(`${collector}/v1/open`)).json()) {
    const text = await (await fetch(`${collector}/v1/collections/${id}/terms`)).text();
    const terms = JSON.parse(text);
    if (sha256(text).toString("hex") !== announced || terms.identifier !== id || terms.version !== 1 || whyNot(terms)) continue;
    if (!state.answers[id]) {
      if (!allowed(terms.epsilon, Object.values(state.answers).map(({ epsilon }) => epsilon))) continue;
      const [size, cell] = [4 ** terms.tiling.depth, cellOf(terms.tiling, lon, lat)];
      if (cell < 0) continue;
      const [more, less] = grrWeights(size, terms.epsilon);
      const symbol = symbolOf(cell, [more, less], uniformBelow(more + BigInt(size - 1) * less));
      state.answers[id] = { epsilon: terms.epsilon, body: report(tilingText(text), size, [more, less], symbol).toString("hex") };
      keep(state);
    }
    const [path, body] = [`/v1/collections/${id}/report`, Buffer.from(state.answers[id].body, "hex")];
    const signed = sign(null, requestStatement("PUT", path, body), key).toString("hex");
    const headers = { "Content-Type": "application/cbor", Authorization: `Mapveil-Device ${state.device} ${signed}` };
    const told = await fetch(collector + path, { method: "PUT", body, headers });
    console.log(`${id} ${told.status}`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [collector, token, folder, ...place] = process.argv.slice(2);
  await main(collector, token, folder, ...place.map(Number));
}
