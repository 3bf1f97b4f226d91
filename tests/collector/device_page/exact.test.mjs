// Exact arithmetic: JSON that keeps its numbers, fractions, odds, canonical CBOR, uniform draws.

import assert from "node:assert/strict";
import test from "node:test";

import { load, read, seeded } from "./vectors.mjs";

const { parse, plain, write } = await load("exact_json");
const { Fraction } = await load("fraction");
const { odds, power } = await load("odds");
const { decode, encode } = await load("cbor");
const { fromHex, hex } = await load("bytes");
const { uniformBelow, uniformBelowEach, uniformsBelow } = await load("randomness");
const { deinterleave, interleave } = await load("morton");

test("numbers keep their text, keys are sorted, text is escaped as Python escapes it", () => {
  const source = '{ "b": [1.0, 1e-07, -0.5], "a": "caf\\u00e9 \\"\\n\\u007f\\ud83d\\ude00", "c": {"x": null, "w": true} }';
  assert.equal(write(parse(source)), '{"a":"café \\"\\n\u007f😀","b":[1.0,1e-07,-0.5],"c":{"w":true,"x":null}}');
  assert.equal(
    write(parse(source), { ascii: true }),
    '{"a":"caf\\u00e9 \\"\\n\\u007f\\ud83d\\ude00","b":[1.0,1e-07,-0.5],"c":{"w":true,"x":null}}',
  );
  assert.deepEqual(plain(parse(source)), JSON.parse(source));
});

for (const source of ["", "{", "[1,]", '{"a":1,}', "01", "1.", "nul", '"\u0001"', '{"a":1,"a":2}', "[1] 2", "NaN", '"\\x"', "[".repeat(99)]) {
  test(`${JSON.stringify(source).slice(0, 20)} is no JSON`, () => assert.throws(() => parse(source)));
}

test("fractions are exact, and their doubles the nearest", () => {
  assert.equal(Fraction.read("6/4").toString(), "3/2");
  assert.equal(Fraction.read("0.25").plus(Fraction.read("1/12")).toString(), "1/3");
  for (const [text, value] of [["1/3", 1 / 3], ["2/3", 2 / 3], ["1/10", 0.1], ["9007199254740993", 9007199254740992], ["7", 7], ["355/113", 355 / 113]]) {
    assert.equal(Fraction.read(text).toNumber(), value);
  }
  assert(Fraction.read("1/3").exceeds(Fraction.read("0.333333333333333333333333")));
  for (const text of ["0", "-1", "1/0", "0.0", "1e5", "", " 1", "1".repeat(201), 1, null]) assert.throws(() => Fraction.read(text));
});

test("e^epsilon and the odds are Python's to the last digit", () => {
  for (const vector of read("device/odds")) {
    const epsilon = Fraction.read(vector.epsilon);
    assert.equal(power(epsilon).toString(), vector.power, vector.epsilon);
    for (const [bits, more, less] of vector.odds) {
      const found = odds(epsilon, bits, Math.min(bits, 40));
      assert.deepEqual([String(found.more), String(found.less)], [more, less], `${vector.epsilon} in ${bits} bits`);
    }
  }
});

test("an epsilon of nothing has no odds", () => {
  assert.throws(() => odds(Fraction.read("1/100000000000000"), 60, 40), /at least/);
});

test("CBOR has one encoding", () => {
  const values = [0, 23, 24, 255, 256, 65535, 65536, 4294967295, 4294967296n, (1n << 64n) - 1n, new Uint8Array(300), new Uint8Array(0)];
  const bytes = encode(values);
  assert.equal(hex(bytes.slice(0, 12)), "8c0017181818ff1901001" + "9ff");
  assert.deepEqual(decode(bytes).map((value) => (value instanceof Uint8Array ? value.length : value)), [...values.slice(0, 10).map(BigInt), 300, 0]);
  assert.deepEqual(encode(decode(bytes)), bytes);
  for (let end = 0; end < bytes.length; end += 1) assert.throws(() => decode(bytes.slice(0, end)));
  for (const bad of ["", "00", "81", "8118", "811800", "81190001", "8120", "8161", "9f00ff", "810000", "8181", "981800"]) {
    assert.throws(() => decode(fromHex(bad)), bad);
  }
  assert.throws(() => encode([-1]));
  assert.throws(() => encode(new Array(24).fill(0)));
});

test("refused local messages of the vectors are no reports of five fields, or other ones", () => {
  for (const method of ["grr", "subset"]) {
    const vector = read(`local/${method}`);
    for (const message of vector.messages) assert.equal(hex(encode(decode(fromHex(message)))), message);
    for (const { why, message } of vector.refused.filter(({ why }) => ["empty", "truncated", "longer", "a version in two bytes", "text"].includes(why))) {
      assert.throws(() => decode(fromHex(message)), why);
    }
  }
});

test("Morton codes of rows and columns, and back", () => {
  assert.deepEqual([interleave(0, 1), interleave(1, 0), interleave(1, 1)], [1, 2, 3]);
  for (const [row, col] of [[0, 0], [5, 9], [65535, 65536], [2 ** 26 - 1, 2 ** 25 + 77], [123456, 7654321]]) {
    const code = interleave(row, col);
    const slow = [...Array(26).keys()].reduce((sum, k) => sum + ((BigInt(row) >> BigInt(k)) & 1n) * (2n << BigInt(2 * k)) + ((BigInt(col) >> BigInt(k)) & 1n) * (1n << BigInt(2 * k)), 0n);
    assert.equal(BigInt(code), slow);
    assert.deepEqual(deinterleave(code), [row, col]);
  }
});

/** A stream that gives chosen bytes, and fails past them. */
async function given(...words) {
  const { Randomness } = await load("randomness");
  const bytes = words.flatMap(([value, width]) => Array.from({ length: width }, (_, at) => Number((BigInt(value) >> BigInt(8 * at)) & 255n)));
  return new Randomness((wanted) => {
    assert(bytes.length >= wanted.length, "more words than were given");
    wanted.set(bytes.splice(0, wanted.length));
  });
}

test("words that would favour a value are drawn again", async () => {
  // 2^32 mod 3 = 1: a low half of 0 is refused, the word 0 among them.
  assert.deepEqual(uniformsBelow(1, 3, await given([0, 4], [0xffffffff, 4])), [2]);
  assert.equal(uniformBelow(3n, await given([0, 4], [1, 4])), 0n);
  const bound = (1n << 61n) + 1n;
  const uneven = (1n << 64n) % bound;
  assert.equal(uniformBelow(bound, await given([(1n << 64n) - uneven, 8], [bound + 5n, 8])), 5n);
  assert.equal(uniformBelowEach(3n, await given([(1n << 64n) - 1n, 8], [7, 8])), 1n);
  assert.throws(() => uniformBelow(0n));
  assert.throws(() => uniformBelow((1n << 62n) + 1n));
});

test("the bytes of a large request are those of small ones", async () => {
  const [one, other] = [await seeded(3), await seeded(3)];
  const whole = one.bytes(200_000);
  const parts = Buffer.concat([other.bytes(1), other.bytes(70_001), other.bytes(129_998)]);
  assert.equal(Buffer.compare(Buffer.from(whole), parts), 0);
});
