// A card that answers for zones of a map: the user's own, blocks, or what somebody draws. Totals come from the noisy
// sums in the record, with the interval of their noise; nothing is sent and nothing is spent.
import { announce, card, el, factRows, freshId } from "./dom.js";
import { noisySums, totalOfZones } from "./noisy_sums.js";
import { pathsOf } from "./packed.js";
import { number } from "./scale.js";
import { css } from "./theme.js";
import { crosses, isInside, pixelFractions } from "./zone_shapes.js";

const MOSTLY = 0.5; // fraction of a total above which the model places it, and the interval of the noise says little
const CLOSE = 12; // pixels around the first corner of an outline, where a click closes it
const WAYS = {
  zones: ["Zones", "Click zones of the map, or choose them by name. Their users are added up."],
  blocks: ["Blocks", "Click measured blocks of the map. Their users are added up."],
  box: ["Rectangle", "Drag a rectangle over the map."],
  outline: ["Outline", "Click the corners of an outline; click the first one again to close it."],
};

const fixed = (value) =>
  value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }).replaceAll(",", "\u202f");
const per = (fraction) => `${Math.round(100 * fraction)} %`;

/** What a total is read as. */
export const totalRows = ({ estimate, low, high, inside, touched, placed, shown, covered }, alpha) => [
  ["Users", fixed(estimate), "main"],
  (placed <= MOSTLY || (estimate <= 0 && inside !== 0)) && [`${Math.round(100 * (1 - alpha))} % interval of the noise`, `${fixed(low)} to ${fixed(high)}`],
  placed >= 0.005 && ["Placed by the model, not measured", per(placed)],
  placed >= 0.005 && ["Measured cells inside, and touched", `${fixed(Math.max(inside, 0))} and ${fixed(Math.max(touched, 0))}`],
  ["Drawn there", number(shown)],
  covered < 0.999 && ["In the map", `${per(covered)} of the area`],
];

