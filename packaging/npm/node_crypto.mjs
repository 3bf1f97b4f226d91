// Node 18 has WebCrypto as a module, and no global of it.

import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto;
