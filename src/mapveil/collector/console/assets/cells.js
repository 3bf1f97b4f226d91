// The numbers behind a map, and which cell a place lies in.
const A = 6378137,
  F = 1 / 298.257223563,
  E2 = F * (2 - F),
  E = Math.sqrt(E2);

/** Snyder's q (equation 3-12): the area north of the equator per radian is a² q / 2. */
function authalic(lat) {
  const s = Math.sin((lat * Math.PI) / 180),
    es = s * E;
  return (s * (1 - E2)) / (1 - es * es) + (Math.log((1 + es) / (1 - es)) * (1 - E2)) / (2 * E);
}

/** The bits of two numbers in turn, the row's first: a quadtree's code. */
export function morton(row, column) {
  let code = 0;
  for (let bit = 22; bit >= 0; bit--) code = code * 4 + ((row >> bit) & 1) * 2 + ((column >> bit) & 1);
  return code;
}

/** The last edge that is at most the value, where `sign` times the edges rise. */
function slot(edges, value, sign) {
  if (sign * (value - edges[0]) < 0 || sign * (value - edges.at(-1)) > 0) return -1;
  let low = 0,
    high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sign * (value - edges[middle]) >= 0) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Reads one map's record of cells. */
export class Cells {
  constructor(record) {
    this.record = record;
    const { geometry } = record;
    if (geometry.kind === "nearest") {
      const phi = (geometry.standard_parallel * Math.PI) / 180;
      const k0 = Math.cos(phi) / Math.sqrt(1 - E2 * Math.sin(phi) ** 2);
      this.project = (lon, lat) => [
        (lon - geometry.central_meridian) * k0 * A * (Math.PI / 180),
        (authalic(lat) * A) / (2 * k0),
      ];
      this.sites = geometry.lon.map((lon, at) => this.project(lon, geometry.lat[at]));
    }
  }

  /** The cell of a place in degrees, or -1. */
  at(lon, lat) {
    const { geometry, bounds } = this.record;
    if (geometry.kind === "nearest") {
      const [west, south, east, north] = bounds;
      return lon < west || lon > east || lat < south || lat > north ? -1 : this.nearest(lon, lat);
    }
    const column = slot(geometry.lon, lon, 1),
      row = slot(geometry.lat, lat, -1);
    if (column < 0 || row < 0) return -1;
    const at = row * geometry.columns + column;
    const cell =
      geometry.order === "rows" ? at : geometry.order === "morton" ? morton(row, column) : geometry.order[at];
    return cell >= 0 && this.record.per_km2[cell] === null ? -1 : cell;
  }

  nearest(lon, lat) {
    const [x, y] = this.project(lon, lat),
      limit = this.record.geometry.max_distance_m;
    let best = -1,
      least = limit === null ? Infinity : limit * limit;
    this.sites.forEach(([siteX, siteY], cell) => {
      const apart = (siteX - x) ** 2 + (siteY - y) ** 2;
      if (apart <= least) {
        least = apart;
        best = cell;
      }
    });
    return best;
  }

  /** The outline of the cell at a place, where cells are boxes. */
  ring(lon, lat) {
    const { geometry } = this.record;
    if (geometry.kind !== "raster" || this.at(lon, lat) < 0) return null;
    const column = slot(geometry.lon, lon, 1),
      row = slot(geometry.lat, lat, -1);
    const [west, east] = [geometry.lon[column], geometry.lon[column + 1]];
    const [north, south] = [geometry.lat[row], geometry.lat[row + 1]];
    return [
      [west, south],
      [east, south],
      [east, north],
      [west, north],
      [west, south],
    ];
  }

  /** What is known of a cell: persons, persons per km², and both bounds of each. */
  reading(cell) {
    const { values, per_km2: density, low, high, area_km2: areas, names } = this.record;
    const area = Array.isArray(areas) ? areas[cell] : areas;
    const part = (bound) => (bound && bound[cell] !== null && area > 0 ? bound[cell] / area : null);
    return {
      name: names?.[cell] || null,
      persons: values[cell],
      density: density[cell],
      area,
      low: low ? low[cell] : null,
      high: high ? high[cell] : null,
      lowDensity: part(low),
      highDensity: part(high),
    };
  }
}
