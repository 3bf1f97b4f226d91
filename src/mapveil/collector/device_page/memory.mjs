// What this device keeps: its identity, its random frequency, its answers and with them its account. A place is never written.

import { Fraction } from "./fraction.mjs";
import { RULES, checkAnswers, checkBudget } from "./policy.mjs";
import { pinRefusal } from "./random_features.mjs";
import { insist } from "./refusal.mjs";

/** The account over a storage, whose `run` does work in one transaction and is over once all of it is on the disk.
 *
 * The work is given two stores with `get(key)`, `all()` and `put(value, key)`: `kept`, by name, and `answers`, whose
 * values bear their key as `collection`. What throws changes nothing.
 */
export class Memory {
  constructor(storage, rules = RULES) {
    [this.storage, this.rules] = [storage, rules];
  }

  /** Whether the storage keeps keys that cannot be read out of it. */
  get keepsKeys() {
    return this.storage.keepsKeys;
  }

  get(name) {
    return this.storage.run(({ kept }) => kept.get(name));
  }

  /** Keep a value under a name that has none; what is kept there, which may be another window's. */
  keepFirst(name, value) {
    return this.storage.run(async ({ kept }) => {
      const known = await kept.get(name);
      if (known !== undefined) return known;
      kept.put(value, name);
      return value;
    });
  }

  /** All answers, the latest first. */
  async answers() {
    const found = await this.storage.run(({ answers }) => answers.all());
    return found.sort((one, other) => other.at - one.at);
  }

  /** Pin this device to a query's public quantities, and count the collection, once: before its place is looked at. */
  pin(pinned, collection) {
    return this.storage.run(async ({ kept }) => {
      const known = await kept.get("pin");
      const { collections = [], ...first } = known ?? pinned;
      insist(pinRefusal(first, pinned) === null, "Another window of this page answered just now. Load the page again.");
      checkAnswers(known, collection, this.rules);
      if (!collections.includes(collection)) kept.put({ ...first, collections: [...collections, collection] }, "pin");
    });
  }

  /** Charge and keep an answer, once for each collection; the one that is kept, which may be an earlier one.
   *
   * A Refusal, and nothing changed, where the account does not allow it.
   */
  keepAnswer(answer) {
    return this.storage.run(async ({ answers }) => {
      const all = await answers.all();
      const known = all.find(({ collection }) => collection === answer.collection);
      if (known) return known;
      if (answer.epsilon !== null) checkBudget(Fraction.read(answer.epsilon), all, this.rules);
      answers.put(answer);
      return answer;
    });
  }

  /** Write down that an answer was accepted, or refused for good. */
  mark(collection, state) {
    return this.storage.run(async ({ answers }) => {
      const known = await answers.get(collection);
      if (known) answers.put({ ...known, state });
    });
  }
}
