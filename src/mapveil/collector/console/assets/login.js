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
    if (!/^mvo_[\w-]{43}$/.test(text)) {
      trouble.replaceChildren(alertBox(faultOf(text)));
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
          error.status === 401 ? `The server refuses it: ${error.message}.` : error.message,
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
            el("code", {}, "mapveil serve --new-operator operator:NAME"),
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

/** What is wrong with a text that is no operator's token, and what is needed. */
function faultOf(text) {
  const needed = "An operator's token is mvo_ and 43 characters, as 'mapveil serve --new-operator' prints.";
  if (/^mve_/.test(text)) return `That is a token with which devices enrol. ${needed}`;
  if (/^mvo_/.test(text)) return `That token has ${text.length} characters in place of 47, or others than it can have. ${needed}`;
  return `That is no token. ${needed}`;
}
