// What this phone keeps, in the browser's database: its identity, its random frequency, its answers and with them its account.
// Every write is finished on the disk before anything leaves. A place is never written.

import { Fraction } from "./fraction.mjs";
import { checkBudget } from "./policy.mjs";
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

  /** Charge and keep an answer, once for each collection; the one that is kept, which may be an earlier one.
   *
   * A Refusal, and nothing changed, where the account does not allow it. A projection's `ladder` {base, jitter} is kept
   * with the first one; `asked` is the ladder under which the answer was decided, null before the first.
   */
  keepAnswer(answer, { ladder = null, asked = null } = {}) {
    return this.write(["answers", "kept"], async (answers, kept) => {
      const all = await done(answers.getAll());
      const known = all.find(({ collection }) => collection === answer.collection);
      if (known) return known;
      if (answer.epsilon !== null) checkBudget(Fraction.read(answer.epsilon), all);
      if (ladder !== null) {
        const first = await done(kept.get("ladder"));
        insist((first === undefined) === (asked === null), "Another window of this page answered just now. Load the page again.");
        if (first === undefined) kept.put(ladder, "ladder");
      }
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
