// The console: which page is shown, and who looks at it.
import { get } from "./api.js";
import { alertBox, announce, el } from "./dom.js";
import { showLogin } from "./login.js";
import { forget, takeFromAddress, token } from "./session.js";
import { startTheme } from "./theme.js";

const PAGES = [
  [/^\/$/, () => import("./collections.js")],
  [/^\/new$/, () => import("./new_collection.js")],
  [/^\/collections\/([0-9a-f]+)$/, () => import("./collection.js")],
  [/^\/compare$/, () => import("./compare.js")],
  [/^\/ledger$/, () => import("./ledger.js")],
  [/^\/audit$/, () => import("./audit.js")],
  [/^\/access$/, () => import("./access.js")],
];
const THEME = "mapveil-theme";
const main = document.getElementById("main");
let leaving = new AbortController();
let who = null;

const place = () => {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  return { path, query: new URLSearchParams(query || "") };
};

function heading(text) {
  document.title = text === "Mapveil collector" ? text : `${text} · Mapveil collector`;
}

function signedIn(yes) {
  document.getElementById("nav").hidden = !yes;
  document.getElementById("leave").hidden = !yes;
  document.getElementById("who").textContent = yes && who ? `${who.name || "operator"} (${who.role})` : "";
}

function login(reason) {
  leaving.abort();
  who = null;
  signedIn(false);
  heading("Sign in");
  showLogin(main, reason, show);
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  takeFromAddress();
  if (!token()) return login();
  const { path, query } = place();
  for (const link of document.querySelectorAll("#nav a")) {
    const home = link.hash === "#/" && (path === "/" || path === "/new" || path.startsWith("/collections/"));
    if (home || (link.hash !== "#/" && path === link.hash.slice(1)))
      link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    who ??= await get("/me", signal);
    signedIn(true);
    const page = PAGES.find(([pattern]) => pattern.test(path));
    if (!page) {
      heading("No such page");
      main.replaceChildren(
        el("h1", {}, "No such page"),
        el("p", {}, el("a", { href: "#/" }, "To the collections")),
      );
      return;
    }
    const { showPage } = await page[1]();
    if (signal.aborted) return;
    main.replaceChildren();
    window.scrollTo(0, 0);
    await showPage(main, { argument: page[0].exec(path)[1], query, signal, who, heading });
    const head = main.querySelector("h1");
    if (head && !signal.aborted) announce(head.textContent);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError" || error.status === 401) return;
    if (!error.status && error.code !== "unreachable") console.error(error);
    main.replaceChildren(
      el("h1", {}, "This page could not be shown"),
      alertBox(error.message),
      el("p", {}, el("button", { type: "button", on: { click: show } }, "Try again")),
    );
  }
}

document.addEventListener("signedout", (event) => login(`You were signed out: ${event.detail}.`));
document.getElementById("leave").addEventListener("click", () => {
  forget();
  location.hash = "#/";
  login("You have signed out: this tab has forgotten your token.");
});
document.getElementById("skip").addEventListener("click", (event) => {
  // The address names the page, so the link must not change it.
  event.preventDefault();
  main.focus();
});
const kept = localStorage.getItem(THEME);
if (kept) document.documentElement.dataset.theme = kept;
startTheme(document.getElementById("theme"), (chosen) => localStorage.setItem(THEME, chosen));
window.addEventListener("hashchange", show);
show();
