// Reports of random Fourier features: the phase of a location at a random frequency that this device draws once and keeps, for one
// region and bandwidth. Query, policy and report are those of mapveil_client/random_features; here for one place, two axes, one
// Gaussian frequency, and without a ladder of bandwidths.

import { decode, encode } from "./cbor.mjs";
import { concat, packNumbers, readCounts, readNumbers, sha256, text, utf8 } from "./bytes.mjs";
import { EqualAreaCylinder, planeOf } from "./plane.mjs";
import { insist } from "./refusal.mjs";
import { roundEven } from "./staircase.mjs";

const [VERSION, QUERY, COMPACT] = [1n, 1n, 2n];
const KERNEL = "gaussian";
const BANDS = 3;
const GAMMA = 0.1; // whose root is the length that a Gaussian frequency is below with the policy's probability
const SMALLEST_SIDE = 1000; // metres
const LARGEST_GRID = 2 ** 26;
const KEY_BYTES = 32;
const SLACK = 1e-9;
const SAME = 1e-6; // of a region's side
const STRETCH = 1.5;
const OPTIONS = [
  "bandwidth_m", "features", "kernel", "bandwidth_rule", "neighbours", "smoothing", "places", "jitter_m", "bands", "gamma",
  "least_signal",
];

/** Read a query; throws on anything that is none. */
export function readQuery(data) {
  const fields = decode(data);
  const lists = fields.slice(5);
  if (fields.length !== 11 || fields[0] !== VERSION || fields[1] !== QUERY || typeof fields[4] !== "bigint"
    || ![fields[2], fields[3], ...lists].every((field) => field instanceof Uint8Array)) {
    throw new Error("no query of this version");
  }
  const [bandwidth, low, high, start, step] = lists.slice(0, 5).map(readNumbers);
  const count = readCounts(lists[5]);
  const axes = bandwidth.length;
  const grid = start.length ? { start, step, count } : null;
  const good = [low, high].every((list) => list.length === axes) && axes >= 1 && axes <= 3
    && [...bandwidth, ...low, ...high].every(Number.isFinite) && bandwidth.every((h) => h > 0)
    && low.every((end, axis) => end < high[axis]) && fields[4] >= 1n
    && (grid ? [start, step, count].every((list) => list.length === axes) : step.length + count.length === 0)
    && [...start, ...step].every(Number.isFinite) && step.every((size) => size !== 0) && count.every((size) => size >= 1);
  if (!good) throw new Error("a query with a value out of range");
  return { crs: text(fields[2]), kernel: text(fields[3]), features: Number(fields[4]), bandwidth, low, high, grid };
}

/** Origin of every phase: the grid's middle, or the region's. */
function originOf({ grid, low, high }) {
  if (grid) return grid.start.map((start, axis) => start + Math.floor(grid.count[axis] / 2) * grid.step[axis]);
  return low.map((end, axis) => (end + high[axis]) / 2);
}

/** Whether the plane's metres are metres on the ground, within a factor. */
function trueToScale({ crs, low, high }) {
  const plane = planeOf(crs);
  const step = Math.min(high[0] - low[0], high[1] - low[1]) * 1e-4;
  const along = (axis) => [low[axis], (low[axis] + high[axis]) / 2, high[axis]];
  for (const x of along(0)) {
    for (const y of along(1)) {
      const places = [[x, y], [x + step, y], [x, y + step]].map((place) => plane.unproject(...place));
      if (!places.flat().every(Number.isFinite)) return false;
      const ground = new EqualAreaCylinder(places[0][1], places[0][0]);
      const [here, ...there] = places.map((place) => ground.project(...place));
      for (const [east, north] of there) {
        const length = Math.hypot(east - here[0], north - here[1]);
        if (!(length > step / STRETCH && length < step * STRETCH)) return false;
      }
    }
  }
  return true;
}

/** Whether a query is about a map's region [west, south, east, north]: one of a larger region would be too wide for it. */
export function asksAboutMap({ crs, low, high }, [west, south, east, north]) {
  const plane = planeOf(crs);
  const wanted = [plane.project(west, south), plane.project(east, north)];
  return [low, high].every((end, at) => end.every((value, axis) => Math.abs(value - wanted[at][axis]) <= SAME * (high[axis] - low[axis])));
}

/** What a device is pinned to with its first answer, public: bandwidth, region, plane and offset. */
export const pinOf = ({ bandwidth, crs, low, high }, jitter) => ({ bandwidth, crs, low, high, jitter });

