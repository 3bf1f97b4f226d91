// Two finished maps under one slider, in one scale of colours.
import { get } from "./api.js";
import { cellScene } from "./cell_scene.js";
import { alertBox, announce, card, el, factRows } from "./dom.js";
import { groundOf } from "./ground.js";
import { aloneWords, drawLegend } from "./legend.js";
import { unpackAll } from "./packed.js";
import { planeView } from "./plane_view.js";
import { css, onTheme } from "./theme.js";
import { inShort, nothingRead, planeOf, stampLine, stampsOf } from "./viewer.js";
import { epsilonWords, trustName } from "./words.js";

const REACH = 16; // pixels around the edge that can be pulled
const WARP = 0.01; // of a map's height
const SIDES = ["left", "right"];

export async function showPage(main, context) {
  const { query, signal, heading } = context;
  heading("Compare");
  const done = (await get("/collections", signal)).filter((one) => one.state === "done");
  main.append(
    el(
      "div",
      { class: "head" },
      el(
        "div",
        {},
        el("h1", {}, "Compare two maps"),
        el(
          "p",
          { class: "quiet" },
          "Pull the slider to uncover one map or the other; both are coloured on one scale.",
        ),
      ),
    ),
  );
  if (done.length < 2) {
    main.append(
      el(
        "p",
        { class: "card" },
        done.length
          ? "There is one finished map so far; comparing takes two."
          : "There is no finished map yet.",
      ),
    );
    return;
  }
  const chosen = { left: query.get("left"), right: query.get("right") };
  const known = (id) => done.some((one) => one.id === id);
  if (!known(chosen.left)) chosen.left = done.find((one) => one.id !== chosen.right).id;
  if (!known(chosen.right) || chosen.right === chosen.left)
    chosen.right = done.find((one) => one.id !== chosen.left).id;
  const body = el("div", { class: "stack" });
  let leaving = new AbortController();
  const renew = async () => {
    leaving.abort();
    leaving = new AbortController();
    signal.addEventListener("abort", () => leaving.abort(), { once: true });
    history.replaceState(null, "", `#/compare?left=${chosen.left}&right=${chosen.right}`);
    await show(
      body,
      SIDES.map((side) => done.find((one) => one.id === chosen[side])),
      leaving.signal,
    );
  };
  const pick = (side) =>
    el(
      "div",
      { class: "field" },
      el("label", { for: `pick-${side}` }, `On the ${side}`),
      el(
        "select",
        {
          id: `pick-${side}`,
          on: {
            change: (event) => {
              chosen[side] = event.target.value;
              renew();
            },
          },
        },
        done.map((one) =>
          el(
            "option",
            { value: one.id, selected: one.id === chosen[side] },
            `${one.title} (${trustName(one.trust)}, ${epsilonWords(one.epsilon)})`,
          ),
        ),
      ),
    );
  main.append(el("div", { class: "two" }, SIDES.map(pick)), body);
  await renew();
}

