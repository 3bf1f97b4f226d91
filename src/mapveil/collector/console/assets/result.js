// A finished collection: its map, its promise, its files, and how it was made.
import { get } from "./api.js";
import { alertBox, card, el, facts } from "./dom.js";
import { downloadsCard } from "./downloads.js";
import { promiseCard } from "./guarantee.js";
import { mountScene } from "./viewer.js";

export async function showResult(place, one, { signal }) {
  const record = await get(`/collections/${one.id}/map`, signal);
  const map = el("div", {});
  place.replaceChildren(
    map,
    el(
      "div",
      { class: "columns" },
      promiseCard(record.metadata.guarantee),
      downloadsCard(one),
      card(
        "How it was made",
        record.tables.map(([head, rows], at) => [at ? el("h3", {}, head) : null, facts(rows)]),
        el(
          "ul",
          { class: "notes" },
          record.notes.map((note) => el("li", {}, note)),
        ),
        el("p", {}, el("a", { href: `#/compare?left=${one.id}` }, "Compare with another map")),
      ),
    ),
  );
  try {
    const { element } = await mountScene({ ...record, title: one.title }, { signal });
    if (!signal.aborted) map.replaceChildren(element);
  } catch (error) {
    map.replaceChildren(
      alertBox(`This browser cannot draw the map: ${error.message}.`),
      el("p", { class: "hint" }, "The downloads below hold the whole map."),
    );
  }
}
