// What the tests share: the vectors that the Python client made, and its seeded stream of words.

import { createCipheriv, createHash } from "node:crypto";
import { readFileSync } from "node:fs";

export const VECTORS = new URL("../../vectors/", import.meta.url);
export const PAGE = new URL("../../../src/mapveil/collector/device_page/", import.meta.url);

export const read = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, VECTORS), "utf8"));

export const load = (name) => import(new URL(`${name}.mjs`, PAGE).href);

/** The words of mapveil_client.randomness.random.Randomness(seed), for tests only. */
export async function seeded(seed) {
  const { Randomness } = await load("randomness");
  const key = createHash("sha256").update(`mapveil seed ${seed}`).digest();
  const stream = createCipheriv("aes-256-ctr", key, Buffer.alloc(16));
  return new Randomness((bytes) => bytes.set(stream.update(Buffer.alloc(bytes.length))));
}
