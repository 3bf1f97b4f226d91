// A new collection: a form whose defaults are sensible, and which says what its numbers mean.
import { post } from "./api.js";
import { alertBox, el, freshId } from "./dom.js";
import { METHODS } from "./methods.js";
import { regionPicker } from "./region_picker.js";
import { number, TRUST, whole } from "./words.js";

const REGION = [-74.03, 40.69, -73.9, 40.83];
const KM_PER_DEGREE = 111.2;
const TILINGS = {
  quadtree: ["Quadtree", "Halvings", 0, 11, 8],
  grid: ["Grid", "Rows", 1, 2048, 100],
  tiles: ["Web-map tiles", "Zoom level", 0, 22, 15],
};

const field = (label, input, hint) => {
  input.id ||= freshId("field");
  const help = hint ? el("p", { class: "hint", id: `${input.id}-hint` }, hint) : null;
  if (help) input.setAttribute("aria-describedby", help.id);
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, help);
};
const numeric = (id, value, min, max, step = 1) =>
  el("input", { id, type: "number", value, min, max, step, required: true, inputmode: "decimal" });

export async function showPage(main, { signal, who, heading }) {
  heading("New collection");
  if (who.role === "viewer") {
    main.append(
      el("h1", {}, "New collection"),
      alertBox("A viewer's token cannot make collections; an operator's can."),
    );
    return;
  }
  const title = el("input", {
    id: "title",
    type: "text",
    maxlength: 200,
    required: true,
    value: "",
    placeholder: "Where people are, weekday mornings",
  });
  const trusts = el(
    "fieldset",
    { class: "cards" },
    el("legend", {}, "Who sees what"),
    Object.entries(TRUST).map(([name, [short, long]], at) =>
      el(
        "label",
        { class: "choice block" },
        el("input", {
          type: "radio",
          name: "trust",
          value: name,
          checked: at === 0,
          on: { change: changed },
        }),
        el("span", {}, el("strong", {}, short), " ", long),
      ),
    ),
  );
  const epsilon = el("input", {
    id: "epsilon",
    type: "text",
    inputmode: "decimal",
    pattern: "\\d+(\\.\\d+)?|\\d+/\\d+",
    required: true,
    value: "1",
  });
  const epsilonHint = el("p", { class: "hint", id: "epsilon-help" });
  epsilon.setAttribute("aria-describedby", "epsilon-help");
  const epsilonField = el(
    "div",
    { class: "field" },
    el("label", { for: "epsilon" }, "Privacy cost to each device (ε)"),
    epsilon,
    epsilonHint,
  );
  const bandwidth = el("input", {
    id: "bandwidth",
    type: "number",
    min: 1,
    step: "any",
    inputmode: "decimal",
    value: "",
    placeholder: "by the public rule",
  });
  const bandwidthField = field(
    "Bandwidth, metres",
    bandwidth,
    "How far each answer is smeared. A device answers 1, 5, 9, … times the smallest that it allows, and no other.",
  );
  const kind = el(
    "select",
    { id: "kind" },
    Object.entries(TILINGS).map(([name, [text]]) => el("option", { value: name }, text)),
  );
  const first = numeric("first", 8, 0, 11),
    columns = numeric("columns", 100, 1, 2048);
  const firstLabel = el("label", { for: "first" }, "Halvings");
  const columnsField = el("div", { class: "field" }, el("label", { for: "columns" }, "Columns"), columns);
  const cellsHint = el("p", { class: "hint", "aria-live": "polite" });
  const devices = numeric("devices", 1000, 3, 1 << 24),
    minimum = numeric("minimum", 500, 3, 1 << 24);
  const wait = numeric("wait", 60, 0.1, 129600, "any"),
    phase = numeric("phase", 60, 1, 86400);
  const phaseField = field(
    "Seconds for each step of a round",
    phase,
    "A device that is slower is left out of that round.",
  );
  const active = el("input", { id: "active", type: "checkbox", checked: true });
  const activeField = el(
    "div",
    { class: "field" },
    el(
      "label",
      { class: "choice", for: "active" },
      active,
      "Also safe against a server that lies about who is in a sum",
    ),
  );
  const method = el("select", { id: "method" });
  const options = el("textarea", { id: "options", rows: 3, spellcheck: "false", placeholder: "{}" });
  const trouble = el("div", {});
  const submit = el("button", { type: "submit", class: "primary" }, "Make the draft");
  const region = regionPicker(REGION, changed, signal);
  const trust = () => trusts.querySelector("input:checked").value;
  const tiling = () =>
    kind.value === "grid" ? `grid:${first.value}x${columns.value}` : `${kind.value}:${first.value}`;
  let methodsOf = null,
    minimumByHand = false,
    tilingKind = "quadtree";

  function changed() {
    if (!main.isConnected || !submit.isConnected) return;
    const projecting = trust() === "projection",
      secure = trust() === "distributed";
    epsilonField.hidden = projecting;
    epsilon.disabled = projecting;
    bandwidthField.hidden = !projecting;
    phaseField.hidden = activeField.hidden = !secure;
    if (methodsOf !== trust()) {
      methodsOf = trust();
      method.replaceChildren(
        ...METHODS[methodsOf].map(([name, text], at) =>
          el("option", { value: name }, `${name}${at === 0 ? " (the usual)" : ""}: ${text}`),
        ),
      );
    }
    if (tilingKind !== kind.value) {
      tilingKind = kind.value;
      const [, label, least, most, usual] = TILINGS[tilingKind];
      firstLabel.textContent = label;
      Object.assign(first, { min: least, max: most, value: usual });
    }
    columnsField.hidden = tilingKind !== "grid";
    columns.disabled = tilingKind !== "grid";
    if (!minimumByHand) minimum.value = Math.max(3, Math.ceil(Number(devices.value) / 2));
    minimum.max = devices.value;
    const spent = Number(
      epsilon.value.includes("/") ? epsilon.value.split("/")[0] / epsilon.value.split("/")[1] : epsilon.value,
    );
    epsilonHint.textContent =
      spent > 0
        ? `Taking part changes the odds of anything the map shows by a factor of at most ${number(Math.exp(spent))}. Smaller is more private, and noisier.`
        : "A number above 0, such as 1 or 1/3.";
    cellsHint.textContent = cellsOf();
  }
  function cellsOf() {
    if (!region.good()) return "";
    const [west, south, east, north] = region.value(),
      middle = ((south + north) / 2) * (Math.PI / 180);
    const wide = (east - west) * KM_PER_DEGREE * Math.cos(middle),
      high = (north - south) * KM_PER_DEGREE;
    let across = 2 ** first.value,
      down = across;
    if (tilingKind === "grid") {
      across = Number(columns.value);
      down = Number(first.value);
    }
    if (tilingKind === "tiles") {
      across = wide / ((40075 * Math.cos(middle)) / 2 ** first.value);
      down = (high / wide) * across;
    }
    if (!(across > 0 && down > 0)) return "";
    const metres = (km) => (km >= 10 ? `${number(km, 2)} km` : `${number(1000 * km, 2)} m`);
    const count = Math.max(1, across) * Math.max(1, down),
      most = 1 << 22;
    return (
      `The region is about ${number(wide, 2)} × ${number(high, 2)} km: ${tilingKind === "tiles" ? "about " : ""}${whole(Math.round(count))} cells of about ${metres(wide / across)} × ${metres(high / down)}.` +
      (count > most ? ` That is too many; at most ${whole(most)} are accepted.` : "")
    );
  }
  minimum.addEventListener("input", () => {
    minimumByHand = true;
  });
  const form = el(
    "form",
    { class: "stack", on: { input: changed, change: changed, submit: send } },
    el(
      "div",
      { class: "columns wide" },
      el(
        "div",
        { class: "stack" },
        el("div", { class: "card form" }, field("Title, which every device shows", title), trusts),
        el(
          "div",
          { class: "card form" },
          epsilonField,
          bandwidthField,
          el(
            "div",
            { class: "two" },
            field("Devices wanted", devices, "It goes on as soon as so many are there."),
            field("At least", minimum, "With fewer no map is made."),
          ),
          el("div", { class: "two" }, field("Minutes to wait for devices", wait), phaseField),
          activeField,
        ),
      ),
      el(
        "div",
        { class: "stack" },
        el("div", { class: "card form" }, region.element),
        el(
          "div",
          { class: "card form" },
          el(
            "fieldset",
            {},
            el("legend", {}, "Cells"),
            el(
              "div",
              { class: "two" },
              field("Kind", kind),
              el("div", { class: "field" }, firstLabel, first),
              columnsField,
            ),
            cellsHint,
          ),
        ),
        el(
          "details",
          { class: "card" },
          el("summary", {}, "Method and its parameters"),
          el(
            "div",
            { class: "form" },
            field("Method", method),
            field("Parameters as JSON", options, 'Such as {"shard_size": 200}. Empty: the usual ones.'),
          ),
        ),
      ),
    ),
    trouble,
    el(
      "div",
      { class: "actions" },
      submit,
      el("a", { class: "button", href: "#/" }, "Cancel"),
      el("span", { class: "quiet" }, "A draft asks nobody yet: you open it on the next page."),
    ),
  );
  main.append(
    el("p", { class: "trail" }, el("a", { href: "#/" }, "← Collections")),
    el("h1", {}, "New collection"),
    form,
  );
  changed();

  async function send(event) {
    event.preventDefault();
    let parameters = {};
    try {
      parameters = options.value.trim() ? JSON.parse(options.value) : {};
    } catch (error) {
      options.closest("details").open = true;
      trouble.replaceChildren(alertBox(`The parameters are no JSON: ${error.message}`));
      options.focus();
      return;
    }
    if (trust() === "projection" && bandwidth.value) parameters.bandwidth_m = Number(bandwidth.value);
    submit.disabled = true;
    try {
      const secure = trust() === "distributed";
      const made = await post("/collections", {
        title: title.value.trim(),
        trust: trust(),
        method: method.value,
        ...(trust() === "projection" ? {} : { epsilon: epsilon.value.trim() }),
        ...(Object.keys(parameters).length ? { options: parameters } : {}),
        region: region.value(),
        tiling: tiling(),
        devices: Number(devices.value),
        minimum: Number(minimum.value),
        join_seconds: Math.max(1, Math.round(60 * Number(wait.value))),
        ...(secure ? { active: active.checked, phase_seconds: Number(phase.value) } : {}),
      });
      location.hash = `#/collections/${made.id}`;
    } catch (error) {
      trouble.replaceChildren(alertBox(error.message));
      submit.disabled = false;
    }
  }
}
