// A scene of cells: colours of pixels or outlines, and what is known of each cell.
import { degreesOf } from "./degrees.js";
import { rampOf } from "./legend.js";
import { bytesOf, pathsOf } from "./packed.js";
import { degree, fractionOf, number, range } from "./scale.js";
import { css, theme } from "./theme.js";

const TRANSPARENT = 0;
const packedColour = ([red, green, blue]) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
const channels = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));

/** Smallest boxes around rings, by the cell they belong to. */
function boxesOf({ x, y, start, cell }) {
  const boxes = new Map();
  for (let k = 0; k + 1 < start.length; k++) {
    const box = boxes.get(cell[k]) || [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = start[k]; i < start[k + 1]; i++) {
      box[0] = Math.min(box[0], x[i]);
      box[1] = Math.min(box[1], y[i]);
      box[2] = Math.max(box[2], x[i]);
      box[3] = Math.max(box[3], y[i]);
    }
    boxes.set(cell[k], box);
  }
  return boxes;
}

/** A tile of slanted lines, or of one dot, as many pixels a side as the screen has for eight. */
export function hatching(dense, { dotted = false, ink = "--hatch" } = {}) {
  const tile = document.createElement("canvas"),
    side = (tile.width = tile.height = Math.round(8 * dense)),
    pen = tile.getContext("2d");
  pen.strokeStyle = css(ink);
  pen.lineWidth = dense;
  pen.beginPath();
  if (dotted) {
    pen.fillStyle = css(ink);
    pen.arc(side / 4, side / 4, 1.3 * dense, 0, 7);
    pen.fill();
    return tile;
  }
  for (const at of [-side, 0, side]) {
    pen.moveTo(at - 1, side + 1);
    pen.lineTo(at + side + 1, -1);
  }
  pen.stroke();
  return tile;
}

function frameOf(...box) {
  const path = new Path2D();
  path.rect(...box);
  return path;
}

