// Numbers, times and states as a person writes them.
import { number as numberText } from "./scale.js";

const THIN = "\u202f";

/** Three digits, thin spaces between thousands; "unknown" where there is no number. */
export const number = (value, digits = 3) => (Number.isFinite(value) ? numberText(value, digits) : "unknown");
export const whole = (value) => (value ?? 0).toLocaleString("en").replaceAll(",", THIN);
export const percent = (part) => `${number(100 * part)}${THIN}%`;

/** "1/3" or "0.5" as a number; null stays. */
export function fraction(text) {
  if (text === null || text === undefined) return null;
  const [top, bottom] = String(text).split("/");
  return bottom === undefined ? Number(top) : Number(top) / Number(bottom);
}
export const epsilonWords = (text) =>
  text === null || text === undefined ? "no ε" : `ε = ${number(fraction(text), 4)}`;

/** Seconds as "2 min 05 s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const left = Math.max(0, Math.round(seconds));
  if (left < 60) return `${left} s`;
  if (left < 3600) return `${Math.floor(left / 60)} min ${String(left % 60).padStart(2, "0")} s`;
  const hours = Math.floor(left / 3600);
  if (hours < 48) return `${hours} h ${String(Math.floor((left % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.round(hours / 24)} days`;
}

/** A time of the service, in the reader's own zone. */
export function time(text) {
  if (!text) return "";
  const made = document.createElement("time");
  const moment = new Date(text);
  made.dateTime = text;
  made.title = text;
  made.textContent = Number.isNaN(moment.valueOf())
    ? text
    : moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  return made;
}

export const STATES = {
  pending: ["○", "Pending", "No device has been asked yet; the collection can be opened or dropped."],
  open: ["◔", "Open", "Devices may take part."],
  running: ["◑", "Running", "The devices and the server work out the noisy sums together."],
  finishing: ["◕", "Finishing", "The answers are in; the map is being made."],
  done: ["●", "Done", "The map is ready."],
  aborted: ["✕", "Aborted", "No map was made."],
};
export const ACTIVE = ["open", "running", "finishing"];

export const PHASES = {
  keys: "keys are exchanged",
  shares: "secret shares are exchanged",
  inputs: "masked answers come in",
  consents: "devices confirm who is in the sum",
  answers: "masks are taken off the sum",
};

export const TRUST = {
  operators: [
    "Two operators",
    "Each device sends one sealed message; neither operator alone learns more than noisy sums and who takes part. " +
      "Both together know every contribution.",
  ],
  distributed: [
    "Secure sums",
    "The server learns noisy sums over many devices, and which devices take part.",
  ],
  local: [
    "Randomized reports",
    "Each device randomizes its report before it sends it: the server sees every randomized report.",
  ],
  "random-features": [
    "Projections",
    "Each device sends one random Fourier feature of its location: no epsilon bounds what the server learns of it.",
  ],
};
export const trustName = (trust) => TRUST[trust]?.[0] || trust;
