// An app's devices, as tests/client/test_npm_package.py runs them in a folder that holds the npm package only.
// Arguments: the collector's address, a token, the number of devices, and the second operator's key, if there is one.

import { readFile } from "node:fs/promises";

delete globalThis.crypto; // as in Node 18
const { Device, FileStorage, RecordStorage, Refusal, learningWords, spentBy } = await import("mapveil-client");

const [address, token, count, helper] = process.argv.slice(2);

function textStorage() {
  let kept = null;
  return new RecordStorage({ load: async () => kept, save: async (text) => { kept = text; } });
}

const place = (index) => ({ lon: index % 4 ? -74.025 : -73.905, lat: 40.7 });
const said = { sent: 0, refused: [], again: 0, outside: 0, words: "" };

async function answerAll(device, index) {
  for (const listed of await device.collections()) {
    if (listed.answered) continue;
    try {
      const terms = await device.terms(listed);
      const plan = await device.plan(terms);
      said.words = learningWords(terms, plan);
      const outside = () => ({ lon: 2.35, lat: 48.86 });
      if (terms.trust === "local" && (await device.answer(terms, plan, outside)) === null) said.outside += 1;
      const answers = await Promise.all([1, 2].map(() => device.answer(terms, plan, async () => place(index))));
      if (Buffer.compare(...answers.map(({ body }) => body)) === 0) said.again += 1; // charged and kept once
      await device.send(answers[0]);
      await device.send(answers[1]); // the same bytes again
      said.sent += 1;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      said.refused.push(error.message);
    }
  }
}

for (let index = 0; index < Number(count) - 1; index += 1) {
  const device = await Device.open({ storage: textStorage(), address });
  await device.enrol(token);
  if (helper) await device.trustHelper(helper);
  await answerAll(device, index);
}
// The last one keeps a file, and is opened again.
const first = await Device.open({ storage: new FileStorage("device.json"), address });
const number = await first.enrol(token);
if (helper) await first.trustHelper(helper);
const again = await Device.open({ storage: new FileStorage("device.json"), address });
said.same = (await again.number()) === number && Buffer.compare(first.identity.publicKey, again.identity.publicKey) === 0;
await answerAll(again, 0);
said.spent = spentBy(await first.memory.answers()).toString();
said.place = (await readFile("device.json", "utf8")).includes("40.7");
console.log(JSON.stringify(said));
