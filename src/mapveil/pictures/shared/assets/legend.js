// The ramp with what its colours stand for.
import { css } from "./theme.js";
import { fractionOf, number, ticksOf } from "./scale.js";

const HIGH = 46;

/** The colours of a scene by their place on its ramp, 0 to 1. */
export function rampOf(colours) {
  const steps = colours.length / 3;
  return (part, dark) => {
    const step = Math.round(part * (steps - 1));
    // In the dark, nobody is the page's darkness and the densest place shines.
    const at = 3 * (dark ? steps - 1 - step : step);
    return [colours[at], colours[at + 1], colours[at + 2]];
  };
}

/** Why nothing on a scale is dark, as below the picture: "" where something is. */
export const aloneWords = ({ alone }) =>
  alone ? " One value alone has the middle tone, since there is no other to compare it with." : "";

/** The steps of a scale: one of logarithms cannot begin at zero. */
export function stepsOf({ kind = "log", top, knee }) {
  if (kind === "linear") return "linear";
  return top > knee ? `nearly linear up to ${number(knee)}, logarithmic above` : "nearly linear";
}

/** Draws the ramp and its ticks on a canvas; `ink` gives the colour of a place on the scale, `veil` its opacity. */
export function drawLegend(canvas, scale, unit, ink, veil = 1) {
  const dense = window.devicePixelRatio || 1,
    full = canvas.clientWidth,
    pen = canvas.getContext("2d");
  canvas.width = full * dense;
  canvas.height = HIGH * dense;
  const x0 = 4,
    across = full - 8;
  pen.scale(dense, dense);
  pen.globalAlpha = veil; // as on the map
  for (let i = 0; i < across; i++) {
    pen.fillStyle = `rgb(${ink(i / (across - 1)).join()})`;
    // Whole pixels: where two overlap, a veil is denser.
    pen.fillRect(x0 + i, 0, veil < 1 ? 1 : 1.5, 18);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = css("--edge");
  pen.strokeRect(x0 + 0.5, 0.5, across - 1, 17);
  pen.fillStyle = css("--quiet");
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  let free = -Infinity;
  for (const tick of ticksOf(scale)) {
    const text = number(tick),
      x = x0 + Math.min(1, fractionOf(scale, tick)) * across,
      half = pen.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, half), full - half);
    pen.fillRect(Math.min(x, x0 + across - 1), 18, 1, 5);
    // Names that would meet are left out; the marks stay.
    if (middle - half < free) continue;
    pen.fillText(text, middle, 37);
    free = middle + half + 8;
  }
  const name = `Colours from ${number(scale.low ?? 0)} to ${number(scale.top)} ${unit}`;
  canvas.setAttribute("aria-label", `${name}, scale ${stepsOf(scale)}`);
}
