// The colours and what they stand for, on the scale of mapveil.maps.colours (logarithmic above its knee).
import { el } from "./dom.js";
import { number } from "./words.js";

export const fractionOf = (scale, density) => Math.log1p(Math.max(0, density) / scale.knee) / Math.log1p(scale.top / scale.knee);

/** Ticks of the larger of several scales, and their common scale. */
export function commonScale(scales) {
  const top = Math.max(...scales.map((scale) => scale.top)), knee = Math.min(...scales.map((scale) => scale.knee));
  const ticks = [0];
  for (let decade = knee; decade <= top * (1 + 1e-9); decade *= 10) ticks.push(decade);
  return { unit: scales[0].unit, top, knee, ticks };
}

/** Draws a legend into an element. */
export function drawLegend(place, scale, colours, theme, what) {
  const shown = theme === "dark" ? [...colours].reverse() : colours;
  const bar = el("div", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${shown.join(", ")})`;
  const marks = el("div", { class: "ticks" });
  let free = -1;
  for (const tick of scale.ticks) {
    const part = Math.min(1, fractionOf(scale, tick)), text = number(tick);
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
    el("div", { role: "img", "aria-label": `${what}, ${scale.unit}: the scale is logarithmic, from 0 to ${number(scale.top)}; ${theme === "dark" ? "brighter" : "darker"} is more` }, bar, marks),
    el("p", { class: "hint" }, `${scale.unit}, logarithmic; ${theme === "dark" ? "brighter" : "darker"} is more, the last colour ${number(scale.top)}.`));
}
