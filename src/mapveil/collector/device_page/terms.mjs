// The terms of a collection: all that this device is told before its owner decides (mapveil_client/terms.py).

import { fromHex, hex, same, sha256, text, utf8 } from "./bytes.mjs";
import { parse, plain, write } from "./exact_json.mjs";
import { Fraction } from "./fraction.mjs";
import { readConfig } from "./operators_report.mjs";
import { insist } from "./refusal.mjs";
import { Windows } from "./windows.mjs";

const VERSION = 1;
const MOST_BYTES = 2 ** 24;
const FIELDS = [
  "active", "authority", "authority_apart", "devices", "epsilon", "identifier", "method", "minimum", "options",
  "own_epsilon", "query", "tiling", "title", "trust", "version",
];
const TRUSTS = ["distributed", "local", "operators", "random-features"];
const BROKEN = "The collector's terms are no terms of this version; this page takes no part.";

const whole = (value, least) => Number.isSafeInteger(value) && value >= least;
const record = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Read terms as they came; a Refusal for anything that is none. They must be in their one encoding. */
export async function readTerms(bytes) {
  let exact = null;
  try {
    insist(bytes.length <= MOST_BYTES, BROKEN);
    exact = parse(text(bytes));
  } catch {
    insist(false, BROKEN);
  }
  insist(exact instanceof Map && same(utf8(write(exact)), bytes), BROKEN);
  const terms = plain(exact);
  const series = Object.hasOwn(terms, "windows") ? ["windows"] : [];
  const own = { operators: ["operators", ...series], local: series, distributed: series }[terms.trust] ?? [];
  const fields = [...FIELDS, ...own].sort();
  insist(Object.keys(terms).sort().join() === fields.join() && terms.version === VERSION, BROKEN);
  insist(/^[0-9a-f]{32}$/.test(terms.identifier) && TRUSTS.includes(terms.trust), BROKEN);
  insist(typeof terms.title === "string" && [...terms.title].length <= 200 && typeof terms.method === "string", BROKEN);
  insist(record(terms.options) && record(terms.tiling) && typeof terms.active === "boolean", BROKEN);
  insist(whole(terms.minimum, 3) && whole(terms.devices, terms.minimum), BROKEN);
  let [query, epsilon, operators] = [new Uint8Array(0), null, null];
  try {
    if (terms.trust === "operators") operators = keysOf(terms);
    query = fromHex(terms.query);
    if (terms.epsilon !== null) epsilon = Fraction.read(terms.epsilon);
  } catch {
    insist(false, BROKEN);
  }
  insist((query.length > 0) === (terms.trust === "random-features") && (epsilon === null) === (terms.trust === "random-features"), BROKEN);
  const windows = terms.trust !== "distributed" && series.length ? new Windows(terms.windows) : null;
  return { ...terms, windows, query, epsilon, operators, tilingRecord: exact.get("tiling"), digest: hex(await sha256(bytes)) };
}

/** Both operators' keys, the leader's first. */
function keysOf({ operators, active, authority }) {
  const keys = operators.map((digits) => readConfig(fromHex(digits)));
  if (keys.length !== 2 || same(keys[0].publicKey, keys[1].publicKey) || active || authority !== null) throw new Error(BROKEN);
  return keys;
}
