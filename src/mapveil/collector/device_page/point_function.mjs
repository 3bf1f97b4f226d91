// The incremental distributed point function of Poplar1: two short keys for the values along one path of a binary tree
// (mapveil_client/two_operators/idpf.py; draft-irtf-cfrg-vdaf, section 8.3).

import { concat } from "./bytes.mjs";
import { FIELD255, FIELD64 } from "./finite_fields.mjs";
import { FixedKeyXof, KEY_BYTES, TurboShakeXof, separation } from "./xofs.mjs";

const VALUES = 2; // elements of a value
const [EXTEND, CONVERT] = [0, 1];

const xor = (one, other) => one.map((byte, at) => byte ^ other[at]);

/** The tree of a report: the hashes that derive its nodes. */
class Tree {
  constructor(levels, context, nonce) {
    [this.levels, this.nonce] = [levels, nonce];
    this.tags = [EXTEND, CONVERT].map((usage) => separation(1, 0, usage, context));
    this.fixed = this.tags.map((tag) => new FixedKeyXof(tag, nonce));
  }

  /** Both children of a node: seeds and control bits, left first. */
  async extend(level, seed) {
    const stream = level < this.levels - 1
      ? await this.fixed[EXTEND].blocks(seed, 2)
      : new TurboShakeXof(seed, this.tags[EXTEND], this.nonce).read(2 * KEY_BYTES);
    return [0, 1].map((child) => {
      const found = stream.slice(KEY_BYTES * child, KEY_BYTES * (child + 1));
      const bit = found[0] & 1;
      found[0] &= 0xfe;
      return [found, bit];
    });
  }

  /** The seed of a node's children, and its value before correction. */
  async convert(level, seed) {
    if (level === this.levels - 1) {
      const xof = new TurboShakeXof(seed, this.tags[CONVERT], this.nonce);
      return [xof.read(KEY_BYTES), xof.elements(FIELD255, VALUES)];
    }
    const stream = await this.fixed[CONVERT].blocks(seed, 2);
    const values = [];
    for (let [block, piece] = [2, stream.slice(KEY_BYTES)]; values.length < VALUES; block += 1) {
      for (const at of [0, FIELD64.bytes]) {
        const number = FIELD64.read(piece.subarray(at, at + FIELD64.bytes));
        if (number < FIELD64.modulus && values.length < VALUES) values.push(number);
      }
      if (values.length < VALUES) piece = await this.fixed[CONVERT].blocks(seed, 1, block);
    }
    return [stream.slice(0, KEY_BYTES), values];
  }
}

/** The correction words of a path, as bytes. Run by: the client.
 *
 * `path` are bits, most significant first; `inner` the value at each level but the last, and `leaf` at the last, two
 * elements each; `keys` both operators' keys, 16 random bytes each.
 */
export async function correctionWords(path, inner, leaf, keys, context, nonce) {
  const levels = path.length;
  const tree = new Tree(levels, context, nonce);
  let seeds = keys;
  let control = [0, 1];
  const bits = new Uint8Array(Math.ceil((2 * levels) / 8));
  const [seedWords, valueWords] = [[], []];
  for (const [level, keep] of path.entries()) {
    const children = await Promise.all(seeds.map((seed) => tree.extend(level, seed)));
    const seedWord = xor(children[0][1 - keep][0], children[1][1 - keep][0]);
    const correct = [0, 1].map((side) => children[0][side][1] ^ children[1][side][1] ^ (side === keep ? 1 : 0));
    const kept = children.map((both, operator) => xor(both[keep][0], seedWord.map((byte) => byte & -control[operator])));
    control = children.map((both, operator) => both[keep][1] ^ (control[operator] & correct[keep]));
    const made = await Promise.all(kept.map((seed) => tree.convert(level, seed)));
    seeds = made.map(([seed]) => seed);
    const [field, wanted] = level < levels - 1 ? [FIELD64, inner[level]] : [FIELD255, leaf];
    const sign = BigInt(1 - 2 * control[1]);
    valueWords.push(field.encode(wanted.map((value, at) => field.of(sign * (value - made[0][1][at] + made[1][1][at])))));
    seedWords.push(seedWord);
    correct.forEach((bit, side) => { bits[(2 * level + side) >> 3] |= bit << ((2 * level + side) % 8); });
  }
  return concat(bits, ...seedWords, ...valueWords);
}
