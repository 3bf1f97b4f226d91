// What an operator may do with a collection in its state.
import { post } from "./api.js";
import { alertBox, el, freshId } from "./dom.js";

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
      el("p", {}, "This cannot be undone. What devices have already spent stays spent."),
      el("div", { class: "field" }, el("label", { for: reason }, "Reason, for the audit log"), field),
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
