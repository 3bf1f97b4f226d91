// A scene of lines: widths and colours by their values, dots under them, and the facts of each line.
import { rampOf } from "./legend.js";
import { bytesOf } from "./packed.js";
import { fractionOf, number } from "./scale.js";
import { css, theme } from "./theme.js";

const REACH = 10; // pixels from a line within which it is pointed at
const OPENING = 80; // lines of directed scenes that are shown at first

/** What is drawn of a scene whose arrays are unpacked. */
export function lineScene(scene) {
  const { x, y, start, mark, marks, dots, facts, directed, windows } = scene,
    [thin, thick] = scene.widths;
  let { value, faded, scale } = scene,
    sizes = dots?.size,
    window = -1; // -1 for all together
  const paths = [],
    boxes = [];
  for (let k = 0; k + 1 < start.length; k++) {
    const path = new Path2D(),
      box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = start[k]; i < start[k + 1]; i++) {
      if (i === start[k]) path.moveTo(x[i], y[i]);
      else path.lineTo(x[i], y[i]);
      box[0] = Math.min(box[0], x[i]);
      box[1] = Math.min(box[1], y[i]);
      box[2] = Math.max(box[2], x[i]);
      box[3] = Math.max(box[3], y[i]);
    }
    paths.push(path);
    boxes.push(box);
  }
  // Small values first, marked lines last: what matters most lies on top.
  const sorted = () =>
    [...paths.keys()].sort((a, b) => mark[a] - mark[b] || faded[b] - faded[a] || (value[a] || 0) - (value[b] || 0));
  let order = sorted();

  const ramp = rampOf(bytesOf(scene.ramp));
  const fraction = (amount) => Math.min(1, fractionOf(scale, amount));
  const ink = (part) => ramp(scene.faintest + (1 - scene.faintest) * part, theme() === "dark");
  const colour = (part) => `rgb(${ink(part).join()})`;
  let least = 0;
  const visible = (k) => mark[k] >= 0 || !(value[k] < least);

  function paint(pen, view, selected = -1) {
    const [left, north] = view.toPlane(0, 0),
      [right, south] = view.toPlane(view.wide, view.high);
    const seen = (k) => boxes[k][2] >= left && boxes[k][0] <= right && boxes[k][3] >= north && boxes[k][1] <= south;
    const grow = Math.min(2.2, Math.max(1, Math.sqrt(view.magnified())));
    // Lines keep their width on the screen, whatever the plane's units are.
    pen.lineCap = pen.lineJoin = "round";
    const line = (k, width, paint) => {
      pen.lineWidth = width / view.scale;
      pen.strokeStyle = paint;
      pen.stroke(paths[k]);
    };
    for (let i = 0; i < (dots?.x.length ?? 0); i++) dot(pen, view, dots.x[i], dots.y[i], sizes[i]);
    for (const k of order) {
      if (!visible(k) || !seen(k)) continue;
      if (mark[k] >= 0) {
        line(k, 7, css("--card"));
        line(k, 4, marks[mark[k]].colour);
      } else if (Number.isNaN(value[k]) || faded[k]) {
        line(k, thin * grow, css("--line"));
      } else {
        const part = fraction(value[k]);
        line(k, (thin + (thick - thin) * part) * grow, colour(part));
      }
    }
    if (selected >= 0 && visible(selected)) {
      line(selected, 7, css("--card"));
      line(selected, 3, css("--mark"));
      if (directed) arrow(pen, view, selected);
    }
  }
  function dot(pen, view, px, py, size) {
    pen.fillStyle = size > 0 ? colour(fraction(size)) : css("--line");
    pen.beginPath();
    const r = (size > 0 ? 3 + 6 * fraction(size) : 1.2) / view.scale;
    pen.ellipse(px, py, r, r / view.aspect, 0, 0, 2 * Math.PI);
    pen.fill();
  }
  function arrow(pen, view, k) {
    const end = start[k + 1] - 1,
      [ax, ay] = view.toScreen(x[end - 1], y[end - 1]),
      [bx, by] = view.toScreen(x[end], y[end]);
    pen.save();
    pen.setTransform(view.dense, 0, 0, view.dense, 0, 0);
    pen.translate(bx, by);
    pen.rotate(Math.atan2(by - ay, bx - ax));
    pen.fillStyle = css("--mark");
    pen.beginPath();
    pen.moveTo(4, 0);
    pen.lineTo(-10, 6);
    pen.lineTo(-10, -6);
    pen.fill();
    pen.restore();
  }

  // ---- which line, and what is known of it ----
  function find(atX, atY, view) {
    const [px, py] = view.toScreen(atX, atY);
    const [left, north] = view.toPlane(px - REACH, py - REACH),
      [right, south] = view.toPlane(px + REACH, py + REACH);
    let best = REACH,
      found = -1;
    for (const k of [...order].reverse()) {
      if (!visible(k) || (Number.isNaN(value[k]) && mark[k] < 0)) continue;
      if (boxes[k][2] < left || boxes[k][0] > right || boxes[k][3] < north || boxes[k][1] > south) continue;
      let [ax, ay] = view.toScreen(x[start[k]], y[start[k]]);
      for (let i = start[k] + 1; i < start[k + 1]; i++) {
        const [bx, by] = view.toScreen(x[i], y[i]),
          [dx, dy] = [bx - ax, by - ay],
          long = dx * dx + dy * dy;
        const t = long > 0 ? Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / long)) : 0;
        const far = Math.hypot(px - ax - t * dx, py - ay - t * dy);
        if (far < best - 1e-9) [best, found] = [far, k];
        [ax, ay] = [bx, by];
      }
    }
    return found;
  }
  const said = (fact) => (typeof fact !== "number" ? fact : Number.isNaN(fact) ? "" : number(fact));
  function rows(k) {
    if (k < 0) return [["Here", "no line"]];
    const known = Object.entries(facts).map(([name, column]) => [name, said(column[k]), ""]);
    known[0][2] = "main";
    if (window < 0) return known;
    const own = [`${known[0][0]}, ${windows.names[window]}`, said(value[k]), "main"];
    const doubted = faded[k] ? [["In this window", "no flow, or too small to tell"]] : [];
    // Numbers of all windows together say so.
    const others = known.map(([name, text], at) => [at === 0 || name === "Standard deviation" ? `${name}, all windows` : name, text]);
    return [own, ...doubted, ...others];
  }
  /** Shows one window, or all together (-1). */
  function showWindow(at) {
    const of = (array, size) => array.subarray(at * size, (at + 1) * size);
    window = at;
    [value, faded, scale] = at < 0 ? [scene.value, scene.faded, scene.scale] : [of(windows.value, paths.length), of(windows.faded, paths.length), windows.scale];
    if (dots) sizes = at < 0 ? dots.size : of(windows.size, dots.x.length);
    order = sorted();
  }

  // Too many lines at once say nothing: a scene opens with the largest.
  const values = [...value].filter((amount, k) => mark[k] < 0 && amount >= 0).sort((a, b) => b - a);
  const opening = directed && values.length > OPENING ? fraction(values[OPENING]) : 0;
  return {
    scene,
    get scale() {
      return scale;
    },
    get reading() {
      return windows?.readings[window];
    },
    showWindow,
    rows,
    find,
    paint,
    ink,
    opening,
    show() {},
    /** Hides lines below a place on the scale; returns the value there. */
    hideBelow(part) {
      least = part > 0 ? Math.expm1(part * Math.log1p(scale.top / scale.knee)) * scale.knee : 0;
      return least;
    },
  };
}
