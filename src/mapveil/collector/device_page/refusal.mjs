// Why this device does not answer: words for the person who holds it.

export class Refusal extends Error {}

export const CHANGED = "The collector gave other terms than it announced; this page takes no part.";
export const NO_KEY = "The key of the second operator must be 64 hexadecimal digits; this one was not kept.";
export const OTHER_KEY = "This device trusts another second operator already, whose key it keeps for good.";

/** Refuse unless a condition holds. */
export function insist(condition, words) {
  if (!condition) throw new Refusal(words);
}
