// The part of CBOR that messages use: one flat array of unsigned integers and byte strings, with one encoding
// (RFC 8949, section 4.2.1). The same rules as mapveil_client/canonical_cbor.py, whose vectors it is tested against.

import { concat } from "./bytes.mjs";

const UINT = 0;
const BYTES = 2;
const ARRAY = 4;
const MOST_FIELDS = 23;
const WIDTHS = [1, 2, 4, 8];

function head(major, number) {
  const value = BigInt(number);
  if (value < 0n) throw new Error("a number below 0 has no message");
  if (value < 24n) return Uint8Array.of((major << 5) | Number(value));
  for (const [at, width] of WIDTHS.entries()) {
    if (value >> BigInt(8 * width)) continue;
    const made = new Uint8Array(1 + width);
    made[0] = (major << 5) | (24 + at);
    for (let place = 0; place < width; place += 1) made[width - place] = Number((value >> BigInt(8 * place)) & 255n);
    return made;
  }
  throw new Error("a number of more than 64 bits");
}

/** Encode a flat list of integers (numbers or BigInts) and byte strings. */
export function encode(values) {
  if (values.length > MOST_FIELDS) throw new Error(`at most ${MOST_FIELDS} values are allowed, got ${values.length}`);
  const parts = [head(ARRAY, values.length)];
  for (const value of values) {
    if (value instanceof Uint8Array) parts.push(head(BYTES, value.length), value);
    else parts.push(head(UINT, value));
  }
  return concat(...parts);
}

function readHead(data, at) {
  if (at >= data.length) throw new Error("it ends early");
  const major = data[at] >> 5;
  const code = data[at] & 31;
  if (code < 24) return [major, BigInt(code), at + 1];
  if (code > 27) throw new Error(`lengths must be definite, got a head of kind ${code}`);
  const width = WIDTHS[code - 24];
  const end = at + 1 + width;
  if (end > data.length) throw new Error("it ends early");
  let number = 0n;
  for (const byte of data.subarray(at + 1, end)) number = (number << 8n) | BigInt(byte);
  if (number < (width === 1 ? 24n : 1n << BigInt(4 * width))) throw new Error("a head that is longer than need be");
  return [major, number, end];
}

/** Decode a flat list from its one encoding: integers as BigInts, byte strings as Uint8Arrays. */
export function decode(data) {
  let [major, count, at] = readHead(data, 0);
  if (major !== ARRAY || count > MOST_FIELDS) throw new Error(`not an array of at most ${MOST_FIELDS} values`);
  const values = [];
  for (let left = Number(count); left > 0; left -= 1) {
    let number;
    [major, number, at] = readHead(data, at);
    if (major === UINT) values.push(number);
    else if (major === BYTES) {
      if (number > BigInt(data.length - at)) throw new Error("it ends early");
      values.push(data.slice(at, at + Number(number)));
      at += Number(number);
    } else throw new Error(`major type must be 0 or 2, got ${major}`);
  }
  if (at !== data.length) throw new Error(`${data.length - at} bytes after its end`);
  return values;
}
