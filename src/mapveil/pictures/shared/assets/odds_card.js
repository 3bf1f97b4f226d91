// A card of the odds that a release leaves: how sure somebody can become who was so sure before. Bayes' rule, with the
// factor e^epsilon between two hypotheses; bounds are rounded outward.
import { card, el, factRows, freshId } from "./dom.js";

const MOST_RELEASES = 10;

/** Bounds of the belief, per cent, of somebody who was `before` per cent sure, and whom a factor of e^`epsilon` moves. */
export function beliefAfter(before, epsilon) {
  const prior = before / 100,
    factor = Math.exp(epsilon),
    most = Number.isFinite(factor) ? (100 * prior * factor) / (prior * factor + 1 - prior) : 100,
    least = (100 * prior) / (prior + (1 - prior) * factor);
  return [Math.floor(least * 100) / 100, Math.ceil(most * 100) / 100];
}

/** The same in words; a belief of less than 1 is never called one of 100 per cent, nor one above 0 none. */
export function beliefWords(before, epsilon) {
  const [least, most] = beliefAfter(before, epsilon);
  return `${least < 0.01 ? "below 0.01" : least}\u00a0% to ${most > 99.99 ? "over 99.99" : most}\u00a0%`;
}

/** The card of a record's odds; null where nothing is bounded. */
export function oddsCard(odds) {
  if (!odds?.length) return null;
  const facts = el("dl", { class: "facts" });
  const slider = (text, min, max, value) => {
    const id = freshId("odds"),
      shown = el("output", { for: id }),
      input = el("input", { id, type: "range", min, max, value, on: { input: () => say() } });
    return { input, shown, field: el("div", { class: "field" }, el("label", { for: id }, text, shown), input) };
  };
  const before = slider("Sure beforehand: ", 1, 99, 50),
    releases = slider("Releases like this about the same people: ", 1, MOST_RELEASES, 1);
  function say() {
    before.shown.textContent = `${before.input.value} %`;
    releases.shown.textContent = releases.input.value;
    facts.replaceChildren(
      ...factRows(
        odds.map(({ between, epsilon }) => [between, beliefWords(Number(before.input.value), epsilon * releases.input.value)]),
      ),
    );
  }
  say();
  return card(
    "How sure can somebody become?",
    before.field,
    releases.field,
    facts,
    el(
      "p",
      { class: "hint" },
      "From the release, whatever else they know; delta aside. Releases add up: their epsilons are summed. A limit, not a forecast.",
    ),
  );
}
