// Shares and seals for two operators: the browser device against the drafts' published vectors, and RFC 9180's.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import test from "node:test";

import { VECTORS, load, read } from "./vectors.mjs";

const { fromHex, hex } = await load("bytes");
const { FIELD128, FIELD64, FIELD255, ValuesBetween } = await load("finite_fields");
const { FixedKeyXof, TurboShakeXof } = await load("xofs");
const { shardVector, shortestChunk, sizesOf } = await load("l1_bound_sum");
const { shardPath } = await load("poplar1");
const { correctionWords } = await load("point_function");
const { KEY_BYTES, seal } = await load("hpke");
const { operatorsReport, readConfig, vectorBytes } = await load("operators_report");
const { Randomness } = await load("randomness");
const { Fraction } = await load("fraction");
const { planOf } = await load("policy");

const names = readdirSync(new URL("vdaf/", VECTORS)).map((name) => name.replace(".json", ""));
const of = (kind) => names.filter((name) => name.startsWith(kind));

test("fields: roots of unity have their order, and elements their bytes", () => {
  for (const field of [FIELD64, FIELD128]) {
    assert.equal(field.power(field.root(8), 4n), field.modulus - 1n);
    assert.equal(field.multiply(field.inverse(12345n), 12345n), 1n);
  }
  for (const field of [FIELD64, FIELD128, FIELD255]) {
    const written = field.encode([field.modulus - 1n, 1n]);
    assert.equal(written.length, 2 * field.bytes);
    assert.equal(field.read(written.subarray(0, field.bytes)), field.modulus - 1n);
    assert.equal(field.subtract(1n, 2n), field.modulus - 1n);
    assert.equal(field.add(field.modulus - 1n, 2n), 1n);
  }
});

test("values between the roots are those of the polynomial", () => {
  const [field, n] = [FIELD128, 8];
  const coefficients = Array.from({ length: n }, (_, k) => field.of(BigInt(k * k) - 7n));
  const at = (x) => coefficients.reduceRight((sum, each) => field.add(field.multiply(sum, x), each), 0n);
  const root = field.root(2 * n);
  const values = Array.from({ length: 2 * n }, (_, k) => at(field.power(root, BigInt(k))));
  assert.deepEqual(new ValuesBetween(field, n).of(values.filter((_, k) => k % 2 === 0)), values.filter((_, k) => k % 2));
});

test("both extendable-output functions", async () => {
  const turbo = read("vdaf/XofTurboShake128");
  const xof = () => new TurboShakeXof(fromHex(turbo.seed), fromHex(turbo.dst), fromHex(turbo.binder));
  assert.equal(hex(xof().read(32)), turbo.derived_seed);
  assert.equal(hex(FIELD128.encode(xof().elements(FIELD128, turbo.length))), turbo.expanded_vec_field128);
  const fixed = read("vdaf/XofFixedKeyAes128");
  const stream = await new FixedKeyXof(fromHex(fixed.dst), fromHex(fixed.binder)).blocks(fromHex(fixed.seed), fixed.length);
  assert.equal(hex(stream), fixed.expanded_vec_field128);
});

test("the point function's correction words", async () => {
  const vector = read("vdaf/IdpfBBCGGI21_0");
  const numbers = (pair) => pair.map(BigInt);
  const words = await correctionWords(
    vector.alpha.map(Number), vector.beta_inner.map(numbers), numbers(vector.beta_leaf), vector.keys.map(fromHex),
    fromHex(vector.ctx), fromHex(vector.nonce),
  );
  assert.equal(hex(words), vector.public_share);
});

// In the negative vectors no client made the shares.
for (const name of [...of("Prio3L1BoundSum"), ...of("Poplar1")].filter((each) => !each.includes("_bad_"))) {
  test(`${name}: every report's shares`, async () => {
    const vector = read(`vdaf/${name}`);
    const context = fromHex(vector.ctx);
    const instance = { count: vector.length, most: vector.max_value, chunk: vector.chunk_length, context };
    assert(vector.reports.length > 0);
    for (const report of vector.reports) {
      const rest = [fromHex(report.nonce), fromHex(report.rand)];
      const made = name.startsWith("Poplar1")
        ? await shardPath(report.measurement.map(Number), context, ...rest)
        : shardVector(instance, report.measurement, ...rest);
      assert.equal(hex(made.public), report.public_share);
      assert.deepEqual(made.inputs.map(hex), report.input_shares);
    }
  });
}

