// Local reports that are one symbol: generalized randomized response and Hadamard response.
// The weights, and the order in which words are drawn, are those of mapveil/local.

import { insist } from "./refusal.mjs";
import { odds } from "./odds.mjs";
import { uniformBelow, uniformsBelow } from "./randomness.mjs";

const TOTAL_BITS = 61;

export const bitLength = (value) => (value > 0 ? BigInt(value).toString(2).length : 0);

/** e to an epsilon of at most 60, as a double: for choices that any phone makes alike, never for a probability. */
export const roughly = (epsilon) => Math.exp(Math.min(epsilon.toNumber(), 60));

/** The place itself, or any other with a smaller probability. */
export class Generalized {
  static kind = 1;

  constructor(domain, epsilon) {
    this.size = domain.size;
    const room = TOTAL_BITS - bitLength(this.size);
    this.weights = odds(epsilon, TOTAL_BITS - 1, Math.min(room, 40));
    this.total = this.weights.more + BigInt(this.size - 1) * this.weights.less;
  }

  get identity() {
    return `generalized ${this.weights.more}:${this.weights.less}`;
  }

  draw(site, rng) {
    const { more, less } = this.weights;
    const drawn = uniformBelow(this.total, rng) - (more - less);
    // What is beyond the surplus is any site, the place itself among them.
    return drawn < 0n ? BigInt(site) : drawn / less;
  }
}

/** A symbol of half of a block, which half being a row of a Hadamard matrix. */
export class Hadamard {
  static kind = 3;

  constructor(domain, epsilon, { blocks }) {
    this.size = domain.size;
    const most = 2 ** bitLength(this.size - 1);
    const power = Number.isSafeInteger(blocks) && blocks >= 1 && Number.isInteger(Math.log2(blocks));
    insist(blocks === null || (power && blocks <= most), "The collector asks for Hadamard blocks that do not exist.");
    const wanted = Math.ceil(Math.log2(Math.min(roughly(epsilon), 2 * this.size)));
    const asked = blocks ?? 2 ** Math.max(wanted - 1, 0);
    this.length = 2 ** bitLength(Math.ceil(this.size / asked));
    this.blocks = Math.ceil(this.size / (this.length - 1));
    this.symbols = this.blocks * this.length;
    const room = TOTAL_BITS - bitLength(this.symbols);
    this.weights = odds(epsilon, room, Math.min(room, 40));
    this.surplus = (this.weights.more - this.weights.less) * BigInt(this.length / 2);
    this.total = this.surplus + this.weights.less * BigInt(this.symbols);
  }

  get identity() {
    return `hadamard ${this.blocks} ${this.weights.more}:${this.weights.less}`;
  }

  draw(site, rng) {
    const row = (site % (this.length - 1)) + 1;
    const left = uniformBelow(this.total, rng) - this.surplus;
    if (left >= 0n) return left / this.weights.less;
    let [at] = uniformsBelow(1, this.length, rng);
    // Half of all symbols have an odd number of the row's bits: one bit more or less makes it even.
    if (odd(at & row)) at ^= row & -row;
    return BigInt(Math.floor(site / (this.length - 1)) * this.length + at);
  }
}

function odd(value) {
  let folded = value;
  for (const shift of [16, 8, 4, 2, 1]) folded ^= folded >>> shift;
  return folded & 1;
}
