// Elements, made of text only: nothing that came over the wire is ever read as markup.

/** Makes an element; `on` holds listeners, other keys attributes (true: bare, false or null: none). */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (name === "value") {
      made.value = value;
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return made;
}

let lastNumber = 0;
/** A name for an element that a label or a description points at. */
export const freshId = (stem) => `${stem}-${++lastNumber}`;

/** A section with a heading that names it. */
export function card(title, ...children) {
  const id = freshId("card");
  return el("section", { class: "card", "aria-labelledby": id }, el("h2", { id }, title), ...children);
}

/** Rows of a description list: a term, what is said of it, and how it looks; null rows are left out. */
export const factRows = (rows) =>
  rows
    .filter((row) => row && row[1] !== null && row[1] !== undefined && row[1] !== "")
    .map(([term, text, style]) => el("div", { class: style }, el("dt", {}, term), el("dd", {}, text)));

/** A description list; `many` lets it run over several columns. */
export const facts = (rows, many = false) =>
  el("dl", { class: many ? "facts many" : "facts" }, factRows(rows));

/** A table with a caption for those who hear it; cells of numeric columns are set right. */
export function table(caption, heads, rows, numeric = []) {
  const kind = (at) => (numeric.includes(at) ? "number" : null);
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head, at) => el("th", { scope: "col", class: kind(at) }, head)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((cell, at) => el("td", { class: kind(at) }, cell)),
          ),
        ),
      ),
    ),
  );
}

/** Tells a screen reader, once. */
export function announce(text) {
  const place = document.getElementById("news");
  if (place.textContent !== text) place.textContent = text;
}

/** An error where it belongs, told at once. */
export const alertBox = (text) => el("p", { class: "alert", role: "alert" }, text);