/** The card of a scene's questions, or null; `viewOf()` is the view that it draws on. */
export function zoneCard(scene, drawn, viewOf) {
  const record = scene.questions;
  if (!record) return null;
  const title = "Ask for a total";
  if (record.refused)
    return { element: card(title, el("p", { class: "hint" }, record.refused[0].toUpperCase() + record.refused.slice(1) + ".")) };
  const { zones } = record,
    [width, height] = scene.extent,
    { raster, rings } = scene,
    sums = noisySums(record),
    zonePaths = zones && pathsOf(zones.rings),
    users = drawn.layers[scene.main].values;
  let way = null,
    chosen = new Map(), // cells by block, or the number of a zone
    corners = [],
    closed = false,
    outline = null,
    waiting = false;

  // ---- what is chosen, as fractions of leaves ----
  const blockOf = (cell) => (scene.blocks && scene.blocks.of_cell[cell] >= 0 ? scene.blocks.of_cell[cell] : -2 - record.leaf[cell]);
  function cellsOf(block) {
    const cells = [];
    for (let cell = 0; cell < scene.size; cell++) if (blockOf(cell) === block) cells.push(cell);
    return cells;
  }
  function drawnCells() {
    if (raster) {
      const scaled = corners.map(([x, y]) => [(x / width) * raster.columns, (y / height) * raster.rows]);
      return new Map(
        [...pixelFractions(scaled, raster.rows, raster.columns)]
          .map(([pixel, fraction]) => [drawn.cellAt[pixel], fraction])
          .filter(([cell]) => cell >= 0),
      );
    }
    const inside = new Map();
    for (const [cell, [left, top, right, bottom]] of drawn.boxes)
      if (isInside(corners, (left + right) / 2, (top + bottom) / 2)) inside.set(cell, 1);
    return inside;
  }
  function cellTotal(fractions) {
    let shown = 0;
    for (const [cell, fraction] of fractions) if (record.leaf[cell] >= 0) shown += users[cell] * fraction;
    return { ...sums.totalOf(sums.leavesOf(fractions)), shown, covered: 1 };
  }
  function total() {
    if (way === "zones") return chosen.size ? totalOfZones(sums, zones, chosen.keys()) : null;
    if (way === "blocks") return chosen.size ? cellTotal([...chosen.values()].flat().map((cell) => [cell, 1])) : null;
    return closed && !crosses(corners) ? cellTotal(drawnCells()) : null;
  }

  // ---- the card ----
  const facts = el("dl", { class: "facts", id: "total" }),
    hint = el("p", { class: "hint" }),
    what = el("p", { class: "quiet" });
  const buttons = Object.entries(WAYS)
    .filter(([name]) => name !== "zones" || zones)
    .map(([name, [text]]) => [name, el("button", { type: "button", "aria-pressed": "false", on: { click: () => choose(way === name ? null : name) } }, text)]);
  const clear = el("button", { type: "button", hidden: true, on: { click: () => choose(way) } }, "Clear");
  const screen = el("button", { type: "button", hidden: true, on: { click: () => askScreen() } }, "What is on the screen");
  const id = freshId("zone"),
    select = el("select", { id, on: { change: () => select.value && (toggle(Number(select.value)), (select.value = "")) } }, el("option", { value: "" }, "Add or remove a zone"));
  for (const [at, name] of (zones?.name ?? []).entries()) select.append(new Option(name, String(at)));
  const byName = el("div", { class: "field", hidden: true }, el("label", { for: id }, "Zones by name"), select);
  const note = el("p", { class: "hint" }, `${scene.windows ? "Totals are of all windows together. " : ""}From the noisy sums, in this page: nothing is sent, and asking costs no privacy. The interval is of the noise alone.`);
  const element = card(
    title,
    el("div", { class: "choices", role: "group", "aria-label": "Ask about" }, buttons.map(([, button]) => button)),
    hint,
    byName,
    what,
    facts,
    el("div", { class: "choices" }, screen, clear),
    ...(zones?.notes ?? []).map((text) => el("p", { class: "hint" }, text)),
    note,
  );
  function choose(name) {
    way = name;
    chosen = new Map();
    corners = [];
    closed = false;
    buttons.forEach(([each, button]) => button.setAttribute("aria-pressed", String(each === way)));
    byName.hidden = way !== "zones";
    screen.hidden = way !== "box";
    hint.textContent = way ? WAYS[way][1] + (way === "blocks" || way === "zones" || raster ? "" : " Cells count whole, by their middle.") : "";
    answer();
  }
  const chosenWords = () => {
    if (way !== "zones" || !chosen.size) return "";
    const names = [...chosen.keys()].map((zone) => zones.name[zone]);
    return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
  };
  function answer() {
    outline = null;
    const found = total();
    clear.hidden = !chosen.size && !corners.length;
    what.textContent = found?.refused ?? (chosenWords() || (closed && !found ? "The outline crosses itself: draw it anew." : ""));
    facts.replaceChildren(...(found && !found.refused ? factRows(totalRows(found, record.alpha)) : []));
    if (found?.refused) announce(found.refused);
    else if (found) announce(`${what.textContent || WAYS[way][0]}: ${fixed(found.estimate)} users, ${fixed(found.low)} to ${fixed(found.high)}`);
    viewOf()?.redraw();
  }
  /** Once for each picture, however fast somebody drags. */
  function answerSoon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      answer();
    });
  }
  function toggle(key, cells = null) {
    if (!chosen.delete(key)) chosen.set(key, cells);
    answer();
  }
  const within = ([x, y]) => [Math.min(Math.max(x, 0), width), Math.min(Math.max(y, 0), height)];
  function setBox([ax, ay], [bx, by]) {
    corners = [[ax, ay], [bx, ay], [bx, by], [ax, by]];
    closed = ax !== bx && ay !== by;
  }
  function askScreen() {
    const view = viewOf();
    setBox(within(view.toPlane(0, 0)), within(view.toPlane(view.wide, view.high)));
    answer();
  }

  // ---- the map ----
  /** Whether a click at a place in pixels is an answer to this card. */
  function tap(px, py, view) {
    const [x, y] = view.toPlane(px, py);
    if (way === "zones") {
      view.pen.setTransform(1, 0, 0, 1, 0, 0);
      for (const [zone, path] of zonePaths) if (view.pen.isPointInPath(path, x, y, "evenodd")) toggle(zone);
    } else if (way === "blocks") {
      const cell = drawn.find(x, y, view);
      if (cell >= 0 && record.leaf[cell] >= 0) toggle(blockOf(cell), cellsOf(blockOf(cell)));
    } else if (way === "outline") {
      if (closed) [corners, closed] = [[], false];
      const [fx, fy] = corners.length ? view.toScreen(...corners[0]) : [Infinity, Infinity];
      if (corners.length > 2 && Math.hypot(px - fx, py - fy) < CLOSE) closed = true;
      else corners.push(within([x, y]));
      answer();
    }
    return way !== null;
  }
  /** What follows a drag that begins at a place in pixels; null where it moves the map. */
  function drag(px, py, view) {
    if (way !== "box") return null;
    const first = within(view.toPlane(px, py));
    return (qx, qy) => {
      setBox(first, within(view.toPlane(qx, qy)));
      answerSoon();
    };
  }
  /** The border of what is chosen. */
  function chosenPath() {
    const path = new Path2D();
    if (way === "zones") for (const zone of chosen.keys()) path.addPath(zonePaths.get(zone));
    if (way === "blocks" && rings) for (const cell of [...chosen.values()].flat()) path.addPath(drawn.pathOf(cell));
    if (way === "blocks" && raster) {
      const held = new Set([...chosen.values()].flat()),
        [wide, high] = [width / raster.columns, height / raster.rows];
      const at = (col, row) => col >= 0 && col < raster.columns && row >= 0 && row < raster.rows && held.has(drawn.cellAt[row * raster.columns + col]);
      for (const cell of held) {
        const [col, row] = [raster.col[cell], raster.row[cell]];
        for (const [dx, dy, ax, ay, bx, by] of [[-1, 0, 0, 0, 0, 1], [1, 0, 1, 0, 1, 1], [0, -1, 0, 0, 1, 0], [0, 1, 0, 1, 1, 1]]) {
          if (at(col + dx, row + dy)) continue;
          path.moveTo((col + ax) * wide, (row + ay) * high);
          path.lineTo((col + bx) * wide, (row + by) * high);
        }
      }
    }
    corners.forEach((corner, k) => (k ? path.lineTo(...corner) : path.moveTo(...corner)));
    if (closed) path.closePath();
    return path;
  }
  function paint(pen, view) {
    if (!way) return;
    outline ??= chosenPath();
    const stroke = (path, pixels, ink) => {
      pen.lineWidth = pixels / view.scale;
      pen.strokeStyle = css(ink);
      pen.stroke(path);
    };
    pen.lineJoin = "round";
    if (way === "zones") for (const path of zonePaths.values()) stroke(path, 1.2, "--quiet");
    stroke(outline, 5, "--card");
    stroke(outline, 2.5, "--mark");
    if (way === "outline" && corners.length && !closed) {
      const dot = new Path2D(),
        r = 4 / view.scale;
      dot.ellipse(...corners[0], r, r / view.aspect, 0, 0, 2 * Math.PI);
      stroke(dot, 2.5, "--mark");
    }
  }
  return { element, tap, drag, paint, letGo: () => choose(chosen.size || corners.length ? way : null) };
}
