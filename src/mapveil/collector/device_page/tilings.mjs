// Tilings: which cell a place is in, as mapveil/geo locates it. Cells are numbered from 0; -1 is outside.

import { interleave, deinterleave } from "./morton.mjs";
import { middleCylinder, planeOf } from "./plane.mjs";
import { insist } from "./refusal.mjs";

const MOST_SITES = 2 ** 20; // more than a phone should sort
const MOST_LAT = (Math.atan(Math.sinh(Math.PI)) * 180) / Math.PI;
const TILE_LEVELS = 23;
const DEEPEST_SITES = 12;
const SPARE_LEVELS = 3;
const STEEPEST = 85.05112877980659;
const UNSURE = "The edges of this map fall so exactly on edges of map tiles that this page cannot be certain of its cells.";

const whole = (value, least, most) => Number.isSafeInteger(value) && value >= least && value <= most;
const bitLength = (value) => (value > 0 ? Math.floor(Math.log2(value)) + 1 : 0);

/** What every tiling has: its region's box and plane. */
class Tiling {
  constructor(record) {
    const region = record.region ?? {};
    const box = (list) => Array.isArray(list) && list.length === 4 && list.every(Number.isFinite)
      && list[0] < list[2] && list[1] < list[3];
    insist(typeof region.crs === "string" && box(region.bounds) && box(region.bbox), "The collector's map has no region.");
    insist(
      region.polygon === undefined || region.polygon === null,
      "The region of this map is a polygon. This page knows boxes only; the app knows polygons.",
    );
    this.georeferenced = region.crs !== "";
    this.bounds = region.bounds;
    this.bbox = region.bbox;
    this.plane = planeOf(region.crs);
    this.metric = this.plane.metric ? this.plane : middleCylinder(region.bbox);
  }

  holds(lon, lat) {
    const [west, south, east, north] = this.bbox;
    return lon >= west && lon <= east && lat >= south && lat <= north;
  }

  /** The cell whose middle is nearest to a place, in metres. */
  nearest(lon, lat) {
    const [x, y] = this.metric.project(lon, lat);
    let best = -1;
    let least = Infinity;
    for (let cell = 0; cell < this.size; cell += 1) {
      const [a, b] = this.metric.project(...this.centre(cell));
      const far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) [best, least] = [cell, far];
    }
    return best;
  }
}

/** A box in equal rows and columns; the first cell is in the north-west. */
class Raster extends Tiling {
  constructor(record, rows, columns) {
    super(record);
    [this.rows, this.columns, this.size] = [rows, columns, rows * columns];
    insist(this.size <= MOST_SITES, `The map has more than ${MOST_SITES} cells, too many for this page.`);
    this.depth = bitLength(Math.max(rows, columns) - 1);
  }

  locate(lon, lat) {
    if (!this.holds(lon, lat)) return -1;
    const [x, y] = this.plane.project(lon, lat);
    const [x0, y0, x1, y1] = this.bounds;
    const clip = (value, count) => Math.trunc(Math.min(Math.max(value, 0), count - 1));
    return this.cell(
      clip((y1 - y) * (this.rows / (y1 - y0)), this.rows),
      clip((x - x0) * (this.columns / (x1 - x0)), this.columns),
    );
  }

  centre(cell) {
    const [row, col] = this.rowCol(cell);
    const [x0, y0, x1, y1] = this.bounds;
    const { rows, columns } = this;
    const west = (x0 * (columns - col) + x1 * col) / columns;
    const east = (x0 * (columns - col - 1) + x1 * (col + 1)) / columns;
    const north = (y1 * (rows - row) + y0 * row) / rows;
    const south = (y1 * (rows - row - 1) + y0 * (row + 1)) / rows;
    return this.plane.unproject((west + east) / 2, (south + north) / 2);
  }

  /** The site of a cell on a square raster of 4^depth sites, by its Morton code. */
  siteOf(cell) {
    return interleave(...this.rowCol(cell));
  }

  /** The sites of all cells, and the bits of a code. */
  codes() {
    const code = new Float64Array(this.size);
    for (let cell = 0; cell < this.size; cell += 1) code[cell] = this.siteOf(cell);
    return { code, bits: 2 * Math.max(this.depth, 1) };
  }
}

