// The colours and what they stand for, on the scale of mapveil.pictures.colours (logarithmic above its knee).
import { el } from "./dom.js";
import { fractionOf, number, ticksOf } from "./scale.js";

/** The scale that maps side by side share: no shade is spent below what chance alone puts into any of them. */
export function commonScale(scales) {
  const top = Math.max(...scales.map((scale) => scale.top)),
    floor = Math.max(...scales.map((scale) => scale.noise_floor));
  const deep = Math.min(...scales.map((scale) => scale.knee));
  const knee = Math.min(top, Math.max(deep, floor > 0 ? 10 ** Math.ceil(Math.log10(floor)) : 0));
  return { unit: scales[0].unit, top, knee, noise_floor: floor, ticks: ticksOf({ top, knee }) };
}

/** Draws a legend into an element. */
export function drawLegend(place, scale, colours, theme, what) {
  const shown = theme === "dark" ? [...colours].reverse() : colours;
  const bar = el("div", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${shown.join(", ")})`;
  const marks = el("div", { class: "ticks" });
  let free = -1;
  for (const tick of scale.ticks) {
    const part = Math.min(1, fractionOf(scale, tick)),
      text = number(tick);
    const mark = el("span", { class: "tick" });
    mark.style.left = `${100 * part}%`;
    // Names that would meet are left out; the marks stay.
    const half = text.length * 0.013 + 0.02;
    if (part - half >= free) {
      mark.append(el("span", { class: part < 0.05 ? "first" : part > 0.93 ? "last" : "" }, text));
      free = part + half;
    }
    marks.append(mark);
  }
  place.replaceChildren(
    el(
      "div",
      {
        role: "img",
        "aria-label": `${what}, ${scale.unit}: the scale is logarithmic, from 0 to ${number(scale.top)}; ${theme === "dark" ? "brighter" : "darker"} is more`,
      },
      bar,
      marks,
    ),
    el(
      "p",
      { class: "hint" },
      `${scale.unit}, logarithmic; ${theme === "dark" ? "brighter" : "darker"} is more, the last colour ${number(scale.top)}.`,
    ),
  );
}
