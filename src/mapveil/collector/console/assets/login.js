// The way in: an operator's token, pasted.
import { whoAmI } from "./api.js";
import { alertBox, el } from "./dom.js";
import { forget, keep } from "./session.js";

export function showLogin(main, reason, done) {
  const trouble = el("div", {});
  const field = el("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-help",
  });
  const button = el("button", { type: "submit", class: "primary" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!/^[\w-]{8,200}$/.test(text)) {
      trouble.replaceChildren(
        alertBox("That is no token: it begins with mvo_, and has letters, digits, - and _ only."),
      );
      field.focus();
      return;
    }
    button.disabled = true;
    keep(text);
    try {
      await whoAmI();
      done();
    } catch (error) {
      forget();
      trouble.replaceChildren(
        alertBox(
          error.status === 401 ? "The server does not know this token, or it has expired." : error.message,
        ),
      );
      button.disabled = false;
      field.focus();
    }
  };
  main.replaceChildren(
    el(
      "div",
      { class: "narrow" },
      el("h1", {}, "Sign in"),
      reason ? el("p", { class: "note", role: "status" }, reason) : null,
      el(
        "form",
        { class: "card form", on: { submit } },
        el(
          "div",
          { class: "field" },
          el("label", { for: "token" }, "Operator token"),
          field,
          el(
            "p",
            { id: "token-help", class: "hint" },
            "Whoever runs the server makes one with ",
            el("code", {}, "mapveil serve --new-operator operator"),
            ". It stays in this tab and is forgotten when the tab closes.",
          ),
        ),
        trouble,
        el("div", { class: "actions" }, button),
      ),
    ),
  );
  field.focus();
}
