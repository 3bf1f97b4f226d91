// From degrees to metres and back: the equal-area cylinder of mapveil/geo/projection.py, in the same arithmetic.
// Source: J. P. Snyder, Map Projections: A Working Manual (1987), equations 3-12 and 10-13 to 10-15.

import { insist } from "./refusal.mjs";

const A = 6378137.0;
const F = 1 / 298.257223563;
const E2 = F * (2 - F);
const E = Math.sqrt(E2);
const RADIAN = Math.PI / 180;
const CYLINDER = /^\+proj=cea \+lat_ts=(\S+) \+lon_0=(\S+) \+datum=WGS84 \+units=m \+no_defs$/;

const ofSine = (s) => {
  const es = s * E;
  return (s * (1 - E2)) / (1 - es * es) + Math.log((1 + es) / (1 - es)) * ((1 - E2) / (2 * E));
};

/** Lambert's cylindrical equal-area projection of WGS84 around a parallel and a meridian, degrees. */
export class EqualAreaCylinder {
  constructor(parallel, meridian) {
    const phi = parallel * RADIAN;
    this.meridian = meridian;
    this.k0 = Math.cos(phi) / Math.sqrt(1 - E2 * Math.sin(phi) ** 2);
    this.perDegree = this.k0 * A * RADIAN;
    this.metric = true;
  }

  project(lon, lat) {
    return [(lon - this.meridian) * this.perDegree, ofSine(Math.sin(lat * RADIAN)) * (A / (2 * this.k0))];
  }

  unproject(x, y) {
    const q = y * ((2 * this.k0) / A);
    const clip = (value) => Math.min(Math.max(value, -1), 1);
    let s = clip(q / 2);
    for (let step = 0; step < 4; step += 1) {
      const es = s * E;
      s = clip(s - ((ofSine(s) - q) * (1 - es * es) ** 2) / (2 * (1 - E2)));
    }
    return [x / this.perDegree + this.meridian, Math.asin(s) / RADIAN];
  }
}

/** Degrees, or the cells of a raster that lies nowhere, as they are. */
class AsGiven {
  constructor(metric) {
    this.metric = metric;
  }

  project(x, y) {
    return [x, y];
  }

  unproject(x, y) {
    return [x, y];
  }
}

/** The plane that a CRS text stands for; other map projections than the collector's own are refused. */
export function planeOf(crs) {
  if (crs === "") return new AsGiven(true);
  if (crs === "EPSG:4326") return new AsGiven(false);
  const found = CYLINDER.exec(crs);
  const numbers = found ? [Number(found[1]), Number(found[2])] : [];
  insist(
    numbers.length === 2 && Math.abs(numbers[0]) < 90 && Math.abs(numbers[1]) <= 180,
    "This map is drawn in a projection that this page does not know; the app may know it.",
  );
  return new EqualAreaCylinder(...numbers);
}

/** The cylinder around the middle of a box in degrees, for lengths in metres. */
export function middleCylinder([west, south, east, north]) {
  const nine = (value) => Number(value.toFixed(9));
  return new EqualAreaCylinder(nine((south + north) / 2), nine((west + east) / 2));
}
