// One open collection: what it asks, whether this phone answers, and the way to its report.

import { element, facts, say } from "./elements.mjs";
import { decimal } from "./policy.mjs";
import { positionNow, typedPlace } from "./position.mjs";
import { Refusal, insist } from "./refusal.mjs";
import { OPERATORS_WORDS, costWords, leavingWords, learningWords, mapWords, progressWords, windowWords } from "./words.mjs";

// Of this page alone: an app brings its own code.
const PAGE_WORDS = ["What this assumes of the page", "The first operator serves the code of this page unchanged. Other code could "
  + "send it your location itself: what is said above of an operator that deviates is about what it does with shares and sums."];

/** The card of an open collection, for a Device with `onAnswer`. */
export async function collectionCard(listed, device) {
  const card = element("article", { className: "card collection", "data-collection": listed.id });
  const title = element("h3", { tabIndex: -1 }, typeof listed.title === "string" && listed.title ? listed.title : "A collection");
  card.append(title);
  try {
    const terms = await device.terms(listed);
    title.textContent = terms.title || "A collection without a title";
    const plan = await device.plan(terms);
    insist(
      terms.windows === null || plan.kind !== "operators",
      "This collection asks where this phone was in each of its windows, and this page knows only where it is now. "
      + "It needs an app with a record of places.",
    );
    const progress = element("dd", { className: "progress" }, "…");
    const list = facts([
      ["The map", mapWords(plan.tiling)],
      ["What leaves your phone", leavingWords(plan)],
      ...(terms.windows === null ? [] : [["When", windowWords(terms.windows, await device.window(terms))]]),
      ...(plan.kind === "operators" ? OPERATORS_WORDS : []),
      ["What can be learnt from it", learningWords(terms, plan)],
      ...(plan.kind === "operators" ? [PAGE_WORDS] : []),
      ["What it costs", costWords(terms)],
    ]);
    list.append(element("dt", {}, "How far it is"), progress);
    card.append(list, placeForm((find) => prepare(terms, plan, find, device)));
    showProgress(device.collector.progressOf(listed.id), progress);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    card.append(
      element("p", { className: "state bad" }, "This phone does not take part."),
      element("p", { className: "refusal" }, error.message),
    );
  }
  return card;
}

/** Keep a place that is being typed: the fields of a card that another one of its collection replaces. */
export function keepDraft(before, after) {
  const [old, drawn] = [before, after].map((card) => card.querySelector("details"));
  if (!old || !drawn) return;
  drawn.open = old.open;
  const fields = drawn.querySelectorAll("input");
  old.querySelectorAll("input").forEach((input, at) => {
    fields[at].value = input.value;
  });
}

async function showProgress(asked, where) {
  try {
    where.textContent = progressWords(await asked);
  } catch {
    where.textContent = "not known now";
  }
}

/** Two ways to a place. `prepare` is given what finds it. */
function placeForm(prepare) {
  const latitude = element("input", { type: "text", inputMode: "text", className: "lat", autocomplete: "off", placeholder: "40.76" });
  const longitude = element("input", { type: "text", inputMode: "text", className: "lon", autocomplete: "off", placeholder: "-73.97" });
  const trouble = element("p", { className: "state bad", role: "alert", hidden: true });
  const form = element("fieldset", {}, element("legend", {}, "Make your report"));
  const go = async (find) => {
    form.disabled = true;
    trouble.hidden = true;
    try {
      await prepare(find);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      trouble.textContent = error.message;
      trouble.hidden = false;
    } finally {
      form.disabled = false;
    }
  };
  const typed = element(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        go(() => {
          const place = typedPlace(latitude.value, longitude.value);
          [latitude.value, longitude.value] = ["", ""];
          return place;
        });
      },
    },
    element(
      "div",
      { className: "pair" },
      element("div", {}, element("label", {}, "Latitude, degrees", latitude)),
      element("div", {}, element("label", {}, "Longitude, degrees", longitude)),
    ),
    element("button", { type: "submit", className: "use-typed" }, "Make it from this place"),
  );
  form.append(
    element("p", { className: "small quiet" }, "It is made on this phone and shown to you. Nothing is sent yet."),
    element("button", { type: "button", className: "primary use-position", onclick: () => go(positionNow) }, "Make it from my position"),
    element("details", {}, element("summary", {}, "Type a place instead"), typed),
    trouble,
  );
  return form;
}

/** Find the place, make the report, charge and keep it. Nothing is sent. */
async function prepare(terms, plan, find, device) {
  say("Making your report…");
  try {
    const answer = await device.answer(terms, plan, find);
    if (answer === null) {
      throw new Refusal("You are outside this map. No report was made, nothing was charged, and nothing is sent.");
    }
    const cost = terms.epsilon === null ? "" : ` ${decimal(terms.epsilon)} of your budget is spent.`;
    say(`Your report is made.${cost} Look at it, and send it.`);
  } catch (error) {
    say("");
    throw error;
  }
  await device.onAnswer(terms.identifier);
}
