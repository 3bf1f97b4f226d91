// Exact fractions: what epsilons are, here as on the server.

function divisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

const MOST_DIGITS = 200;

export class Fraction {
  constructor(top, bottom = 1n) {
    const common = divisor(top < 0n ? -top : top, bottom);
    this.top = top / common;
    this.bottom = bottom / common;
  }

  /** Read "3/2", "2" or "0.25"; a number above 0, of at most 200 characters. */
  static read(written) {
    const found = typeof written === "string" && written.length <= MOST_DIGITS
      ? /^(\d+)(?:\/(\d+)|\.(\d+))?$/.exec(written)
      : null;
    if (!found) throw new Error("an epsilon is no number above 0, such as 3/2");
    const decimals = found[3] ?? "";
    const top = BigInt(found[1] + decimals);
    const bottom = found[2] === undefined ? 10n ** BigInt(decimals.length) : BigInt(found[2]);
    if (top === 0n || bottom === 0n) throw new Error("an epsilon is no number above 0, such as 3/2");
    return new Fraction(top, bottom);
  }

  plus(other) {
    return new Fraction(this.top * other.bottom + other.top * this.bottom, this.bottom * other.bottom);
  }

  minus(other) {
    return new Fraction(this.top * other.bottom - other.top * this.bottom, this.bottom * other.bottom);
  }

  exceeds(other) {
    return this.top * other.bottom > other.top * this.bottom;
  }

  toString() {
    return this.bottom === 1n ? `${this.top}` : `${this.top}/${this.bottom}`;
  }

  /** The nearest double, ties to even. */
  toNumber() {
    if (this.top < 0n) return -new Fraction(-this.top, this.bottom).toNumber();
    if (this.top === 0n) return 0;
    const length = (value) => value.toString(2).length;
    // A quotient of 54 or 55 bits and a sticky bit round as the exact ratio does, once, in Number().
    const shift = 55 + length(this.bottom) - length(this.top);
    const top = shift > 0 ? this.top << BigInt(shift) : this.top;
    const bottom = shift > 0 ? this.bottom : this.bottom << BigInt(-shift);
    const whole = (top / bottom) * 2n + (top % bottom ? 1n : 0n);
    return Number(whole) * 2 ** (-shift - 1);
  }
}
