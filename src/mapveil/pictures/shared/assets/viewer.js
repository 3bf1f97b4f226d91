// The viewer of a scene: the map, what is read off it, and what its colours stand for. Exported pages and the console
// mount it.
import { cellScene } from "./cell_scene.js";
import { degreesOf } from "./degrees.js";
import { announce, card, el, factRows, freshId } from "./dom.js";
import { groundOf } from "./ground.js";
import { aloneWords, drawLegend, stepsOf } from "./legend.js";
import { lineScene } from "./line_scene.js";
import { oddsCard } from "./odds_card.js";
import { onlineTiles } from "./online_tiles.js";
import { unpackAll } from "./packed.js";
import { planeView } from "./plane_view.js";
import { number } from "./scale.js";
import { onTheme, theme } from "./theme.js";
import { windowSlider } from "./window_slider.js";
import { zoneCard } from "./zone_card.js";

const BLOCK_LAYERS = [
  ["block_density", "Estimate"],
  ["block_half_width", "Interval"],
  ["block_significance", "Significance"],
];
const KEYS = "Arrow keys move it, plus and minus zoom";

/** The plane of a scene, for `planeView`. */
export const planeOf = (scene) => ({
  extent: scene.extent,
  aspect: scene.metres[1] / scene.metres[0],
  metresAt: () => (scene.georeferenced ? scene.metres[0] : null),
  degrees: degreesOf(scene),
});

/** A title with its unit, for the head of a legend. */
const named = ({ title, unit }) => (unit && unit !== "1" && unit !== title ? `${title}, ${unit}` : title);

const median = (values) => {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  return known[known.length >> 1];
};

/** The first lines of a reading, for small screens and for those who hear it. */
export const inShort = (rows) =>
  rows
    .slice(0, 2)
    .map(([term, text]) => `${term}: ${text}`)
    .join("; ");

/** What stands in a reading before anybody has pointed anywhere. */
export const nothingRead = (thing) =>
  el(
    "div",
    { class: "hint" },
    el("dt", {}, matchMedia("(pointer: coarse)").matches ? `Tap a ${thing} of the map` : "Point at the map, or reach it with the Tab key"),
    el("dd", {}),
  );

/** What must be seen with a map wherever it is cut out of a page: simulation, not accounted, large epsilon. */
export const stampsOf = (...records) => [...new Set(records.flatMap(({ metadata }) => metadata.guarantee.promise.stamps))];
export const stampLine = (stamps) => el("p", { class: "stamps", hidden: !stamps.length }, stamps.join("; "));

