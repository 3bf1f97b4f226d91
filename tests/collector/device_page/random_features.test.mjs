// Projections, signatures and terms: the browser device against the vectors of the Python client.

import assert from "node:assert/strict";
import test from "node:test";

import { load, read, seeded } from "./vectors.mjs";

const { drawFrequency, readQuery, queryRefusal, featureReport, checkedJitter } = await load("random_features");
const { decode } = await load("cbor");
const { concat, fromHex, hex, readNumbers, sha256, utf8 } = await load("bytes");
const { readTerms } = await load("terms");
const { Refusal } = await load("refusal");
const { planOf, checkBudget, spentBy, RULES } = await load("policy");
const { answerOf } = await load("answer");
const { authorization, drawIdentity, enrolmentStatement, requestStatement, sign } = await load("identity");
const { Fraction } = await load("fraction");

const vectors = read("device/projection");
const close = (one, other, within = 1e-12) => one.length === other.length
  && one.every((value, at) => Math.abs(value - other[at]) <= within * Math.max(1, Math.abs(other[at])));

test("the kept frequency and key are drawn from words as Python draws them", async () => {
  for (const { seed, units, key } of vectors.draws) {
    const drawn = drawFrequency(await seeded(seed));
    assert(close(drawn.units, units) && hex(drawn.key) === key, `seed ${seed}`);
  }
});

test("the same frequency at the same place gives the same report", async () => {
  let silent = 0;
  for (const vector of vectors.answers) {
    const terms = await readTerms(utf8(vector.terms));
    assert.equal(hex(await sha256(terms.query)), vector.digest);
    const plan = await planOf(terms, { answers: [], pin: null });
    const message = await answerOf(terms, plan, { ...vector, key: fromHex(vector.key) }, { lon: vector.lon, lat: vector.lat });
    if (vector.message === null) {
      silent += 1;
      assert.equal(message, null);
      continue;
    }
    const [made, kept] = [decode(message), decode(fromHex(vector.message))];
    assert.deepEqual(made.slice(0, 3), kept.slice(0, 3));
    // The frequency alike, the phase to a nanometre or so: the last bits of logarithms differ between libraries.
    const [found, wanted] = [readNumbers(made[3]), readNumbers(kept[3])];
    assert(close(found.slice(0, 2), wanted.slice(0, 2)) && close(found.slice(2), wanted.slice(2), 1e-10), `${found} ${wanted}`);
  }
  assert(silent > 0 && silent < vectors.answers.length);
});

test("after a first answer no other bandwidth, region or offset is answered, as in Python", () => {
  for (const { why, query, jitter, refused } of vectors.refusals) {
    const words = queryRefusal(readQuery(fromHex(query)), vectors.pin, jitter);
    assert.equal(words !== null, refused, `${why}: ${words}`);
  }
  assert.deepEqual(new Set(vectors.refusals.map(({ refused }) => refused)), new Set([true, false]));
  const wide = vectors.refusals.find(({ why }) => why === "a continent");
  assert.equal(queryRefusal(readQuery(fromHex(wide.query))), null); // to a first query Lemma 3 is the only bound
});

test("answers are counted, and the question must be about the map", async () => {
  const terms = await readTerms(utf8(vectors.answers[0].terms));
  const { pin } = await planOf(terms, { answers: [], pin: null });
  const others = Array.from({ length: RULES.mostFeatureAnswers }, (_, k) => `${k}`);
  await planOf(terms, { answers: [], pin: { ...pin, collections: others.slice(1) } });
  await planOf(terms, { answers: [], pin: { ...pin, collections: [terms.identifier, ...others.slice(1)] } });
  await assert.rejects(planOf(terms, { answers: [], pin: { ...pin, collections: others } }), /answers 8 collections of this kind/);
  const other = await readTerms(utf8(vectors.answers.at(-1).terms));
  await assert.rejects(planOf({ ...terms, query: other.query }, { answers: [], pin: null }), /another region than its map/);
});

