// The cells of a new map, and how large they come out.
import { el } from "./dom.js";
import { field, numeric } from "./fields.js";
import { number, whole } from "./words.js";

const KM_PER_DEGREE = 111.2,
  KM_ROUND = 40075,
  MOST_CELLS = 1 << 22;
const KINDS = {
  quadtree: { name: "Quadtree", first: "Halvings", least: 0, most: 11, usual: 8 },
  grid: { name: "Grid", first: "Rows", least: 1, most: 2048, usual: 100 },
  tiles: { name: "Web-map tiles", first: "Zoom level", least: 0, most: 22, usual: 15 },
};
// Both operators verify every site of every report.
const MOST_OF_OPERATORS = { quadtree: 7, grid: 128 };
const length = (km) => (km >= 10 ? `${number(km, 2)} km` : `${number(1000 * km, 2)} m`);

/** What a division of a box [west, south, east, north] comes to, in words; empty where it is none. */
export function cellsInWords(kind, first, columns, [west, south, east, north]) {
  const middle = ((south + north) / 2) * (Math.PI / 180);
  const wide = (east - west) * KM_PER_DEGREE * Math.cos(middle),
    high = (north - south) * KM_PER_DEGREE;
  let across = 2 ** first,
    down = across;
  if (kind === "grid") [across, down] = [columns, first];
  if (kind === "tiles") {
    across = wide / ((KM_ROUND * Math.cos(middle)) / 2 ** first);
    down = (high / wide) * across;
  }
  if (!(wide > 0 && high > 0 && across > 0 && down > 0)) return "";
  const count = Math.max(1, across) * Math.max(1, down),
    about = kind === "tiles" ? "about " : "";
  return (
    `The region is about ${number(wide, 2)} × ${number(high, 2)} km: ${about}${whole(Math.round(count))} cells ` +
    `of about ${length(wide / across)} × ${length(high / down)}.` +
    (count > MOST_CELLS ? ` That is too many: the maximum is ${whole(MOST_CELLS)}.` : "")
  );
}

/** Kind and numbers of a tiling; `value()` is its text, such as "quadtree:8". */
export function tilingPicker() {
  const kind = el(
    "select",
    { id: "kind" },
    Object.entries(KINDS).map(([value, { name }]) => el("option", { value }, name)),
  );
  const first = numeric("first", KINDS.quadtree.usual, KINDS.quadtree.least, KINDS.quadtree.most);
  const columns = numeric("columns", 100, 1, 2048);
  const firstField = field(KINDS.quadtree.first, first),
    columnsField = field("Columns", columns);
  const words = el("p", { class: "hint", "aria-live": "polite" });
  let shown = "quadtree";
  return {
    element: el(
      "fieldset",
      {},
      el("legend", {}, "Cells"),
      el("div", { class: "two" }, field("Kind", kind), firstField, columnsField),
      words,
    ),
    value: () =>
      kind.value === "grid" ? `grid:${first.value}x${columns.value}` : `${kind.value}:${first.value}`,
    renew(box, trust) {
      if (shown !== kind.value) {
        shown = kind.value;
        const { first: label, least, most, usual } = KINDS[shown];
        firstField.firstChild.textContent = label;
        Object.assign(first, { min: least, max: most, value: usual });
      }
      const limit = (trust === "operators" && MOST_OF_OPERATORS[shown]) || KINDS[shown].most;
      first.max = limit;
      if (Number(first.value) > limit) first.value = limit;
      columns.max = trust === "operators" ? MOST_OF_OPERATORS.grid : KINDS.grid.most;
      columnsField.hidden = columns.disabled = shown !== "grid";
      words.textContent = cellsInWords(shown, Number(first.value), Number(columns.value), box);
    },
  };
}
