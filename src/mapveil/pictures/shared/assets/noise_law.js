// The law of a weighted sum of independent discrete Laplace noises, and half the width of its interval: the arithmetic
// of mapveil.privacy.weighted_noise, whose header has the formulas and the sources.

const ERROR = 1e-5,
  STEP = 0.25,
  NODES = 32,
  FINE = 1e-4,
  COARSE = 0.5,
  LEAST_SADDLE = 0.7,
  NEWTON = 12,
  SERVED = 1.25,
  FARTHEST = 200,
  REFINEMENTS = 6;

const sum = (list, term) => list.reduce((total, each) => total + term(each), 0);

/** The noises as a path sees them; `slack` users are added on either side for what is not. */
function lawOf(noises) {
  const kept = noises
    .filter(({ step, terms }) => step * terms > 0)
    .map(({ step, rate, terms }) => ({ step, rate, terms, scale: step / rate, seen: rate >= FINE && rate <= COARSE }));
  const coarse = kept.filter(({ rate }) => rate > COARSE);
  const widest = kept.reduce((most, { step, rate }) => (rate < FINE ? most : Math.max(most, step)), 0);
  return { noises: kept, slack: widest / 2 + sum(coarse, ({ step, terms }) => step * terms) / 2 };
}

/** The exponent K at a complex point, as a pair. */
function exponentAt(law, [re, im]) {
  let real = 0,
    imaginary = 0;
  for (const { scale, step, rate, terms, seen } of law.noises) {
    let [u, v] = [scale * re, scale * im];
    if (seen) {
      const [a, b, under] = [(step * re) / 2, (step * im) / 2, Math.sinh(rate / 2)];
      [u, v] = [(Math.sinh(a) * Math.cos(b)) / under, (Math.cosh(a) * Math.sin(b)) / under];
    }
    const [x, y] = [1 - (u * u - v * v), -2 * u * v];
    real -= terms * Math.log(Math.hypot(x, y));
    imaginary -= terms * Math.atan2(y, x);
  }
  return [real, imaginary];
}

/** Points of the path whose saddle point belongs to x. */
function pathOf(law, x) {
  const largest = law.noises.reduce((most, each) => (each.scale > most.scale ? each : most)),
    { scale: b, terms: r } = largest,
    squares = law.noises.map(({ scale, terms }) => [scale * scale, 2 * terms * scale * scale]);
  const total = sum(squares, ([, weight]) => weight);
  let c = Math.min((Math.hypot(r * b, x) - r * b) / (x * b), x / total);
  for (let round = 0; round < NEWTON; round++) {
    const excess = sum(squares, ([square, weight]) => (weight * c) / (1 - square * c * c)) - x;
    c -= excess / sum(squares, ([square, weight]) => (weight * (1 + square * c * c)) / (1 - square * c * c) ** 2);
    if (excess <= 1e-6 * x) break;
  }
  const room = (square) => 1 - square * c * c;
  const second = sum(squares, ([square, weight]) => (weight * (2 - room(square))) / room(square) ** 2),
    third = sum(squares, ([square, weight]) => (2 * weight * square * c * (4 - room(square))) / room(square) ** 3),
    bend = third / (6 * second ** 1.5),
    deviation = Math.sqrt(second),
    widest = law.noises.reduce((most, { step, seen }) => (seen ? Math.max(most, step) : most), 0),
    nodes = [];
  for (let at = 0; at < NODES; at++) {
    const t = STEP * at,
      v = Math.sinh(t),
      root = Math.sqrt(1 + (4 * bend * v) ** 2),
      s = [c + (2 * bend * v * v) / (1 + root) / deviation, v / deviation];
    // A lattice's function is periodic: only its first period is the law's. Far to the right nothing is left.
    if (s[1] * widest > Math.PI || s[0] * widest > FARTHEST) continue;
    const size = ((Math.cosh(t) / deviation) * STEP) / (at === 0 ? 2 : 1);
    nodes.push({ s, exponent: exponentAt(law, s), ds: [((2 * bend * v) / root) * size, size] });
  }
  return { middle: sum(squares, ([square, weight]) => (weight * c) / room(square)), nodes };
}

/** Pr[X > x], and the density at x. */
function tailAt({ nodes }, x) {
  let tail = 0,
    density = 0;
  for (const { s, exponent, ds } of nodes) {
    const size = Math.exp(exponent[0] - s[0] * x),
      turn = exponent[1] - s[1] * x,
      [p, q] = [size * Math.cos(turn), size * Math.sin(turn)],
      [re, im] = [p * ds[0] - q * ds[1], p * ds[1] + q * ds[0]];
    density += im;
    tail += (im * s[0] - re * s[1]) / (s[0] * s[0] + s[1] * s[1]);
  }
  return [tail / Math.PI, density / Math.PI];
}

/** A number t with Pr[|X| > t] <= alpha, rounded outward; `noises` have `step` (users), `rate` and `terms`. */
export function halfWidth(noises, alpha) {
  const law = lawOf(noises);
  if (!law.noises.length) return 0;
  const wanted = Math.log(alpha / 2 / (1 + ERROR)),
    deviation = Math.sqrt(sum(law.noises, ({ scale, terms }) => 2 * terms * scale * scale));
  let x = deviation * Math.max(Math.sqrt(-2 * wanted) - 0.5, 1);
  for (let round = 0; round < REFINEMENTS; round++) {
    const path = pathOf(law, Math.max(x, LEAST_SADDLE * deviation)),
      before = x;
    for (let inner = 0; inner < REFINEMENTS; inner++) {
      const [beyond, density] = tailAt(path, x);
      if (beyond <= 0 || density <= 0) {
        x = (x + path.middle) / 2;
        continue;
      }
      const move = ((Math.log(beyond) - wanted) * beyond) / density;
      x = Math.max(x + Math.min(Math.max(move, -x / 2), x), 0.05 * deviation);
      if (Math.abs(move) <= 1e-9 * x) break;
    }
    if (Math.abs(x - before) <= SERVED * x - x) break;
  }
  return x * (1 + ERROR) + law.slack;
}
