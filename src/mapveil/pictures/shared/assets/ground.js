// The ground under a map: land, water, borders, and the names of places, largest first.
import { css } from "./theme.js";

const MOST_NAMES = 24; // on the screen at once
const AROUND_NAME = 6; // pixels around a name

/** Open or closed lines as one path. */
function linesPath({ x, y, start }, closed) {
  const path = new Path2D();
  for (let k = 0; k + 1 < start.length; k++) {
    for (let i = start[k]; i < start[k + 1]; i++) {
      if (i === start[k]) path.moveTo(x[i], y[i]);
      else path.lineTo(x[i], y[i]);
    }
    if (closed) path.closePath();
  }
  return path;
}

const NO_GROUND = { under() {}, over() {}, names() {}, attribution: "" };

/** What is drawn of a record of the ground: under and over the cells in the plane, names in pixels. */
export function groundOf(record) {
  if (!record) return NO_GROUND;
  const [land, lakes] = [record.land, record.lakes].map((rings) => linesPath(rings, true)),
    [shores, borders, own] = [record.shores, record.borders, record.own].map((lines) => linesPath(lines, false)),
    [x0, y0, x1, y1] = record.box;

  function under(pen) {
    pen.fillStyle = css("--water");
    pen.fillRect(x0, y0, x1 - x0, y1 - y0);
    pen.fillStyle = css("--land");
    pen.fill(land, "evenodd");
    pen.fillStyle = css("--water");
    pen.fill(lakes, "evenodd");
  }
  function over(pen, view) {
    pen.lineJoin = "round";
    pen.lineWidth = 1 / view.scale;
    pen.strokeStyle = css("--border");
    pen.stroke(own);
    pen.strokeStyle = css("--shore");
    pen.stroke(shores);
    pen.strokeStyle = css("--border");
    pen.setLineDash([6 / view.scale, 4 / view.scale]);
    pen.stroke(borders);
    pen.setLineDash([]);
  }
  function names(pen, view) {
    const { x, y, name } = record.places,
      // Degrees stand along the top and the left, the scale in the lower corner, buttons in the upper one.
      reserved = [[0, 0, view.wide, 26], [0, 0, 62, view.high], [0, view.high - 38, 170, view.high], [view.wide - 56, 0, view.wide, 150]],
      taken = [...reserved],
      most = taken.length + MOST_NAMES;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.lineJoin = "round";
    for (let k = 0; k < name.length && taken.length < most; k++) {
      const [px, py] = view.toScreen(x[k], y[k]);
      if (px < 0 || px > view.wide || py < 0 || py > view.high) continue;
      const half = pen.measureText(name[k]).width / 2 + AROUND_NAME,
        box = [px - half, py - 18, px + half, py + AROUND_NAME];
      if (box[0] < 0 || box[2] > view.wide || box[1] < 0) continue;
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      pen.fillStyle = css("--ink");
      pen.beginPath();
      pen.arc(px, py, 1.8, 0, 2 * Math.PI);
      pen.fill();
      pen.lineWidth = 4;
      pen.strokeStyle = css("--card");
      pen.globalAlpha = 0.9;
      pen.strokeText(name[k], px, py - 5);
      pen.globalAlpha = 1;
      pen.fillText(name[k], px, py - 5);
    }
  }
  return { under, over, names, attribution: record.attribution };
}
