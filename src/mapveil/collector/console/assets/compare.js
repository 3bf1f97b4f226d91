// Two finished maps under one slider, in one scale of colours.
import { get } from "./api.js";
import { Cells } from "./cells.js";
import { alertBox, card, el, factRows } from "./dom.js";
import { commonScale, drawLegend } from "./legend.js";
import { addTiles, makeMap, markCell } from "./map_view.js";
import { followPointer, nothingRead, rowsOf } from "./readout.js";
import { onTheme, theme } from "./theme.js";
import { epsilonWords, trustName } from "./words.js";

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
  let records, tables;
  try {
    records = await Promise.all(pair.map((one) => get(`/collections/${one.id}/map`, signal)));
    tables = (await Promise.all(pair.map((one) => get(`/collections/${one.id}/map/cells`, signal)))).map(
      (record) => new Cells(record),
    );
  } catch (error) {
    if (error.name === "AbortError") return;
    body.replaceChildren(alertBox(error.message));
    return;
  }
  const frames = pair.map(() => el("div", { class: "layer" }));
  const edge = el("div", { class: "edge", "aria-hidden": "true" });
  const swipe = el("div", { class: "map swipe", id: "swipe" }, frames, edge);
  const slider = el("input", { id: "slider", type: "range", min: 0, max: 100, step: 1, value: 50 });
  const legend = el("div", {});
  const readings = pair.map(() => el("dl", { class: "facts" }, nothingRead()));
  body.replaceChildren(
    el(
      "section",
      { class: "card flush", "aria-label": "Both maps" },
      swipe,
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
      card("Colours of both", legend),
    ),
  );
  const cut = () => {
    frames[0].style.clipPath = `inset(0 ${100 - slider.value}% 0 0)`;
    edge.style.left = `${slider.value}%`;
    slider.setAttribute(
      "aria-valuetext",
      `${slider.value} % ${pair[0].title}, ${100 - slider.value} % ${pair[1].title}`,
    );
  };
  slider.addEventListener("input", cut);
  cut();
  const boxes = records.map((record) => record.bounds);
  const bounds = [0, 1, 2, 3].map((at) => Math[at < 2 ? "min" : "max"](boxes[0][at], boxes[1][at]));
  let maps;
  try {
    // The right one lies below and keeps the whole frame; the left is cut off at the slider.
    maps = await Promise.all(
      [1, 0].map((at) =>
        makeMap(frames[at], {
          bounds,
          rings: records[at].outline,
          signal,
          controls: false,
          label: `${pair[0].title} and ${pair[1].title}: persons per square kilometre. Arrow keys move both, plus and minus zoom, Enter reads the cells in the middle.`,
        }),
      ),
    );
  } catch (error) {
    swipe.replaceChildren(alertBox(error.message));
    return;
  }
  if (signal.aborted) return;
  maps.reverse();
  tie(maps);
  // One of them is enough for the keyboard.
  maps[1].getCanvas().tabIndex = -1;
  maps[1].getCanvas().setAttribute("aria-hidden", "true");
  swipe.append(zoomButtons(maps[0]));
  const scale = commonScale(records.map((record) => record.legend.density));
  const layers = maps.map((map, at) => addTiles(map, pair[at].id, records[at]));
  onTheme(() => {
    drawLegend(legend, scale, records[0].colours, theme(), "Density");
    layers.forEach((layer) => layer.show("density", theme(), scale));
  }, signal);
  maps.forEach((map, at) => {
    const reader = followPointer(map, swipe, tables[at], (lon, lat, byKeys) => {
      const texts = tables.map((cells, side) => {
        const { rows, text } = rowsOf(cells, lon, lat);
        markCell(maps[side], cells.ring(lon, lat));
        readings[side].replaceChildren(...factRows(rows));
        return `${SIDES[side]}: ${text}`;
      });
      if (byKeys) reader.announce(texts.join("; "));
    });
  });
  pull(edge, swipe, slider, cut);
  swipe.dataset.ready = "yes";
}

/** Whatever one map's view does, the other's does too. */
function tie(maps) {
  let leader = null;
  maps.forEach((map, at) =>
    map.on("move", () => {
      if (leader !== null && leader !== at) return;
      leader = at;
      maps[1 - at].jumpTo({ center: map.getCenter(), zoom: map.getZoom() });
      leader = null;
    }),
  );
}

/** Zoom buttons over both maps: those of either map would be cut off with it. */
const zoomButtons = (map) =>
  el(
    "div",
    { class: "zoom" },
    [
      ["+", "Zoom in", "zoomIn"],
      ["−", "Zoom out", "zoomOut"],
    ].map(([sign, name, act]) =>
      el(
        "button",
        { type: "button", "aria-label": name, title: name, on: { click: () => map[act]() } },
        sign,
      ),
    ),
  );

/** The edge can be pulled, too; the slider under the map says the same to keys. */
function pull(edge, swipe, slider, cut) {
  edge.addEventListener("pointerdown", (event) => {
    edge.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  edge.addEventListener("pointermove", (event) => {
    if (!edge.hasPointerCapture(event.pointerId)) return;
    const box = swipe.getBoundingClientRect();
    slider.value = String(Math.round((100 * (event.clientX - box.left)) / box.width));
    cut();
  });
}
