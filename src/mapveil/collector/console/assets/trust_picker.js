// Who sees what: the first choice of a new collection, and what it costs each device.
import { el } from "./dom.js";
import { field } from "./fields.js";
import { fraction, number, TRUST } from "./words.js";

const REASON =
  "Recommended here: a helper is configured, so a device sends one message, waits for nobody, and a malformed report " +
  "is refused by proof.";

/** Cards of the kinds of trust that the service runs, the recommended one first; `value()` is the chosen one. */
export function trustPicker(offered) {
  const cards = offered.map((name, at) => {
    const [short, long] = TRUST[name];
    return el(
      "label",
      { class: "choice block" },
      el("input", { type: "radio", name: "trust", value: name, checked: at === 0 }),
      el("span", {}, el("strong", {}, short), " ", long, name === "operators" ? ` ${REASON}` : null),
    );
  });
  const element = el("fieldset", { class: "cards" }, el("legend", {}, "Who sees what"), cards);
  return { element, value: () => element.querySelector("input:checked").value };
}

/** Epsilon, or for a projection its bandwidth; `renew(trust)` shows the one that goes with it. */
export function costPicker() {
  const epsilon = el("input", {
    id: "epsilon",
    type: "text",
    inputmode: "decimal",
    pattern: "\\d+(\\.\\d+)?|\\d+/\\d+",
    required: true,
    value: "1",
  });
  const meaning = el("p", { class: "hint" });
  const epsilonField = field("Privacy cost to each device (ε)", epsilon, meaning);
  const bandwidth = el("input", {
    id: "bandwidth",
    type: "number",
    min: 1,
    step: "any",
    inputmode: "decimal",
    placeholder: "by the public rule",
  });
  const bandwidthField = field(
    "Bandwidth, metres",
    bandwidth,
    "How far each answer is smeared. A device answers 1, 5, 9, … times the smallest that it allows, and no other.",
  );
  return {
    elements: [epsilonField, bandwidthField],
    renew(trust) {
      const projecting = trust === "random-features",
        spent = fraction(epsilon.value);
      epsilonField.hidden = epsilon.disabled = projecting;
      bandwidthField.hidden = !projecting;
      meaning.textContent =
        spent > 0
          ? `The probability of any outcome changes by a factor of at most e^ε, about ${number(Math.exp(spent))}. ` +
            "Smaller is more private, and noisier."
          : "A number above 0, such as 1 or 1/3.";
    },
    epsilon: (trust) => (trust === "random-features" ? {} : { epsilon: epsilon.value.trim() }),
    options: (trust) =>
      trust === "random-features" && bandwidth.value ? { bandwidth_m: Number(bandwidth.value) } : {},
  };
}