/** Mounts a scene's record; resolves to the whole `element`, the column `side` of its cards with that of the `odds`, and what is `drawn`. */
export async function mountScene(record, { signal } = {}) {
  const scene = await unpackAll(record.scene),
    thing = scene.thing ?? (scene.layers ? "cell" : "line"),
    drawn = scene.layers ? cellScene(scene) : lineScene(scene);
  const reading = el("dl", { class: "facts", id: "reading" }, nothingRead(thing));
  const chip = el("p", { class: "chip", "aria-hidden": "true", hidden: true });
  const stamps = stampsOf(record),
    legend = el("canvas", { class: "legend", role: "img" }),
    hint = el("p", { class: "hint" }),
    below = el("p", { class: "swatch", hidden: true }),
    doubt = el("p", { class: `swatch ${scene.layers ? "hatched" : "faded"} ${scene.hatched ? "over" : ""}`, hidden: true }, scene.doubt),
    dots = el("p", { class: "swatch dotted", hidden: true }, scene.dotted),
    words = el("p", { class: "hint" });
  let selected = null,
    pinned = false,
    timer = null;

  const tell = (found, how) => {
    selected = found;
    const rows = drawn.rows(found);
    reading.replaceChildren(...factRows(rows));
    chip.textContent = inShort(rows);
    chip.hidden = found < 0;
    clearTimeout(timer);
    if (how === "keys") timer = setTimeout(() => announce(inShort(rows)), 300);
    view.redraw();
  };
  const read = (px, py, how) => {
    if (px === null) {
      pinned = false;
      questions?.letGo?.();
      return;
    }
    if ((how === "tap" || how === "enter") && questions?.tap?.(px, py, view)) return;
    if (how === "enter") how = "keys";
    if (how === "hover" && pinned) return;
    const found = drawn.find(...view.toPlane(px, py), view);
    // A click holds what it hit until the next.
    pinned = how === "tap" && found >= 0 && !(pinned && found === selected);
    if (found !== selected || how !== "hover") tell(found, how);
  };
  const ground = groundOf(scene.ground),
    tiles = onlineTiles(scene.tiles, degreesOf(scene), () => view.redraw());
  const questions = scene.layers && zoneCard(scene, drawn, () => view);
  const view = planeView({
    plane: planeOf(scene),
    label: `${record.title}. ${KEYS}, Enter reads the ${thing} in the middle.`,
    paint(pen, view) {
      ground.under(pen);
      tiles.paint(pen, view);
      pen.globalAlpha = tiles.veil;
      drawn.paint(pen, view, selected ?? -1);
      pen.globalAlpha = 1;
      ground.over(pen, view);
      questions?.paint?.(pen, view);
    },
    over: ground.names,
    read,
    take: (px, py) => questions?.drag?.(px, py, view) ?? null,
    resized: () => colour(),
    stamps,
    signal,
  });
  view.frame.id = "map";
  view.frame.append(chip);

  // ---- the card of colours ----
  const uncertain = scene.layers && drawn.layers.find(({ name }) => name === "half_width");
  const middle = uncertain && median(uncertain.values);
  const colours = card(named(scene.layers?.[0] ?? { title: "Colours", unit: scene.unit }), legend, stampLine(stamps), hint, below, doubt, dots);
  const head = colours.querySelector("h2");
  function colour() {
    const { scale } = drawn,
      unit = drawn.layer?.unit ?? scene.unit;
    const nothing = drawn.doubted?.() && !drawn.layer.values.some((value) => !Number.isNaN(value));
    legend.hidden = nothing;
    words.textContent = drawn.layer?.reading ?? drawn.reading ?? record.reading ?? "";
    doubt.hidden = !(scene.layers ? drawn.doubted() : scene.doubt);
    dots.hidden = !drawn.dotted?.();
    if (!nothing && legend.clientWidth > 0) drawLegend(legend, scale, unit, drawn.ink, tiles.veil);
    const more = theme() === "dark" ? "brighter is more" : "darker is more";
    const noise = uncertain?.unit === unit && !drawn.doubted() ? ` Uncertainty of the median cell: ± ${number(middle)} ${unit}.` : "";
    hint.textContent = nothing ? "" : `Scale: ${stepsOf(scale)}; ${more}.${aloneWords(scale)}${noise}`;
    below.hidden = !scale.under;
    if (scale.under) {
      below.style.setProperty("--swatch", scale.under);
      below.textContent = `Below ${number(scale.low)} ${unit}: a coverage hole`;
    }
  }
  const show = (at, scale) => {
    drawn.show(at, scale);
    if (selected !== null) tell(selected);
    colour();
    view.redraw();
  };
  if (scene.layers) colours.append(...layerChoice(drawn, show, head));
  else {
    const least = sizeChoice(drawn, view);
    const again = () => {
      least.hide();
      colour();
      tell(selected ?? -1);
    };
    colours.append(...(scene.windows ? windowChoice(drawn, again) : []), least.element, ...scene.marks.map(markRow));
  }
  if (record.reading || scene.windows?.shown) colours.append(words);
  onTheme(() => show(), signal);

  const foot = `Drag or arrow keys: move. Wheel, pinch or + and −: zoom. Point or tap: read a ${thing}; click to hold it, Escape to let go. ${[ground.attribution, tiles.notice].filter(Boolean).join(". ")}`;
  const odds = oddsCard(record.odds);
  const side = el("div", { class: "stack side" }, card(`This ${thing}`, reading), colours, questions?.element ?? [], odds ?? []);
  const picture = el("section", { class: "card flush", "aria-label": "Map" }, view.frame, el("p", { class: "foot" }, foot));
  return { element: el("div", { class: "viewer" }, picture, side), side, odds, drawn };
}

