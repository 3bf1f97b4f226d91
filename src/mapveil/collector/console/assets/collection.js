// One collection: what it asks, how far it is, what can be done with it, and its map.
import { get, poll } from "./api.js";
import { actionsOf } from "./actions.js";
import { alertBox, announce, card, el, facts } from "./dom.js";
import { enrolmentCard } from "./enrolment.js";
import { promiseCard } from "./guarantee.js";
import { progressBar, roundsTable, stateBadge } from "./progress.js";
import { regionView } from "./region_view.js";
import { ACTIVE, duration, epsilonWords, percent, STATES, time, trustName, whole } from "./words.js";

const HELPED = "The sums are answered. This operator is the helper: the leader has the map.";
const ASKED = "Where the collection asks; arrow keys move the map";

/** What a collection of secure sums is promised against a server that does not follow the protocol. */
const guarded = (one) => {
  if (!one.active) return "not guarded against";
  return one.guarantee.adversary === "honest-but-curious server"
    ? "its messages are checked, but only an enrolment authority apart from it makes that a promise"
    : "guarded against";
};

export async function showPage(main, context) {
  const { argument: id, signal, who, heading } = context;
  const title = el("h1", {}),
    badge = el("span", {}),
    now = el("p", { class: "quiet" });
  const actions = el("div", { class: "actions" }),
    refusal = el("div", {}),
    trouble = el("div", {});
  const live = el("div", { class: "stack" }),
    result = el("div", { class: "stack" });
  const below = el("div", { class: "columns wide" });
  main.append(
    el("p", { class: "trail" }, el("a", { href: "#/" }, "← Collections")),
    el("div", { class: "head" }, el("div", {}, el("div", { class: "top" }, title, badge), now), actions),
    refusal,
    trouble,
    result,
    live,
    below,
  );
  let state = null,
    tenth = -1,
    drawn = false;

  async function step() {
    let one, account;
    try {
      one = await get(`/collections/${id}`, signal);
      account = one.trust === "operators" ? await get(`/collections/${id}/account`, signal) : null;
      trouble.replaceChildren();
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401 || state === null) throw error;
      trouble.replaceChildren(alertBox(error.message));
      return 3000;
    }
    const helped = account?.operator === "helper";
    if (one.state !== state) {
      const changed = state !== null;
      state = one.state;
      refusal.replaceChildren();
      heading(one.title || "Untitled");
      title.textContent = one.title || "Untitled";
      badge.replaceChildren(stateBadge(one.state));
      now.textContent =
        one.state === "aborted" && one.reason
          ? `${STATES.aborted[2]} ${one.reason}`
          : helped && one.state === "done"
            ? HELPED
            : STATES[one.state]?.[2] || "";
      // The leader opens, begins and ends what both operators count.
      actions.replaceChildren(...(helped ? [] : actionsOf(one, who, step, refusal)));
      if (changed) announce(`${one.title}: ${STATES[one.state]?.[1]}. ${now.textContent}`);
      below.replaceChildren(...about(one, who, signal, helped));
    }
    live.replaceChildren(...liveParts(one, account));
    if (ACTIVE.includes(one.state)) tenth = tell(one, tenth);
    if (one.state === "done" && !helped && !drawn) {
      drawn = true;
      const { showResult } = await import("./result.js");
      if (!signal.aborted) await showResult(result, one, context);
    }
    return ACTIVE.includes(one.state) ? 1000 : one.state === "pending" ? 4000 : null;
  }
  await poll(step, signal);
}

/** Reads progress out at every tenth only: nobody wants each device announced. */
function tell(one, before) {
  const { present = 0, wanted = 1, round = 0, phase = null } = one.progress || {};
  const tenth = Math.floor((10 * present) / Math.max(1, wanted));
  const mark = `${round} ${phase} ${tenth}`;
  if (mark !== before && before !== -1) announce(`${whole(present)} of ${whole(wanted)} devices`);
  return mark;
}

function liveParts(one, account) {
  const rounds = roundsTable(one);
  const parts = [];
  if (ACTIVE.includes(one.state)) parts.push(card("Now", progressBar(one)));
  if (rounds) parts.push(card("Rounds", rounds));
  if (account) parts.push(accountCard(account));
  return parts;
}

/** What this operator of two answered, and of how many reports; the other one publishes its own. */
function accountCard({ operator, accepted, refused, answers, epsilon }) {
  const why = Object.entries(refused).map(([reason, count]) => `${whole(count)} ${reason}`);
  return card(
    "This operator's own account",
    facts([
      ["Operator", operator],
      ["Reports accepted", whole(accepted)],
      ["Reports refused", why.join(", ") || "none"],
      ["Noisy sums answered", answers.map(({ purpose, sums }) => `${whole(sums)} (${purpose})`).join(", ") || "none"],
      ["Cost of all answers", epsilonWords(epsilon)],
    ]),
    el("p", { class: "hint" }, "The other operator publishes an account of its own, to compare with this one."),
  );
}

function about(one, who, signal, helped) {
  const [west, south, east, north] = one.region;
  const asked = card(
    one.state === "done" ? "What was asked" : "What it asks",
    facts(
      [
        ["Kind of trust", trustName(one.trust)],
        ["Method", one.method],
        ["Cost to each device", one.epsilon === null ? "not counted in ε" : epsilonWords(one.epsilon)],
        ["Cells", one.tiling],
        ["Region", `${west}, ${south} to ${east}, ${north}`],
        ["Devices wanted", whole(one.devices)],
        ["At least", `${whole(one.minimum)} (${percent(one.minimum / one.devices)})`],
        helped ? null : ["Waits for devices", `at most ${duration(one.join_seconds)}`],
        one.trust === "distributed"
          ? ["Each step of a round", `at most ${duration(one.phase_seconds)}`]
          : null,
        one.trust === "distributed"
          ? ["Malicious server", guarded(one)]
          : null,
        ...Object.entries(one.options || {}).map(([name, value]) => [
          name,
          typeof value === "string" ? value : JSON.stringify(value),
        ]),
        ["Made", time(one.created_at)],
        one.opened_at ? ["Opened", time(one.opened_at)] : null,
        one.ended_at ? ["Ended", time(one.ended_at)] : null,
        one.spent && one.epsilon !== null ? ["Spent so far", epsilonWords(one.spent)] : null,
      ],
      one.state === "done",
    ),
    el(
      "p",
      { class: "quiet" },
      "Terms: ",
      el("code", { class: "digest", title: one.terms }, `${String(one.terms).slice(0, 16)}…`),
      " (a digest; devices that were told different terms can never be summed together).",
    ),
    el(
      "p",
      {},
      el("a", { href: `#/audit?collection=${one.id}` }, "Audit log of this collection"),
      " · ",
      el("a", { href: "#/ledger" }, "Ledger"),
    ),
  );
  if (one.state === "done" && !helped) return [asked];
  const waiting = ["pending", "open"].includes(one.state);
  return [
    el(
      "div",
      { class: "stack" },
      waiting && who.role !== "viewer" ? enrolmentCard(one) : null,
      promiseCard(one.guarantee),
      waiting ? regionCard(one.region, signal) : null,
    ),
    asked,
  ];
}

function regionCard(region, signal) {
  const { frame, credit } = regionView(() => region, { label: ASKED, signal });
  return card("Region", frame, credit);
}
