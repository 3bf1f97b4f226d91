// The audit log: who did what, in lines that are chained and never changed.
import { get } from "./api.js";
import { alertBox, el, table } from "./dom.js";
import { time, whole } from "./words.js";

const PAGE = 100;

export async function showPage(main, { query, signal, heading }) {
  heading("Audit log");
  const collection = query.get("collection");
  const body = el("div", {}),
    status = el("p", { class: "quiet", role: "status" });
  const more = el("button", { type: "button", hidden: true }, "Next lines");
  const starts = [];
  const before = el("button", { type: "button", hidden: true }, "Lines before");
  main.append(
    el(
      "div",
      { class: "head" },
      el(
        "div",
        {},
        el("h1", {}, "Audit log"),
        el(
          "p",
          { class: "quiet" },
          "Every line carries a hash of the one before, and the store refuses to change or remove any.",
          collection ? " Lines of one collection: " : "",
          collection ? el("a", { href: `#/collections/${collection}` }, "to it") : null,
          collection ? ", " : "",
          collection ? el("a", { href: "#/audit" }, "all lines") : null,
        ),
      ),
    ),
    el(
      "section",
      { class: "card", "aria-label": "Lines" },
      body,
      status,
      el("div", { class: "actions" }, before, more),
    ),
  );
  const titles = new Map((await get("/collections", signal)).map((one) => [one.id, one.title]));
  const named = (id) =>
    id ? el("a", { href: `#/collections/${id}` }, titles.get(id) || id.slice(0, 8)) : "";
  async function page(after) {
    const own = collection ? `&collection=${encodeURIComponent(collection)}` : "";
    const lines = await get(`/audit?after=${after}&limit=${PAGE}${own}`, signal);
    body.replaceChildren(
      lines.length === 0
        ? el("p", {}, "There are no lines.")
        : table(
            "Audit log",
            ["Line", "When", "Who", "What", "Collection", "Details"],
            lines.map((line) => [
              String(line.number),
              time(line.at),
              line.actor,
              line.action,
              named(line.collection),
              el(
                "span",
                { class: "detail" },
                Object.entries(line.detail || {})
                  .map(
                    ([name, value]) =>
                      `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
                  )
                  .join(", "),
              ),
            ]),
            [0],
          ),
    );
    status.textContent = lines.length ? `${whole(lines.length)} line${lines.length === 1 ? "" : "s"}` : "";
    more.hidden = lines.length < PAGE;
    before.hidden = starts.length === 0;
    more.onclick = () => {
      starts.push(after);
      turn(lines.at(-1).number);
    };
    before.onclick = () => turn(starts.pop());
  }
  const turn = (after) =>
    page(after).catch((error) => {
      if (error.name !== "AbortError") body.replaceChildren(alertBox(error.message));
    });
  await page(0);
}