class Grid extends Raster {
  constructor(record) {
    const { rows, columns } = record;
    insist(whole(rows, 1, 2 ** 26) && whole(columns, 1, 2 ** 26), "The collector's grid has no rows or no columns.");
    super(record, rows, columns);
    this.spec = `grid:${rows}x${columns}`;
  }

  cell(row, col) {
    return row * this.columns + col;
  }

  rowCol(cell) {
    return [Math.floor(cell / this.columns), cell % this.columns];
  }
}

class Quadtree extends Raster {
  constructor(record) {
    insist(whole(record.depth, 0, 23), "The collector's quadtree has no depth from 0 to 23.");
    super(record, 2 ** record.depth, 2 ** record.depth);
    this.spec = `quadtree:${record.depth}`;
  }

  cell(row, col) {
    return interleave(row, col);
  }

  rowCol(cell) {
    return deinterleave(cell);
  }
}

/** The web-mercator tiles of one zoom that touch a box, in the order of their quadkeys. */
class MapTiles extends Tiling {
  constructor(record) {
    super(record);
    const { zoom } = record;
    const [west, south, east, north] = this.bbox;
    insist(
      whole(zoom, 0, 23) && this.georeferenced && north > -MOST_LAT && south < MOST_LAT,
      "The collector's map tiles have no zoom from 0 to 23, or lie beyond the map.",
    );
    [this.zoom, this.spec] = [zoom, `tiles:${zoom}`];
    const [x0, y0] = this.tile(west, north);
    const [x1, y1] = this.tile(east, south);
    // Logarithms may differ in their last bit from the collector's, which matters on a tile's very edge only.
    for (const y of [y0, y1]) insist(y === 0 || Math.abs(y - Math.round(y)) > 2 ** zoom * 1e-14, UNSURE);
    const last = (low, high) => Math.min(Math.max(Math.ceil(high) - 1, Math.floor(low)), 2 ** zoom - 1);
    [this.firstX, this.lastX] = [Math.trunc(x0), last(x0, x1)];
    [this.firstY, this.lastY] = [Math.trunc(y0), last(y0, y1)];
    const [rows, columns] = [this.lastY - this.firstY + 1, this.lastX - this.firstX + 1];
    insist(rows * columns <= MOST_SITES, `The map has more than ${MOST_SITES} tiles, too many for this page.`);
    this.depth = bitLength(Math.max(rows, columns) - 1);
    this.keys = new Float64Array(rows * columns);
    for (let row = 0; row < rows; row += 1) {
      for (let col = 0; col < columns; col += 1) {
        this.keys[row * columns + col] = interleave(this.firstY + row, this.firstX + col);
      }
    }
    this.keys.sort();
    this.size = this.keys.length;
    const [left, top] = this.degrees(this.firstX, this.firstY);
    const [right, bottom] = this.degrees(this.lastX + 1, this.lastY + 1);
    this.cover = [
      Math.min(left, west), Math.max(Math.min(bottom, south), -MOST_LAT),
      Math.max(right, east), Math.min(Math.max(top, north), MOST_LAT),
    ];
  }

  tile(lon, lat) {
    const sine = Math.sin((Math.min(Math.max(lat, -MOST_LAT), MOST_LAT) * Math.PI) / 180);
    const y = (0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)) * 2 ** this.zoom;
    return [((lon + 180) / 360) * 2 ** this.zoom, Math.max(y, 0)];
  }

  degrees(x, y) {
    const tiles = 2 ** this.zoom;
    return [(x / tiles) * 360 - 180, (Math.atan(Math.sinh(Math.PI * (1 - (2 * y) / tiles))) * 180) / Math.PI];
  }

  locate(lon, lat) {
    const [west, south, east, north] = this.cover;
    if (!(lon >= west && lon <= east && lat >= south && lat <= north)) return -1;
    const [x, y] = this.tile(lon, lat);
    const clip = (value, low, high) => Math.min(Math.max(Math.trunc(value), low), high);
    return find(this.keys, interleave(clip(y, this.firstY, this.lastY), clip(x, this.firstX, this.lastX)));
  }

  centre(cell) {
    const [row, col] = deinterleave(this.keys[cell]);
    return this.degrees(col + 0.5, row + 0.5);
  }

  siteOf(cell) {
    const [row, col] = deinterleave(this.keys[cell]);
    return interleave(row - this.firstY, col - this.firstX);
  }

  codes() {
    const code = this.keys.map((_, cell) => this.siteOf(cell));
    return { code, bits: 2 * Math.max(this.depth, 1) };
  }
}

