// Requests to one collector, and to nobody else.

import { hex } from "./bytes.mjs";
import { authorization, enrolmentStatement, sign } from "./identity.mjs";
import { CHANGED, insist } from "./refusal.mjs";
import { readTerms } from "./terms.mjs";

const PATIENCE_MS = 20000;
const AGAIN = [429, 502, 503, 504]; // some are of a proxy, such as while the collector restarts
const UNTOLD_WAIT_S = 2; // where the answer, of a proxy, names none
const LONGEST_WAIT_S = 60; // that is waited out; whoever is told a longer one is told so

/** Seconds after which a collector that is busy wants to be asked again; null where it names a long time. */
const waitOf = (response) => {
  const told = response.headers.get("Retry-After") ?? "";
  const seconds = /^\d{1,6}$/.test(told) ? Number(told) : UNTOLD_WAIT_S;
  return seconds <= LONGEST_WAIT_S ? seconds * (1 + Math.random() / 4) : null; // not all at once
};

/** A request that was not answered as hoped, in words; `status` 0 where there was no answer. */
export class Trouble extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

const json = async (response) => {
  try {
    return await response.json();
  } catch {
    throw new Trouble("The collector's answer cannot be read.", 0);
  }
};

/** A collector at an address, without a path; the one that served this page by default. */
export class Collector {
  constructor(address = "") {
    this.address = address.replace(/\/+$/, "");
  }

  async #request(method, path, options = {}) {
    let left = LONGEST_WAIT_S;
    for (;;) {
      const response = await this.#once(method, path, options);
      if (response.ok) return response;
      const wait = AGAIN.includes(response.status) ? waitOf(response) : null;
      if (wait === null || wait > left) return this.#refused(response);
      left -= wait;
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
  }

  async #once(method, path, { body, headers = {} }) {
    try {
      return await fetch(`${this.address}${path}`, {
        method, body, headers, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
    } catch {
      throw new Trouble("The collector cannot be reached. Try again later.", 0);
    }
  }

  async #refused(response) {
    const said = await response.json().catch(() => null);
    const message = typeof said?.error?.message === "string" ? said.error.message : `it answered with ${response.status}`;
    throw new Trouble(`The collector did not accept this: ${message}`, response.status);
  }

  /** The open collections: [{id, trust, title, terms}]. */
  async openCollections() {
    const found = await json(await this.#request("GET", "/v1/open"));
    const list = Array.isArray(found) ? found : found?.collections;
    if (!Array.isArray(list)) throw new Trouble("The collector's list of collections cannot be read.", 0);
    return list.filter((each) => /^[0-9a-f]{32}$/.test(each?.id));
  }

  /** The terms of an open collection, if they are the announced ones. */
  async announcedTerms(listed) {
    const bytes = new Uint8Array(await (await this.#request("GET", `/v1/collections/${listed.id}/terms`)).arrayBuffer());
    const terms = await readTerms(bytes);
    insist(terms.identifier === listed.id && terms.digest === listed.terms, CHANGED);
    return terms;
  }

  async progressOf(id) {
    return json(await this.#request("GET", `/v1/collections/${id}/progress`));
  }

  /** Enrol an identity with a token; the number that the collector gives this device. */
  async enrol(token, { key, publicKey }) {
    const signature = await sign(key, await enrolmentStatement(token, publicKey));
    const body = JSON.stringify({ token, public_key: hex(publicKey), signature: hex(signature) });
    const headers = { "Content-Type": "application/json" };
    const { device } = await json(await this.#request("POST", "/v1/devices", { body, headers }));
    if (!Number.isSafeInteger(device) || device < 0) throw new Trouble("The collector gave no number to this phone.", 0);
    return device;
  }

  /** Send a report of a collection of a trust; the same bytes again are accepted again. */
  async sendReport({ collection, trust, body }, { key }, device) {
    const path = `/v1/collections/${collection}/report`;
    const kind = trust === "operators" ? "application/dap-upload-req" : "application/cbor";
    const headers = { "Content-Type": kind, Authorization: await authorization(key, device, "PUT", path, body) };
    await this.#request("PUT", path, { body, headers });
  }
}