test("queries of the wing's own vectors are read, and its refused ones are not answered", () => {
  for (const { query, message } of read("random_features/messages").queries) {
    const found = readQuery(fromHex(message));
    for (const name of ["bandwidth", "low", "high", "features", "kernel", "crs"]) assert.deepEqual(found[name], query[name]);
    assert.deepEqual(found.grid, query.grid);
  }
  const good = fromHex(read("random_features/messages").queries[0].message);
  for (let end = 0; end < good.length; end += 1) assert.throws(() => readQuery(good.slice(0, end)));
  assert.throws(() => readQuery(concat(good, Uint8Array.of(0))));
  assert.throws(() => checkedJitter("federated-kde", {}), Refusal);
  assert.throws(() => checkedJitter("fourier-kde", { jitter_m: -1 }), Refusal);
  assert.throws(() => checkedJitter("fourier-kde", { unheard: 1 }), Refusal);
});

test("statements, signatures and headers are the Python client's", async () => {
  const { private: secret, public: known, requests, enrolment } = read("device/signatures");
  const prefix = fromHex("302e020100300506032b657004220420"); // PKCS 8 of an Ed25519 key
  const key = await crypto.subtle.importKey("pkcs8", concat(prefix, fromHex(secret)), { name: "Ed25519" }, false, ["sign"]);
  for (const each of requests) {
    const body = fromHex(each.body);
    assert.equal(hex(await requestStatement(each.method, each.path, body)), each.statement);
    assert.equal(await authorization(key, 17, each.method, each.path, body), each.authorization);
  }
  const statement = await enrolmentStatement(enrolment.token, fromHex(known));
  assert.equal(hex(statement), enrolment.statement);
  assert.equal(hex(await sign(key, statement)), enrolment.signature);
});

test("a drawn identity cannot be read out", async () => {
  const { key, publicKey } = await drawIdentity();
  assert.equal(publicKey.length, 32);
  await assert.rejects(crypto.subtle.exportKey("pkcs8", key));
});

test("the digest of terms is that of their bytes, and other encodings are refused", async () => {
  for (const { terms, digest } of read("device/local")) assert.equal((await readTerms(utf8(terms))).digest, digest);
  const good = read("device/local")[0].terms;
  const bad = [
    "", "[]", "{}", ` ${good}`, good.replace('"version":1', '"version":2'), good.replace('"epsilon":"3/2"', '"epsilon":"0"'),
    good.replace('"epsilon":"3/2"', '"epsilon":null'), good.replace('"minimum":50', '"minimum":101'), good.replace('"minimum":50', '"minimum":2'),
    good.replace('"trust":"local"', '"trust":"central"'), good.replace('"active":true,', ""), good.replace('"query":""', '"query":"00"'),
    good.replace('"query":""', '"query":"0"'), good.replace('"active":true', '"active":1'), good.replace('"identifier":"0011', '"identifier":"zz11'),
    good.replace('"options":{}', '"options":[]'), good.replace('"version":1', '"version":1,"zone":1'),
  ];
  for (const each of bad) {
    assert.notEqual(each, good);
    await assert.rejects(readTerms(utf8(each)), Refusal, each.slice(0, 60));
  }
  await assert.rejects(readTerms(Uint8Array.of(0xff, 0xfe)), Refusal);
});

const plan = (change, state = { answers: [], pin: null }) => (
  readTerms(utf8(change(read("device/local")[0].terms))).then((terms) => planOf(terms, state))
);

test("secure sums, small crowds and large epsilons are refused before anything is looked at", async () => {
  await plan((terms) => terms);
  await assert.rejects(plan((terms) => terms.replace('"trust":"local"', '"trust":"distributed"')), /needs the Mapveil app/);
  await assert.rejects(plan((terms) => terms.replace('"minimum":50', '"minimum":19')), /19 phones/);
  await assert.rejects(plan((terms) => terms.replace('"epsilon":"3/2"', '"epsilon":"2001/1000"')), /at most 2 at once/);
  await assert.rejects(plan((terms) => terms.replace('"kind":"quadtree"', '"kind":"h3"')), Refusal);
});

test("options that no randomizer has, and epsilons that are nothing, are refused before the place is asked for", async () => {
  const good = read("device/local").find(({ name }) => name.startsWith("olh 1/2")).terms;
  for (const [from, to] of [['"buckets":3', '"buckets":4'], ['"buckets":3', '"buckets":"3"'], ['"buckets":3', '"buckets":100000007']]) {
    const found = await planOf(await readTerms(utf8(good.replace(from, to))), { answers: [], pin: null });
    await assert.rejects(found.ready(), Refusal, to);
  }
  await assert.rejects(plan((terms) => terms.replace('"epsilon":"3/2"', '"epsilon":"1/1048577"')), /cannot be used/);
});

