// Every step of the device for local collections on the specification's vectors, read from stdin; prints what it makes.

import { createCipheriv, createHash, createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";

import * as device from "./third_party/local_device.mjs";

const { signatures, local, locate, odds, budget } = JSON.parse(readFileSync(0, "utf8"));
const hex = (data) => Buffer.from(data).toString("hex");
const secret = Buffer.from(`302e020100300506032b657004220420${signatures.private}`, "hex");
const key = createPrivateKey({ key: secret, format: "der", type: "pkcs8" });

const requests = signatures.requests.map(({ method, path, body }) => {
  const statement = device.requestStatement(method, path, Buffer.from(body, "hex"));
  return [hex(statement), `Mapveil-Device 17 ${hex(sign(null, statement, key))}`];
});
const statement = device.enrolmentStatement(signatures.enrolment.token, device.publicOf(key));
const cells = locate.map(({ tiling, places }) => (
  places.map(([lon, lat]) => device.cellOf(JSON.parse(tiling), lon, lat))
));
const weights = odds.map(({ epsilon, odds: rows }) => (
  rows.map(([bits]) => device.weights(epsilon, bits, Math.min(bits, 40)).map(String))
));
const messages = local.map(({ terms, reports }) => {
  const { epsilon, tiling } = JSON.parse(terms);
  const size = 4 ** tiling.depth;
  const [more, less] = device.grrWeights(size, epsilon);
  return reports.map(({ lon, lat, seed }) => {
    const tape = createHash("sha256").update(`mapveil seed ${seed}`).digest();
    const word = createCipheriv("aes-256-ctr", tape, Buffer.alloc(16)).update(Buffer.alloc(8)).readBigUInt64LE();
    const symbol = device.symbolOf(
      device.cellOf(tiling, lon, lat), [more, less], word % (more + BigInt(size - 1) * less),
    );
    return hex(device.report(device.tilingText(terms), size, [more, less], symbol));
  });
});
const agreed = budget.map(({ costs }) => {
  const spent = [];
  return costs.map((cost) => device.allowed(cost, spent) && spent.push(cost) > 0);
});
const enrolment = [hex(statement), hex(sign(null, statement, key))];
console.log(JSON.stringify({ requests, enrolment, cells, weights, messages, agreed }));
