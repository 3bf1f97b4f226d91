// Where a place is, and the report about it: the browser device against the vectors of the Python client.

import assert from "node:assert/strict";
import test from "node:test";

import { load, read, seeded } from "./vectors.mjs";

const { tilingOf } = await load("tilings");
const { Domain, domainFingerprint } = await load("domain");
const { parse, plain } = await load("exact_json");
const { methodOf, readReport, settingFingerprint, writeReport } = await load("local_report");
const { Fraction } = await load("fraction");
const { Refusal } = await load("refusal");
const { scatteredPoint } = await load("hashing");
const { fromHex, hex } = await load("bytes");

for (const vector of read("device/locate")) {
  const tiling = tilingOf(JSON.parse(vector.tiling));
  test(`${vector.name}: cells, nearest sites, codes and fingerprint`, async () => {
    assert.deepEqual([tiling.size, tiling.spec], [vector.size, vector.spec]);
    assert.equal(hex(await domainFingerprint(parse(vector.tiling))), vector.domain);
    vector.places.forEach(([lon, lat], at) => {
      assert.equal(tiling.locate(lon, lat), vector.cells[at], `cell of place ${at}`);
      assert.equal(tiling.nearest(lon, lat), vector.nearest[at], `nearest site of place ${at}`);
    });
    assert(vector.cells.includes(-1), "some place of the vector is outside");
    const { code, site, rank, bits } = new Domain(tiling, null).codes;
    assert.equal(bits, vector.bits);
    assert.deepEqual([...code.slice(0, 200)], vector.codes);
    assert.deepEqual([...site.slice(0, 200)], vector.sites);
    assert(site.every((at, place) => rank[at] === place));
  });
}

for (const vector of read("device/local")) {
  test(vector.name, async () => {
    const exact = parse(vector.terms);
    const terms = plain(exact);
    const { randomizer: Kind, options } = methodOf(terms.method, terms.options);
    const tiling = tilingOf(terms.tiling);
    const domain = new Domain(tiling, await domainFingerprint(exact.get("tiling")));
    const randomizer = new Kind(domain, Fraction.read(terms.epsilon), options);
    assert.equal(hex(await settingFingerprint(randomizer)), vector.setting);
    assert(vector.reports.length > 0);
    for (const { lon, lat, cell, seed, message } of vector.reports) {
      assert.equal(tiling.locate(lon, lat), cell);
      const value = await randomizer.draw(cell, await seeded(seed));
      assert.equal(hex(await writeReport(value, randomizer, domain)), message, `seed ${seed}`);
      assert.deepEqual(readReport(fromHex(message)).value, value);
    }
  });
}

for (const name of ["grr", "srr", "hr", "unary", "subset", "olh", "olh-h"]) {
  test(`${name}: settings and messages of the wing's own vectors`, async () => {
    const vector = read(`local/${name}`);
    const text = JSON.stringify(vector.tiling);
    const domain = new Domain(tilingOf(vector.tiling), await domainFingerprint(parse(text)));
    assert.equal(hex(domain.fingerprint), vector.domain);
    const { randomizer: Kind, options } = methodOf(name, vector.options);
    const randomizer = new Kind(domain, Fraction.read(vector.epsilon), options);
    assert.equal(hex(await settingFingerprint(randomizer)), vector.setting);
    for (const [at, value] of vector.values.entries()) {
      const given = Array.isArray(value) ? Uint8Array.from(value) : BigInt(value);
      assert.equal(hex(await writeReport(given, randomizer, domain)), vector.messages[at]);
    }
  });
}

test("what this page has not is refused in a sentence", () => {
  for (const name of ["disk", "unheard-of", "constructor", "__proto__"]) {
    assert.throws(() => methodOf(name, {}), (error) => error instanceof Refusal && /no part/.test(error.message));
  }
  assert.throws(() => methodOf("grr", { frequency: 3 }), Refusal);
  assert.throws(() => methodOf("grr", { outside: "anywhere" }), Refusal);
});

const BOX = { crs: "EPSG:4326", bounds: [0, 0, 1, 1], bbox: [0, 0, 1, 1] };

test("maps that this page cannot locate in are refused", () => {
  const bad = [
    null, {}, { kind: "h3", region: BOX }, { kind: "toString", region: BOX }, { kind: "grid", region: BOX, rows: 2.5, columns: 2 },
    { kind: "grid", rows: 2, columns: 2 }, { kind: "grid", region: { ...BOX, bbox: [0, 0, 0, 1] }, rows: 2, columns: 2 },
    { kind: "grid", region: { ...BOX, crs: "EPSG:3857" }, rows: 2, columns: 2 },
    { kind: "grid", region: { ...BOX, polygon: { type: "Polygon" } }, rows: 2, columns: 2 },
    { kind: "quadtree", region: BOX, depth: 24 }, { kind: "quadtree", region: BOX, depth: 12 },
    { kind: "tiles", region: { ...BOX, bbox: [0, 86, 1, 87] }, zoom: 5 },
    { kind: "places", region: BOX, lon: [0.5], lat: [0.5] }, { kind: "places", region: BOX, lon: [0.5, 2], lat: [0.5, 0.5] },
  ];
  for (const record of bad) assert.throws(() => tilingOf(record), Refusal, JSON.stringify(record));
});

test("a place that is no number is nowhere", () => {
  const tiling = tilingOf({ kind: "grid", region: BOX, rows: 2, columns: 2 });
  for (const [lon, lat] of [[NaN, 0.5], [0.5, NaN], [Infinity, 0]]) assert.equal(tiling.locate(lon, lat), -1);
});

test("the shared scatter is that of sorting the whole stream", async () => {
  const { seededWords } = await load("randomness");
  const words = [];
  for await (const part of seededWords(1709, 5 ** 6)) words.push(...part);
  const order = [...words.keys()].sort((a, b) => (words[a] < words[b] ? -1 : words[a] > words[b] ? 1 : a - b));
  for (const site of [0, 1, 77, 4096, 5 ** 6 - 1]) assert.equal(await scatteredPoint(5 ** 6, site), order[site]);
});

test("reports have the promised law: the likelier cell is e^epsilon times as likely, and no more", async () => {
  const { Randomness } = await load("randomness");
  const tiling = tilingOf({ kind: "grid", region: BOX, rows: 2, columns: 2 });
  const { randomizer: Kind, options } = methodOf("grr", {});
  const randomizer = new Kind(new Domain(tiling, null), Fraction.read("1"), options);
  const [count, rng] = [40_000, new Randomness()];
  const seen = [0, 0, 0, 0];
  for (let k = 0; k < count; k += 1) seen[Number(randomizer.draw(2, rng))] += 1;
  const wanted = (cell, e) => (count * (cell === 2 ? e : 1)) / (e + 3);
  const squares = (e) => seen.reduce((sum, each, cell) => sum + (each - wanted(cell, e)) ** 2 / wanted(cell, e), 0);
  assert(squares(Math.E) < 45, `${seen}`); // chi-squared, 3 degrees of freedom: p below 1e-9
  assert(squares(Math.exp(1.3)) > 45 && squares(Math.exp(0.7)) > 45, "30 % off would be seen");
});
