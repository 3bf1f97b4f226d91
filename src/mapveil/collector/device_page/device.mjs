// A device and its collector: decides, makes a report, charges and keeps it, sends it. Without anything to be seen.

import { answerOf } from "./answer.mjs";
import { Collector, Trouble } from "./connection.mjs";
import { drawIdentity, readIdentity } from "./identity.mjs";
import { Memory } from "./memory.mjs";
import { RULES, planOf } from "./policy.mjs";
import { drawFrequency } from "./random_features.mjs";
import { Randomness } from "./randomness.mjs";
import { CHANGED, NO_KEY, OTHER_KEY, insist } from "./refusal.mjs";

// What the collector says for good, and the state that an answer is left in.
const FINAL = { 404: "late", 409: "refused", 410: "late", 413: "refused", 422: "refused" };

/** A Refusal outside the window that was drawn; of a category only its owner knows whether they are in it. */
function insistNow(windows, window, moment) {
  const category = windows.category === null ? null : windows.groups[window % windows.groups.length];
  insist(!windows.over(window, moment), "The window that this phone drew is over. No report was made, and nothing is sent.");
  insist(
    windows.at(moment, category) === window,
    `This phone answers for ${windows.names[window]} only, and it is not that now. No report was made.`,
  );
}

export class Device {
  constructor(collector, memory, identity, frequency) {
    Object.assign(this, { collector, memory, identity, frequency });
  }

  /** Open the device of a storage, which draws an identity where none is kept. */
  static async open({ storage, address = "", rules = RULES }) {
    const memory = new Memory(storage, rules);
    const kept = (await memory.get("identity")) ?? await memory.keepFirst("identity", await drawIdentity(memory.keepsKeys));
    const frequency = (await memory.get("frequency")) ?? await memory.keepFirst("frequency", drawFrequency(new Randomness()));
    return new Device(new Collector(address), memory, await readIdentity(kept), frequency);
  }

  /** The number that the collector gave this device; null before it is enrolled. */
  async number() {
    return (await this.memory.get("number")) ?? null;
  }

  /** Enrol with a token; the device's number. Asked for again with the same key, the same number is given. */
  async enrol(token) {
    return this.memory.keepFirst("number", await this.collector.enrol(token, this.identity));
  }

  /** Name the second operator that this device trusts, once: its public key, 64 hexadecimal digits.
   *
   * A Refusal where it is no such key, or where another one is kept.
   */
  async trustHelper(key) {
    insist(/^[0-9a-f]{64}$/i.test(key), NO_KEY);
    const named = key.toLowerCase();
    const kept = await this.memory.keepFirst("helper", named);
    insist(kept === named, OTHER_KEY);
    return kept;
  }

  /** The open collections, each with whether this device has `answered` it. */
  async collections() {
    const answered = new Set((await this.memory.answers()).map(({ collection }) => collection));
    return (await this.collector.openCollections()).map((each) => ({ ...each, answered: answered.has(each.id) }));
  }

  /** The terms of one of them; a Refusal where they are no terms, or others than announced. */
  async terms(listed) {
    return this.collector.announcedTerms(listed);
  }

  /** How this device answers terms; a Refusal where it does not. It looks at no place. */
  async plan(terms) {
    const [pin, helper] = [(await this.memory.get("pin")) ?? null, (await this.memory.get("helper")) ?? null];
    return planOf(terms, { answers: await this.memory.answers(), pin, helper }, this.memory.rules);
  }

  /** The one window of a series of local reports that this device answers for, drawn once and kept; null for any other.
   *
   * A Refusal where it was drawn for other terms of the same collection: they would move it.
   */
  async window({ identifier, digest, trust, windows }) {
    if (windows === null || trust !== "local") return null;
    const name = `window ${identifier}`;
    const kept = (await this.memory.get(name))
      ?? await this.memory.keepFirst(name, { terms: digest, window: windows.draw(new Randomness()) });
    insist(kept.terms === digest, CHANGED);
    return kept.window;
  }

  /** Make the report of what `find` finds, a place or a list of them, charge and keep it; null where there is none. Nothing is sent. */
  async answer(terms, plan, find) {
    await plan.ready(); // whether it is answered at all does not depend on the place
    if (plan.kind === "random-features") await this.memory.pin(plan.pin, terms.identifier);
    const window = await this.window(terms);
    if (window !== null) insistNow(terms.windows, window, Date.now());
    const body = await answerOf(terms, plan, this.frequency, await find(), new Randomness(), window);
    if (body === null) return null;
    const { identifier: collection, title, trust, digest, epsilon } = terms;
    const cost = epsilon === null ? null : epsilon.toString();
    return this.memory.keepAnswer({ collection, title, trust, terms: digest, epsilon: cost, at: Date.now(), body, state: "made" });
  }

  /** Send a kept answer, the same bytes each time; Trouble where it is not accepted, which may be `final`. */
  async send(answer) {
    try {
      await this.collector.sendReport(answer, this.identity, await this.number());
    } catch (error) {
      if (!(error instanceof Trouble) || !FINAL[error.status]) throw error;
      error.final = true;
      await this.memory.mark(answer.collection, FINAL[error.status]);
      throw error;
    }
    await this.memory.mark(answer.collection, "sent");
  }
}
