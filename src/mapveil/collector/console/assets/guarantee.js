// The guarantee, in the words that the server rendered from its typed fields.
import { card, el, facts } from "./dom.js";

/** A card of a guarantee's record. */
export function promiseCard(guarantee, title = "What is promised") {
  const { headline, sentences, rows, warnings } = guarantee.promise;
  return card(
    title,
    el(
      "div",
      { class: "promise" },
      el("p", { class: "factor" }, el("strong", {}, headline), ` ${sentences[0]}`),
      ...sentences.slice(1).map((text) => el("p", {}, text)),
      ...warnings.map((text) => el("p", { class: "alert" }, text)),
      el("details", {}, el("summary", {}, "The exact promise"), facts(rows)),
    ),
  );
}
