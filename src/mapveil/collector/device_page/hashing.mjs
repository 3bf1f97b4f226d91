// Local hashing: a random function of a public family hashes the sites to few buckets, and the bucket is randomized.
// olh asks about the sites, olh-h about the nodes of one random level of their hierarchy. As mapveil/local.

import { Blocks } from "./domain.mjs";
import { odds } from "./odds.mjs";
import { seededWords, uniformBelow } from "./randomness.mjs";
import { insist } from "./refusal.mjs";
import { bitLength, roughly } from "./symbols.mjs";

const LARGEST_TABLE = 2 ** 25;
const TOTAL_BITS = 61;
const SCATTER = 1709;
const MOST = 1024;

function isPrime(number) {
  if (!Number.isSafeInteger(number) || number < 2) return false;
  for (let k = 2; k * k <= number; k += 1) if (number % k === 0) return false;
  return true;
}

/** How many digits to the base of the buckets tell the sites apart. */
function digits(buckets, sites) {
  let count = 1;
  for (let reach = buckets; reach < sites; reach *= buckets) count += 1;
  return count;
}

/** The prime of least variance whose table of counts the server can hold. */
function bestBuckets(epsilon, sites, largest = LARGEST_TABLE) {
  const e = roughly(epsilon);
  const most = Math.min(2 * sites, Math.floor(Math.sqrt(largest)) + 1, Math.trunc(Math.min(4 * e + 8, 1e9)));
  let best = 0;
  let least = Infinity;
  for (let g = 2; g <= most; g += 1) {
    const k = digits(g, sites);
    if (!isPrime(g) || g ** (k + 1) > largest) continue;
    const [held, less] = [e / (e + g - 1), 1 / (e + g - 1)];
    const other = (held - less) * ((g ** (k - 1) - 1) / (g ** k - 1)) + less;
    const variance = (other * (1 - other)) / (held - other) ** 2;
    if (variance < least) [best, least] = [g, variance];
  }
  insist(best, "The map has too many cells for hashing.");
  return best;
}

/** The point of a site: the number of the word that comes at its place when the shared words are sorted. */
export async function scatteredPoint(points, site) {
  const bins = new Uint32Array(65536);
  for await (const words of seededWords(SCATTER, points)) for (const word of words) bins[Number(word >> 48n)] += 1;
  let before = 0;
  let bin = 0;
  while (before + bins[bin] <= site) {
    before += bins[bin];
    bin += 1;
  }
  const found = [];
  let number = 0;
  for await (const words of seededWords(SCATTER, points)) {
    for (const word of words) {
      if (Number(word >> 48n) === bin) found.push([word, number]);
      number += 1;
    }
  }
  found.sort(([a, i], [b, j]) => (a < b ? -1 : a > b ? 1 : i - j));
  return found[site - before][1];
}

/** One family of functions with the weights of a randomized bucket. */
class HashedReports {
  constructor(sites, epsilon, buckets) {
    [this.sites, this.buckets, this.digits] = [sites, buckets, digits(buckets, sites)];
    this.points = buckets ** this.digits;
    const room = TOTAL_BITS - bitLength(buckets);
    this.weights = odds(epsilon, room, Math.min(room, 40));
    this.surplus = this.weights.more - this.weights.less;
    this.total = this.surplus + BigInt(buckets) * this.weights.less;
    this.symbols = (this.points - 1) * buckets;
  }

  /** A function and a bucket for a site, as one number. */
  async draw(site, rng) {
    const chosen = Number(uniformBelow(BigInt(this.points - 1), rng));
    const left = uniformBelow(this.total, rng) - this.surplus;
    // The hash is computed whether or not it is sent, so that the time taken says nothing.
    const hashed = await this.hash(chosen, site);
    const bucket = left < 0n ? BigInt(hashed) : left / this.weights.less;
    return BigInt(chosen) * BigInt(this.buckets) + bucket;
  }

  async hash(chosen, site) {
    let [a, x, sum] = [chosen + 1, await scatteredPoint(this.points, site), 0];
    for (let digit = 0; digit < this.digits; digit += 1) {
      sum += (a % this.buckets) * (x % this.buckets);
      a = Math.floor(a / this.buckets);
      x = Math.floor(x / this.buckets);
    }
    return sum % this.buckets;
  }
}

const primeOrNone = (buckets) => insist(
  buckets === null || isPrime(buckets),
  "The collector asks for a number of hash buckets that is no prime.",
);

/** A random hash function and a randomized bucket. */
export class Hashing {
  static kind = 6;

  constructor(domain, epsilon, { buckets }) {
    primeOrNone(buckets);
    this.size = domain.size;
    this.reports = new HashedReports(this.size, epsilon, buckets ?? bestBuckets(epsilon, this.size));
    insist(this.reports.symbols <= LARGEST_TABLE, "The collector asks for more hash buckets than it can count.");
  }

  get identity() {
    const { more, less } = this.reports.weights;
    return `hashing ${this.reports.buckets} ${more}:${less}`;
  }

  draw(site, rng) {
    return this.reports.draw(site, rng);
  }
}

/** The levels asked for, coarsest first: each has `growth` times the nodes of the one before; last the sites. */
function levelsOf(codes, growth) {
  const found = [new Blocks(codes, codes.bits)];
  for (let length = codes.bits - 2; length > 0; length -= 2) {
    const blocks = new Blocks(codes, length);
    if (blocks.first.length < 2) break;
    if (blocks.first.length * growth <= found.at(-1).first.length) found.push(blocks);
  }
  return found.reverse();
}

/** Local hashing of a random level of the hierarchy. */
export class HierarchicalHashing {
  static kind = 7;

  constructor(domain, epsilon, { buckets, growth, site_weight: siteWeight }) {
    primeOrNone(buckets);
    const whole = (value, least) => Number.isSafeInteger(value) && value >= least && value <= MOST;
    insist(whole(growth, 2) && whole(siteWeight, 1), "The collector asks for levels that do not exist.");
    this.size = domain.size;
    this.rank = domain.codes.rank;
    this.levels = levelsOf(domain.codes, growth);
    this.siteWeight = siteWeight;
    this.weight = this.levels.length - 1 + siteWeight;
    const room = Math.floor(LARGEST_TABLE / this.levels.length);
    this.reports = this.levels.map(({ first }) => (
      new HashedReports(first.length, epsilon, buckets ?? bestBuckets(epsilon, first.length, room))
    ));
    insist(this.reports.every(({ symbols }) => symbols <= LARGEST_TABLE), "The collector asks for too many hash buckets.");
  }

  get identity() {
    const each = this.reports.map(({ sites, buckets, weights }) => `${sites}/${buckets}/${weights.more}:${weights.less}`);
    return `hierarchical hashing ${this.siteWeight} ${each.join(" ")}`;
  }

  async draw(site, rng) {
    const level = Math.min(Number(uniformBelow(BigInt(this.weight), rng)), this.levels.length - 1);
    const node = this.levels[level].ofRank[this.rank[site]];
    const start = this.reports.slice(0, level).reduce((sum, { symbols }) => sum + symbols, 0);
    return BigInt(start) + (await this.reports[level].draw(node, rng));
  }
}
