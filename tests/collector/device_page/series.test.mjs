// The windows of a series: the browser device against the vectors of the Python client.

import assert from "node:assert/strict";
import test from "node:test";

import { load, read, seeded } from "./vectors.mjs";

const { Windows } = await load("windows");
const { Refusal } = await load("refusal");
const { readTerms } = await load("terms");
const { planOf } = await load("policy");
const { answerOf } = await load("answer");
const { contributionOf } = await load("contribution");
const { windowWords } = await load("words");
const { readReport } = await load("local_report");
const { fromHex, hex, utf8 } = await load("bytes");
const { Device } = await load("device");
const { Memory } = await load("memory");

const vector = read("device/series");

for (const { windows: record, names, ends, categories, numbers } of vector.calendars) {
  test(`${names[0]} to ${names.at(-1)}: the names, and the window of every moment`, () => {
    const windows = new Windows(record);
    assert.deepEqual(windows.names, names);
    assert.deepEqual(vector.moments.map((at, k) => windows.at(1000 * at, categories[k] ?? null)), numbers);
    ends.forEach((end, window) => {
      if (end === null) assert(!windows.over(window, Date.now()));
      else assert.deepEqual([windows.over(window, 1000 * end - 1000), windows.over(window, 1000 * end)], [false, true]);
    });
  });
}

test("windows that are none are refused", () => {
  for (const record of vector.refused_windows) assert.throws(() => new Windows(record), Refusal, JSON.stringify(record));
});

test("a report names the window that was drawn, byte for byte", async () => {
  const terms = await readTerms(utf8(vector.terms));
  assert.equal(terms.digest, vector.digest);
  const plan = await planOf(terms, { answers: [], pin: null });
  for (const { lon, lat, seed, window, message } of vector.reports) {
    const made = await answerOf(terms, plan, null, { lon, lat }, await seeded(seed), window);
    assert.equal(hex(made), message);
    assert.equal(Number(readReport(fromHex(message)).window), window);
  }
});

test("a series of secure sums is read, and no window of it is drawn: the page leaves it to the app", async () => {
  const other = vector.terms.replace('"trust":"local"', '"trust":"distributed"');
  const terms = await readTerms(utf8(other));
  assert.equal(terms.windows, null);
  await assert.rejects(planOf(terms, { answers: [], pin: null }), /needs the Mapveil app/);
});

const planned = async (terms) => {
  const helper = hex(terms.operators[1].publicKey);
  return planOf(terms, { answers: [], pin: null, helper });
};

test("a record of places is divided over all windows, byte for byte", async () => {
  const [{ records, collections }, now] = [vector.sums, Date.now];
  assert.equal(collections.length, 6);
  try {
    for (const { terms: written, digest, hour, reports } of collections) {
      const terms = await readTerms(utf8(written));
      assert.equal(terms.digest, digest);
      const plan = await planned(terms);
      Date.now = () => 3600000 * hour;
      for (const [at, { seed, units, report }] of reports.entries()) {
        const places = records[at].map((each) => ({ ...each, at: 1000 * each.at }));
        assert.deepEqual(contributionOf(plan, places), Object.entries(units).map(([site, value]) => [Number(site), value]));
        assert.equal(hex(await answerOf(terms, plan, null, places, await seeded(seed))), report);
      }
    }
  } finally {
    Date.now = now;
  }
});

test("a series by two operators draws no window, and asks for a record with what its windows need", async () => {
  const { records: [[place]], collections } = vector.sums;
  const [byWeekday, byCategory] = [await readTerms(utf8(collections[1].terms)), await readTerms(utf8(collections[5].terms))];
  assert.equal(await new Device(null, new Memory(storage()), null, null).window(byWeekday), null);
  assert.match(windowWords(byWeekday.windows, null), /7 windows, by the clock of Europe/);
  const [{ lon, lat }, at] = [place, 1000 * place.at];
  const answer = async (terms, found) => answerOf(terms, await planned(terms), null, found);
  await assert.rejects(answer(byWeekday, { lon, lat, at }), /record of places/);
  await assert.rejects(answer(byWeekday, [{ lon, lat }]), /when you were/);
  await assert.rejects(answer(byCategory, [{ lon, lat, at }]), /"purpose" of each place/);
  await assert.rejects(answer(byWeekday, [{ lon: 200, lat, at }]), /not a location/);
  await answer(byCategory, [{ lon, lat, category: null }]); // in no window, and so nowhere
});

/** A storage in this process, whose content a second device opens as a reloaded page does. */
function storage() {
  const [kept, answers] = [new Map(), new Map()];
  const store = (map, key) => ({
    get: async (name) => map.get(name),
    all: async () => [...map.values()],
    put: (value, name = value[key]) => map.set(name, value),
  });
  return { keepsKeys: false, run: async (work) => work({ kept: store(kept, null), answers: store(answers, "collection") }) };
}

test("a device draws once, whatever is loaded again, and answers in that window alone", async () => {
  const where = storage();
  const terms = await readTerms(utf8(vector.terms));
  const drawn = await new Device(null, new Memory(where), null, null).window(terms);
  const device = new Device(null, new Memory(where), null, null);
  for (let again = 0; again < 20; again += 1) assert.equal(await device.window(terms), drawn);
  const plan = await device.plan(terms);
  const now = Date.now;
  const sought = () => assert.fail("the place was looked at outside the window");
  try {
    for (let window = 0; window < terms.windows.count; window += 1) {
      const end = vector.calendars[0].ends[window];
      Date.now = () => 1000 * (end - 3600);
      if (window !== drawn) await assert.rejects(device.answer(terms, plan, sought), Refusal);
    }
    Date.now = () => 1000 * (vector.calendars[0].ends[drawn] - 3600);
    const { lon, lat } = vector.reports[0];
    const answer = await device.answer(terms, plan, () => ({ lon, lat }));
    assert.equal(Number(readReport(answer.body).window), drawn);
    assert.equal(answer.epsilon, "2");
  } finally {
    Date.now = now;
  }
});

test("a collection whose terms are changed after the draw is refused, not drawn again nor moved", async () => {
  const where = storage();
  const terms = await readTerms(utf8(vector.terms));
  const device = new Device(null, new Memory(where), null, null);
  const drawn = await device.window(terms);
  const [begun, moved] = ["2026-10-19", "2026-10-12"]; // a week earlier: every window means another week
  const later = await readTerms(utf8(vector.terms.replace(`"start":"${begun}"`, `"start":"${moved}"`)));
  assert.equal(later.identifier, terms.identifier);
  assert.notEqual(later.digest, terms.digest);
  const plan = await device.plan(later);
  await assert.rejects(device.window(later), Refusal);
  await assert.rejects(device.answer(later, plan, () => assert.fail("the place was looked at")), Refusal);
  assert.equal(await device.window(terms), drawn);
});

test("every window is drawn equally likely", async () => {
  const windows = new Windows(vector.calendars[0].windows);
  const [rng, seen] = [await seeded(5), [0, 0, 0]];
  for (let k = 0; k < 3000; k += 1) seen[windows.draw(rng)] += 1;
  const squares = seen.reduce((sum, each) => sum + (each - 1000) ** 2 / 1000, 0);
  assert(squares < 30, `${seen}`); // chi-squared, 2 degrees of freedom: p below 1e-6
});
