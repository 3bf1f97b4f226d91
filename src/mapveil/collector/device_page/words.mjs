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

/** The window of a series that this phone drew, its one answer being for it; null where it answers for all of them. */
export function windowWords(windows, window) {
  if (window === null) {
    return `This map has ${count(windows.count)} windows, by the clock of ${windows.zone}. This phone counts 1 in all of them together, `
      + "divided over the places of its record.";
  }
  const own = windows.category === null
    ? `It can be made in that time only, by the clock of ${windows.zone}.`
    : `Make it only where "${windows.category}" is that for you now.`;
  return `This map has ${count(windows.count)} windows, and this phone drew one of them by chance, wherever you are: `
    + `${windows.names[window]}. It answers for that one and no other. ${own} Whoever reads the report learns which window was `
    + "drawn, and that you sent a report in it; a phone that was in no place of the map then sends none.";
}

/** What each of two operators sees of a report. */
export const OPERATORS_WORDS = [
  ["The first operator, which serves this page", "One share, sealed with its key, and that this phone takes part. Alone the share "
    + "looks like random numbers, wherever you are."],
  ["The second operator", "The other share, sealed with its key, which the first operator passes on unopened. "
    + "Alone it looks like random numbers too."],
  ["Whoever reads the map, and both of them", "Sums over all phones, to which each operator has added noise of its own."],
  ["Both together, if they break their promise", "Your report, whole. Answer only where you trust that they do "
    + "not put their shares together."],
];

/** A number rounded up to so many digits, without zeros at its end. */
function up(value, digits) {
  const scale = 10 ** (digits - 1 - Math.floor(Math.log10(value)));
  return String(Number((Math.ceil(value * scale) / scale).toPrecision(digits)));
}

/** An epsilon exactly, as a decimal or else a fraction, where that has at most 12 characters; else rounded up. */
function epsilonWords({ top, bottom }) {
  let places = 0;
  let unit = 1n;
  for (const most = bottom.toString(2).length; places < most && (top * unit) % bottom !== 0n; places += 1) unit *= 10n;
  const digits = String((top * unit) / bottom).padStart(places + 1, "0");
  const decimals = places > 0 ? `${digits.slice(0, -places)}.${digits.slice(-places)}` : digits;
  const exact = (top * unit) % bottom === 0n ? decimals : `${top}/${bottom}`;
  if (exact.length <= 12) return exact;
  let scale = 1n;
  while (top * scale < 100000n * bottom) scale *= 10n;
  return String(Number((top * scale + bottom - 1n) / bottom) / Number(scale));
}

const factorWords = (epsilon) => {
  const factor = Math.exp(epsilon.toNumber());
  return `the probability of any outcome changes by a factor of at most ${up(factor, factor < 1.1 ? 5 : 3)} (e^epsilon, `
    + `epsilon = ${epsilonWords(epsilon)})`;
};

/** The most that somebody becomes sure of, in per cent, of two values whose odds change by a factor e^epsilon. */
function beliefWords(epsilon) {
  const chance = 100 / (1 + Math.exp(-epsilon));
  return `${chance > 99.99 ? "over 99.99" : `at most ${Number((Math.ceil(chance * 100) / 100).toPrecision(4))}`} %`;
}

/** The slack of noise that is sampled, over both operators: (1 + e^epsilon) / 2^32, rounded up to three digits. */
function deltaWords(epsilon) {
  const [digits, power] = Number(up((1 + Math.exp(epsilon)) / 2 ** 32, 3)).toExponential().split("e-");
  return `${digits}e-${power.padStart(2, "0")}`;
}

function operatorsWords(epsilon) {
  const number = epsilon.toNumber();
  const twice = Math.exp(2 * number);
  return `If the contribution of one user is replaced by zero, ${factorWords(epsilon)}, plus at most ${deltaWords(number)} (delta). `
    + "Leaving delta aside, somebody who holds a contribution and none of one user for equally likely can become "
    + `${beliefWords(number)} sure of either; between two possible locations, ${beliefWords(2 * number)} (factor e^(2 epsilon) `
    + `= ${up(twice, twice < 1.1 ? 5 : 3)}). Adversary: either of two operators, the leader or the helper, even one that deviates `
    + "from the protocol, who sees its shares, noisy sums, who takes part and which reports pass, whatever else it knows. "
    + "Assumptions: each user has one client; the two operators do not collude, and one of them follows the protocol, which "
    + "includes that it verifies each report once: a malicious one can change the sums or leave its noise out, and the other's "
    + "whole noise remains; shares and proofs reveal that a contribution is well-formed and nothing else (a computational "
    + "assumption).";
}

