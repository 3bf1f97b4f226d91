// Milliseconds and bytes of shares for two operators, in this process: `node tests/collector/device_page/measure.mjs`.

import { load } from "./vectors.mjs";

const { shardVector, shortestChunk } = await load("l1_bound_sum");
const { shardPath } = await load("poplar1");
const { Randomness } = await load("randomness");
const rng = new Randomness();
const [count, most, depth, runs] = [1024, 16, 10, 7];
const context = rng.bytes(38);
const vector = Array.from({ length: count }, (_, site) => (site < most ? 1 : 0));
const path = [1, ...Array.from({ length: 2 * depth }, (_, bit) => bit % 2), 0];
const made = {
  [`vector of ${count} sites, ${most} units`]: () => (
    shardVector({ count, most, chunk: shortestChunk(count, most), context }, vector, rng.bytes(16), rng.bytes(128))
  ),
  [`path of depth ${depth}`]: () => shardPath(path, context, rng.bytes(16), rng.bytes(128)),
};
for (const [name, make] of Object.entries(made)) {
  const times = [];
  let shares;
  for (let run = 0; run < runs; run += 1) {
    const start = performance.now();
    shares = await make();
    times.push(performance.now() - start);
  }
  const bytes = [shares.public, ...shares.inputs].reduce((sum, part) => sum + part.length, 0);
  const shown = times.sort((a, b) => a - b).map((time) => time.toFixed(1));
  console.log(`${name}: ${shown[runs >> 1]} ms (${shown[0]} to ${shown.at(-1)}, ${runs} runs), ${bytes} bytes`);
}
