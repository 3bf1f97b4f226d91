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
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
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

/** Pairs of a term and what is said of it; null pairs are left out. */
export function facts(pairs) {
  const rows = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "");
  return el("dl", { class: "facts" }, rows.map(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]));
}

/** A table with a caption for those who hear it; cells of numeric columns are set right. */
export function table(caption, heads, rows, numeric = []) {
  const kind = (at) => (numeric.includes(at) ? "number" : null);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: kind(at) }, head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) => el("td", { class: kind(at) }, cell)))))));
}

/** Tells a screen reader, once. */
export function announce(text) {
  const place = document.getElementById("news");
  if (place.textContent !== text) place.textContent = text;
}

/** An error where it belongs, told at once. */
export const alertBox = (text) => el("p", { class: "alert", role: "alert" }, text);