test("costs are agreed to as by the Python client", () => {
  for (const { costs, agreed, spent } of read("device/budget")) {
    const charged = [];
    costs.forEach((epsilon, at) => {
      const ask = () => checkBudget(Fraction.read(epsilon), charged);
      if (agreed[at]) ask();
      else assert.throws(ask, Refusal, `${costs} ${at}`);
      if (agreed[at]) charged.push({ epsilon });
    });
    assert.equal(spentBy(charged).toString(), spent);
  }
});

test("the lifetime's budget is exact, and never exceeded", async () => {
  const answered = (...costs) => ({ answers: costs.map((epsilon) => ({ epsilon })), pin: null });
  await plan((terms) => terms, answered("2", "1/2", null));
  await assert.rejects(plan((terms) => terms, answered("2", "501/1000")), /only 1.499/);
  assert.equal(spentBy([{ epsilon: "1/3" }, { epsilon: null }, { epsilon: "2/3" }]).toString(), "1");
  const thirds = Array.from({ length: 12 }, () => ({ epsilon: "1/3" }));
  checkBudget(Fraction.read("1/3"), thirds.slice(1));
  assert.throws(() => checkBudget(Fraction.read("1/100000000000000000000"), thirds), Refusal);
  assert.equal(RULES.lifetime.toString(), "4");
});

test("mutated terms end in a plan or in a refusal, never in another error", async () => {
  const rng = await seeded(5);
  const sources = [...read("device/local").filter(({ terms }) => terms.length < 1500).map(({ terms }) => terms), vectors.answers[0].terms];
  const tokens = ["0", "-1", "1e999", "null", "true", "[]", "{}", '""', '"9"', "0.5", "99999999999999999999", '"\\u0000"', '"+proj=cea"'];
  const seen = { planned: 0, refused: 0 };
  for (let k = 0; k < 3000; k += 1) {
    const source = sources[k % sources.length];
    const [where, what] = rng.words32(2);
    // Values are swapped for others, so that most of what comes out is still JSON in its one encoding.
    const values = [...source.matchAll(/(?<=[:,[])(?:"[^"]*"|-?[0-9.]+|true|false|null)/g)];
    const chosen = values[where % values.length];
    const mutated = source.slice(0, chosen.index) + tokens[what % tokens.length] + source.slice(chosen.index + chosen[0].length);
    try {
      await (await planOf(await readTerms(utf8(mutated)), { answers: [], pin: null })).ready();
      seen.planned += 1;
    } catch (error) {
      if (!(error instanceof Refusal)) throw new Error(mutated, { cause: error });
      seen.refused += 1;
    }
  }
  assert(seen.refused > 1500 && seen.planned > 20, JSON.stringify(seen));
});

test("mutated queries are read or refused", async () => {
  const rng = await seeded(6);
  const good = fromHex(read("random_features/messages").queries[1].message);
  let readable = 0;
  for (let k = 0; k < 3000; k += 1) {
    const [where, bit] = rng.words32(2);
    const mutated = good.slice();
    mutated[where % good.length] ^= 1 << (bit % 8);
    let query = null;
    try {
      query = readQuery(mutated);
    } catch (error) {
      assert(error instanceof Error);
      continue;
    }
    readable += 1;
    try {
      queryRefusal(query, null);
    } catch (error) {
      assert(error instanceof Refusal); // a plane that it does not know
    }
  }
  assert(readable > 100);
});

test("outside, a phone is silent or at the nearest cell, as the terms say; no place is an error", async () => {
  const all = read("device/local");
  const far = { lon: -70, lat: 45 };
  for (const [method, silent] of [["olh-h 1 {} on quadtree 8", true], ["olh-h 2", false]]) {
    const terms = await readTerms(utf8(all.find(({ name }) => name.startsWith(method) && name.endsWith("quadtree 8")).terms));
    const found = await planOf(terms, { answers: [], pin: null });
    assert.equal((await answerOf(terms, found, null, far)) === null, silent);
    for (const place of [{ lon: NaN, lat: 0 }, { lon: 0, lat: 91 }, { lon: "0", lat: 0 }, {}]) {
      await assert.rejects(answerOf(terms, found, null, place), /not a location/);
    }
  }
});