test("seals are RFC 9180's (A.1.1)", async () => {
  const { enc, payload } = await seal(
    fromHex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
    fromHex("4f6465206f6e2061204772656369616e2055726e"),
    fromHex("436f756e742d30"),
    fromHex("4265617574792069732074727574682c20747275746820626561757479"),
    fromHex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
  );
  assert.equal(hex(enc), "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431");
  assert.equal(hex(payload), "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a");
});

test("keys of small order, other algorithms and wrong lengths are refused", async () => {
  const ephemeral = new Uint8Array(KEY_BYTES).fill(7);
  const none = new Uint8Array(0);
  for (const first of [0, 1]) await assert.rejects(seal(new Uint8Array(KEY_BYTES).fill(first, 0, 1), none, none, none, ephemeral));
  const good = fromHex(`07002000010001${"0020"}${"11".repeat(32)}`);
  assert.deepEqual(readConfig(good), { number: 7, publicKey: new Uint8Array(32).fill(17) });
  for (let at = 1; at < 9; at += 1) assert.throws(() => readConfig(good.map((byte, k) => (k === at ? byte ^ 2 : byte))), /X25519/);
  for (const bad of [good.slice(0, 40), new Uint8Array([...good, 0])]) assert.throws(() => readConfig(bad), /X25519/);
});

const question = {
  depth: 3,
  task: new Uint8Array(32).fill(1),
  operators: [1, 2].map((number) => readConfig(fromHex(`0${number}0020000100010020${"1f".repeat(32)}`))),
};

test("what is no contribution to a collection is refused", async () => {
  for (const [scale, contribution] of [
    [1, [[3, 1], [4, 1]]], [1, [[3, 2]]], [1, [[64, 1]]], [1, [[-1, 1]]], [1, [[0.5, 1]]], [16, [[3, 17]]], [16, [[3, 9], [4, 8]]],
    [16, [[3, 8], [3, 8]]], [16, [[3, 0]]], [16, [[3, 1.5]]],
  ]) {
    await assert.rejects(operatorsReport({ ...question, scale }, contribution, 5, new Randomness()), /contribution/, `${scale} ${contribution}`);
  }
});

test("reports of one place and of none have one length", async () => {
  for (const [scale, bytes] of [[1, 906], [16, 6712]]) {
    for (const contribution of [[[63, scale]], []]) {
      const report = await operatorsReport({ ...question, scale }, contribution, 500000, new Randomness());
      assert.equal(report.length, bytes);
    }
  }
});

test("a vector of 1,024 sites and 16 units is below 100 kB, and its proof is the shortest", () => {
  const chunk = shortestChunk(1024, 16);
  const sizes = sizesOf({ count: 1024, most: 16, chunk });
  assert(sizes.public + sizes.leader + sizes.helper < 100_000);
  for (let other = 1; other < 400; other += 1) assert(sizesOf({ count: 1024, most: 16, chunk: other }).leader >= sizes.leader);
});

test("reports larger than 4 MiB are refused before any is made", async () => {
  const helper = hex(question.operators[1].publicKey);
  const { tiling } = JSON.parse(read("device/local")[0].terms);
  const plan = (depth, scale) => planOf({
    trust: "operators", method: "multiscale", epsilon: new Fraction(1n), minimum: 50, devices: 50, options: { scale }, digest: "01".repeat(32), windows: null,
    operators: question.operators, tiling: { ...tiling, depth },
  }, { answers: [], pin: null, helper });
  for (const [depth, scale] of [[10, 1], [7, 1024], [6, 2 ** 28]]) await plan(depth, scale);
  assert(vectorBytes({ depth: 7, scale: 1024 }) < 2_950_000);
  for (const scale of [2 ** 16, 2 ** 28]) await assert.rejects(plan(7, scale), /larger than 4 MiB/);
  await assert.rejects(plan(8, 2), /too many cells/);
});
