// The prime fields of sums by two operators, as BigInts: elements, their bytes, and values of polynomials at the
// roots of unity (mapveil_client/two_operators/finite_fields.py; draft-irtf-cfrg-vdaf, section 6.1).

/** Integers modulo a prime; `order` is that of the subgroup of roots of unity which `generator` generates. */
export class Field {
  constructor(modulus, bytes, order = 1n, generator = 1n) {
    Object.assign(this, { modulus, bytes, order, generator });
    this.mask = (1n << BigInt(modulus.toString(2).length)) - 1n;
  }

  /** The element of any whole number. */
  of(number) {
    const rest = number % this.modulus;
    return rest < 0n ? rest + this.modulus : rest;
  }

  add(a, b) {
    const sum = a + b;
    return sum >= this.modulus ? sum - this.modulus : sum;
  }

  subtract(a, b) {
    const rest = a - b;
    return rest < 0n ? rest + this.modulus : rest;
  }

  multiply(a, b) {
    return (a * b) % this.modulus;
  }

  power(base, exponent) {
    let made = 1n;
    for (let [factor, left] = [base, exponent]; left > 0n; left >>= 1n) {
      if (left & 1n) made = this.multiply(made, factor);
      factor = this.multiply(factor, factor);
    }
    return made;
  }

  inverse(element) {
    return this.power(element, this.modulus - 2n);
  }

  /** The principal n-th root of unity, n a power of two. */
  root(n) {
    return this.power(this.generator, this.order / BigInt(n));
  }

  /** The bytes of elements, each least significant byte first. */
  encode(elements) {
    const made = new Uint8Array(this.bytes * elements.length);
    const view = new DataView(made.buffer);
    elements.forEach((element, at) => {
      for (let word = 0; word < this.bytes; word += 8) {
        view.setBigUint64(this.bytes * at + word, BigInt.asUintN(64, element >> BigInt(8 * word)), true);
      }
    });
    return made;
  }

  /** The whole number of an element's bytes, which may be the modulus or above. */
  read(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, this.bytes);
    let number = 0n;
    for (let word = this.bytes - 8; word >= 0; word -= 8) number = (number << 64n) | view.getBigUint64(word, true);
    return number & this.mask;
  }
}

const P64 = 2n ** 64n - 2n ** 32n + 1n;
const P128 = 2n ** 66n * 4611686018427387897n + 1n;

const subgroup = (modulus, cofactor) => new Field(modulus, 8).power(7n, cofactor);

export const FIELD64 = new Field(P64, 8, 2n ** 32n, subgroup(P64, 4294967295n));
export const FIELD128 = new Field(P128, 16, 2n ** 66n, subgroup(P128, 4611686018427387897n));
export const FIELD255 = new Field(2n ** 255n - 19n, 32);

/** From the values of a polynomial at the n-th roots of unity to its values at the 2n-th roots between them.
 *
 * Number-theoretic transforms, radix two: values to coefficients in bit-reversed order, each coefficient times a power
 * of the 2n-th root, and back. n is a power of two.
 */
export class ValuesBetween {
  constructor(field, n) {
    [this.field, this.n] = [field, n];
    const root = field.root(n);
    this.forth = powers(field, root, n);
    this.back = powers(field, field.inverse(root), n);
    const scale = field.inverse(BigInt(n));
    const turns = powers(field, field.root(2 * n), n);
    this.turns = new Array(n);
    for (let at = 0; at < n; at += 1) this.turns[at] = field.multiply(scale, turns[reversed(at, n)]);
  }

  of(values) {
    const { field, n, forth, back, turns } = this;
    const made = values.slice();
    for (let half = n / 2; half >= 1; half /= 2) {
      for (let start = 0; start < n; start += 2 * half) {
        for (let at = 0; at < half; at += 1) {
          const [low, high] = [made[start + at], made[start + at + half]];
          made[start + at] = field.add(low, high);
          made[start + at + half] = field.multiply(field.subtract(low, high), back[(at * n) / (2 * half)]);
        }
      }
    }
    for (let at = 0; at < n; at += 1) made[at] = field.multiply(made[at], turns[at]);
    for (let half = 1; half < n; half *= 2) {
      for (let start = 0; start < n; start += 2 * half) {
        for (let at = 0; at < half; at += 1) {
          const [low, high] = [made[start + at], field.multiply(made[start + at + half], forth[(at * n) / (2 * half)])];
          made[start + at] = field.add(low, high);
          made[start + at + half] = field.subtract(low, high);
        }
      }
    }
    return made;
  }
}

/** The powers from 0 on. */
function powers(field, base, count) {
  const made = [1n];
  while (made.length < count) made.push(field.multiply(made.at(-1), base));
  return made;
}

function reversed(number, n) {
  let made = 0;
  for (let [left, width] = [number, n]; width > 1; width /= 2, left >>= 1) made = 2 * made + (left & 1);
  return made;
}
