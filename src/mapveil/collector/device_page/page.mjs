// The page of the browser device: consent, enrolment, budget, open collections, answers.

import { answerCard } from "./answer_card.mjs";
import { BrowserStorage } from "./browser_storage.mjs";
import { collectionCard, keepDraft } from "./collection_card.mjs";
import { Trouble } from "./connection.mjs";
import { Device } from "./device.mjs";
import { byId, element, say } from "./elements.mjs";
import { RULES, decimal, spentBy } from "./policy.mjs";
import { NO_KEY, OTHER_KEY, Refusal } from "./refusal.mjs";
import { limitWords } from "./words.mjs";

const INVITATION = /^#enrol=(mve_[\w-]+)(?:&helper=(.*))?$/;

let device;
let invited; // the second operator's key, as the address named it

function unable(words) {
  const notice = byId("unable");
  notice.textContent = words;
  notice.hidden = false;
}

/** To the top of what is new, for eyes and for screen readers. */
function focusMain() {
  byId("main").focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** A token, and the second operator's key, of the address's fragment, which never leaves the browser; it is taken off. */
function invitation() {
  const found = INVITATION.exec(window.location.hash);
  if (found) window.history.replaceState(null, "", window.location.pathname);
  return { token: found?.[1] ?? "", helper: found?.[2] ?? "" };
}

/** Show the sections that are due. */
async function show() {
  const agreed = Boolean(await device.memory.get("consent"));
  const enrolled = (await device.number()) !== null;
  byId("limit").textContent = limitWords(RULES);
  byId("consent").hidden = agreed;
  byId("enrolment").hidden = !agreed || enrolled;
  byId("budget").hidden = !agreed;
  byId("second").hidden = !agreed || !enrolled || !invited || Boolean(await device.memory.get("helper"));
  byId("open").hidden = !agreed || !enrolled;
  await showBudget();
  await showAnswers();
  if (!byId("open").hidden) await showCollections();
}

async function showBudget() {
  const spent = spentBy(await device.memory.answers());
  const meter = byId("budget-meter");
  [meter.max, meter.value] = [RULES.lifetime.toNumber(), spent.toNumber()];
  meter.setAttribute("aria-label", "Privacy budget spent");
  byId("budget-words").textContent = `${decimal(spent)} of ${decimal(RULES.lifetime)} spent, `
    + `${decimal(RULES.lifetime.minus(spent))} left for the lifetime of this phone. No collection is given more than `
    + `${decimal(RULES.mostPerCollection)}, and at ${decimal(RULES.lifetime)} this phone stops answering.`;
}

async function showAnswers(message = null, about = null) {
  const [answers, number] = [await device.memory.answers(), await device.number()];
  for (const [section, list, found] of [
    ["ready", "unsent", answers.filter(({ state }) => state === "made")],
    ["past", "answers", answers.filter(({ state }) => state !== "made")],
  ]) {
    byId(section).hidden = found.length === 0 || number === null;
    byId(list).replaceChildren(...found.map((answer) => {
      const card = answerCard(answer, device);
      if (message && answer.collection === about) card.append(element("p", { className: "state bad", role: "alert" }, message));
      return card;
    }));
  }
}

let asked = 0;

/** The open collections that this phone has not answered, as the latest question finds them. */
async function showCollections() {
  const where = byId("collections");
  const question = ++asked;
  try {
    const listed = await device.collections();
    const cards = [];
    for (const each of listed.filter(({ answered }) => !answered)) {
      cards.push(await collectionCard(each, device).catch((error) => trouble(error, each)));
    }
    if (question !== asked) return; // an older list would offer what is answered since
    redraw(where, cards);
    byId("none-open").hidden = cards.length > 0;
    byId("none-open").textContent = listed.length > 0
      ? "You have answered every collection that is open now."
      : "No collection is open now. Look again later.";
  } catch (error) {
    if (question !== asked) return;
    where.replaceChildren(trouble(error));
    byId("none-open").hidden = true;
  }
}

/** Replace the cards; what is typed in one stays, and the cursor with it. */
function redraw(where, cards) {
  const active = document.activeElement;
  const typing = where.contains(active) && active.matches("input") ? active : null;
  for (const card of cards) {
    const before = [...where.children].find((each) => each.dataset.collection === card.dataset.collection);
    if (!before) continue;
    keepDraft(before, card);
    if (typing && before.contains(typing)) {
      const at = [...before.querySelectorAll("input")].indexOf(typing);
      queueMicrotask(() => card.querySelectorAll("input")[at]?.focus());
    }
  }
  where.replaceChildren(...cards);
}

/** A card that says what went wrong on the way to the collector. */
function trouble(error, listed = null) {
  if (!(error instanceof Trouble)) throw error;
  const card = element("article", { className: "card" }, element("p", { className: "state bad" }, error.message));
  if (listed) card.dataset.collection = listed.id;
  return card;
}

async function onAnswer(collection, message = null) {
  // Asking for the open collections takes a while; what is answered must not be offered until then.
  [...byId("collections").children].find((each) => each.dataset.collection === collection)?.remove();
  await showBudget();
  await showAnswers(message, collection);
  await showCollections();
  const card = [...document.querySelectorAll("article.answer")].find((each) => each.dataset.collection === collection);
  card?.querySelector("h3").focus();
}

async function enrolWith(token, helper) {
  say("Enrolling this phone…");
  byId("enrol").disabled = true;
  try {
    await device.enrol(token);
    if (helper) await device.trustHelper(helper);
    say("This phone is enrolled.");
    byId("token").value = "";
    await show();
    focusMain();
  } catch (error) {
    if (!(error instanceof Trouble || error instanceof Refusal)) throw error;
    say(error.message);
  } finally {
    byId("enrol").disabled = false;
  }
}

async function start() {
  const { token, helper } = invitation();
  const isKey = /^[0-9a-f]{64}$/i.test(helper);
  invited = isKey ? helper.toLowerCase() : "";
  byId("token").value = token;
  byId("helper").value = byId("second-key").textContent = invited;
  if (!window.isSecureContext || !window.crypto?.subtle) {
    unable("This page needs a secure connection (https), to sign what it sends. Ask whoever runs the collector for one.");
    return;
  }
  let storage;
  try {
    storage = await BrowserStorage.open();
  } catch {
    unable("This browser does not let the page keep anything, so that it could not count its budget. A private window may be why.");
    return;
  }
  try {
    device = Object.assign(await Device.open({ storage }), { onAnswer });
  } catch {
    unable("This browser cannot keep an Ed25519 key. A newer one can (Chrome 137, Firefox 130, Safari 17).");
    return;
  }
  navigator.storage?.persist?.(); // asks the browser not to forget the budget when space runs out
  const kept = await device.memory.get("helper");
  if (helper && !isKey) unable(NO_KEY);
  else if (invited && kept && kept !== invited) unable(OTHER_KEY);
  byId("trust").addEventListener("click", async () => {
    try {
      await device.trustHelper(invited);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      unable(error.message); // another window was first
    }
    await show();
    focusMain();
  });
  // An invitation that is opened where the page is already changes the fragment alone.
  window.addEventListener("hashchange", () => {
    if (INVITATION.test(window.location.hash)) window.location.reload();
  });
  byId("agree").addEventListener("click", async () => {
    await device.memory.keepFirst("consent", { at: Date.now() });
    await show();
    focusMain();
  });
  byId("enrolment-form").addEventListener("submit", (event) => {
    event.preventDefault();
    enrolWith(byId("token").value.trim(), byId("helper").value.trim());
  });
  byId("look-again").addEventListener("click", async () => {
    say("");
    await showCollections();
    say(`${document.querySelectorAll("#collections article").length} open collections.`);
  });
  await show();
}

try {
  await start();
} catch (error) {
  unable("Something went wrong in this page. Nothing was sent. Load it again.");
  throw error;
}
