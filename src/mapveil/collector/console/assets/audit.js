// The audit log: who did what, in lines that are chained and never changed; the newest first.
import { get } from "./api.js";
import { alertBox, el, table } from "./dom.js";
import { time, whole } from "./words.js";

const PAGE = 100;
const MOST = 1 << 30;

/** The number of the last line, by halving: lines are numbered from 1 without gaps. */
export async function lastLine(exists) {
  let low = 0,
    high = 1;
  while (high < MOST && (await exists(high))) [low, high] = [high, 2 * high];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await exists(middle)) low = middle;
    else high = middle;
  }
  return low;
}

export async function showPage(main, { query, signal, heading }) {
  heading("Audit log");
  const collection = query.get("collection");
  const titles = new Map((await get("/collections", signal)).map((one) => [one.id, one.title]));
  const lines = (after, limit) =>
    get(
      `/audit?after=${after}&limit=${limit}${collection ? `&collection=${encodeURIComponent(collection)}` : ""}`,
      signal,
    );
  const body = el("div", {}),
    status = el("p", { class: "quiet", role: "status" });
  const older = el("button", { type: "button", hidden: true }, "Older lines");
  const newer = el("button", { type: "button", hidden: true }, "Newer lines");
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
        ),
        collection
          ? el(
              "p",
              {},
              "Lines of ",
              el("a", { href: `#/collections/${collection}` }, titles.get(collection) || "one collection"),
              ". ",
              el("a", { href: "#/audit" }, "All lines"),
            )
          : null,
      ),
    ),
    el(
      "section",
      { class: "card", "aria-label": "Lines" },
      body,
      status,
      el("div", { class: "actions" }, newer, older),
    ),
  );

  const heads = ["Line", "When", "Who", "What", ...(collection ? [] : ["Collection"]), "Details"];
  const draw = (shown) => {
    const rows = [...shown].reverse().map((line) => rowOf(line, collection ? null : titles));
    body.replaceChildren(
      rows.length ? table("Audit log", heads, rows, [0]) : el("p", {}, "There are no lines."),
    );
    status.textContent = rows.length ? `${whole(rows.length)} lines, the newest first` : "";
  };
  if (collection) {
    // A collection has few.
    const all = [];
    for (let more = await lines(0, PAGE); ; more = await lines(all.at(-1).number, PAGE)) {
      all.push(...more);
      if (more.length < PAGE) break;
    }
    draw(all);
    return;
  }
  const last = await lastLine(async (number) => (await lines(number - 1, 1)).length > 0);
  const turn = async (end) => {
    try {
      draw(
        (await lines(Math.max(0, end - PAGE), Math.min(PAGE, Math.max(1, end)))).filter(
          (line) => line.number <= end,
        ),
      );
      newer.hidden = end >= last;
      older.hidden = end <= PAGE;
      newer.onclick = () => turn(Math.min(last, end + PAGE));
      older.onclick = () => turn(end - PAGE);
    } catch (error) {
      if (error.name !== "AbortError") body.replaceChildren(alertBox(error.message));
    }
  };
  await turn(last);
}

/** The cells of a line; without titles it does not name its collection. */
function rowOf(line, titles) {
  const name = titles?.get(line.collection) || line.collection?.slice(0, 8);
  const details = Object.entries(line.detail || {}).map(
    ([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return [
    String(line.number),
    time(line.at),
    el("span", { class: "whole" }, line.actor),
    line.action,
    ...(titles ? [line.collection ? el("a", { href: `#/collections/${line.collection}` }, name) : ""] : []),
    el("span", { class: "detail" }, details.join(", ")),
  ];
}
