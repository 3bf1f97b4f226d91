// The factor e^epsilon as a ratio of whole numbers, rounded down: what makes a promise exact. Every step rounds as
// mapveil/local/randomizers/odds.py does (decimals of 100 digits), because the weights are part of what a report says it is.

import { Fraction } from "./fraction.mjs";

const DIGITS = 100;
const FINE_BITS = 200n;
const LARGEST = new Fraction(128n);
const GUARD = 40;

/** An exact ratio rounded to 100 significant decimal digits, ties to even. */
function rounded(ratio) {
  const { top, bottom } = ratio;
  if (top === 0n) return ratio;
  let places = DIGITS - (`${top}`.length - `${bottom}`.length);
  for (;;) {
    const scaled = places >= 0 ? top * 10n ** BigInt(places) : top;
    const by = places >= 0 ? bottom : bottom * 10n ** BigInt(-places);
    let whole = scaled / by;
    const digits = `${whole}`.length;
    if (digits !== DIGITS) {
      places += DIGITS - digits;
      continue;
    }
    const twice = 2n * (scaled % by);
    if (twice > by || (twice === by && whole & 1n)) whole += 1n;
    return places >= 0 ? new Fraction(whole, 10n ** BigInt(places)) : new Fraction(whole * 10n ** BigInt(-places));
  }
}

/** e to a ratio from 0 to 128, to 100 digits. */
function exponential(ratio) {
  // e^x = (e^(x / 2^k))^(2^k) in fixed point; each squaring costs about a bit, the guard digits far more.
  const halvings = 16n;
  const one = 10n ** BigInt(DIGITS + 60 + GUARD);
  const step = (ratio.top * one) / (ratio.bottom << halvings);
  let sum = one;
  for (let term = one, k = 1n; term; k += 1n) {
    term = (term * step) / (one * k);
    sum += term;
  }
  for (let k = 0n; k < halvings; k += 1n) sum = (sum * sum) / one;
  return rounded(new Fraction(sum, one));
}

const kept = new Map();

/** e to the epsilon (at most 128), rounded down to a multiple of 2^-200. */
export function power(epsilon) {
  const name = epsilon.toString();
  if (!kept.has(name)) {
    const given = epsilon.exceeds(LARGEST) ? LARGEST : epsilon;
    const exact = exponential(rounded(given));
    const less = rounded(new Fraction(10n ** 90n - 1n, 10n ** 90n));
    const safe = rounded(new Fraction(exact.top * less.top, exact.bottom * less.bottom));
    const scaled = rounded(new Fraction(safe.top << FINE_BITS, safe.bottom));
    kept.set(name, new Fraction(scaled.top / scaled.bottom, 1n << FINE_BITS));
  }
  return kept.get(name);
}

/** Whole weights {more, less} with more / less at most e^epsilon, more below 2^moreBits, less at most 2^lessBits. */
export function odds(epsilon, moreBits, lessBits = 40) {
  const factor = power(epsilon);
  for (let bits = lessBits; bits >= 0; bits -= 1) {
    const more = (factor.top << BigInt(bits)) / factor.bottom;
    if (more < 1n << BigInt(moreBits)) {
      if (more === 1n << BigInt(bits)) throw new Error("epsilon must be at least 2^-20");
      return { more, less: 1n << BigInt(bits) };
    }
  }
  return { more: (1n << BigInt(moreBits)) - 1n, less: 1n };
}

/** Whether a ratio of probabilities is at most e^epsilon, exactly. */
export const keeps = (ratio, epsilon) => !ratio.exceeds(power(epsilon));
