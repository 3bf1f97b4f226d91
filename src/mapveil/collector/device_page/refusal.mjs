// Why this device does not answer: words for the person who holds it.

export class Refusal extends Error {}

/** Refuse unless a condition holds. */
export function insist(condition, words) {
  if (!condition) throw new Refusal(words);
}
