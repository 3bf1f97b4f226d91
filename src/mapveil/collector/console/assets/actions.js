// What an operator may do with a collection in its state.
import { post } from "./api.js";
import { alertBox, el, freshId, table } from "./dom.js";
import { epsilonWords, fraction } from "./words.js";

export function actionsOf(one, who, done, trouble) {
  if (who.role === "viewer") return [];
  const act = (name, body) => async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      await post(`/collections/${one.id}/${name}`, body);
      trouble.replaceChildren();
    } catch (error) {
      trouble.replaceChildren(alertBox(error.message));
    }
    button.disabled = false;
    await done();
  };
  const made = [];
  if (one.state === "pending") {
    made.push(
      el("button", { type: "button", class: "primary", on: { click: act("open") } }, "Open to devices"),
    );
  }
  if (one.state === "open") {
    made.push(
      el(
        "button",
        { type: "button", on: { click: act("begin") }, title: "Wait for no more devices" },
        "Begin now",
      ),
    );
  }
  if (["pending", "open", "running"].includes(one.state)) {
    made.push(
      el(
        "button",
        { type: "button", class: "danger", on: { click: () => askReason(one, done, trouble) } },
        one.state === "pending" ? "Drop" : "Abort",
      ),
    );
  }
  return made;
}

/** What an abort leaves charged, by phase: the rows of the service's own table. */
function chargesOf(one) {
  if (one.epsilon === null) return [el("p", {}, "Its reports are not counted in ε: there is nothing to charge.")];
  if (one.state === "pending") return [el("p", {}, "No device has been asked: nothing is charged.")];
  const before = fraction(one.spent) > 0 ? `Rounds that are over stay charged: ${epsilonWords(one.spent)} so far. ` : "";
  const cost = (text) => text.replace(/^epsilon/, "ε").replace(/^0(?=$|[:;])/, "nothing");
  return [
    el("p", {}, `${before}Of the round that is under way, each device stays charged for:`),
    table(
      "Charges of an abort",
      ["In the phase", "In its own account", "In this ledger"],
      one.abort_charges.map(({ phases, device, ledger, now }) => [
        el(now ? "strong" : "span", {}, phases.join(", ") + (now ? " (now)" : "")),
        cost(device),
        cost(ledger),
      ]),
    ),
  ];
}

/** Asks for the reason first: what was aborted cannot be taken up again. */
function askReason(one, done, trouble) {
  const head = freshId("abort"),
    reason = freshId("reason");
  const field = el("input", { id: reason, type: "text", maxlength: 200, value: "", required: true });
  const dialog = el(
    "dialog",
    { "aria-labelledby": head },
    el(
      "form",
      {
        method: "dialog",
        class: "form",
        on: {
          submit: async (event) => {
            if (event.submitter?.value !== "abort") return;
            try {
              await post(`/collections/${one.id}/abort`, { reason: field.value.trim() });
              trouble.replaceChildren();
            } catch (error) {
              trouble.replaceChildren(alertBox(error.message));
            }
            await done();
          },
        },
      },
      el("h2", { id: head }, `End "${one.title}" without a map?`),
      el("p", {}, "This cannot be undone."),
      ...chargesOf(one),
      el("div", { class: "field" }, el("label", { for: reason }, "Reason, for everybody to read"), field),
      el(
        "div",
        { class: "actions" },
        el(
          "button",
          { type: "submit", class: "danger", value: "abort" },
          one.state === "pending" ? "Drop it" : "Abort it",
        ),
        el("button", { type: "submit", value: "keep", formnovalidate: true }, "Keep it"),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
