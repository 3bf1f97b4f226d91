// Bytes: text, hexadecimal, digests and packed numbers, little-endian as everywhere in the messages.

const ENCODER = new TextEncoder();

export const utf8 = (text) => ENCODER.encode(text);

/** Text of UTF-8 bytes; throws on anything else. */
export const text = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function fromHex(digits) {
  if (typeof digits !== "string" || digits.length % 2 || !/^[0-9a-f]*$/.test(digits)) {
    throw new Error("not hexadecimal digits");
  }
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

export function concat(...parts) {
  const made = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

export const same = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** Doubles of 64 bits, one after another. */
export function packNumbers(values) {
  const view = new DataView(new ArrayBuffer(8 * values.length));
  values.forEach((value, at) => view.setFloat64(8 * at, value, true));
  return new Uint8Array(view.buffer);
}

export function readNumbers(bytes) {
  if (bytes.length % 8) throw new Error("not whole numbers of 64 bits");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / 8 }, (_, at) => view.getFloat64(8 * at, true));
}

export function readCounts(bytes) {
  if (bytes.length % 4) throw new Error("not whole numbers of 32 bits");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / 4 }, (_, at) => view.getUint32(4 * at, true));
}
