// A region on a map of the world in web mercator: coast, borders, names and degrees.
import { el } from "./dom.js";
import { planeView } from "./plane_view.js";
import { regionGround } from "./region_ground.js";
import { css } from "./theme.js";

const RADIUS = 6378137; // metres, of the sphere of EPSG:3857
const HALF = Math.PI * RADIUS;
const HANDLE = 9; // pixels

/** The place of degrees on the plane, metres from its north-west corner. */
const toPlane = (lon, lat) => [
  HALF * (1 + lon / 180),
  HALF - RADIUS * Math.asinh(Math.tan((lat * Math.PI) / 180)),
];
const toDegrees = (x, y) => [
  (x / HALF - 1) * 180,
  (Math.atan(Math.sinh((HALF - y) / RADIUS)) * 180) / Math.PI,
];
const WORLD = {
  extent: [2 * HALF, 2 * HALF],
  metresAt: (y) => Math.cos((toDegrees(0, y)[1] * Math.PI) / 180),
  degrees: { at: toDegrees, x: (lon) => toPlane(lon, 0)[0], y: (lat) => toPlane(0, lat)[1] },
};

/**
 * Makes a view of the world that shows a box [west, south, east, north]; `boxNow` gives the box to draw. With `drag` its
 * corners can be pulled: `drag(lon, lat, corner)` gives what follows the pointer, or null.
 */
export function regionView(boxNow, { label, drag = null, signal }) {
  const edges = () => {
    const [west, south, east, north] = boxNow();
    return [...toPlane(west, north), ...toPlane(east, south)];
  };
  // In pixels: the plane's metres are too many for the canvas's own numbers.
  const credit = el("p", { class: "hint" });
  const ground = regionGround(
    toPlane,
    (said) => {
      credit.textContent = said;
      view.redraw();
    },
    signal,
  );
  const paint = (pen, view) => {
    ground.look(view.seen());
    ground.paint(pen, view);
  };
  const over = (pen, view) => {
    ground.names(pen, view);
    const [left, top, right, bottom] = edges();
    const [x0, y0] = view.toScreen(left, top),
      [x1, y1] = view.toScreen(right, bottom);
    pen.lineWidth = 2;
    pen.strokeStyle = css("--mark");
    pen.strokeRect(x0, y0, x1 - x0, y1 - y0);
    if (!drag) return;
    for (const [x, y] of [[x0, y1], [x1, y0]]) {
      pen.beginPath();
      pen.arc(x, y, HANDLE, 0, 2 * Math.PI);
      pen.fillStyle = css("--card");
      pen.lineWidth = 4;
      pen.fill();
      pen.stroke();
    }
  };
  const degreesAt = (px, py) => toDegrees(...view.toPlane(px, py));
  const take = (px, py) => {
    const [left, top, right, bottom] = edges();
    const near = (x, y) => {
      const [sx, sy] = view.toScreen(x, y);
      return Math.hypot(sx - px, sy - py) < 2 * HANDLE;
    };
    const corner = near(left, bottom) ? "southwest" : near(right, top) ? "northeast" : null;
    const follow = drag?.(...degreesAt(px, py), corner);
    return follow ? (x, y) => follow(...degreesAt(x, y)) : null;
  };
  const home = () => {
    const [left, top, right, bottom] = edges(),
      [padX, padY] = [(right - left) / 6, (bottom - top) / 6];
    return [left - padX, top - padY, right + padX, bottom + padY];
  };
  const view = planeView({ plane: WORLD, label, paint, over, take, home, tallest: 300, deepest: 1e6, signal });
  view.credit = credit;
  view.seen = () => {
    const [west, north] = degreesAt(0, 0),
      [east, south] = degreesAt(view.wide, view.high);
    return [Math.max(-180, west), Math.max(-85, south), Math.min(180, east), Math.min(85, north)];
  };
  return view;
}
