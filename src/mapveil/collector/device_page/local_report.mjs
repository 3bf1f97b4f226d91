// A local report: which randomizer a collection asks for, and the one message that is sent (mapveil/local/randomizers/message.py).

import { decode, encode } from "./cbor.mjs";
import { sha256, utf8 } from "./bytes.mjs";
import { HierarchicalHashing, Hashing } from "./hashing.mjs";
import { PlanarLaplace } from "./planar_laplace.mjs";
import { Subset, Unary } from "./random_sets.mjs";
import { insist } from "./refusal.mjs";
import { Staircase } from "./staircase.mjs";
import { Generalized, Hadamard } from "./symbols.mjs";

const VERSION = 1;
const SHARED = { estimator: "smoothed-em", place: "most-visited", outside: "drop" };

/** The methods of this page: the randomizer, its options with their defaults, and what its report is, in words. */
export const METHODS = {
  grr: {
    randomizer: Generalized,
    options: {},
    words: "the number of one cell: sometimes yours, often any other",
  },
  srr: {
    randomizer: Staircase,
    options: { groups: null, thresholds: null },
    words: "the number of one cell drawn at random, the nearer to yours the likelier",
  },
  hr: {
    randomizer: Hadamard,
    options: { blocks: null },
    words: "one random number, which could have come from any cell",
  },
  unary: {
    randomizer: Unary,
    options: { variant: "optimized" },
    words: "a random yes or no for every cell of the map, with yours a little likelier to be a yes",
  },
  subset: {
    randomizer: Subset,
    options: { subset: null },
    words: "a random list of cells, which holds yours more often than any other",
  },
  olh: {
    randomizer: Hashing,
    options: { buckets: null },
    words: "one random number, which could have come from any cell",
  },
  "olh-h": {
    randomizer: HierarchicalHashing,
    options: { buckets: null, growth: 8, site_weight: 4 },
    words: "one random number, which could have come from any cell",
  },
  "planar-laplace": {
    randomizer: PlanarLaplace,
    options: {},
    words: "the number of one cell drawn at random, the nearer to yours the likelier",
  },
};

const LEFT_OUT = {
  disk: "The disk method needs tables that only the app computes; this page takes no part.",
};

/** The method of a collection's terms with all its options; a Refusal for one that this page has not. */
export function methodOf(name, given) {
  insist(!Object.hasOwn(LEFT_OUT, name), LEFT_OUT[name]);
  insist(Object.hasOwn(METHODS, name), "This page does not know how the collection randomizes; it takes no part.");
  const known = { ...SHARED, ...METHODS[name].options };
  for (const key of Object.keys(given)) {
    insist(Object.hasOwn(known, key), "The collection has an option that this page does not know; it takes no part.");
  }
  const options = { ...known, ...given };
  insist(["drop", "nearest", "refuse"].includes(options.outside), "The collection says nothing of places outside.");
  return { ...METHODS[name], options };
}

/** 16 bytes that tell this randomizer from every other, whatever the domain. */
export async function settingFingerprint(randomizer) {
  const { kind } = randomizer.constructor;
  const record = `mapveil local setting ${VERSION} ${kind} ${randomizer.size} ${randomizer.identity}`;
  return (await sha256(utf8(record))).slice(0, 16);
}

/** Encode a report: a symbol (BigInt), or a set of sites (bytes); in a series with the window that was drawn. */
export async function writeReport(value, randomizer, domain, window = null) {
  const { kind } = randomizer.constructor;
  return encode([VERSION, kind, domain.fingerprint, await settingFingerprint(randomizer), value, ...(window === null ? [] : [window])]);
}

/** What a report holds, for showing it. */
export function readReport(message) {
  const [version, kind, domain, setting, value, window = null] = decode(message);
  return { version, kind, domain, setting, value, window };
}
