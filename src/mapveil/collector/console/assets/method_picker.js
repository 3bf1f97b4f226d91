// The method of a new collection and its parameters: the usual ones, unless somebody knows better.
import { el } from "./dom.js";
import { field } from "./fields.js";
import { METHODS } from "./methods.js";

/** A folded card; `value()` is {method, options}, and throws where the parameters are no JSON object: an invalid field. */
export function methodPicker() {
  const method = el("select", { id: "method" });
  const options = el("textarea", { id: "options", rows: 3, spellcheck: "false", placeholder: "{}" });
  const element = el(
    "details",
    { class: "card" },
    el("summary", {}, "Method and its parameters"),
    el(
      "div",
      { class: "form" },
      field("Method", method),
      field("Parameters as JSON", options, 'Such as {"shard_size": 200}. Empty: the usual ones.'),
    ),
  );
  const read = () => {
    const found = options.value.trim() ? JSON.parse(options.value) : {};
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error("expected an object");
    return found;
  };
  options.addEventListener("input", () => {
    options.setCustomValidity("");
    try {
      read();
    } catch (error) {
      options.setCustomValidity(error.message);
    }
  });
  // A browser cannot show what is wrong in a folded card.
  options.addEventListener("invalid", () => {
    element.open = true;
  });
  let shown = null;
  return {
    element,
    name: () => method.value,
    renew(trust) {
      if (shown === trust) return;
      shown = trust;
      method.replaceChildren(
        ...METHODS[trust].map(([name, text], at) =>
          el("option", { value: name }, `${name}${at === 0 ? " (the usual)" : ""}: ${text}`),
        ),
      );
    },
    value: () => ({ method: method.value, options: read() }),
  };
}
