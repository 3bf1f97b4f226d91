// The region of a new collection: four numbers, and a box on a map that can be drawn or pulled by its corners.
import { Marker } from "./vendor/maplibre-gl.mjs";
import { alertBox, el } from "./dom.js";
import { boxRing, makeMap, setOutline } from "./map_view.js";

const SIDES = [
  ["west", "West", -180, 180],
  ["south", "South", -85, 85],
  ["east", "East", -180, 180],
  ["north", "North", -85, 85],
];
const rounded = (value) => Number(value.toFixed(5));

/** A fieldset; `value()` is [west, south, east, north], `changed` is called whenever it may be another. */
export function regionPicker(start, changed, signal) {
  const inputs = Object.fromEntries(
    SIDES.map(([name, , least, most], at) => [
      name,
      el("input", {
        id: `region-${name}`,
        type: "number",
        step: "any",
        min: least,
        max: most,
        required: true,
        value: start[at],
        inputmode: "decimal",
        on: { input: () => moved(false) },
      }),
    ]),
  );
  const frame = el("div", { class: "map small" });
  const draw = el("button", { type: "button", "aria-pressed": "false" }, "Draw a box");
  const view = el("button", { type: "button" }, "Take the view");
  const fit = el("button", { type: "button" }, "Show the region");
  const value = () => SIDES.map(([name]) => Number(inputs[name].value));
  const good = ([west, south, east, north]) =>
    [west, south, east, north].every(Number.isFinite) && west < east && south < north;
  let map = null,
    corners = [];

  function moved(tellInputs, box = value()) {
    if (tellInputs)
      SIDES.forEach(([name], at) => {
        inputs[name].value = rounded(box[at]);
      });
    inputs.east.setCustomValidity(box[0] < box[2] ? "" : "East must lie east of west.");
    inputs.north.setCustomValidity(box[1] < box[3] ? "" : "North must lie north of south.");
    if (map && good(box)) {
      setOutline(map, [boxRing(box)]);
      corners.forEach(({ marker, x, y }) => marker.setLngLat([box[x], box[y]]));
    }
    changed();
  }

  async function begin() {
    try {
      map = await makeMap(frame, {
        bounds: start,
        signal,
        keep: 1000,
        label:
          "The region on a map: arrow keys move it, plus and minus zoom; Take the view makes what is seen the region",
      });
    } catch (error) {
      frame.replaceChildren(alertBox(error.message));
      [draw, view, fit].forEach((button) => {
        button.disabled = true;
      });
      return;
    }
    if (signal.aborted) return;
    corners = [
      [0, 1],
      [2, 3],
    ].map(([x, y]) => {
      const handle = el("div", { class: "handle", title: "Pull this corner" });
      const marker = new Marker({ element: handle, draggable: true })
        .setLngLat([start[x], start[y]])
        .addTo(map);
      // The numbers serve the keyboard: two more stops would only be in the way.
      handle.removeAttribute("tabindex");
      handle.setAttribute("aria-hidden", "true");
      marker.on("drag", () => {
        const at = marker.getLngLat(),
          box = value();
        box[x] = at.lng;
        box[y] = at.lat;
        moved(true, [
          Math.min(box[0], box[2]),
          Math.min(box[1], box[3]),
          Math.max(box[0], box[2]),
          Math.max(box[1], box[3]),
        ]);
      });
      return { marker, x, y };
    });
    startDrawing();
  }

  function startDrawing() {
    let from = null;
    const mode = (on) => {
      draw.setAttribute("aria-pressed", String(on));
      map.getCanvas().classList.toggle("drawing", on);
      if (on) map.dragPan.disable();
      else map.dragPan.enable();
    };
    const on = () => draw.getAttribute("aria-pressed") === "true";
    const boxTo = ({ lng, lat }) => [
      Math.min(from.lng, lng),
      Math.min(from.lat, lat),
      Math.max(from.lng, lng),
      Math.max(from.lat, lat),
    ];
    const down = (event) => {
      if (on()) {
        from = event.lngLat;
        event.preventDefault();
      }
    };
    const move = (event) => {
      if (from) moved(true, boxTo(event.lngLat));
    };
    const up = () => {
      if (from) {
        from = null;
        mode(false);
      }
    };
    for (const [name, work] of [
      ["mousedown", down],
      ["touchstart", down],
      ["mousemove", move],
      ["touchmove", move],
      ["mouseup", up],
      ["touchend", up],
    ])
      map.on(name, work);
    draw.addEventListener("click", () => mode(!on()));
    view.addEventListener("click", () => {
      const seen = map.getBounds();
      moved(true, [
        Math.max(-180, seen.getWest()),
        Math.max(-85, seen.getSouth()),
        Math.min(180, seen.getEast()),
        Math.min(85, seen.getNorth()),
      ]);
    });
    fit.addEventListener("click", () => {
      const box = value();
      if (good(box)) map.fitBounds(box, { padding: 40, animate: false });
    });
  }
  requestAnimationFrame(() => {
    if (!signal.aborted) begin();
  });
  return {
    value,
    good: () => good(value()),
    element: el(
      "fieldset",
      {},
      el("legend", {}, "Region"),
      el(
        "div",
        { class: "four" },
        SIDES.map(([name, text]) =>
          el(
            "div",
            { class: "field" },
            el("label", { for: `region-${name}` }, `${text}, degrees`),
            inputs[name],
          ),
        ),
      ),
      frame,
      el("div", { class: "actions" }, draw, view, fit),
      el(
        "p",
        { class: "hint" },
        "The map shows nothing but degrees: a picture of the ground would have to come from another server. East and north are positive, west and south negative.",
      ),
    ),
  };
}