/** What can be learnt of it: the sentences of the guarantee, as mapveil/privacy/promise.py words them. A test compares. */
export function learningWords(terms, plan) {
  const adversary = "Adversary: whoever sees the reports, the server included, whatever else they know.";
  if (plan.kind === "local") {
    return `If the data of one user are replaced by any other, ${factorWords(terms.epsilon)}. Somebody who holds two possible `
      + `values of one user for equally likely can become ${beliefWords(terms.epsilon.toNumber())} sure of either. ${adversary}`;
  }
  if (plan.kind === "operators") return operatorsWords(terms.epsilon);
  const [sites, offset] = plan.jitter > 0
    ? [
      `the server's list of exact sites is no finer than ${Number(plan.jitter.toPrecision(6))} m`,
      ` Your location is moved first, by an offset of about ${metres(plan.jitter)} that this phone keeps for each place.`,
    ]
    : ["the server has no list of exact sites, such as venues: exact phases tell them apart", ""];
  return "This is NOT differential privacy: no factor bounds what can be learnt of one user. Each report: the exact phase of the "
    + "client's location on one random Fourier feature of its own, whose frequencies the server knows. Hidden: the band of the "
    + "feature's phase on which the client is, and the location along it. "
    + `Bands are typically ${metres(2 * Math.PI * plan.query.bandwidth[0])} apart.${offset} Assumptions: ${sites}. ${adversary}`;
}

/** What all reports of this phone tell together, at most. */
export const limitWords = ({ lifetime, mostFeatureAnswers }) => "The epsilons of reports add up, and this phone stops at "
  + `${epsilonWords(lifetime)}: for all of them together, ${factorWords(lifetime)}. Phases of random features have no epsilon; `
  + `this phone sends at most ${mostFeatureAnswers}.`;

/** What it costs. */
export const costWords = (terms) => (terms.epsilon === null
  ? "Nothing of your privacy budget, which adds up epsilons: this report has none"
  : `${decimal(terms.epsilon)} of your privacy budget, as soon as the report is made`);

/** The parts of a kept report, for people who want to see them. */
export function reportParts(body, trust) {
  if (trust === "operators") {
    const hours = Number(new DataView(body.buffer, body.byteOffset).getBigUint64(16));
    const hour = new Date(3600000 * hours).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
    const rest = "two sealed shares, and what checks them";
    return [["Its random number", hex(body.subarray(0, 16))], ["The hour it was made in", hour], ["All else", rest]];
  }
  if (trust === "random-features") {
    const [east, north, cosine, sine] = readNumbers(decode(body)[3]);
    const turn = (Math.atan2(sine, cosine) * 180) / Math.PI;
    return [
      ["Which question", hex(decode(body)[2])],
      ["Your frequency, radians per metre east and north", `${east.toPrecision(6)}, ${north.toPrecision(6)}`],
      ["Its phase at your place", `${turn.toFixed(3)}°`],
    ];
  }
  const { kind, domain, setting, value, window } = readReport(body);
  const held = value instanceof Uint8Array
    ? `yes for ${count(value.reduce((sum, byte) => sum + ones(byte), 0))} cells, no for all others`
    : count(Number(value));
  return [
    ["Method", METHOD_KINDS[Number(kind)] ?? String(kind)], ["Which map", hex(domain)], ["Which setting", hex(setting)],
    ["The random answer", held], ...(window === null ? [] : [["Window, counted from 0", count(Number(window))]]),
  ];
}

/** Where a collection stands. */
export function progressWords({ present, wanted, closes_in_s: left }) {
  const soFar = Number.isFinite(present) && Number.isFinite(wanted) ? `${count(present)} of ${count(wanted)} phones so far` : "";
  if (!Number.isFinite(left)) return soFar;
  const [size, unit] = left >= 5400 ? [3600, "hours"] : left >= 90 ? [60, "minutes"] : [1, "seconds"];
  return `${soFar}; ${Math.round(left / size)} ${unit} left`;
}
