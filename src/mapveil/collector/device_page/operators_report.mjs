// A report to two operators: shares of one device's contribution, sealed for each of them
// (mapveil_client/two_operators/sharding.py and sealed_report.py; draft-ietf-ppm-dap, version 16).

import { concat, utf8 } from "./bytes.mjs";
import { AES_128_GCM, KDF, KEM, KEY_BYTES, bigEndian, seal } from "./hpke.mjs";
import { shardVector, shortestChunk, sizesOf } from "./l1_bound_sum.mjs";
import { shardPath } from "./poplar1.mjs";

const VERSION = utf8("dap-16"); // begins the context of the shares, and the purpose of the seals
const ID_BYTES = 16;
const SHARDING_BYTES = 128; // random bytes of either kind of shares
const HOUR_MS = 3600000;
const DEEPEST_PATH = 10;
const NO_EXTENSIONS = new Uint8Array(2);
const ROLES = [2, 3]; // of the leader and of the helper
const CLIENT = 1;

/** The hour of a moment: all that an operator learns of it from the report. */
export const hourOf = (milliseconds) => Math.floor(milliseconds / HOUR_MS);

const opaque = (bytes, width) => concat(bigEndian(bytes.length, width), bytes);

/** An operator's key: {number, publicKey}; throws for algorithms that browsers lack, and for anything else. */
export function readConfig(bytes) {
  const suite = [KEM, KDF, AES_128_GCM, KEY_BYTES].map((each) => bigEndian(each, 2));
  const head = concat(bytes.slice(0, 1), ...suite);
  if (bytes.length !== head.length + KEY_BYTES || !head.every((byte, at) => byte === bytes[at])) {
    throw new Error("an operator's key must be of X25519, HKDF-SHA256 and AES-128-GCM");
  }
  return { number: bytes[0], publicKey: bytes.slice(head.length) };
}

/** Whether each device reports one site at most, as a path; else its report is a vector. */
export const isPath = ({ depth, scale }) => scale === 1 && depth <= DEEPEST_PATH;

/** The public sizes of a vector's report. */
const instanceOf = ({ depth, scale }) => ({ count: 4 ** depth, most: scale, chunk: shortestChunk(4 ** depth, scale) });

/** The bytes of both operators' shares of a vector. */
export function vectorBytes(question) {
  const { leader, helper } = sizesOf(instanceOf(question));
  return leader + helper;
}

/** The path of a site: a first 1 where there is one, the bits of its Morton code, a last 0; zeros for no site. */
function pathOf(site, depth) {
  const bits = Array.from({ length: 2 * depth }, (_, at) => Math.floor(site / 2 ** (2 * depth - 1 - at)) % 2);
  return site === null ? new Array(2 * depth + 2).fill(0) : [1, ...bits, 0];
}

/** Shares of a contribution: a list of [site, units] of a raster of 4^depth sites, with at most `scale` units together. */
function shardOf({ depth, scale, task }, contribution, nonce, randomness) {
  const [context, sites] = [concat(VERSION, task), 4 ** depth];
  const within = contribution.every(([site, units]) => Number.isSafeInteger(site) && site >= 0 && site < sites && units >= 1);
  const different = new Set(contribution.map(([site]) => site)).size === contribution.length;
  if (!within || !different) throw new Error("a contribution must name different sites of the map, each with its units");
  if (isPath({ depth, scale })) {
    const one = contribution.length === 0 || (contribution.length === 1 && contribution[0][1] === 1);
    if (!one) throw new Error("a contribution to this collection must be one site at most, with one unit");
    return shardPath(pathOf(contribution[0]?.[0] ?? null, depth), context, nonce, randomness);
  }
  const vector = new Array(sites).fill(0);
  for (const [site, units] of contribution) vector[site] = units;
  return shardVector({ ...instanceOf({ depth, scale }), context }, vector, nonce, randomness);
}

/** The bytes of a report. Run by: the client.
 *
 * `question` is {depth, scale, task, operators}: the raster's depth, the units of a device, the digest of the terms (32
 * bytes), and both operators' keys as readConfig reads them, the leader's first. `rng` gives, in this order, the
 * report's id, what the shares are made of, and a private key of each seal.
 */
export async function operatorsReport(question, contribution, hour, rng) {
  const id = rng.bytes(ID_BYTES);
  const made = await shardOf(question, contribution, id, rng.bytes(SHARDING_BYTES));
  const head = concat(id, bigEndian(hour, 8), NO_EXTENSIONS, opaque(made.public, 4));
  const parts = [head];
  for (const [at, { number, publicKey }] of question.operators.entries()) {
    const info = concat(VERSION, utf8(" input share"), Uint8Array.of(CLIENT, ROLES[at]));
    const message = concat(NO_EXTENSIONS, opaque(made.inputs[at], 4));
    const { enc, payload } = await seal(publicKey, info, concat(question.task, head), message, rng.bytes(KEY_BYTES));
    parts.push(Uint8Array.of(number), opaque(enc, 2), opaque(payload, 4));
  }
  return concat(...parts);
}
