// Requests to the collector that served this page, and to nobody else.

import { hex } from "./bytes.mjs";
import { authorization, enrolmentStatement, sign } from "./identity.mjs";

const PATIENCE_MS = 20000;

/** A request that was not answered as hoped, in words; `status` 0 where there was no answer. */
export class Trouble extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

async function request(method, path, { body, headers = {} } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method, body, headers, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch {
    throw new Trouble("The collector cannot be reached. Try again later.", 0);
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  const message = typeof said?.error?.message === "string" ? said.error.message : `it answered with ${response.status}`;
  throw new Trouble(`The collector did not accept this: ${message}`, response.status);
}

const json = async (response) => {
  try {
    return await response.json();
  } catch {
    throw new Trouble("The collector's answer cannot be read.", 0);
  }
};

/** The open collections: [{id, trust, title, terms}]. */
export async function openCollections() {
  const found = await json(await request("GET", "/v1/open"));
  const list = Array.isArray(found) ? found : found?.collections;
  if (!Array.isArray(list)) throw new Trouble("The collector's list of collections cannot be read.", 0);
  return list.filter((each) => /^[0-9a-f]{32}$/.test(each?.id));
}

/** The exact bytes of a collection's terms. */
export async function termsOf(id) {
  return new Uint8Array(await (await request("GET", `/v1/collections/${id}/terms`)).arrayBuffer());
}

export async function progressOf(id) {
  return json(await request("GET", `/v1/collections/${id}/progress`));
}

/** Enrol an identity with a token; the number that the collector gives this device. */
export async function enrol(token, { key, publicKey }) {
  const signature = await sign(key, await enrolmentStatement(token, publicKey));
  const body = JSON.stringify({ token, public_key: hex(publicKey), signature: hex(signature) });
  const { device } = await json(await request("POST", "/v1/devices", { body, headers: { "Content-Type": "application/json" } }));
  if (!Number.isSafeInteger(device) || device < 0) throw new Trouble("The collector gave no number to this phone.", 0);
  return device;
}

/** Send a report; the same bytes again are accepted again. */
export async function sendReport(id, { key }, device, body) {
  const path = `/v1/collections/${id}/report`;
  const headers = { "Content-Type": "application/cbor", Authorization: await authorization(key, device, "PUT", path, body) };
  await request("PUT", path, { body, headers });
}
