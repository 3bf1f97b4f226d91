// A finished collection: its map, how to read it, its promise, and its files.
import { get } from "./api.js";
import { Cells } from "./cells.js";
import { alertBox, card, el, factRows, facts } from "./dom.js";
import { downloadsCard } from "./downloads.js";
import { promiseCard } from "./guarantee.js";
import { drawLegend } from "./legend.js";
import { addTiles, makeMap } from "./map_view.js";
import { byFinger, followPointer, nothingRead, rowsOf } from "./readout.js";
import { onTheme, theme } from "./theme.js";
import { number } from "./words.js";

const LAYERS = { density: "Density", uncertainty: "Uncertainty" };

export async function showResult(place, one, { signal }) {
  const record = await get(`/collections/${one.id}/map`, signal);
  // A fine map has many numbers: its picture need not wait for them.
  const numbers = get(`/collections/${one.id}/map/cells`, signal).then((found) => new Cells(found));
  numbers.catch(() => {});
  // On a small screen the table is out of sight while the map is in it.
  const short = el("p", { class: "chip", "aria-hidden": "true", hidden: true });
  const frame = el("div", { class: "map", id: "map" }),
    legend = el("div", {});
  const reading = el("dl", { class: "facts", id: "reading" }, nothingRead());
  const legendTitle = el("h3", {});
  let layer = "density";
  const choices = Object.entries(LAYERS).map(([name, text]) =>
    el(
      "label",
      { class: "choice" },
      el("input", {
        type: "radio",
        name: "layer",
        value: name,
        checked: name === layer,
        disabled: !record.legend[name],
        on: {
          change: () => {
            layer = name;
            draw();
          },
        },
      }),
      text,
    ),
  );
  const opacity = el("input", {
    id: "opacity",
    type: "range",
    min: 0,
    max: 100,
    step: 5,
    value: 100,
    "aria-valuetext": "100 %",
  });
  place.replaceChildren(
    el(
      "div",
      { class: "result" },
      el(
        "section",
        { class: "card flush", "aria-label": "Map" },
        frame,
        el(
          "p",
          { class: "foot" },
          byFinger()
            ? "Two fingers move and zoom the map; tap a cell to read it."
            : "Drag or arrow keys move the map; wheel, + and − zoom. Point at a cell to read it, click to hold it; with keys, the cell in the middle is read.",
        ),
      ),
      el(
        "div",
        { class: "stack" },
        card("This cell", reading),
        card(
          "Colours",
          el(
            "fieldset",
            {},
            el("legend", { class: "unseen" }, "Colours show"),
            el("div", { class: "choices" }, choices),
          ),
          record.legend.uncertainty
            ? null
            : el("p", { class: "hint" }, "This method gives no bounds, so there is no uncertainty to show."),
          legendTitle,
          legend,
          el("div", { class: "field" }, el("label", { for: "opacity" }, "Opacity of the colours"), opacity),
        ),
      ),
    ),
  );
  place.append(
    el(
      "div",
      { class: "columns" },
      promiseCard(record.guarantee),
      downloadsCard(one),
      card(
        "How it was made",
        facts([
          ["Method", record.method],
          ["Cells", `${record.tiling.spec}, ${number(record.tiling.cells, 9)} cells`],
          ["Persons on the map", number(record.total)],
          record.outside
            ? ["Outside the cells", `${number(record.outside)} persons, merged out of small cells`]
            : null,
          ["Software", `Mapveil ${record.version}`],
        ]),
        el(
          "ul",
          { class: "notes" },
          el(
            "li",
            {},
            "Each person counts 1 in all, divided over the cells they were in; an estimate may be a fraction.",
          ),
          record.legend.uncertainty
            ? el("li", {}, "Intervals are about the noise alone, not about people who took no part.")
            : null,
          (record.notes || []).map((note) => el("li", {}, note)),
        ),
        el("p", {}, el("a", { href: `#/compare?left=${one.id}` }, "Compare with another map")),
      ),
    ),
  );
  let map,
    tiles = null;
  function draw() {
    legendTitle.textContent = layer === "density" ? "Density" : "Uncertainty: half the width of the interval";
    drawLegend(legend, record.legend[layer], record.colours, theme(), LAYERS[layer]);
    tiles?.show(layer, theme());
  }
  onTheme(draw, signal);
  try {
    map = await makeMap(frame, {
      bounds: record.bounds,
      rings: record.outline,
      signal,
      label: `Map of ${one.title}: persons per square kilometre. Arrow keys move it, plus and minus zoom, Enter reads the cell in the middle.`,
    });
  } catch (error) {
    frame.replaceChildren(
      alertBox(error.message),
      el("p", { class: "hint" }, "The downloads below hold the whole map."),
    );
    return;
  }
  if (signal.aborted) return;
  tiles = addTiles(map, one.id, record);
  tiles.fade(opacity.value / 100);
  draw();
  opacity.addEventListener("input", () => {
    opacity.setAttribute("aria-valuetext", `${opacity.value} %`);
    tiles.fade(opacity.value / 100);
  });
  map.on("error", ({ error }) => {
    if (signal.aborted || error?.name === "AbortError") return;
    if (!place.querySelector(".alert"))
      place.prepend(alertBox(`A part of the map could not be fetched: ${error?.message || "no answer"}`));
  });
  frame.append(short);
  let cells;
  try {
    cells = await numbers;
  } catch (error) {
    if (!signal.aborted)
      reading.replaceChildren(...factRows([["No numbers could be fetched", error.message]]));
    return;
  }
  if (signal.aborted) return;
  const reader = followPointer(map, frame, cells, (lon, lat, byKeys) => {
    const { rows, short: line, text } = rowsOf(cells, lon, lat);
    short.textContent = line;
    short.hidden = !line;
    reading.replaceChildren(...factRows(rows));
    if (byKeys) reader.announce(text);
  });
  frame.dataset.ready = "yes";
}
