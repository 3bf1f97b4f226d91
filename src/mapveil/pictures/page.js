// The script of an exported page: mounts the viewer, and makes files of what it shows.
import { alertBox } from "./dom.js";
import { mountScene } from "./viewer.js";
import { startTheme } from "./theme.js";

const at = (id) => document.getElementById(id);

// The name says that the map is a simulation or seeded: a CSV has no other place for it.
function save(parts, { method, guarantee }, suffix, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = ["mapveil", method, ...guarantee.promise.marks].join("-").replace(/[^\w-]+/g, "-") + suffix;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const short = (value) => (Number.isFinite(value) ? Number(value.toPrecision(5)) : null);
const field = (value) => (typeof value === "number" ? short(value) : quote(value));

/** Numbers of each cell by name, the main one first; half widths follow from the bounds. */
function columnsOf({ layers, scene: { main, bounds } }) {
  const columns = [layers[main], ...layers.filter((layer, index) => index !== main && !/^(half_width|above_floor|block_)/.test(layer.name))]
    .map(({ name, values }) => [name, values]);
  return bounds ? [...columns, ["lower", bounds[0]], ["upper", bounds[1]]] : columns;
}

function* cellRows({ scene, degrees, centre, columns }) {
  const place = degrees ? ["lon", "lat"] : ["column", "row"];
  const names = scene.names && scene.names.map(quote);
  yield ["cell", ...(names ? ["name"] : []), ...place, ...columns.map(([name]) => name)].join() + "\n";
  for (let i = 0; i < scene.size; i++) {
    const [x, y] = degrees ? centre(i).map((value) => value.toFixed(6)) : [scene.raster.col[i], scene.raster.row[i]];
    yield [i, ...(names ? [names[i]] : []), x, y, ...columns.map(([, values]) => short(values[i]) ?? "")].join() + "\n";
  }
}

function* lineRows({ facts, value, windows, unit }) {
  const names = windows ? windows.names.map((name) => `${unit} ${name}`) : [];
  yield [...Object.keys(facts), ...names].map(quote).join() + "\n";
  for (let k = 0; k < value.length; k++) {
    const inWindows = names.map((_, at) => field(windows.value[at * value.length + k]));
    yield [...Object.values(facts).map((column) => field(column[k])), ...inWindows].map((text) => text ?? "").join() + "\n";
  }
}

/** The outline of a cell, GeoJSON. */
function outlineOf({ scene: { raster, rings }, corner }, cell, ringsOf) {
  if (raster) {
    const [col, row] = [raster.col[cell], raster.row[cell]];
    const [ne, nw] = [corner(col + 1, row), corner(col, row)],
      [sw, se] = [corner(col, row + 1), corner(col + 1, row + 1)];
    return { type: "Polygon", coordinates: [[sw, se, ne, nw, sw]] };
  }
  // By orientation: an outer ring begins a polygon, a ring turning the other way is a hole in it.
  const polygons = [];
  let outer = 0;
  for (const k of ringsOf.get(cell) || []) {
    const ring = [];
    let turn = 0;
    for (let i = rings.start[k]; i < rings.start[k + 1]; i++) {
      const place = [rings.origin[0] + rings.lon[i], rings.origin[1] + rings.lat[i]];
      ring.push(place.map((value) => Number(value.toFixed(6))));
      if (i > rings.start[k]) turn += rings.x[i - 1] * rings.y[i] - rings.x[i] * rings.y[i - 1];
    }
    if (polygons.length === 0) outer = Math.sign(turn);
    const isOuter = Math.sign(turn) === outer;
    // RFC 7946: outer rings counterclockwise; y points down here, so that is a negative turn.
    if (turn > 0 === isOuter) ring.reverse();
    if (isOuter) polygons.push([ring]);
    else polygons[polygons.length - 1].push(ring);
  }
  return { type: "MultiPolygon", coordinates: polygons };
}

function* features(cells, metadata) {
  const { scene, columns } = cells,
    ringsOf = new Map();
  scene.rings?.cell.forEach((cell, k) => ringsOf.set(cell, [...(ringsOf.get(cell) || []), k]));
  const head = JSON.stringify({ ...metadata, empty_cells_left_out: true, digits: 4 });
  yield `{"type":"FeatureCollection","mapveil":${head},"features":[`;
  let separator = "\n";
  for (let i = 0; i < scene.size; i++) {
    const value = columns[0][1][i];
    if (value === scene.empty || Number.isNaN(value)) continue;
    const known = columns.map(([name, values]) => [name, short(values[i])]);
    const named = scene.names ? { name: scene.names[i] } : {};
    const properties = { cell: i, ...named, ...Object.fromEntries(known) };
    yield separator + JSON.stringify({ type: "Feature", id: i, geometry: outlineOf(cells, i, ringsOf), properties });
    separator = ",\n";
  }
  yield "\n]}\n";
}

async function start() {
  const record = JSON.parse(at("scene").textContent),
    { metadata } = record;
  startTheme(at("theme"));
  let mounted;
  try {
    mounted = await mountScene(record);
  } catch (error) {
    at("viewer").replaceChildren(alertBox(`The map could not be drawn here (${error.message}); a newer browser can.`));
    return;
  }
  const { element, side, odds, drawn } = mounted,
    { scene } = drawn;
  if (odds) odds.before(at("promised"));
  else side.append(at("promised"));
  element.append(at("below"));
  at("viewer").replaceChildren(element);
  const cells = scene.layers && { ...drawn, columns: columnsOf(drawn) };
  at("csv").addEventListener("click", () =>
    save([...(cells ? cellRows(cells) : lineRows(scene))], metadata, ".csv", "text/csv"),
  );
  at("geojson").hidden = !(cells && scene.georeferenced);
  at("geojson").addEventListener("click", () =>
    save([...features(cells, metadata)], metadata, ".geojson", "application/geo+json"),
  );
}
start();
