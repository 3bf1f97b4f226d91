// Meridians and parallels at round degrees, with their names at the edge.
import { css } from "./theme.js";

const STEPS = [
  90, 45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001,
];
const LINES = 5;
// Pixels at the edges where a name would be cut off, or meet the buttons and the scale bar.
const MARGIN = { left: 8, right: 84, top: 30, bottom: 44 };

const stepOf = (span) => STEPS.find((step) => span / step >= LINES - 1) || STEPS.at(-1);

function name(value, step, letters) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const letter = Math.abs(value) < step / 2 ? "" : letters[value < 0 ? 1 : 0];
  return `${Math.abs(value).toFixed(digits)}°${letter && ` ${letter}`}`;
}

function between(low, high, step, letters) {
  const made = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++)
    made.push([at * step, name(at * step, step, letters)]);
  return made;
}

/** Round meridians and parallels between bounds, each with its name. */
export function graticule(west, south, east, north) {
  // A square look: the coarser of both steps.
  const step = Math.max(stepOf(east - west), stepOf(north - south));
  return { meridians: between(west, east, step, "EW"), parallels: between(south, north, step, "NS") };
}

/** Draws the graticule of a view in pixels, as far as the plane goes. */
export function drawGraticule(pen, view, { degrees, extent: [width, height] }) {
  const [left, top] = view.toPlane(0, 0).map((at) => Math.max(at, 0));
  const [right, bottom] = view.toPlane(view.wide, view.high).map((at, k) => Math.min(at, [width, height][k]));
  if (left >= right || top >= bottom) return;
  const [west, north] = degrees.at(left, top),
    [east, south] = degrees.at(right, bottom);
  const [x0, y0] = view.toScreen(left, top),
    [x1, y1] = view.toScreen(right, bottom);
  const { meridians, parallels } = graticule(west, south, east, north);
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  const line = (ax, ay, bx, by) => {
    pen.strokeStyle = css("--line");
    pen.lineWidth = 0.75;
    pen.globalAlpha = 0.6;
    pen.beginPath();
    pen.moveTo(ax, ay);
    pen.lineTo(bx, by);
    pen.stroke();
    pen.globalAlpha = 1;
  };
  const label = (text, x, y) => {
    pen.globalAlpha = 0.8;
    pen.fillStyle = css("--field");
    pen.fillRect(x - 3, y - 11, pen.measureText(text).width + 6, 15);
    pen.globalAlpha = 1;
    pen.fillStyle = css("--quiet");
    pen.fillText(text, x, y);
  };
  let free = MARGIN.left;
  for (const [lon, text] of meridians) {
    const [x] = view.toScreen(degrees.x(lon), 0),
      half = pen.measureText(text).width / 2;
    line(x, y0, x, y1);
    // Names that would meet are left out.
    if (x - half < free || x > view.wide - MARGIN.right) continue;
    label(text, x - half, 16);
    free = x + half + 8;
  }
  for (const [lat, text] of parallels) {
    const [, y] = view.toScreen(0, degrees.y(lat));
    line(x0, y, x1, y);
    if (y > MARGIN.top && y < view.high - MARGIN.bottom) label(text, 8, y + 4);
  }
}
