// The promise for somebody who never heard of epsilon.
import { card, el } from "./dom.js";
import { fraction, number } from "./words.js";

const SEES = {
  central: "One trusted curator sees the raw places; whoever sees the map does not.",
  distributed:
    "No place leaves a device in the open: the server learns sums over many devices only, with noise already in them.",
  local: "No place leaves a device as it is: each answer is randomized on the device before it is sent.",
  projection:
    "No place is sent: each device sends where it stands on a wave over the region, which many distant places share.",
};

// What the factor is between: with and without a device's places in secure sums, two places in a report.
const TOSS = {
  distributed: (sure, square) =>
    `Say somebody holds it for a coin toss whether your places are in the map or not. With the map, and with whatever else they know, ` +
    `they can become ${sure} sure, and no surer. Between two places of yours the odds change by × ${square} at most. That your device took part is not hidden from the server.`,
  local: (sure) =>
    `Say somebody holds two places for equally likely to be yours. With your report, and with whatever else they know, they can become ${sure} sure ` +
    "of one of them, and no surer. That your device reported is not hidden from the server.",
};

/** A card of a guarantee's record; `words` are its own sentences, where the map is made. */
export function promiseCard(guarantee, words, title = "What is promised") {
  return card(
    title,
    el("div", { class: "promise" }, ...lines(guarantee), words ? theory(guarantee, words) : null),
  );
}

function lines(guarantee) {
  const epsilon = fraction(guarantee.epsilon);
  const parts = [];
  if (epsilon === null) {
    parts.push(
      el(
        "p",
        { class: "factor" },
        el("strong", {}, "Not differential privacy"),
        " No number bounds what can be learnt from one report; what hides a device is that many places answer alike.",
      ),
    );
  } else {
    const factor = Math.exp(epsilon),
      sure = `${number(100 / (1 + Math.exp(-epsilon)))} %`;
    parts.push(
      el(
        "p",
        { class: "factor" },
        el("strong", {}, `× ${number(factor)} at most`),
        " So much can one person's places change the odds of anything that the map shows, and so of any conclusion drawn from it.",
      ),
    );
    parts.push(
      ...(TOSS[guarantee.trust] ? [el("p", {}, TOSS[guarantee.trust](sure, number(factor ** 2)))] : []),
    );
    if (guarantee.delta) parts.push(el("p", {}, `Except with probability ${number(guarantee.delta)}.`));
  }
  parts.push(el("p", {}, SEES[guarantee.trust] || `Kind of trust: ${guarantee.trust}`));
  if (guarantee.seeded)
    parts.push(
      el("p", { class: "alert" }, "SEEDED: not for release. Whoever knows the seed can take the noise off."),
    );
  return parts;
}

function theory(guarantee, words) {
  const measured = (guarantee.measured || []).map((each) =>
    el("li", {}, `${each.quantity}: ${number(each.value)} ${each.unit}, against ${each.against}`),
  );
  return el(
    "details",
    {},
    el("summary", {}, "The exact promise"),
    el("p", {}, words),
    measured.length ? [el("p", {}, "Measured:"), el("ul", {}, measured)] : null,
    (guarantee.shares || []).length
      ? [
          el("p", {}, "How it was spent:"),
          el(
            "ul",
            {},
            guarantee.shares.map((share) =>
              el("li", {}, `ε = ${number(fraction(share.epsilon), 4)} on ${share.purpose}`),
            ),
          ),
        ]
      : null,
  );
}
