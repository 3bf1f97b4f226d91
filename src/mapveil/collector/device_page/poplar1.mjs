// Poplar1: shares of one path, of which two operators count prefixes (mapveil_client/two_operators/poplar1.py;
// draft-irtf-cfrg-vdaf, section 8.2).

import { concat } from "./bytes.mjs";
import { FIELD255, FIELD64 } from "./finite_fields.mjs";
import { correctionWords } from "./point_function.mjs";
import { KEY_BYTES, SEED_BYTES, TurboShakeXof, checkRandom, separation } from "./xofs.mjs";

const POPLAR1 = 6; // codepoint
const USAGE = { sharding: 1, inner: 2, leaf: 3 };

export const RANDOMNESS_BYTES = 2 * KEY_BYTES + 3 * SEED_BYTES;

/** The messages of a path: the public share, and the input shares of leader and helper. Run by: the client.
 *
 * `path` are bits, most significant first; the nonce has 16 bytes, and the secret randomness RANDOMNESS_BYTES.
 */
export async function shardPath(path, context, nonce, randomness) {
  checkRandom(nonce, randomness, RANDOMNESS_BYTES);
  const xof = (usage, seed, ...binder) => new TurboShakeXof(seed, separation(0, POPLAR1, usage, context), ...binder);
  const keys = [0, KEY_BYTES].map((at) => randomness.slice(at, at + KEY_BYTES));
  const [first, second, sharding] = [32, 64, 96].map((at) => randomness.slice(at, at + SEED_BYTES));
  const stream = xof(USAGE.sharding, sharding, nonce);
  const inner = path.length - 1;
  const parts = [[FIELD64, inner, USAGE.inner], [FIELD255, 1, USAGE.leaf]];
  const authenticators = parts.map(([field, count]) => stream.elements(field, count));
  const others = parts.map(([field, count]) => stream.elements(field, 2 * count));
  const words = await correctionWords(path, authenticators[0].map((key) => [1n, key]), [1n, authenticators[1][0]], keys, context, nonce);
  const shares = [[keys[0], first], [keys[1], second]];
  for (const [at, [field, count, usage]] of parts.entries()) {
    const [one, other] = [first, second].map((seed, operator) => (
      xof(usage, seed, Uint8Array.of(operator), nonce).elements(field, 3 * count)
    ));
    const masks = authenticators[at].flatMap((key, level) => {
      const [a, b, c] = [0, 1, 2].map((k) => one[3 * level + k] + other[3 * level + k]);
      return [field.of(key - 2n * a), field.of(a * a + b - key * a + c)];
    });
    shares[0].push(field.encode(masks.map((mask, k) => field.subtract(mask, others[at][k]))));
    shares[1].push(field.encode(others[at]));
  }
  return { public: words, inputs: shares.map((each) => concat(...each)) };
}
