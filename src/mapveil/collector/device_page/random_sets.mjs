// Local reports that are a set of sites, a bit for each: unary encoding and subset selection.
// How a byte of eight independent bits is made of a word is said in mapveil/local/randomizers/random_sets.py.

import { Fraction } from "./fraction.mjs";
import { keeps, odds, power } from "./odds.mjs";
import { uniformBelow, uniformsBelow } from "./randomness.mjs";
import { insist } from "./refusal.mjs";
import { bitLength, roughly } from "./symbols.mjs";

const ONE = 2n ** 32n;
const PIECE = 2 ** 17; // bytes
const WORDS = 2 ** 16;
const FINE = 240n;
const REST = 184n;
const SPREAD = 1.5;
const TOTAL_BITS = 61;

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => byte.toString(2).replaceAll("0", "").length);

/** How many bits of a byte are 1. */
export const ones = (byte) => ONES[byte];

/** What byte a word of 16 bits means, from which word on it is refined, and where the bytes' remainders end. */
export function byteLaw(chance) {
  const ofNumber = Array.from({ length: 9 }, (_, k) => chance ** BigInt(k) * (ONE - chance) ** BigInt(8 - k));
  const table = new Uint8Array(WORDS);
  const ends = [];
  let certain = 0;
  let end = 0n;
  for (let byte = 0; byte < 256; byte += 1) {
    const mass = ofNumber[ones(byte)];
    const share = Number(mass >> FINE);
    table.fill(byte, certain, certain + share);
    certain += share;
    end += mass & ((1n << FINE) - 1n);
    ends.push(end);
  }
  return { table, certain, ends, tops: ends.map((each) => each >> REST) };
}

/** How many of an ascending list are at most a value, or below it. */
const atMost = (list, value) => list.findLastIndex((each) => each <= value) + 1;
const below = (list, value) => list.findLastIndex((each) => each < value) + 1;

function fill(made, law, rng) {
  const words = rng.words16(made.length);
  const unsure = [];
  words.forEach((word, at) => {
    made[at] = law.table[word];
    if (word >= law.certain) unsure.push(at);
  });
  if (law.certain === WORDS) return;
  const more = rng.words64(unsure.length);
  const found = unsure.map((at, k) => (BigInt(words[at] - law.certain) << 56n) | (more[k] >> 8n));
  found.forEach((value, k) => {
    let byte = atMost(law.tops, value);
    if (byte !== below(law.tops, value)) { // level with an end
      const last = rng.bytes(Number(REST) / 8).reduceRight((sum, each) => (sum << 8n) | BigInt(each), 0n);
      byte = atMost(law.ends, (value << REST) | last);
    }
    made[unsure[k]] = byte;
  });
}

/** A set that holds each site with probability chance / 2^32, independently. */
export function independentBits(sites, chance, rng) {
  const made = new Uint8Array(Math.ceil(sites / 8));
  const law = byteLaw(chance);
  for (let start = 0; start < made.length; start += PIECE) fill(made.subarray(start, start + PIECE), law, rng);
  made[made.length - 1] &= (0xff << (8 * made.length - sites)) & 0xff;
  return made;
}

function putBit(set, site, held) {
  const mask = 0x80 >> (site & 7);
  if (held) set[site >> 3] |= mask;
  else set[site >> 3] &= ~mask;
}

function setSize(set) {
  let sum = 0;
  for (const byte of set) sum += ONES[byte];
  return sum;
}

/** A set of a given size without one site, every one equally likely. */
export function uniformSet(sites, without, size, rng) {
  const spread = SPREAD * Math.sqrt(size * Math.max(1 - size / sites, 0));
  const part = (2 * size < sites ? size - spread : size + spread) / sites;
  const set = independentBits(sites, BigInt(Math.trunc(Math.min(Math.max(part, 0), 1) * Number(ONE))), rng);
  putBit(set, without, false);
  for (;;) {
    const missing = size - setSize(set);
    if (missing === 0) return set;
    const more = missing > 0;
    const changing = more ? sites - size : Math.max(size, 1);
    const draws = Math.abs(missing) * Math.max(Math.floor(sites / (2 * changing)), 1);
    // What is drawn twice, or is held already, changes nothing.
    for (const site of uniformsBelow(Math.min(draws, sites), sites, rng)) {
      if (site !== without) putBit(set, site, more);
    }
  }
}

/** A bit for every site, each randomized by itself. */
export class Unary {
  static kind = 4;

  constructor(domain, epsilon, { variant }) {
    insist(variant === "optimized" || variant === "symmetric", "The collector asks for an unknown unary encoding.");
    this.size = domain.size;
    this.chances = chances(epsilon, variant);
    insist(this.chances[0] > this.chances[1], "The epsilon is too small for any report.");
  }

  get identity() {
    return `unary ${this.chances[0]}:${this.chances[1]}`;
  }

  draw(site, rng) {
    const set = independentBits(this.size, this.chances[1], rng);
    putBit(set, site, uniformBelow(ONE, rng) < this.chances[0]);
    return set;
  }
}

function chances(epsilon, variant) {
  if (variant === "optimized") {
    const { top, bottom } = power(epsilon);
    const [mass, by] = [ONE * bottom, top + bottom];
    return [ONE / 2n, (mass + by - 1n) / by];
  }
  let q = BigInt(Math.max(1, Math.ceil(Number(ONE) / (1 + Math.exp(Math.min(epsilon.toNumber(), 60) / 2)))));
  while (!keeps(new Fraction((ONE - q) * (ONE - q), q * q), epsilon)) q += 1n;
  return [ONE - q, q];
}

/** A random set of k sites that holds the place more often than not. */
export class Subset {
  static kind = 5;

  constructor(domain, epsilon, { subset }) {
    this.size = domain.size;
    this.subset = subset ?? bestSize(epsilon, this.size);
    insist(
      Number.isSafeInteger(this.subset) && this.subset >= 1 && this.subset < this.size,
      "The collector asks for sets of a size that does not exist.",
    );
    const room = TOTAL_BITS - bitLength(this.size);
    this.weights = odds(epsilon, room, Math.min(room, 40));
    this.holding = this.weights.more * BigInt(this.subset);
    this.total = this.holding + this.weights.less * BigInt(this.size - this.subset);
  }

  get identity() {
    return `subset ${this.subset} ${this.weights.more}:${this.weights.less}`;
  }

  draw(site, rng) {
    const holds = uniformBelow(this.total, rng) < this.holding;
    const set = uniformSet(this.size, site, this.subset - (holds ? 1 : 0), rng);
    putBit(set, site, holds);
    return set;
  }
}

/** k with the least variance: the better of the whole numbers around d / (e^epsilon + 1). */
function bestSize(epsilon, sites) {
  const e = roughly(epsilon);
  const variance = (k) => {
    const held = (e * k) / (e * k + sites - k);
    const other = (k - held) / (sites - 1);
    return (other * (1 - other)) / (held - other) ** 2;
  };
  const near = (value) => Math.max(1, Math.min(sites - 1, value));
  const [low, high] = [near(Math.floor(sites / (e + 1))), near(Math.ceil(sites / (e + 1)))];
  return variance(high) < variance(low) ? high : low;
}
