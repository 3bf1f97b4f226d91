// How far a collection is: a badge, a bar, and the rounds.
import { el, freshId, table } from "./dom.js";
import { duration, epsilonWords, number, PHASES, STATES, whole } from "./words.js";

export function stateBadge(state) {
  const [mark, name] = STATES[state] || ["·", state];
  return el("span", { class: `badge ${state}` }, el("span", { "aria-hidden": "true" }, `${mark} `), name);
}

/** What is being waited for, in words. */
export function doing(one) {
  const progress = one.progress || {};
  if (one.state === "finishing") return "The map is being made";
  if (one.trust !== "distributed") return "Reports come in";
  if (progress.round === 0 || progress.phase === null || progress.phase === undefined) return "Devices join";
  const phase = PHASES[progress.phase] || progress.phase;
  // Without checks of consistency nobody consents.
  const steps = Object.keys(PHASES).filter((name) => one.active || name !== "consents");
  const step = `step ${steps.indexOf(progress.phase) + 1} of ${steps.length}`;
  return `Round ${progress.round}: ${step}, ${progress.open === false ? "the phase is being closed" : phase}`;
}

/** A bar with what is awaited, how many are there, and how long is left. */
export function progressBar(one) {
  const progress = one.progress || {};
  const present = progress.present ?? 0,
    wanted = progress.wanted ?? one.devices;
  const id = freshId("progress");
  const rest =
    one.state === "finishing" || progress.closes_in_s === null || progress.closes_in_s === undefined
      ? ""
      : `at most ${duration(progress.closes_in_s)} left`;
  return el(
    "div",
    { class: "progress" },
    el(
      "div",
      { class: "top" },
      el("span", { id }, doing(one)),
      el(
        "span",
        { class: "quiet" },
        [`${whole(present)} of ${whole(wanted)}`, rest].filter(Boolean).join(" · "),
      ),
    ),
    el("progress", { max: Math.max(1, wanted), value: Math.min(present, wanted), "aria-labelledby": id }),
  );
}

const STANDS = {
  closing: "the phase is being closed",
  restarted: "gave no sum, because too many devices left or failed: the next round asks the same again",
};

/** The devices in the sums of a round. */
function included(each) {
  if (each.state === "restarted") return "none";
  if (each.included === null || each.included === undefined) return "not known yet";
  return `${whole(each.included)} (${number((100 * each.included) / Math.max(1, each.asked))} %)`;
}

/** What was asked in each round, and what it cost each device. */
export function roundsTable(one) {
  const rounds = one.rounds || [];
  if (rounds.length === 0) return null;
  return table(
    "Rounds",
    ["Round", "What for", "Numbers", "Asked", "In the sums", "Cost", "State"],
    rounds.map((each) => [
      String(each.number),
      each.purpose || "",
      each.length ? `${whole(each.length)} × ${each.bits} bits` : "",
      whole(each.asked),
      included(each),
      epsilonWords(each.epsilon),
      [STANDS[each.state] || each.state || each.phase, each.left_out ? `${whole(each.left_out)} of ${whole(each.shards)} shards left out` : ""]
        .filter(Boolean)
        .join(", "),
    ]),
    [0, 2, 3, 4, 5],
  );
}