/** The reason to refuse a query after a first one, null for none; `pin` and `asked` are of pinOf. */
export function pinRefusal(pin, asked) {
  const away = ([one, other], unit) => one.some((value, axis) => Math.abs(value - other[axis]) > unit(axis));
  if (away([asked.bandwidth, pin.bandwidth], (axis) => SLACK * pin.bandwidth[axis])) {
    const first = `${Math.round(pin.bandwidth[0])} m`;
    return `It asks for another wavelength than the one you answered before (${first}), which would narrow you down.`;
  }
  const side = (axis) => SAME * (pin.high[axis] - pin.low[axis]);
  if (asked.crs !== pin.crs || away([asked.low, pin.low], side) || away([asked.high, pin.high], side)) {
    return "It asks about another region than the one you answered about before, which would narrow you down.";
  }
  return asked.jitter === pin.jitter ? null : "It asks for another offset than the one you answered with before.";
}

/** The reason to refuse a query, null for one that this device answers: decided before the place is looked at.
 *
 * `pin` is what the first query pinned this device to, null before.
 */
export function queryRefusal(query, pin = null, jitter = 0) {
  if (query.bandwidth.length !== 2) return "It asks about other things than places; this page answers about places.";
  if (query.kernel !== KERNEL) return "It asks for frequencies of another law than the one this page keeps.";
  if (query.features > 1) return "It asks for several frequencies, from which your location could be read; this page sends one.";
  if (query.grid && query.grid.count[0] * query.grid.count[1] > LARGEST_GRID) return "It asks for too fine a map.";
  if (!query.crs || !trueToScale(query)) return "Its map stretches metres, so that it would learn more than it says.";
  const side = Math.min(query.high[0] - query.low[0], query.high[1] - query.low[1]);
  if (side < SMALLEST_SIDE) return `It asks about a region ${Math.round(side)} m wide; this device answers from ${SMALLEST_SIDE} m on.`;
  const largest = (Math.sqrt(GAMMA) * side) / (2 * Math.PI * BANDS);
  for (const asked of query.bandwidth) {
    if (asked > largest * (1 + SLACK)) {
      return `It asks for wavelengths too long for its region to hide you on ${BANDS} bands (${Math.round(asked)} m).`;
    }
  }
  if (Math.abs(query.bandwidth[0] - query.bandwidth[1]) > SLACK * query.bandwidth[0]) return "It asks for two wavelengths at once.";
  return pin && pinRefusal(pin, pinOf(query, jitter));
}

/** What a projection's terms ask beyond the query: the metres by which a device moves its places. */
export function checkedJitter(method, options) {
  insist(method === "fourier-kde", "This page answers Fourier projections only; it takes no part.");
  for (const key of Object.keys(options)) {
    insist(OPTIONS.includes(key), "The collection has an option that this page does not know; it takes no part.");
  }
  const jitter = options.jitter_m ?? 0;
  insist(Number.isFinite(jitter) && jitter >= 0, "The collection asks for an offset that is no length.");
  return jitter;
}

/** Two standard normal numbers, from two words of 64 bits. */
function normalPair(words) {
  const [one, other] = Array.from(words, (word) => (Number(word) + 1) * 2 ** -64);
  const radius = Math.sqrt(Math.log(one) * -2);
  return [Math.cos(other * (2 * Math.PI)) * radius, Math.sin(other * (2 * Math.PI)) * radius];
}

/** What a device draws once and keeps: a frequency for bandwidth 1, and a key of the offsets of places. Secret. */
export const drawFrequency = (rng) => ({ units: normalPair(rng.words64(2)), key: rng.bytes(KEY_BYTES) });

/** A place as this device reports it: the one kept point of its square, a normal offset away from the square's middle. */
async function moved(place, { key }, jitter, low) {
  if (!jitter) return place;
  const square = place.map((x, axis) => Math.floor((x - low[axis]) / jitter));
  const name = new DataView(new ArrayBuffer(16));
  square.forEach((at, axis) => name.setBigInt64(8 * axis, BigInt(at), true));
  const secret = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const drawn = await crypto.subtle.sign("HMAC", secret, concat(utf8("mapveil offset"), new Uint8Array(name.buffer)));
  const view = new DataView(drawn);
  const normal = normalPair([view.getBigUint64(0, true), view.getBigUint64(8, true)]);
  return square.map((at, axis) => low[axis] + (at + 0.5) * jitter + jitter * normal[axis]);
}

/** The report about a place, null outside the region. */
export async function featureReport(query, encodedQuery, kept, jitter, lon, lat) {
  const place = planeOf(query.crs).project(lon, lat);
  if (!place.every((x, axis) => x >= query.low[axis] && x <= query.high[axis])) return null;
  const [origin, at] = [originOf(query), await moved(place, kept, jitter, query.low)];
  let phase = 0;
  const frequency = kept.units.map((unit, axis) => {
    const omega = unit / query.bandwidth[axis];
    phase += omega * (at[axis] - origin[axis]);
    if (!query.grid) return omega;
    const period = (2 * Math.PI) / Math.abs(query.grid.step[axis]);
    return omega - period * roundEven(omega / period);
  });
  const numbers = packNumbers([...frequency, Math.cos(phase), Math.sin(phase)]);
  return encode([VERSION, COMPACT, await sha256(encodedQuery), numbers]);
}
