// Fields of a form: a label, an input, and what it means.
import { el, freshId } from "./dom.js";

/** A labelled input; a hint may be text, or an element whose text changes. */
export function field(label, input, hint = null) {
  input.id ||= freshId("field");
  const help = typeof hint === "string" ? el("p", { class: "hint" }, hint) : hint;
  if (help) {
    help.id = `${input.id}-hint`;
    input.setAttribute("aria-describedby", help.id);
  }
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, help);
}

export const numeric = (id, value, min, max, step = 1) =>
  el("input", { id, type: "number", value, min, max, step, required: true, inputmode: "decimal" });

export const choice = (input, ...texts) => el("label", { class: "choice", for: input.id }, input, ...texts);
