// The account in one record of text, kept by functions of the app: for files, databases and keychains.

import { fromHex, hex } from "./lib/bytes.mjs";

const write = (_, value) => (value instanceof Uint8Array ? { $bytes: hex(value) } : value);
const read = (_, value) => (typeof value?.$bytes === "string" ? fromHex(value.$bytes) : value);

/** A storage whose whole state is one text.
 *
 * `load` returns the text or null, `save` is over once the text is kept for good: the account is as lasting as it. No
 * two storages may use one text at a time. The text holds the device's private key.
 */
export class RecordStorage {
  keepsKeys = false;
  #turn = Promise.resolve();

  constructor({ load, save }) {
    Object.assign(this, { load, save });
  }

  /** Run `work` on the stores after all work before it; what it returns, once all of it is kept. What throws changes nothing. */
  run(work) {
    const made = this.#turn.then(() => this.#run(work));
    this.#turn = made.catch(() => {});
    return made;
  }

  async #run(work) {
    const text = await this.load();
    const state = text === null ? { kept: {}, answers: {} } : JSON.parse(text, read);
    const view = (record, keyOf) => ({
      get: async (key) => (Object.hasOwn(record, key) ? record[key] : undefined),
      all: async () => Object.values(record),
      put: (value, key) => { record[keyOf(value, key)] = value; },
    });
    const made = await work({
      kept: view(state.kept, (_, name) => name),
      answers: view(state.answers, ({ collection }) => collection),
    });
    const after = JSON.stringify(state, write);
    if (after !== text) await this.save(after);
    return made;
  }
}