/** What is drawn of a scene whose arrays are unpacked. */
export function cellScene(scene) {
  const { raster, rings, main, size, names } = scene,
    [width, height] = scene.extent;
  const [lower, upper, probability] = scene.bounds || [];
  const ramp = rampOf(bytesOf(scene.ramp)),
    degrees = degreesOf(scene);
  const areaOf = (cell) => (typeof scene.area === "number" ? scene.area : scene.area[cell]);
  const paths = rings && pathsOf(rings),
    boxes = rings && boxesOf(rings),
    outline = scene.outline ? pathsOf(scene.outline).get(0) : frameOf(0, 0, width, height);
  const cellAt = raster && new Int32Array(raster.rows * raster.columns).fill(-1);
  if (raster) for (let i = 0; i < size; i++) cellAt[raster.row[i] * raster.columns + raster.col[i]] = i;

  // Densities and half widths follow from other numbers; outside the region no area is known.
  const halfWidth = (cell) => (Number.isFinite(upper[cell]) ? (upper[cell] - lower[cell]) / 2 : NaN);
  const ofBlocks = {
    block_density: ({ users, area }, k) => users[k] / area[k],
    block_half_width: ({ half_width: half, area }, k) => half[k] / area[k],
    block_significance: ({ upper, half_width: half, deviation }, k) => (deviation[k] > 0 ? (upper[k] - half[k]) / deviation[k] : 0),
  };
  const derived = ({ of, over_area: divided }, name) => {
    if (of === "blocks")
      return Float32Array.from(scene.blocks.of_cell, (block) => (block < 0 ? NaN : ofBlocks[name](scene.blocks, block)));
    const source = of === "bounds" ? halfWidth : (cell) => valuesOf(of)[cell];
    return Float32Array.from({ length: size }, (_, cell) => {
      const area = divided ? areaOf(cell) : 1;
      return area > 0 ? source(cell) / area : area === 0 ? 0 : NaN;
    });
  };
  const valuesOf = (name) => scene.layers.find((layer) => layer.name === name).values;
  const layers = scene.layers.map((layer) =>
    layer.values.of ? { ...layer, derived: true, values: derived(layer.values, layer.name) } : layer,
  );

  // ---- windows of a series: what the picture of each shows, its blocks, on one scale ----
  const { windows } = scene,
    madeWindows = new Map();
  /** The blocks of one window, as those of a scene. */
  function windowBlocks({ start, patch, blocks }, at) {
    const [from, to] = [start[at], start[at + 1]];
    const patches = blocks.of_cell.length / windows.names.length,
      ofPatch = blocks.of_cell.subarray(at * patches, (at + 1) * patches);
    const own = Object.entries(blocks).map(([name, values]) => [name, typeof values === "string" ? values : values.subarray(from, to)]);
    return { ...Object.fromEntries(own), of_cell: patch.map((each) => ofPatch[each]) };
  }
  function windowLayer(at) {
    const { unit, scale, readings } = windows.shown,
      blocks = windowBlocks(windows.shown, at);
    const values = Float32Array.from(blocks.of_cell, (block) => (block < 0 ? NaN : ofBlocks.block_density(blocks, block)));
    return { name: "block_of_window", title: `${windows.names[at]}: estimate`, unit, scale, values, blocks, window: at, reading: readings[at] };
  }
  /** The layer that is drawn for a number: of a window its blocks, where it has some, instead of the model's cells. */
  function layerOf(at) {
    const window = windows?.shown ? at - windows.first : -1;
    if (window < 0 || window >= windows.names.length) return layers[at];
    if (!madeWindows.has(window)) madeWindows.set(window, windowLayer(window));
    return madeWindows.get(window);
  }

  // ---- colours ----
  let layer, scale, shown;
  const picture = document.createElement("canvas");
  const ink = (part) => ramp(scale.palest + (1 - scale.palest) * part, theme() === "dark");
  // What may be a hole or covered is drawn as the weakest covered ground.
  const unsure = new Set(scene.unsure || []);
  const colourOf = (value, cell) =>
    scale.under && value < scale.low && !unsure.has(cell) ? channels(scale.under) : ink(Math.min(1, fractionOf(scale, value)));
  function paintPixels() {
    picture.width = raster.columns;
    picture.height = raster.rows;
    const pen = picture.getContext("2d"),
      image = pen.createImageData(raster.columns, raster.rows),
      pixels = new Uint32Array(image.data.buffer),
      table = Uint32Array.from({ length: 1024 }, (_, at) => packedColour(ink(at / 1023))),
      under = scale.under && packedColour(channels(scale.under));
    for (let i = 0; i < size; i++) {
      const value = layer.values[i];
      pixels[raster.row[i] * raster.columns + raster.col[i]] = Number.isNaN(value)
        ? TRANSPARENT
        : under && value < scale.low && !unsure.has(i)
          ? under
          : table[Math.round(1023 * Math.min(1, fractionOf(scale, value)))];
    }
    pen.putImageData(image, 0, 0);
  }
  /** Colours a layer, on its own scale or a given one; again with the theme's colours. */
  function show(at = shown, given = layerOf(at).scale) {
    [layer, scale, shown] = [layerOf(at), given, at];
    if (raster) paintPixels();
  }
  show(0);

  // Under the cells: those without a value let it through. Or over some of them, on every layer but a count.
  const pathsOver = (cells) => {
    const path = cells && new Path2D();
    for (const cell of cells || []) path.addPath(pathOf(cell));
    return path;
  };
  const covered = pathsOver(scene.hatched),
    dots = pathsOver(scene.unsure);
  const dotted = () => dots && layer.name !== "measurements";
  const doubted = () => scene.doubt && (covered ? layer.name !== "measurements" : /^(block_|above_floor)/.test(layer.name));
  function hatch(pen, view, path, how) {
    pen.save();
    pen.clip(path, "evenodd");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = pen.createPattern(hatching(view.dense, how), "repeat");
    pen.fillRect(0, 0, view.wide * view.dense, view.high * view.dense);
    pen.restore();
  }
  function paint(pen, view, selected = -1) {
    if (doubted() && !covered) hatch(pen, view, outline);
    if (raster) {
      pen.imageSmoothingEnabled = (width * view.scale * view.dense) / raster.columns < 1;
      pen.imageSmoothingQuality = "high";
      pen.drawImage(picture, 0, 0, width, height);
    } else {
      const [left, north] = view.toPlane(0, 0),
        [right, south] = view.toPlane(view.wide, view.high);
      pen.lineWidth = 0.6 / view.scale;
      for (const [cell, path] of paths) {
        const box = boxes.get(cell),
          value = layer.values[cell];
        if (box[2] < left || box[0] > right || box[3] < north || box[1] > south || Number.isNaN(value)) continue;
        pen.fillStyle = pen.strokeStyle = `rgb(${colourOf(value, cell).join()})`;
        pen.fill(path, "evenodd");
        pen.stroke(path);
      }
    }
    if (doubted() && covered) hatch(pen, view, covered, { ink: "--quiet" });
    if (dotted()) hatch(pen, view, dots, { dotted: true, ink: "--ink" });
    const line = (path, pixels, paint) => {
      pen.lineWidth = pixels / view.scale;
      pen.strokeStyle = paint;
      pen.stroke(path);
    };
    line(outline, 1.2, css("--quiet"));
    const path = selected >= 0 && pathOf(selected);
    if (path) {
      line(path, 4, css("--card"));
      line(path, 2, css("--mark"));
    }
  }
  function pathOf(cell) {
    if (rings) return paths.get(cell);
    const [wide, high] = [width / raster.columns, height / raster.rows];
    return frameOf(raster.col[cell] * wide, raster.row[cell] * high, wide, high);
  }

  // ---- which cell, and what is known of it ----
  function find(x, y, { pen }) {
    if (raster) {
      const col = Math.floor((x / width) * raster.columns),
        row = Math.floor((y / height) * raster.rows);
      if (col < 0 || row < 0 || col >= raster.columns || row >= raster.rows) return -1;
      const cell = cellAt[row * raster.columns + col];
      return cell >= 0 && !Number.isNaN(areaOf(cell)) ? cell : -1;
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    let found = -1; // the last, which lies on top
    for (const [cell, box] of boxes) {
      if (x < box[0] || x > box[2] || y < box[1] || y > box[3]) continue;
      if (pen.isPointInPath(paths.get(cell), x, y, "evenodd")) found = cell;
    }
    return found;
  }
  const corner = (col, row) => degrees.at((col / raster.columns) * width, (row / raster.rows) * height);
  function centre(cell) {
    if (rings) return [rings.centre_lon[cell], rings.centre_lat[cell]];
    return corner(raster.col[cell] + 0.5, raster.row[cell] + 0.5);
  }
  function row({ title, unit, values, words }, cell, style) {
    const value = values[cell];
    if (Number.isNaN(value)) return style ? [title, "unknown", style] : null;
    return [title, words ? words[value] : `${number(value)} ${unit === "1" ? "" : unit}`.trim(), style];
  }
  function blockRows(cell, blocks) {
    if (!blocks) return [];
    const { of_cell, users, upper, half_width: half, area, probability } = blocks,
      at = of_cell[cell];
    if (at < 0) return [["This ground", "nobody, or too few to tell", "main"]];
    return [
      ["Users of this block", number(users[at]), "main"],
      [`${probability} interval of the block`, range(Math.max(0, upper[at] - 2 * half[at]), upper[at])],
      scene.georeferenced && ["Area of the block", `${number(area[at])} km²`],
    ];
  }
  function rows(cell) {
    if (cell < 0) return [["Here", scene.thing ? `no ${scene.thing}` : "outside the map"]];
    const [lon, lat] = degrees ? centre(cell) : [],
      ofBlock = blockRows(cell, layer.blocks ?? scene.blocks);
    const named = names && [scene.thing ? "Zone" : "Site", names[cell]];
    const numbers = layer.blocks
      ? [["Window", windows.titles[layer.window]], layers[shown] && row({ ...layers[shown], title: "Model's estimate of this cell" }, cell)]
      : [
          row(layers[main], cell, ofBlock.length ? "" : "main"),
          lower && [`${probability} bounds`, range(lower[cell], upper[cell])],
          ...layers.map((each, at) => (at === main || /^block_/.test(each.name) ? null : row(each, cell))),
        ];
    return [
      scene.thing && named,
      ...ofBlock,
      ...numbers,
      !scene.thing && named,
      degrees && ["Longitude", degree(lon, "EW")],
      degrees && ["Latitude", degree(lat, "NS")],
      degrees ? null : ["Column, row", `${raster.col[cell]}, ${raster.row[cell]}`],
      !scene.thing && ["Cell", String(cell)],
    ].filter(Boolean);
  }

  return {
    scene,
    layers,
    degrees,
    rows,
    centre,
    corner,
    find,
    pathOf,
    cellAt,
    boxes,
    paint,
    show,
    doubted,
    dotted,
    ink,
    layerOf,
    get layer() {
      return layer;
    },
    get scale() {
      return scale;
    },
  };
}
