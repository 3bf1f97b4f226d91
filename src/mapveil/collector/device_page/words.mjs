// What a collection asks, and what a report is, in plain words.

import { hex, readNumbers } from "./bytes.mjs";
import { decode } from "./cbor.mjs";
import { readReport } from "./local_report.mjs";
import { decimal } from "./policy.mjs";
import { ones } from "./random_sets.mjs";

const count = (value) => value.toLocaleString("en");
const METHOD_KINDS = { 1: "grr", 2: "srr", 3: "hr", 4: "unary", 5: "subset", 6: "olh", 7: "olh-h", 8: "planar-laplace" };

const degrees = (value, positive, negative) => `${Math.abs(value).toFixed(2)}° ${value < 0 ? negative : positive}`;

/** Metres as a person says them. */
function metres(value) {
  if (value >= 9500) return `${Math.round(value / 1000)} km`;
  if (value >= 950) return `${(value / 1000).toFixed(1)} km`;
  return `${value >= 100 ? Math.round(value / 10) * 10 : Math.max(1, Math.round(value))} m`;
}

/** The map: how many cells, how wide, and where. */
export function mapWords(tiling) {
  const [west, south, east, north] = tiling.bbox;
  const [x0, y0] = tiling.metric.project(west, south);
  const [x1, y1] = tiling.metric.project(east, north);
  const where = `from ${degrees(south, "north", "south")}, ${degrees(west, "east", "west")} `
    + `to ${degrees(north, "north", "south")}, ${degrees(east, "east", "west")}`;
  const wide = metres(Math.sqrt(((x1 - x0) * (y1 - y0)) / tiling.size));
  if (tiling.spec.startsWith("places:")) return `${count(tiling.size)} places, ${where}`;
  return `${count(tiling.size)} cells, each about ${wide} wide, ${where}`;
}

/** What leaves this phone. */
export const leavingWords = (plan) => `One report: ${plan.words}. With it go the number that the collector gave this phone, `
  + "and a signature, so that each device answers once.";

/** What can be learnt of it. */
export function learningWords(terms, plan) {
  if (plan.kind === "local") {
    const factor = Math.exp(terms.epsilon.toNumber());
    const rounded = factor < 10 ? factor.toFixed(1) : count(Math.round(factor));
    return `However much the collector knows already: your report fits no place on the map more than ${rounded} times better `
      + "than any other.";
  }
  const length = metres(2 * Math.PI * plan.query.bandwidth[0]);
  const offset = plan.jitter > 0
    ? ` Your place is moved first, by an offset of about ${metres(plan.jitter)} that this phone keeps for each place.`
    : "";
  return `Weaker than a privacy budget: the collector learns exactly on which bands of your frequency (typically ${length} apart) you `
    + `may be, and not where along them.${offset} Whoever holds a list of addresses may find that few of them fit.`;
}

/** What it costs. */
export const costWords = (terms) => (terms.epsilon === null
  ? "Nothing of your privacy budget, which counts reports with a proven limit only"
  : `${decimal(terms.epsilon)} of your privacy budget, as soon as the report is made`);

/** The parts of a kept report, for people who want to see them. */
export function reportParts(body, trust) {
  if (trust === "random-features") {
    const [east, north, cosine, sine] = readNumbers(decode(body)[3]);
    const turn = (Math.atan2(sine, cosine) * 180) / Math.PI;
    return [
      ["Which question", hex(decode(body)[2])],
      ["Your frequency, radians per metre east and north", `${east.toPrecision(6)}, ${north.toPrecision(6)}`],
      ["Its phase at your place", `${turn.toFixed(3)}°`],
    ];
  }
  const { kind, domain, setting, value } = readReport(body);
  const held = value instanceof Uint8Array
    ? `yes for ${count(value.reduce((sum, byte) => sum + ones(byte), 0))} cells, no for all others`
    : count(Number(value));
  return [
    ["Method", METHOD_KINDS[Number(kind)] ?? String(kind)], ["Which map", hex(domain)], ["Which setting", hex(setting)],
    ["The random answer", held],
  ];
}

/** Where a collection stands. */
export function progressWords({ present, wanted, closes_in_s: left }) {
  const soFar = Number.isFinite(present) && Number.isFinite(wanted) ? `${count(present)} of ${count(wanted)} phones so far` : "";
  if (!Number.isFinite(left)) return soFar;
  const [size, unit] = left >= 5400 ? [3600, "hours"] : left >= 90 ? [60, "minutes"] : [1, "seconds"];
  return `${soFar}; ${Math.round(left / size)} ${unit} left`;
}
