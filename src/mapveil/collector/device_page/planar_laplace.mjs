// Planar Laplace on a list of sites: the farther a site, the less likely, exponentially. As mapveil/local's: whole
// weights of 36 bits at the largest rate with which this table's own worst ratio is, exactly, at most e^epsilon.

import { Fraction } from "./fraction.mjs";
import { keeps } from "./odds.mjs";
import { uniformBelowEach } from "./randomness.mjs";
import { insist } from "./refusal.mjs";

const MOST_SITES = 4096;
const MOST_SCATTERED = 1024; // sites that are no raster: every pair has a distance of its own
const TOP = 2 ** 36 - 1;
const CLOSE = 1e-6;
const NEAR = 1e-11;

/** Distances of pairs of sites by their class: all pairs of a raster that are as far apart in rows and columns share
 * one. Sites that mirror each other have the same rows, so that only one of them is looked at. */
class Distances {
  constructor(tiling) {
    this.size = tiling.size;
    this.even = tiling.rows !== undefined && tiling.plane === tiling.metric;
    insist(
      this.size <= (this.even ? MOST_SITES : MOST_SCATTERED),
      "The map has too many cells for planar Laplace noise on this page; it takes no part.",
    );
    const middles = Array.from({ length: this.size }, (_, cell) => tiling.metric.project(...tiling.centre(cell)));
    const far = ([a, b], [c, d]) => Math.hypot(a - c, b - d);
    if (!this.even) {
      this.metres = Float64Array.from({ length: this.size ** 2 }, (_, pair) => (
        far(middles[Math.floor(pair / this.size)], middles[pair % this.size])
      ));
      this.looked = [...middles.keys()];
      this.twin = this.looked;
      this.keepClasses();
      return;
    }
    const { rows, columns } = tiling;
    this.columns = columns;
    const first = middles[tiling.cell(0, 0)];
    this.metres = Float64Array.from({ length: rows * columns }, (_, at) => (
      far(first, middles[tiling.cell(Math.floor(at / columns), at % columns)])
    ));
    this.places = middles.map((_, cell) => tiling.rowCol(cell));
    this.row = Int32Array.from(this.places, ([row]) => row);
    this.col = Int32Array.from(this.places, ([, col]) => col);
    this.twin = this.places.map(([row, col]) => tiling.cell(Math.min(row, rows - 1 - row), Math.min(col, columns - 1 - col)));
    this.looked = [...new Set(this.twin)];
    this.keepClasses();
  }

  /** Write out the classes of each looked-at site's pairs: they are gone through many times. */
  keepClasses() {
    this.classes = this.looked.map((site) => {
      const made = new Int32Array(this.size);
      for (let other = 0; other < this.size; other += 1) made[other] = this.of(site, other);
      return made;
    });
  }

  /** The class of two sites. */
  of(one, other) {
    if (!this.even) return one * this.size + other;
    return Math.abs(this.row[one] - this.row[other]) * this.columns + Math.abs(this.col[one] - this.col[other]);
  }

  /** The sum of a value of each class over a site's pairs, for all sites. */
  sums(values) {
    const made = new Float64Array(this.size);
    for (const [at, site] of this.looked.entries()) {
      const classes = this.classes[at];
      let sum = 0;
      for (let other = 0; other < this.size; other += 1) sum += values[classes[other]];
      made[site] = sum;
    }
    return made.map((_, site) => made[this.twin[site]]);
  }
}

/** The largest difference of log probabilities of one report from two sites, in doubles. */
function spent(distances, rate) {
  const log = distances.sums(distances.metres.map((metres) => Math.exp(-rate * metres))).map(Math.log);
  let most = 0;
  for (const classes of distances.classes) {
    let high = -Infinity;
    let low = Infinity;
    for (let site = 0; site < distances.size; site += 1) {
      const value = -rate * distances.metres[classes[site]] - log[site];
      if (value > high) high = value;
      if (value < low) low = value;
    }
    most = Math.max(most, high - low);
  }
  return most;
}

/** Whole weights of each class, at least 1, the nearest below 2^36. */
const weightsAt = ({ metres }, rate) => metres.map((far) => Math.max(Math.trunc(Math.exp(-rate * far) * TOP), 1));

/** The largest ratio of two probabilities of one report, exactly. */
function worstRatio(distances, weights) {
  const totals = distances.sums(weights); // whole numbers below 2^48: exact
  const found = distances.looked.map((report, at) => {
    const classes = distances.classes[at];
    let [high, low, up, down] = [-Infinity, Infinity, 0, 0];
    for (let site = 0; site < distances.size; site += 1) {
      const value = weights[classes[site]] / totals[site];
      if (value > high) [high, up] = [value, site];
      if (value < low) [low, down] = [value, site];
    }
    return { ratio: high / low, report, up, down };
  });
  const near = found.reduce((most, { ratio }) => Math.max(most, ratio), 0) * (1 - NEAR);
  let most = new Fraction(0n);
  for (const { ratio, report, up, down } of found) {
    if (ratio < near) continue;
    const [more, less] = [weights[distances.of(up, report)], weights[distances.of(down, report)]].map(BigInt);
    const exact = new Fraction(more * BigInt(totals[down]), less * BigInt(totals[up]));
    if (exact.exceeds(most)) most = exact;
  }
  return most;
}

export class PlanarLaplace {
  static kind = 8;

  constructor(domain, epsilon) {
    this.size = domain.size;
    this.epsilon = epsilon;
    this.distances = new Distances(domain.tiling);
    const goal = Math.min(epsilon.toNumber(), 1000);
    const far = this.distances.metres.reduce((one, other) => Math.max(one, other));
    // A rate costs the longest distance, and at most as much again for the places' different sums.
    let [low, high] = [goal / (2 * far), goal / far];
    while (high - low > CLOSE * low) {
      const middle = (low + high) / 2;
      if (spent(this.distances, middle) <= goal) low = middle;
      else high = middle;
    }
    while (!keeps(worstRatio(this.distances, weightsAt(this.distances, low)), epsilon)) low *= 1 - CLOSE;
    this.weights = weightsAt(this.distances, low);
  }

  get identity() {
    return `planar laplace ${this.epsilon}`;
  }

  draw(site, rng) {
    const row = Array.from({ length: this.size }, (_, other) => this.weights[this.distances.of(site, other)]);
    let left = Number(uniformBelowEach(BigInt(row.reduce((sum, weight) => sum + weight, 0)), rng));
    let drawn = 0;
    while (left >= row[drawn]) {
      left -= row[drawn];
      drawn += 1;
    }
    return BigInt(drawn);
  }
}
