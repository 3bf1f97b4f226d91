// The account in a file that only its owner reads, replaced whole and only once the new one is on the disk.

import { open, readFile, rename } from "node:fs/promises";
import { dirname } from "node:path";

import { RecordStorage } from "./record_storage.mjs";

async function synced(path, flags, text = null) {
  const file = await open(path, flags, 0o600);
  try {
    if (text !== null) await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

export class FileStorage extends RecordStorage {
  constructor(path) {
    super({
      load: () => readFile(path, "utf8").catch((error) => {
        if (error.code === "ENOENT") return null;
        throw error;
      }),
      save: async (text) => {
        await synced(`${path}.new`, "w", text);
        await rename(`${path}.new`, path);
        await synced(dirname(path), "r");
      },
    });
  }
}
