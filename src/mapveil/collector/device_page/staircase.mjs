// Staircase randomized response: the nearer a site, the likelier its report, in steps whose exact worst ratio is at
// most e^epsilon. As mapveil/local/staircase_*.py, in the same arithmetic: c is part of what a report says it is.

import { Blocks } from "./domain.mjs";
import { Fraction } from "./fraction.mjs";
import { keeps, power } from "./odds.mjs";
import { uniformBelowEach } from "./randomness.mjs";
import { insist } from "./refusal.mjs";
import { bitLength } from "./symbols.mjs";

const TOTAL_BITS = 62;
const NEAR = 1e-11;
const STEPS = 80;
const GRAIN_BITS = 40;

/** Python's round: to the nearest whole number, ties to even. */
export function roundEven(value) {
  const low = Math.floor(value);
  if (value - low === 0.5) return low % 2 === 0 ? low : low + 1;
  return Math.round(value);
}

/** The number of groups of Lemma 3.4. */
function groupNumber(epsilon, sites) {
  const c = Math.exp(Math.min(epsilon.toNumber(), 700));
  return Math.max(2, roundEven((2 * (sites - Math.E)) / ((1 - 1 / c) * sites)));
}

/** The lengths of prefixes worth being thresholds, longest first, each with the ordered pairs that share so much. */
function codeLevels(codes) {
  const size = codes.code.length;
  const found = new Map([[codes.bits, size]]);
  let before = size;
  for (let length = codes.bits - 2; length >= 0; length -= 2) {
    const pairs = new Blocks(codes, length).size.reduce((sum, each) => sum + each * each, 0);
    if (pairs > before) {
      found.set(length, pairs);
      before = pairs;
    }
    if (pairs === size * size) break;
  }
  return found;
}

/** The thresholds of the largest weighted sum of pairs, the first the whole code, by dynamic programming. */
export function bestThresholds(codes, groups) {
  const pairs = codeLevels(codes);
  const lengths = [...pairs.keys()];
  const m = Math.max(2, Math.min(groups, lengths.length));
  let value = new Map([[0, lengths[0] * pairs.get(lengths[0])]]);
  const came = [];
  for (let cut = 1; cut < m; cut += 1) {
    const [following, step] = [new Map(), new Map()];
    for (let i = 1; i < lengths.length; i += 1) {
      for (const [before, sum] of value) {
        if (before >= i) continue;
        const worth = sum + lengths[i] * (pairs.get(lengths[i]) - pairs.get(lengths[before]));
        if (!following.has(i) || worth > following.get(i)) {
          following.set(i, worth);
          step.set(i, before);
        }
      }
    }
    value = following;
    came.push(step);
  }
  const chosen = [lengths.length - 1];
  for (const step of came.reverse()) chosen.push(step.get(chosen.at(-1)));
  return chosen.reverse().map((i) => lengths[i]);
}

function checkThresholds(codes, given) {
  const good = given.length >= 2 && given.every(Number.isSafeInteger) && given[0] <= codes.bits && given.at(-1) >= 0
    && given.every((length, at) => at === 0 || length < given[at - 1])
    && new Blocks(codes, given.at(-1)).first.length === 1;
  insist(good, "The collector asks for groups of cells that leave some cells out.");
  return given;
}

/** Of each kind of report: the least N over its blocks, and the most N outside the block before (-1: nothing). */
function blockExtremes(blocks, size) {
  const n = new Float64Array(size);
  for (const level of blocks) for (let rank = 0; rank < size; rank += 1) n[rank] += level.size[level.ofRank[rank]];
  const until = n.slice();
  const since = n.slice();
  for (let rank = 1; rank < size; rank += 1) until[rank] = Math.max(until[rank], until[rank - 1]);
  for (let rank = size - 2; rank >= 0; rank -= 1) since[rank] = Math.max(since[rank], since[rank + 1]);
  const least = blocks.map((level) => {
    const found = level.first.map((first) => n[first]);
    for (let rank = 0; rank < size; rank += 1) found[level.ofRank[rank]] = Math.min(found[level.ofRank[rank]], n[rank]);
    return found;
  });
  const most = blocks.map((level) => level.first.map((first, at) => {
    const stop = first + level.size[at];
    return Math.max(first > 0 ? until[first - 1] : -1, stop < size ? since[stop] : -1);
  }));
  const [lowest, highest] = [n.reduce((one, other) => Math.min(one, other)), until[size - 1]];
  const kinds = new Map();
  const kind = (rank) => ({
    least: [...blocks.map((level, j) => least[j][level.ofRank[rank]]), lowest],
    most: [highest, ...blocks.map((level, j) => most[j][level.ofRank[rank]])],
  });
  const likeTheOneBefore = (rank) => rank > 0 && blocks.every(({ ofRank }, j) => (
    least[j][ofRank[rank]] === least[j][ofRank[rank - 1]] && most[j][ofRank[rank]] === most[j][ofRank[rank - 1]]
  ));
  // All reports of a block of the finest level are of one kind.
  for (const rank of blocks[0].first) {
    if (!likeTheOneBefore(rank)) kinds.set(JSON.stringify(kind(rank)), kind(rank));
  }
  return { kinds: [...kinds.values()], sites: size, groups: blocks.length + 1 };
}

