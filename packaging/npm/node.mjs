// In Node: WebCrypto where Node 18 hides it, and a storage in a file. What follows is loaded once both are there.

import "./node_crypto.mjs";

export * from "./index.mjs";
export { FileStorage } from "./file_storage.mjs";
