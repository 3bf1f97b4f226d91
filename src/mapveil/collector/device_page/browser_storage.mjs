// The browser's database: every write is finished on the disk before anything leaves.

const NAME = "mapveil-device";
const VERSION = 1;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const view = (store) => ({
  get: (key) => done(store.get(key)),
  all: () => done(store.getAll()),
  put: (...value) => store.put(...value),
});

/** A storage of memory.mjs in IndexedDB; it keeps keys that no script can read. */
export class BrowserStorage {
  keepsKeys = true;

  constructor(database) {
    this.database = database;
  }

  static async open() {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("kept");
      request.result.createObjectStore("answers", { keyPath: "collection" });
    };
    return new BrowserStorage(await done(request));
  }

  /** Run `work` on the stores in one transaction; what it returns, once all of it is on the disk. */
  async run(work) {
    const transaction = this.database.transaction(["kept", "answers"], "readwrite", { durability: "strict" });
    const finished = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    finished.catch(() => {}); // it is awaited below, unless the work itself throws
    let made;
    try {
      made = await work({ kept: view(transaction.objectStore("kept")), answers: view(transaction.objectStore("answers")) });
    } catch (error) {
      transaction.abort();
      throw error;
    }
    await finished;
    return made;
  }
}