function ratios({ kinds, sites, groups: m }, step) {
  const weight = Array.from({ length: m }, (_, j) => 1 + (step * (m - 1 - j)) / (m - 1));
  const scale = step / ((m - 1) * sites);
  return kinds.map(({ least, most }) => {
    const high = weight.map((w, j) => w / (1 + scale * least[j]));
    const low = weight.map((w, j) => (most[j] >= 0 ? w / (1 + scale * most[j]) : Infinity));
    const up = high.indexOf(Math.max(...high));
    const down = low.indexOf(Math.min(...low));
    return { ratio: high[up] / low[down], up, down, least: least[up], most: most[down] };
  });
}

const largest = (found) => found.reduce((most, { ratio }) => Math.max(most, ratio), 0);

/** The largest ratio of one report's probabilities under two sites, exactly. */
function staircaseRatio(extremes, { more, less }) {
  const found = ratios(extremes, new Fraction(more, less).toNumber());
  const worst = largest(found) * (1 - NEAR);
  const m = extremes.groups;
  const base = BigInt(m - 1) * less;
  const weight = (j) => base + more * BigInt(m - 1 - j);
  const total = (n) => base * BigInt(extremes.sites) + more * BigInt(n);
  const seen = new Set();
  let most = new Fraction(0n);
  for (const { ratio, up, down, least, most: out } of found) {
    const name = `${up} ${down} ${least} ${out}`;
    if (ratio < worst || seen.has(name)) continue;
    seen.add(name);
    const exact = new Fraction(weight(up) * total(out), weight(down) * total(least));
    if (exact.exceeds(most)) most = exact;
  }
  return most;
}

/** The largest c = 1 + more / less whose exact worst case is at most e^epsilon. */
function calibrate(extremes, epsilon, bits) {
  const target = power(epsilon).toNumber();
  let [low, high] = [0, Math.min(target, 2 ** bits) - 1];
  for (let step = 0; step < STEPS; step += 1) {
    const middle = (low + high) / 2;
    if (largest(ratios(extremes, middle)) <= target) low = middle;
    else high = middle;
  }
  const grain = Math.max(0, Math.min(GRAIN_BITS, bits - 1 - bitLength(Math.trunc(low + 1))));
  const less = 1n << BigInt(grain);
  let more = BigInt(Math.trunc(low * 2 ** grain));
  while (more > 0n && !keeps(staircaseRatio(extremes, { more, less }), epsilon)) more -= 1n;
  return { more, less };
}

export class Staircase {
  static kind = 2;

  constructor(domain, epsilon, { groups, thresholds }) {
    insist(groups === null || (Number.isSafeInteger(groups) && groups >= 2), "The collector asks for no groups of cells.");
    const { codes, size } = domain;
    const given = typeof thresholds === "string" ? thresholds.split(",").map(Number) : thresholds;
    insist(given === null || Array.isArray(given), "The collector asks for groups of cells in an unknown way.");
    this.thresholds = given === null
      ? bestThresholds(codes, groups ?? groupNumber(epsilon, size))
      : checkThresholds(codes, given);
    [this.size, this.codes] = [size, codes];
    this.blocks = this.thresholds.slice(0, -1).map((threshold) => new Blocks(codes, threshold));
    const bits = TOTAL_BITS - 1 - bitLength(this.blocks.length * size);
    this.steps = calibrate(blockExtremes(this.blocks, size), epsilon, bits);
    insist(this.steps.more > 0n, "The epsilon is too small for any report.");
    this.even = BigInt(this.blocks.length) * this.steps.less;
  }

  get identity() {
    return `staircase ${this.thresholds.join(",")} ${this.steps.more}:${this.steps.less}`;
  }

  draw(site, rng) {
    const rank = this.codes.rank[site];
    const around = this.blocks.map((level) => level.ofRank[rank]);
    const nested = this.blocks.reduce((sum, level, j) => sum + level.size[around[j]], 0);
    // The law is a mixture: uniform on everything, and on each of the blocks around the place.
    const everywhere = this.even * BigInt(this.size);
    const left = uniformBelowEach(everywhere + this.steps.more * BigInt(nested), rng);
    if (left < everywhere) return BigInt(this.codes.site[Number(left / this.even)]);
    let offset = Number((left - everywhere) / this.steps.more);
    for (const [j, level] of this.blocks.entries()) {
      const size = level.size[around[j]];
      if (offset < size) return BigInt(this.codes.site[level.first[around[j]] + offset]);
      offset -= size;
    }
    throw new Error("a draw beyond the weights of its place");
  }
}