async function show(body, pair, signal) {
  body.replaceChildren(el("p", { class: "quiet", role: "status" }, "The maps are being fetched."));
  let maps, stamps;
  try {
    const records = await Promise.all(pair.map((one) => get(`/collections/${one.id}/map`, signal)));
    maps = await Promise.all(records.map(async (record) => cellScene(await unpackAll(record.scene))));
    stamps = stampsOf(...records);
  } catch (error) {
    if (error.name === "AbortError") return;
    body.replaceChildren(alertBox(error.message));
    return;
  }
  if (signal.aborted) return;
  const [left, right] = maps;
  const laid = layOver(right, left);
  if (!laid) {
    body.replaceChildren(alertBox("These maps' planes differ too much to be laid over each other."));
    return;
  }
  const scale = commonScale(maps.map((map) => map.layers[0].scale));
  const chosen = [-1, -1],
    ground = groundOf(left.scene.ground);
  const slider = el("input", { id: "slider", type: "range", min: 0, max: 100, step: 1, value: 50 });
  const edge = (view) => (view.wide * slider.value) / 100;
  const view = planeView({
    plane: planeOf(left.scene),
    label: `${pair[0].title} and ${pair[1].title}: density. Arrow keys move both, plus and minus zoom, Enter reads the cells in the middle.`,
    home: () => laid.both,
    paint(pen, view) {
      ground.under(pen);
      clipped(pen, view, edge(view), view.wide, () => {
        pen.transform(...laid.transform);
        right.paint(pen, laid.view(view), chosen[1]);
      });
      clipped(pen, view, 0, edge(view), () => left.paint(pen, view, chosen[0]));
      ground.over(pen, view);
    },
    over(pen, view) {
      ground.names(pen, view);
      drawEdge(pen, edge(view), view.high);
    },
    take: (px) => (Math.abs(px - edge(view)) < REACH ? (x) => cut((100 * x) / view.wide) : null),
    read(px, py, how) {
      if (px === null) return;
      const [x, y] = view.toPlane(px, py);
      const texts = maps.map((map, at) => {
        chosen[at] = map.find(...(at === 0 ? [x, y] : laid.place(x, y)), view);
        const rows = map.rows(chosen[at]);
        readings[at].replaceChildren(...factRows(rows));
        return `${SIDES[at]}: ${inShort(rows)}`;
      });
      if (how === "keys") announce(texts.join("; "));
      view.redraw();
    },
    resized: () => colour(),
    stamps,
    signal,
  });
  view.frame.id = "swipe";
  const legend = el("canvas", { class: "legend", role: "img" }),
    nothing = maps.every((map) => map.doubted() && map.layer.values.every(Number.isNaN)),
    doubts = new Set(maps.map((map) => map.doubted() && map.scene.doubt).filter(Boolean));
  legend.hidden = nothing;
  const readings = pair.map(() => el("dl", { class: "facts" }, nothingRead("cell")));
  const colour = () => {
    if (!nothing && legend.clientWidth > 0) drawLegend(legend, scale, left.layer.unit, left.ink);
  };
  const cut = (percent = slider.value) => {
    slider.value = String(Math.round(percent));
    const shown = `${slider.value} % ${pair[0].title}, ${100 - slider.value} % ${pair[1].title}`;
    slider.setAttribute("aria-valuetext", shown);
    view.redraw();
  };
  slider.addEventListener("input", () => cut());
  cut();
  body.replaceChildren(
    el(
      "section",
      { class: "card flush", "aria-label": "Both maps" },
      view.frame,
      el(
        "div",
        { class: "foot field" },
        el("label", { for: "slider" }, "How much of the left map is shown"),
        slider,
      ),
    ),
    el(
      "div",
      { class: "columns" },
      pair.map((one, at) => card(`${SIDES[at] === "left" ? "Left" : "Right"}: ${one.title}`, readings[at])),
      card(`Density of both, ${left.layer.unit}`, legend, stampLine(stamps),
        [...doubts].map((text) => el("p", { class: "swatch hatched" }, text)),
        el("p", { class: "hint" }, nothing ? "No part of either map is told from its noise: there is nothing to compare." : `Both maps are on one scale.${aloneWords(scale)}`),
      ),
    ),
  );
  onTheme(() => {
    maps.forEach((map) => map.show(0, scale));
    colour();
    view.redraw();
  }, signal);
}

/** The scale that maps side by side share: no shade is spent below what chance alone puts into any of them. */
export function commonScale(scales) {
  const top = Math.max(...scales.map((scale) => scale.top)),
    floor = Math.max(...scales.map((scale) => scale.noise_floor)),
    deep = Math.min(...scales.map((scale) => scale.knee));
  const knee = Math.min(top, Math.max(deep, floor > 0 ? 10 ** Math.ceil(Math.log10(floor)) : 0));
  return { ...scales[0], top, knee, alone: scales.every((scale) => scale.alone && scale.top === top) };
}

/**
 * Lays a map over the plane of another by the degrees of its corners: the transform, the place of the other's places,
 * and the box of `both`; null where the planes bend so differently that the middle would lie elsewhere.
 */
export function layOver({ degrees, scene }, other) {
  const [width, height] = scene.extent;
  const across = (x) => other.degrees.x(degrees.at(x, 0)[0]),
    down = (y) => other.degrees.y(degrees.at(0, y)[1]);
  const [x0, y0] = [across(0), down(0)],
    [wide, high] = [across(width) - x0, down(height) - y0];
  if (Math.abs(down(height / 2) - (y0 + high / 2)) > WARP * high) return null;
  const place = (x, y) => [((x - x0) / wide) * width, ((y - y0) / high) * height];
  const [ownWide, ownHigh] = other.scene.extent;
  return {
    transform: [wide / width, 0, 0, high / height, x0, y0],
    place,
    // What a map asks of the view while it is painted.
    view: (view) => ({
      ...view,
      scale: (view.scale * wide) / width,
      toPlane: (px, py) => place(...view.toPlane(px, py)),
    }),
    both: [Math.min(0, x0), Math.min(0, y0), Math.max(ownWide, x0 + wide), Math.max(ownHigh, y0 + high)],
  };
}

/** Paints within columns of pixels only. */
function clipped(pen, view, from, to, paint) {
  const [x0, y0] = view.toPlane(from, 0),
    [x1, y1] = view.toPlane(to, view.high);
  pen.save();
  pen.beginPath();
  pen.rect(x0, y0, x1 - x0, y1 - y0);
  pen.clip();
  paint();
  pen.restore();
}

/** The edge between both maps, which can be pulled; the slider under the map says the same to keys. */
function drawEdge(pen, x, high) {
  pen.fillStyle = pen.strokeStyle = css("--ink");
  pen.fillRect(x - 1.5, 0, 3, high);
  pen.beginPath();
  pen.arc(x, high / 2, 16, 0, 2 * Math.PI);
  pen.lineWidth = 2;
  pen.stroke();
  pen.fillStyle = css("--card");
  pen.fill();
  pen.fillStyle = css("--ink");
  pen.font = "bold 16px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText("↔", x, high / 2 + 6);
}
