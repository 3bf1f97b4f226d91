// All collections, and how far they are.
import { get, poll } from "./api.js";
import { alertBox, announce, el } from "./dom.js";
import { progressBar, stateBadge } from "./progress.js";
import { ACTIVE, epsilonWords, STATES, time, trustName, whole } from "./words.js";

export async function showPage(main, { signal, who, heading }) {
  heading("Collections");
  const list = el("ul", { class: "collections", "aria-label": "Collections" });
  const trouble = el("div", {});
  main.replaceChildren(
    el(
      "div",
      { class: "head" },
      el(
        "div",
        {},
        el("h1", {}, "Collections"),
        el("p", { class: "quiet" }, "Maps asked of devices that nobody has to trust this server with."),
      ),
      who.role === "viewer" ? null : el("a", { class: "button primary", href: "#/new" }, "New collection"),
    ),
    trouble,
    list,
  );
  const rows = new Map();
  let known = null;
  await poll(async () => {
    let all;
    try {
      all = await get("/collections", signal);
      trouble.replaceChildren();
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401) throw error;
      trouble.replaceChildren(alertBox(error.message));
      return 5000;
    }
    all.sort((a, b) => String(b.created_at).localeCompare(String(a.created_at)));
    if (all.length === 0) {
      list.replaceChildren(
        el(
          "li",
          { class: "empty" },
          "There is no collection yet.",
          who.role === "viewer"
            ? ""
            : " Make the first with the button above: it stays pending until you open it.",
        ),
      );
      return 5000;
    }
    list.querySelector(".empty")?.remove();
    all.forEach((one, at) => {
      const text = JSON.stringify(one);
      let row = rows.get(one.id);
      if (!row) {
        row = { item: el("li", {}), text: "" };
        rows.set(one.id, row);
      }
      if (row.text !== text) {
        row.text = text;
        // A focused link keeps its focus while its row is renewed.
        const focused = row.item.contains(document.activeElement);
        row.item.replaceChildren(line(one));
        if (focused) row.item.querySelector("a").focus();
      }
      if (list.children[at] !== row.item) list.insertBefore(row.item, list.children[at] || null);
    });
    const states = new Map(all.map((one) => [one.id, one.state]));
    if (known) {
      for (const one of all) {
        if (known.get(one.id) !== one.state) announce(`${one.title}: ${STATES[one.state]?.[1] || one.state}`);
      }
    }
    known = states;
    return all.some((one) => ACTIVE.includes(one.state)) ? 1500 : 5000;
  }, signal);
}

function line(one) {
  return el(
    "article",
    { class: "card collection" },
    el(
      "div",
      { class: "top" },
      el("h2", {}, el("a", { href: `#/collections/${one.id}` }, one.title || "Untitled")),
      stateBadge(one.state),
    ),
    el(
      "p",
      { class: "quiet" },
      [
        trustName(one.trust),
        one.method,
        one.epsilon === null ? null : epsilonWords(one.epsilon),
        one.tiling,
        `${whole(one.devices)} devices wanted`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    ACTIVE.includes(one.state)
      ? progressBar(one)
      : el(
          "p",
          { class: "quiet" },
          one.state === "aborted"
            ? one.reason || "aborted"
            : [one.state === "done" ? "finished " : "made ", time(one.ended_at || one.created_at)],
        ),
  );
}
