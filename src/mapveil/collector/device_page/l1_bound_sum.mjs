// Prio3L1BoundSum: shares of a vector of whole numbers, and a proof that they add up to at most a bound
// (mapveil_client/two_operators/prio3.py; draft-irtf-cfrg-vdaf, section 7, and draft-ietf-ppm-l1-bound-sum).

import { concat } from "./bytes.mjs";
import { FIELD128 as FIELD, ValuesBetween } from "./finite_fields.mjs";
import { SEED_BYTES, TurboShakeXof, checkRandom, separation } from "./xofs.mjs";

const L1_BOUND_SUM = 7; // codepoint
const USAGE = { measurement: 1, proof: 2, joint: 3, prove: 4, jointSeed: 6, jointPart: 7 };
const HELPER = 1;
const PROOFS = 1;

export const RANDOMNESS_BYTES = 4 * SEED_BYTES;

const bitLength = (number) => 32 - Math.clz32(number);

/** Weights of the bits of a number from 0 to `most`: powers of two, and last the largest that is needed. */
function weightsOf(most) {
  const bits = bitLength(most);
  return [...Array.from({ length: bits - 1 }, (_, bit) => 2 ** bit), most - 2 ** (bits - 1) + 1];
}

/** The sizes of the circuit and of its proof. */
export function sizesOf({ count, most, chunk }) {
  const length = (count + 1) * bitLength(most);
  const calls = Math.ceil(length / chunk);
  const wire = 2 ** bitLength(calls);
  const proof = 2 * chunk + 2 * (wire - 1) + 1;
  const leader = FIELD.bytes * (length + proof) + SEED_BYTES;
  return { length, calls, wire, proof, leader, helper: 2 * SEED_BYTES, public: 2 * SEED_BYTES };
}

/** The chunk of elements, checked by one call each, that makes the shortest proof; the largest of those that do. */
export function shortestChunk(count, most) {
  const length = (count + 1) * bitLength(most);
  const found = [];
  for (let bits = 1; bits <= bitLength(length); bits += 1) found.push(Math.ceil(length / (2 ** bits - 1)));
  const size = (chunk) => 2 * chunk + 2 ** (1 + bitLength(Math.ceil(length / chunk)));
  return found.reduce((best, chunk) => (size(chunk) < size(best) ? chunk : best));
}

/** The bits of all numbers and of their sum; throws where a number is negative or the sum exceeds `most`. */
function bitsOf(vector, { count, most }) {
  const total = vector.reduce((sum, number) => sum + number, 0);
  const good = vector.length === count && vector.every((number) => Number.isSafeInteger(number) && number >= 0) && total <= most;
  if (!good) throw new Error(`a contribution must be ${count} whole numbers from 0 whose sum is at most ${most}`);
  const weights = weightsOf(most);
  const last = weights.length - 1;
  return [...vector, total].flatMap((number) => {
    const above = number >= 2 ** last ? 1 : 0;
    const rest = number - above * weights[last];
    return weights.map((_, bit) => BigInt(bit === last ? above : Math.floor(rest / 2 ** bit) % 2));
  });
}

/** The messages of a vector: the public share, and the input shares of leader and helper. Run by: the client.
 *
 * `instance` is {count, most, chunk, context}; the nonce has 16 bytes, and the secret randomness RANDOMNESS_BYTES.
 */
export function shardVector(instance, vector, nonce, randomness) {
  checkRandom(nonce, randomness, RANDOMNESS_BYTES);
  const sizes = sizesOf(instance);
  const tag = (usage) => separation(0, L1_BOUND_SUM, usage, instance.context);
  const xof = (usage, seed, ...binder) => new TurboShakeXof(seed, tag(usage), ...binder);
  const [share, blind, leaderBlind, prove] = [0, 32, 64, 96].map((at) => randomness.slice(at, at + SEED_BYTES));
  const encoded = bitsOf(vector, instance);
  const helper = xof(USAGE.measurement, share, Uint8Array.of(HELPER)).elements(FIELD, sizes.length);
  const leader = FIELD.encode(encoded.map((element, at) => FIELD.subtract(element, helper[at])));
  const part = (operator, seed, elements) => xof(USAGE.jointPart, seed, Uint8Array.of(operator), nonce, elements).read(SEED_BYTES);
  const parts = concat(part(0, leaderBlind, leader), part(HELPER, blind, FIELD.encode(helper)));
  const jointSeed = xof(USAGE.jointSeed, new Uint8Array(SEED_BYTES), parts).read(SEED_BYTES);
  const joint = xof(USAGE.joint, jointSeed, Uint8Array.of(PROOFS)).elements(FIELD, sizes.calls);
  const seeds = xof(USAGE.prove, prove, Uint8Array.of(PROOFS)).elements(FIELD, 2 * instance.chunk);
  const proof = proofOf(encoded, joint, seeds, instance.chunk, sizes);
  const mask = xof(USAGE.proof, share, Uint8Array.of(PROOFS, HELPER)).elements(FIELD, sizes.proof);
  const masked = FIELD.encode(proof.map((element, at) => FIELD.subtract(element, mask[at])));
  return { public: parts, inputs: [concat(leader, masked, leaderBlind), concat(share, blind)] };
}

/** One proof: the wires' random values at one, and the gadget polynomial's values at the first roots of unity. */
function proofOf(encoded, joint, seeds, chunk, { calls, wire, proof }) {
  const between = new ValuesBetween(FIELD, wire);
  // The gadget is the sum of products of pairs of wires; products are reduced once, at the end.
  const [even, odd] = [new Array(wire).fill(0n), new Array(wire).fill(0n)];
  const powers = joint.slice();
  for (let at = 0; at < chunk; at += 1) {
    const first = new Array(wire).fill(0n);
    const second = new Array(wire).fill(0n);
    [first[0], second[0]] = [seeds[2 * at], seeds[2 * at + 1]];
    for (let call = 0; call < calls; call += 1) {
      const bit = encoded[call * chunk + at] ?? 0n;
      first[call + 1] = powers[call] * bit;
      second[call + 1] = FIELD.subtract(bit, 1n);
      powers[call] = FIELD.multiply(powers[call], joint[call]);
    }
    const [firstOdd, secondOdd] = [between.of(first), between.of(second)];
    for (let k = 0; k < wire; k += 1) {
      even[k] += first[k] * second[k];
      odd[k] += firstOdd[k] * secondOdd[k];
    }
  }
  const values = even.flatMap((value, k) => [FIELD.of(value), FIELD.of(odd[k])]);
  return [...seeds, ...values.slice(0, proof - seeds.length)];
}
