// What this device takes part in: decided from public documents and its own account, before its place is looked at.

import { fromHex, hex } from "./bytes.mjs";
import { levelsOf } from "./contribution.mjs";
import { Domain, domainFingerprint } from "./domain.mjs";
import { Fraction } from "./fraction.mjs";
import { methodOf } from "./local_report.mjs";
import { isPath, vectorBytes } from "./operators_report.mjs";
import { Refusal, insist } from "./refusal.mjs";
import { tilingOf } from "./tilings.mjs";
import { asksAboutMap, checkedJitter, pinOf, queryRefusal, readQuery } from "./random_features.mjs";

/** The rules; nobody but the owner of the device can change them. */
export const RULES = {
  lifetime: Fraction.read("4"),
  mostPerCollection: Fraction.read("2"),
  leastDevices: 20,
  mostFeatureAnswers: 8, // as many as docs/explanation/localisation.md measures of a device on its way
};

/** What the kept answers have cost together. */
export function spentBy(answers) {
  return answers.reduce((sum, { epsilon }) => (epsilon === null ? sum : sum.plus(Fraction.read(epsilon))), new Fraction(0n));
}

/** A refusal where an epsilon is more than the rules or the account allow. */
export function checkBudget(epsilon, answers, rules = RULES) {
  insist(
    !epsilon.exceeds(rules.mostPerCollection),
    `It would cost ${decimal(epsilon)} of your privacy budget; this phone spends at most ${decimal(rules.mostPerCollection)} at once.`,
  );
  const spent = spentBy(answers);
  insist(
    !spent.plus(epsilon).exceeds(rules.lifetime),
    `It would cost ${decimal(epsilon)}, and only ${decimal(rules.lifetime.minus(spent))} of this phone's lifetime budget is left.`,
  );
}

/** A fraction for people, rounded to three decimals. */
export const decimal = (fraction) => String(Math.round(fraction.toNumber() * 1000) / 1000);

const UNUSABLE = "The collector's terms cannot be used; this page takes no part.";
const DEFAULT_SCALE = 1;
const MOST_SCALE = 2 ** 28;
const LONGEST_VECTOR = 2 ** 14;
const MOST_REPORT_BYTES = 2 ** 22; // the longest vector has 2.9 MB at 1,024 units
const LEAST = new Fraction(1n, 1n << 20n);

/** Run `work`; a Refusal for whatever the terms make it fail with. */
async function orRefuse(work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(UNUSABLE);
  }
}

/** The device's answer to a collection; a Refusal where it gives none.
 *
 * What takes long is left to the plan's `ready`, which is to be awaited before the place is looked at: it may still
 * refuse.
 */
export async function planOf(terms, { answers, pin, helper = null }, rules = RULES) {
  insist(
    terms.trust !== "distributed",
    "This collection adds up masked answers in several rounds. That needs the Mapveil app; a web page cannot take part.",
  );
  insist(
    terms.minimum >= rules.leastDevices,
    `It would make a map of as few as ${terms.minimum} phones; this phone answers where ${rules.leastDevices} or more are needed.`,
  );
  return orRefuse(() => {
    if (terms.trust === "local") return localPlan(terms, answers, rules);
    return terms.trust === "operators" ? operatorsPlan(terms, answers, helper, rules) : projectionPlan(terms, pin, rules);
  });
}

async function localPlan(terms, answers, rules) {
  const { randomizer: Kind, options, words } = methodOf(terms.method, terms.options);
  insist(!LEAST.exceeds(terms.epsilon), UNUSABLE);
  checkBudget(terms.epsilon, answers, rules);
  const tiling = tilingOf(terms.tiling);
  insist(tiling.georeferenced, "The map of this collection lies nowhere on Earth.");
  const domain = new Domain(tiling, await domainFingerprint(terms.tilingRecord));
  let randomizer = null;
  const ready = () => orRefuse(() => {
    randomizer ??= new Kind(domain, terms.epsilon, options);
    return randomizer;
  });
  return { kind: "local", tiling, domain, words, outside: options.outside, ready };
}

/** `helper` is the second operator's public key that this device's owner was told, 64 hexadecimal digits, or null. */
function operatorsPlan(terms, answers, helper, rules) {
  insist(
    helper !== null,
    "Two operators add this up, and this phone was not told whom to trust as the second. Open an invitation that names its key.",
  );
  insist(
    hex(terms.operators[1].publicKey) === helper,
    "Two operators add this up, and the second is not the one that this phone was told to trust.",
  );
  insist(!LEAST.exceeds(terms.epsilon), UNUSABLE);
  checkBudget(terms.epsilon, answers, rules);
  const tiling = tilingOf(terms.tiling);
  insist(tiling.georeferenced, "The map of this collection lies nowhere on Earth.");
  const scale = terms.options.scale ?? DEFAULT_SCALE;
  insist(Number.isSafeInteger(scale) && scale >= 1 && scale <= MOST_SCALE, UNUSABLE);
  insist(terms.method !== "proportions", "It asks for a label of every place, and this phone has none.");
  const batch = terms.options.minimum_batch ?? 1; // an operator answers for no fewer than `minimum`, which is in bounds
  insist(Number.isSafeInteger(batch) && batch >= 1 && batch <= terms.devices, UNUSABLE);
  const depth = tiling.depth + (terms.windows === null ? 0 : levelsOf(terms.windows.count));
  const question = { depth, scale, task: fromHex(terms.digest), operators: terms.operators };
  const short = isPath(question) || 4 ** question.depth <= LONGEST_VECTOR;
  const times = terms.windows === null ? "" : " and windows";
  insist(short, `The map of this collection has too many cells${times} for a report of this page.`);
  insist(
    isPath(question) || vectorBytes(question) <= MOST_REPORT_BYTES,
    "A report to this collection would be larger than 4 MiB; this phone makes none so large.",
  );
  const [cell, cells] = terms.windows === null ? ["your cell", "all cells"] : ["one cell in one window", "all cells in all windows"];
  const words = isPath(question) ? `${cell}, divided into two shares` : `numbers for ${cells}, divided into two shares`;
  return { kind: "operators", tiling, windows: terms.windows, question, words, outside: "keep", ready: async () => null };
}

/** A refusal where a collection would be one more than this device ever answers with its frequency. */
export function checkAnswers(pin, collection, rules = RULES) {
  const counted = pin?.collections ?? [];
  insist(
    counted.includes(collection) || counted.length < rules.mostFeatureAnswers,
    `This phone answers ${rules.mostFeatureAnswers} collections of this kind in its life, and has answered as many.`,
  );
}

/** `pin` is what this device was pinned to, with the collections that it looked at a place for; null before the first. */
function projectionPlan(terms, pin, rules) {
  const jitter = checkedJitter(terms.method, terms.options);
  const query = readQuery(terms.query);
  const refusal = queryRefusal(query, pin, jitter);
  insist(refusal === null, refusal);
  checkAnswers(pin, terms.identifier, rules);
  const tiling = tilingOf(terms.tiling);
  insist(tiling.georeferenced, "The map of this collection lies nowhere on Earth.");
  insist(asksAboutMap(query, tiling.bbox), "Its question is about another region than its map; this page takes no part.");
  const words = "the phase of your location at one random frequency that this phone keeps";
  return { kind: "random-features", tiling, query, jitter, pin: pinOf(query, jitter), words, ready: async () => null };
}
