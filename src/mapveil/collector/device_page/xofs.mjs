// The extendable-output functions of sums by two operators (mapveil_client/two_operators/xofs.py;
// draft-irtf-cfrg-vdaf, section 6.2).

import { concat } from "./bytes.mjs";
import { TurboShake128 } from "./turbo_shake.mjs";

export const SEED_BYTES = 32;
const NONCE_BYTES = 16;
export const KEY_BYTES = 16; // of a seed of the fixed-key function, and of its key
const VERSION = 18; // of the draft's algorithms, which separates their hashes

/** Throws unless a report has a nonce of 16 bytes and so many random bytes. */
export function checkRandom(nonce, randomness, wanted) {
  const good = nonce.length === NONCE_BYTES && randomness.length === wanted;
  if (!good) throw new Error(`a report needs a nonce of ${NONCE_BYTES} and ${wanted} random bytes`);
}

/** The domain separation tag: class 0 of a VDAF, 1 of an IDPF; numbers of the algorithm and of the use within it. */
export function separation(kind, algorithm, usage, context) {
  const head = new DataView(new ArrayBuffer(8));
  head.setUint8(0, VERSION);
  head.setUint8(1, kind);
  head.setUint32(2, algorithm);
  head.setUint16(6, usage);
  return concat(new Uint8Array(head.buffer), context);
}

const headed = (tag) => concat(Uint8Array.of(tag.length & 255, tag.length >> 8), tag);

/** XofTurboShake128 of a seed, a tag and the parts of a binder. */
export class TurboShakeXof extends TurboShake128 {
  constructor(seed, tag, ...binder) {
    super(concat(headed(tag), Uint8Array.of(seed.length), seed, ...binder), 1);
  }

  /** The next elements of a field; a number of the modulus or above is left out, and the next is read in its place. */
  elements(field, count) {
    const made = [];
    while (made.length < count) {
      const piece = this.read(field.bytes * (count - made.length));
      for (let at = 0; at < piece.length; at += field.bytes) {
        const number = field.read(piece.subarray(at, at + field.bytes));
        if (number < field.modulus) made.push(number);
      }
    }
    return made;
  }
}

/** XofFixedKeyAes128 under the key of a tag and a binder: AES-128 of blocks that depend on a seed and a number. */
export class FixedKeyXof {
  constructor(tag, binder) {
    const key = new TurboShake128(concat(headed(tag), binder), 2).read(KEY_BYTES);
    this.key = crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  }

  /** So many blocks of 16 bytes of a seed's stream, from block `first` on. */
  async blocks(seed, count, first = 0) {
    return concat(...await Promise.all(Array.from({ length: count }, (_, at) => this.#block(seed, first + at))));
  }

  async #block(seed, number) {
    const block = new Uint8Array(KEY_BYTES);
    for (let at = 0; at < 8; at += 1) {
      const low = seed[at] ^ (at < 4 ? (number >>> (8 * at)) & 255 : 0);
      block[at] = seed[at + 8];
      block[at + 8] = seed[at + 8] ^ low;
    }
    // WebCrypto has no single block of AES; the counter of a stream of zeros is one.
    const stream = await crypto.subtle.encrypt({ name: "AES-CTR", counter: block, length: 64 }, await this.key, new Uint8Array(KEY_BYTES));
    return new Uint8Array(stream).map((byte, at) => byte ^ block[at]);
  }
}
