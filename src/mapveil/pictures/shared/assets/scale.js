// Words for numbers, and the colour scale of every map, as in mapveil.pictures.colours: part of exported pages, and a
// module of the console.

/** Three digits, thin spaces between thousands. */
export const number = (value, digits = 3) =>
  value.toLocaleString("en", { maximumSignificantDigits: digits }).replaceAll(",", "\u202f");

/** A longitude or latitude, with the letter of its direction: "EW" or "NS". */
export const degree = (value, letters) => `${Math.abs(value).toFixed(5)}° ${letters[value < 0 ? 1 : 0]}`;

/** Both ends of an interval; there is no upper one where it is null or infinite. */
export const range = (low, high) =>
  Number.isFinite(high ?? NaN) ? `${number(low)} to ${number(high)}` : `at least ${number(low)}`;

/** The place of a value on the ramp, not clipped above 1. */
export const fractionOf = ({ kind = "log", low = 0, top, knee }, value) =>
  kind === "linear"
    ? Math.max(value - low, 0) / (top - low)
    : Math.log1p(Math.max(value, 0) / knee) / Math.log1p(top / knee);

/** The largest of 1, 2, 5 times a power of ten that is at most the value. */
export function roundDown(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Math.max(...[1, 2, 5].map((step) => step * power).filter((step) => step <= value * (1 + 1e-9)));
}

/** Round values to write beside the ramp. */
export function ticksOf({ kind = "log", low = 0, top, knee }) {
  const ticks = [0];
  for (let decade = knee; decade <= top * (1 + 1e-9); decade *= 10) ticks.push(decade);
  // A scale of less than a decade is nearly linear.
  if (kind === "log" && ticks.length > 2) return ticks;
  const step = roundDown((top - low) / (low ? 3 : 4)),
    first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(top / step + 1e-9) - first + 1 }, (_, at) => (first + at) * step);
}
