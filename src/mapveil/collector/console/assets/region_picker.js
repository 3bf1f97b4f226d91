// The region of a new collection: four numbers, and a box on a map that can be drawn or pulled by its corners.
import { el } from "./dom.js";
import { regionView } from "./region_view.js";

const SIDES = [
  ["west", "West", -180, 180],
  ["south", "South", -85, 85],
  ["east", "East", -180, 180],
  ["north", "North", -85, 85],
];
const rounded = (value) => Number(value.toFixed(5));
const good = ([west, south, east, north]) =>
  [west, south, east, north].every(Number.isFinite) && west < east && south < north;

/** The box between two places, within the world. */
const boxOf = ([lonA, latA], [lonB, latB]) =>
  [Math.min(lonA, lonB), Math.min(latA, latB), Math.max(lonA, lonB), Math.max(latA, latB)].map((value, at) =>
    Math.min(Math.max(value, SIDES[at][2]), SIDES[at][3]),
  );

/** A fieldset; `value()` is [west, south, east, north], `changed` is called whenever it may be another. */
export function regionPicker(start, changed, signal) {
  const inputs = SIDES.map(([name, , least, most], at) =>
    el("input", {
      id: `region-${name}`,
      type: "number",
      step: "any",
      min: least,
      max: most,
      required: true,
      value: start[at],
      inputmode: "decimal",
      on: { input: () => moved() },
    }),
  );
  const value = () => inputs.map((input) => Number(input.value));
  let drawn = start;

  function moved() {
    const [west, south, east, north] = value();
    inputs[2].setCustomValidity(west < east ? "" : "East must lie east of west.");
    inputs[3].setCustomValidity(south < north ? "" : "North must lie north of south.");
    if (good(value())) drawn = value();
    map.redraw();
    changed();
  }
  function set(box) {
    inputs.forEach((input, at) => {
      input.value = rounded(box[at]);
    });
    moved();
  }
  /** Follows a pulled corner, or a box that is drawn; a new box is drawn once for each press of the button. */
  function drag(lon, lat, corner) {
    const [west, south, east, north] = drawn;
    const drawing = draw.getAttribute("aria-pressed") === "true";
    if (!drawing && !corner) return null;
    setDrawing(false);
    const fixed = drawing ? [lon, lat] : corner === "southwest" ? [east, north] : [west, south];
    return (toLon, toLat) => set(boxOf(fixed, [toLon, toLat]));
  }
  const setDrawing = (on) => draw.setAttribute("aria-pressed", String(on));
  const draw = el(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      on: { click: () => setDrawing(draw.getAttribute("aria-pressed") !== "true") },
    },
    "Draw a box",
  );
  const map = regionView(() => drawn, {
    label:
      "The region on a map: arrow keys move it, plus and minus zoom; Take the view makes what is seen the region",
    drag,
    signal,
  });
  return {
    value,
    element: el(
      "fieldset",
      {},
      el("legend", {}, "Region"),
      el(
        "div",
        { class: "four" },
        SIDES.map(([name, text], at) =>
          el("div", { class: "field" }, el("label", { for: `region-${name}` }, `${text}, degrees`), inputs[at]),
        ),
      ),
      map.frame,
      map.credit,
      el(
        "div",
        { class: "actions" },
        draw,
        el("button", { type: "button", on: { click: () => set(map.seen()) } }, "Take the view"),
        el("button", { type: "button", on: { click: () => map.show() } }, "Show the region"),
      ),
      el(
        "p",
        { class: "hint" },
        "Coast, borders and names come from this collector: no other server is asked. East and north are positive, west and south negative.",
      ),
    ),
  };
}
