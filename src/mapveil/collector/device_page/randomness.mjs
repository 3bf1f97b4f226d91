// Uniform words, and exact draws from them: the same words give the same draws as in mapveil/privacy.

import { sha256, utf8 } from "./bytes.mjs";

const MOST_AT_ONCE = 65536; // bytes that getRandomValues fills
const SHORT = 2 ** 24;
const CHUNK = 65536;

/** A stream of uniform bytes. `fill` writes the next ones into an array; the system's generator by default. */
export class Randomness {
  constructor(fill = (bytes) => crypto.getRandomValues(bytes)) {
    this.fill = fill;
  }

  bytes(count) {
    const made = new Uint8Array(count);
    for (let at = 0; at < count; at += MOST_AT_ONCE) this.fill(made.subarray(at, at + MOST_AT_ONCE));
    return made;
  }

  words16(count) {
    return new Uint16Array(this.bytes(2 * count).buffer);
  }

  words32(count) {
    return new Uint32Array(this.bytes(4 * count).buffer);
  }

  words64(count) {
    return new BigUint64Array(this.bytes(8 * count).buffer);
  }
}

/** Whole numbers below a bound of at most 2^24: high halves of products with words of 32 bits, uneven ones again. */
function byProduct(made, at, bound, rng) {
  const uneven = 2 ** 32 % bound;
  const again = [];
  rng.words32(at.length).forEach((word, k) => {
    const lower = (word % 65536) * bound; // the product in two halves, below 2^53 each
    const upper = Math.floor(word / 65536) * bound + Math.floor(lower / 65536);
    made[at[k]] = Math.floor(upper / 65536);
    if ((upper % 65536) * 65536 + (lower % 65536) < uneven) again.push(at[k]);
  });
  if (again.length) byProduct(made, again, bound, rng);
}

/** Numbers from 0 to bound - 1, every one equally likely, bound at most 2^24. */
export function uniformsBelow(count, bound, rng) {
  const made = new Array(count);
  if (bound > SHORT) {
    const large = BigInt(bound);
    for (let start = 0; start < count; start += CHUNK) {
      const at = Array.from({ length: Math.min(CHUNK, count - start) }, (_, k) => start + k);
      byRemainder(made, at, large, rng);
    }
    return made.map(Number);
  }
  for (let start = 0; start < count; start += CHUNK) {
    const at = Array.from({ length: Math.min(CHUNK, count - start) }, (_, k) => start + k);
    byProduct(made, at, bound, rng);
  }
  return made;
}

/** Remainders of words of 64 bits; words beyond the last multiple of the bound are drawn again. */
function byRemainder(made, at, bound, rng) {
  const uneven = (1n << 64n) % bound;
  const again = [];
  rng.words64(at.length).forEach((word, k) => {
    made[at[k]] = word % bound;
    if (word >= (1n << 64n) - uneven) again.push(at[k]);
  });
  if (again.length) byRemainder(made, again, bound, rng);
}

/** One number below a bound from 1 to 2^62, as a BigInt. */
export function uniformBelow(bound, rng) {
  if (bound < 1n || bound > 1n << 62n) throw new Error("the bound of a uniform number is 1 to 2^62");
  const made = new Array(1);
  if (bound <= BigInt(SHORT)) {
    byProduct(made, [0], Number(bound), rng);
    return BigInt(made[0]);
  }
  return uniformBelowEach(bound, rng);
}

/** The same, always from words of 64 bits. */
export function uniformBelowEach(bound, rng) {
  const made = new Array(1);
  byRemainder(made, [0], bound, rng);
  return made[0];
}

const STREAM_CHUNK = 2 ** 20; // words

/** The public words of a seeded stream (AES-256 in counter mode), in chunks: for what every phone shares. */
export async function* seededWords(seed, count) {
  const secret = await sha256(utf8(`mapveil seed ${seed}`));
  const key = await crypto.subtle.importKey("raw", secret, "AES-CTR", false, ["encrypt"]);
  for (let start = 0; start < count; start += STREAM_CHUNK) {
    const counter = new DataView(new ArrayBuffer(16));
    counter.setUint32(12, start / 2);
    const zeros = new Uint8Array(8 * Math.min(STREAM_CHUNK, count - start));
    const words = await crypto.subtle.encrypt({ name: "AES-CTR", counter: counter.buffer, length: 64 }, key, zeros);
    yield new BigUint64Array(words);
  }
}
