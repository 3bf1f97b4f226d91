// Hybrid public key encryption of single messages in base mode: X25519, HKDF-SHA256, AES-128-GCM
// (mapveil_client/two_operators/hpke.py; RFC 9180). WebCrypto has no ChaCha20-Poly1305.

import { concat, fromHex, utf8 } from "./bytes.mjs";

export const KEM = 0x0020;
export const KDF = 0x0001;
export const AES_128_GCM = 0x0001;
export const KEY_BYTES = 32;

const PRIVATE_KEY = fromHex("302e020100300506032b656e04220420"); // PKCS 8, before the key
const BASE_POINT = new Uint8Array(KEY_BYTES).fill(9, 0, 1);
const NONE = new Uint8Array(0);

/** A number in so many bytes, the most significant first. */
export function bigEndian(number, width) {
  return Uint8Array.from({ length: width }, (_, at) => Math.floor(number / 2 ** (8 * (width - 1 - at))) % 256);
}

const VERSION = utf8("HPKE-v1");
const KEM_SUITE = concat(utf8("KEM"), bigEndian(KEM, 2));
const SUITE = concat(utf8("HPKE"), ...[KEM, KDF, AES_128_GCM].map((each) => bigEndian(each, 2)));

async function hmac(key, message) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

const extract = (suite, salt, label, key) => (
  hmac(salt.length ? salt : new Uint8Array(32), concat(VERSION, suite, utf8(label), key))
);

/** At most 32 bytes: one block. */
async function expand(suite, key, label, info, length) {
  return (await hmac(key, concat(bigEndian(length, 2), VERSION, suite, utf8(label), info, Uint8Array.of(1)))).slice(0, length);
}

async function agreed(privateKey, publicKey) {
  const known = await crypto.subtle.importKey("raw", publicKey, { name: "X25519" }, false, []);
  const made = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: known }, privateKey, 8 * KEY_BYTES));
  if (made.every((byte) => byte === 0)) throw new Error("an operator's key is one of small order");
  return made;
}

/** Encrypt one message: {enc, payload}. Run by: the client.
 *
 * `ephemeral` are 32 random bytes of this message alone, secret: its private key.
 */
export async function seal(publicKey, info, aad, message, ephemeral) {
  const secret = await crypto.subtle.importKey("pkcs8", concat(PRIVATE_KEY, ephemeral), { name: "X25519" }, false, ["deriveBits"]);
  const [enc, shared] = [await agreed(secret, BASE_POINT), await agreed(secret, publicKey)];
  const extracted = await extract(KEM_SUITE, NONE, "eae_prk", shared);
  const key = await expand(KEM_SUITE, extracted, "shared_secret", concat(enc, publicKey), 32);
  const baseMode = Uint8Array.of(0);
  const context = concat(baseMode, await extract(SUITE, NONE, "psk_id_hash", NONE), await extract(SUITE, NONE, "info_hash", info));
  const scheduled = await extract(SUITE, key, "secret", NONE);
  const cipherKey = await expand(SUITE, scheduled, "key", context, 16);
  const nonce = await expand(SUITE, scheduled, "base_nonce", context, 12);
  const cipher = await crypto.subtle.importKey("raw", cipherKey, "AES-GCM", false, ["encrypt"]);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce, additionalData: aad }, cipher, message);
  return { enc, payload: new Uint8Array(sealed) };
}
