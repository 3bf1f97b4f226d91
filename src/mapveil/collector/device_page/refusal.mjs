// Why this device does not answer: words for the person who holds it.

export class Refusal extends Error {}

export const CHANGED = "The collector gave other terms than it announced; this page takes no part.";

/** Refuse unless a condition holds. */
export function insist(condition, words) {
  if (!condition) throw new Refusal(words);
}