/** What the colours show, and on which scale. */
function layerChoice(drawn, show, head) {
  const id = freshId("layer");
  const select = el("select", { id });
  const { windows, unshown } = drawn.scene,
    isWindow = (at) => windows && at >= windows.first && at < windows.first + windows.names.length;
  for (const [at, { title }] of drawn.layers.entries()) if (!isWindow(at)) select.append(new Option(title, String(at)));
  // One choice stands for all windows; its value is the layer of the slider's.
  const oneWindow = windows && new Option(windows.shown ? "Estimate, by window" : "Users, by window", String(windows.first));
  const slider =
    windows &&
    windowSlider(windows, (at) => {
      oneWindow.value = String(windows.first + at);
      select.value = oneWindow.value;
      choose();
    });
  if (windows) select.append(oneWindow);
  const buttons = ["log", "linear"].map((kind) =>
    el("button", { type: "button", on: { click: () => choose({ ...drawn.scale, kind }) } }, kind === "log" ? "Logarithmic" : "Linear"),
  );
  const kinds = el("div", { class: "choices", role: "group", "aria-label": "Scale of the colours" }, buttons);
  const toggle = BLOCK_LAYERS.map(([name, text]) => [drawn.layers.findIndex((layer) => layer.name === name), text])
    .filter(([at]) => at >= 0)
    .map(([at, text]) => {
      const show = () => {
        slider?.stop();
        select.value = String(at);
        choose();
      };
      return [String(at), el("button", { type: "button", on: { click: show } }, windows || unshown ? `${text}, all together` : text)];
    });
  const blocks = el("div", { class: "choices", role: "group", "aria-label": "Shown of each block" }, toggle.map(([, button]) => button));
  const choose = (scale = drawn.layerOf(Number(select.value)).scale) => {
    show(Number(select.value), scale);
    head.textContent = named(drawn.layer);
    slider?.tell(isWindow(Number(select.value)));
    kinds.hidden = drawn.layer.scale.kind !== "log";
    toggle.forEach(([at, button]) => button.setAttribute("aria-pressed", String(at === select.value)));
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String((scale.kind === "log") === (at === 0))));
  };
  select.addEventListener("change", () => {
    slider?.stop();
    choose();
  });
  choose();
  const field = el("div", { class: "field" }, el("label", { for: id }, "Colours show"), select);
  const alone = unshown && el("p", { class: "hint" }, unshown);
  return [toggle.length > 0 && blocks, slider?.element, alone, drawn.layers.length > 1 && field, kinds].filter(Boolean);
}

/** The smallest line that is shown. */
function sizeChoice(drawn, view) {
  const id = freshId("least"),
    shown = el("output", { for: id });
  const hide = () => {
    shown.textContent = `${number(drawn.hideBelow(slider.value / 100))} ${drawn.scene.unit}`;
    view.redraw();
  };
  const value = Math.ceil(100 * drawn.opening);
  const slider = el("input", { id, type: "range", min: 0, max: 100, value, on: { input: hide } });
  hide();
  return { element: el("div", { class: "field" }, el("label", { for: id }, "At least ", shown), slider), hide };
}

/** Which window's lines are shown; `changed` is told of each choice. */
function windowChoice(drawn, changed) {
  const choose = (at) => {
    drawn.showWindow(at);
    all.setAttribute("aria-pressed", String(at < 0));
    slider.tell(at >= 0);
    changed();
  };
  const slider = windowSlider(drawn.scene.windows, choose);
  const together = () => {
    slider.stop();
    choose(-1);
  };
  const all = el("button", { type: "button", "aria-pressed": "true", on: { click: together } }, "All windows together");
  slider.tell(false);
  return [slider.element, el("div", { class: "choices" }, all)];
}

function markRow({ name, colour }) {
  const patch = el("span", { class: "patch" });
  patch.style.background = colour;
  return el("p", {}, patch, name);
}
