// The device's identity: an Ed25519 key that the browser keeps and never shows, and what is signed with it
// (mapveil_client/signature.py).

import { concat, hex, sha256, utf8 } from "./bytes.mjs";

const SCHEME = "Mapveil-Device";
const PURPOSE = utf8("mapveil request 1\0");
const ENROLMENT = utf8("mapveil enrolment 1\0");
const ZERO = Uint8Array.of(0);

/** What is signed of a request. */
export async function requestStatement(method, path, body) {
  return concat(PURPOSE, utf8(method), ZERO, utf8(path), ZERO, await sha256(body));
}

/** What a new device signs: that it holds the key it enrols with this token. */
export async function enrolmentStatement(token, publicKey) {
  return concat(ENROLMENT, await sha256(utf8(token)), publicKey);
}

/** Draw an identity: {key, publicKey}. The private key cannot be read, by this page either.
 *
 * For a storage that keeps bytes only it is {secret, publicKey} instead, whose secret is the key in PKCS 8.
 */
export async function drawIdentity(keepsKeys = true) {
  const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, !keepsKeys, ["sign", "verify"]);
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  if (keepsKeys) return { key: pair.privateKey, publicKey };
  return { secret: new Uint8Array(await crypto.subtle.exportKey("pkcs8", pair.privateKey)), publicKey };
}

/** The identity that a storage kept, with its key. */
export async function readIdentity({ key, secret, publicKey }) {
  if (key) return { key, publicKey };
  return { key: await crypto.subtle.importKey("pkcs8", secret, { name: "Ed25519" }, false, ["sign"]), publicKey };
}

export async function sign(key, statement) {
  return new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, key, statement));
}

/** The Authorization header of a signed request. */
export async function authorization(key, device, method, path, body = new Uint8Array(0)) {
  return `${SCHEME} ${device} ${hex(await sign(key, await requestStatement(method, path, body)))}`;
}