/** A public list of sites; a place belongs to the nearest one. */
class Places extends Tiling {
  constructor(record) {
    super(record);
    const { lon, lat } = record;
    const degrees = (list, most) => Array.isArray(list) && list.length >= 2 && list.length <= MOST_SITES
      && list.every((value) => Number.isFinite(value) && Math.abs(value) <= most);
    insist(
      degrees(lon, 180) && degrees(lat, 90) && lon.length === lat.length && lon.every((x, at) => this.holds(x, lat[at])),
      "The collector's list of places is no list of places in its region.",
    );
    [this.lon, this.lat, this.size, this.spec] = [lon, lat, lon.length, `places:${lon.length}`];
    this.limit = record.max_distance_m ?? Infinity;
    insist(typeof this.limit === "number" && this.limit > 0, "The collector's list of places reaches no distance.");
    this.metres = lon.map((x, at) => this.metric.project(x, lat[at]));
    this.depth = Math.min(DEEPEST_SITES, Math.floor(bitLength(lon.length - 1) / 2) + SPARE_LEVELS);
  }

  /** On a raster of the region's box that is fine enough for few places to share a site. */
  siteOf(cell) {
    const [[x, y], [x0, y0, x1, y1], side] = [this.plane.project(this.lon[cell], this.lat[cell]), this.bounds, 2 ** this.depth];
    const at = (part) => Math.min(Math.max(Math.trunc(part * side), 0), side - 1);
    return interleave(at((y1 - y) / (y1 - y0)), at((x - x0) / (x1 - x0)));
  }

  locate(lon, lat) {
    if (!this.holds(lon, lat)) return -1;
    const cell = this.nearest(lon, lat);
    const [x, y] = this.metric.project(lon, lat);
    return Math.hypot(this.metres[cell][0] - x, this.metres[cell][1] - y) <= this.limit ? cell : -1;
  }

  centre(cell) {
    return [this.lon[cell], this.lat[cell]];
  }

  /** Map tiles of level 23; sites of one tile get further bits, in the order of the list. */
  codes() {
    const side = 2 ** TILE_LEVELS;
    const at = (part) => Math.min(Math.max(Math.trunc(part * side), 0), side - 1);
    const code = Float64Array.from(this.lon, (lon, site) => {
      if (!this.georeferenced) {
        const [x0, y0, x1, y1] = this.bounds;
        return interleave(at((y1 - this.lat[site]) / (y1 - y0)), at((lon - x0) / (x1 - x0)));
      }
      const phi = (Math.min(Math.max(this.lat[site], -STEEPEST), STEEPEST) * Math.PI) / 180;
      const south = (1 - Math.asinh(Math.tan(phi)) / Math.PI) / 2;
      insist(phi === 0 || Math.abs(south * side - Math.round(south * side)) > 1e-8, UNSURE);
      return interleave(at(south), at((lon + 180) / 360));
    });
    return { code, bits: 2 * TILE_LEVELS };
  }
}

/** Where a value is in an ascending list, -1 if nowhere. */
function find(list, value) {
  let [low, high] = [0, list.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return list[low] === value ? low : -1;
}

const KINDS = { grid: Grid, quadtree: Quadtree, tiles: MapTiles, places: Places };

/** The tiling of a record; a Refusal for one that this page cannot locate in. */
export function tilingOf(record) {
  const kind = Object.hasOwn(KINDS, record?.kind) ? KINDS[record.kind] : null;
  insist(kind, "The collector's map is of a kind that this page does not know.");
  return new kind(record);
}
