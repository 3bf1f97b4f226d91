// Users of zones, by least squares over the noisy sums of nested groups: the passes of mapveil.inference.nested_sums,
// whose header has the formulas.
import { halfWidth } from "./noise_law.js";

const PER_OCTAVE = 32, // coefficients are rounded up to powers of 2**(1/32)
  LEAST_OCTAVE = -34, // smaller ones are taken for rounding errors
  LEAST_REST = 1e-9, // of the variance of a parent's leaves
  WHOLE = 1e-9; // of a leaf

/** Sums of children by their parents. */
function sumsOf(values, parent, size) {
  const made = new Float64Array(size);
  for (let i = 0; i < parent.length; i++) made[parent[i]] += values[i];
  return made;
}

/** The total of several zones, by their numbers; `refused` says why it is none, since their users are added up. */
export function totalOfZones(sums, zones, numbers) {
  const asked = new Set(numbers),
    { one, other } = zones.overlaps;
  for (let i = 0; i < one.length; i++)
    if (asked.has(one[i]) && asked.has(other[i]))
      return { refused: `${zones.name[one[i]]} and ${zones.name[other[i]]} overlap, so their users cannot be added up: choose one of them.` };
  const weights = new Map();
  let [shown, area, covered] = [0, 0, 0];
  for (const zone of asked) {
    // Borders drawn twice leave slivers that are no overlap: no leaf counts more than once.
    for (let i = zones.start[zone]; i < zones.start[zone + 1]; i++)
      weights.set(zones.leaf[i], Math.min((weights.get(zones.leaf[i]) ?? 0) + zones.part[i], 1));
    shown += zones.shown[zone];
    area += zones.area[zone];
    covered += zones.covered[zone] * zones.area[zone];
  }
  return { ...sums.totalOf(weights), shown, covered: covered / area };
}

/** Answers for weights of the leaves. `coded` levels, the root first, and `leaf` of each cell are arrays. */
export function noisySums({ levels: coded, leaf, alpha }) {
  const levels = coded.map((level) => ({ ...level, noisy: Float64Array.from(level.noisy, (steps) => steps * level.step) }));
  const last = levels.length - 1,
    leaves = levels[last],
    count = leaves.noisy.length,
    cells = new Float64Array(count);
  for (const each of leaf) if (each >= 0) cells[each]++;

  // ---- upwards: estimates from below and their spreads; then downwards: the leaves' estimates ----
  const below = [leaves.noisy],
    spreads = [new Float64Array(count).fill(leaves.law.variance)],
    totals = []; // S of each level's nodes, from the last but one upwards
  for (let at = last - 1; at >= 0; at--) {
    const { noisy, law, weight } = levels[at],
      { parent } = levels[at + 1],
      size = noisy.length,
      total = sumsOf(below[0], parent, size),
      spread = sumsOf(spreads[0], parent, size);
    totals.unshift(spread);
    below.unshift(law ? total.map((t, v) => t + weight[v] * (noisy[v] - t)) : total);
    spreads.unshift(law ? spread.map((_, v) => weight[v] * law.variance) : spread);
  }
  let estimate = below[0];
  for (let at = 1; at <= last; at++) {
    const { parent } = levels[at],
      sums = sumsOf(below[at], parent, estimate.length),
      missing = estimate.map((value, v) => (value - sums[v]) / totals[at - 1][v]);
    estimate = below[at].map((value, c) => value + spreads[at][c] * missing[parent[c]]);
  }

  /** The noises of one functional's error. */
  function noisesOf(weights) {
    const up = new Array(last);
    for (let at = last - 1; at >= 0; at--) {
      const { parent } = levels[at + 1],
        below = spreads[at + 1],
        g = (up[at] = new Float64Array(levels[at].noisy.length));
      const add = (c, value) => (g[parent[c]] += (below[c] / totals[at][parent[c]]) * value);
      if (at === last - 1) for (const [c, value] of weights) add(c, value);
      else up[at + 1].forEach((value, c) => add(c, value));
    }
    const noises = [];
    let h = up[0],
      rest;
    for (let at = 0; at < last; at++) {
      const { weight, law } = levels[at];
      const bins = new Map();
      rest = new Float64Array(h.length);
      for (let v = 0; v < h.length; v++) {
        const part = law ? weight[v] : 0;
        if (law) bin(bins, part * h[v], levels[at].spread?.[v] ?? 1);
        rest[v] = (1 - part) * h[v] - up[at][v];
      }
      if (law) noises.push(...lawsOf(bins, law));
      if (at + 1 < last) {
        const { parent } = levels[at + 1];
        h = up[at + 1].map((g, c) => g + rest[parent[c]]);
      }
    }
    // A leaf that has no weight has the coefficient of its parent's rest.
    const bins = new Map(),
      apart = (c) => leaves.spread?.[c] ?? 1,
      whole = new Float64Array(rest.length);
    leaves.parent.forEach((v, c) => (whole[v] += apart(c)));
    const held = whole.slice();
    for (const [c, value] of weights) {
      bin(bins, value + rest[leaves.parent[c]], apart(c));
      held[leaves.parent[c]] -= apart(c);
    }
    held.forEach((number, v) => number > LEAST_REST * whole[v] && bin(bins, rest[v], number));
    noises.push(...lawsOf(bins, leaves.law));
    return noises;
  }
  function bin(bins, coefficient, number) {
    const size = Math.abs(coefficient);
    if (size <= 2 ** LEAST_OCTAVE || number <= 0) return;
    const at = Math.ceil(PER_OCTAVE * Math.log2(size) - 1e-9);
    bins.set(at, (bins.get(at) ?? 0) + number);
  }
  const lawsOf = (bins, { step, rate, terms }) =>
    [...bins].map(([at, number]) => ({ step: 2 ** (at / PER_OCTAVE) * step, rate, terms: terms * number }));

  /** The fractions of leaves that fractions of cells make up. */
  function leavesOf(fractions) {
    const weights = new Map();
    for (const [cell, fraction] of fractions) {
      const at = leaf[cell];
      if (at >= 0) weights.set(at, (weights.get(at) ?? 0) + fraction / cells[at]);
    }
    return weights;
  }
  /**
   * The users of a zone, by the fraction of each leaf in it: the least-squares estimate with the interval of the noise,
   * and the estimates of the leaves wholly inside and of all that it touches.
   */
  function totalOf(fractions) {
    const weights = new Map();
    for (const [at, fraction] of fractions) weights.set(at, fraction > 1 - WHOLE ? 1 : fraction);
    let [users, inside, touched] = [0, 0, 0];
    for (const [at, fraction] of weights) {
      users += fraction * estimate[at];
      touched += estimate[at];
      if (fraction === 1) inside += estimate[at];
    }
    const half = halfWidth(noisesOf(weights), alpha),
      placed = users > 0 ? Math.min(Math.max((users - inside) / users, 0), 1) : 1;
    return { estimate: Math.max(users, 0), low: users - half, high: users + half, inside, touched, placed };
  }
  return { leavesOf, totalOf };
}
