// What this phone keeps, in the browser's database: its identity, its random frequency, its answers and with them its account.
// Every write is finished on the disk before anything leaves. A place is never written.

import { Fraction } from "./fraction.mjs";
import { checkAnswers, checkBudget } from "./policy.mjs";
import { pinRefusal } from "./random_features.mjs";
import { insist } from "./refusal.mjs";

const NAME = "mapveil-device";
const VERSION = 1;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export class Memory {
  constructor(database) {
    this.database = database;
  }

  static async open() {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("kept");
      request.result.createObjectStore("answers", { keyPath: "collection" });
    };
    return new Memory(await done(request));
  }

  /** Run `work` on some stores in one transaction; what it returns, once all of it is on the disk. */
  async write(stores, work) {
    const transaction = this.database.transaction(stores, "readwrite", { durability: "strict" });
    const finished = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    finished.catch(() => {}); // it is awaited below, unless the work itself throws
    let made;
    try {
      made = await work(...stores.map((store) => transaction.objectStore(store)));
    } catch (error) {
      transaction.abort();
      throw error;
    }
    await finished;
    return made;
  }

  get(name) {
    return done(this.database.transaction("kept").objectStore("kept").get(name));
  }

  /** Keep a value under a name that has none; what is kept there, which may be another tab's. */
  keepFirst(name, value) {
    return this.write(["kept"], async (kept) => {
      const known = await done(kept.get(name));
      if (known !== undefined) return known;
      kept.put(value, name);
      return value;
    });
  }

  /** All answers, the latest first. */
  async answers() {
    const found = await done(this.database.transaction("answers").objectStore("answers").getAll());
    return found.sort((one, other) => other.at - one.at);
  }

  /** Pin this device to a query's public quantities, and count the collection, once: before its place is looked at. */
  pin(pinned, collection) {
    return this.write(["kept"], async (kept) => {
      const known = await done(kept.get("pin"));
      const { collections = [], ...first } = known ?? pinned;
      insist(pinRefusal(first, pinned) === null, "Another window of this page answered just now. Load the page again.");
      checkAnswers(known, collection);
      if (!collections.includes(collection)) kept.put({ ...first, collections: [...collections, collection] }, "pin");
    });
  }

  /** Charge and keep an answer, once for each collection; the one that is kept, which may be an earlier one.
   *
   * A Refusal, and nothing changed, where the account does not allow it.
   */
  keepAnswer(answer) {
    return this.write(["answers"], async (answers) => {
      const all = await done(answers.getAll());
      const known = all.find(({ collection }) => collection === answer.collection);
      if (known) return known;
      if (answer.epsilon !== null) checkBudget(Fraction.read(answer.epsilon), all);
      answers.put(answer);
      return answer;
    });
  }

  /** Write down that an answer was accepted, or refused for good. */
  mark(collection, state) {
    return this.write(["answers"], async (answers) => {
      const known = await done(answers.get(collection));
      if (known) answers.put({ ...known, state });
    });
  }
}
