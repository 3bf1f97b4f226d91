// Zones that somebody draws: the fraction of every pixel inside, as in mapveil.maps.zone_fractions.

const ROUNDING = 1e-9; // of a pixel

/** Whether two edges of a closed outline cross: then nothing is inside for certain. */
export function crosses(corners) {
  const edges = corners.map((corner, at) => [corner, corners[(at + 1) % corners.length]]);
  const side = ([[ax, ay], [bx, by]], [x, y]) => Math.sign((bx - ax) * (y - ay) - (by - ay) * (x - ax));
  const apart = (one, two) => side(one, two[0]) * side(one, two[1]) < 0 && side(two, one[0]) * side(two, one[1]) < 0;
  return edges.some((one, i) => edges.some((two, j) => i < j && apart(one, two)));
}

/** Whether a place is inside a closed outline. */
export function isInside(corners, x, y) {
  let inside = false;
  corners.forEach(([ax, ay], at) => {
    const [bx, by] = corners[(at + 1) % corners.length];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  });
  return inside;
}

/**
 * The fraction of each pixel in an outline whose corners are in columns and rows, as a map from row * columns + column.
 * An edge piece within one pixel adds its signed area to that pixel and its height to all on the right.
 */
export function pixelFractions(corners, rows, columns) {
  const area = new Map(), // by row: signed areas, with one more column for what lies beyond
    found = new Map();
  const lines = (from, to) => {
    const [low, high] = [Math.min(from, to), Math.max(from, to)],
      made = [];
    for (let line = Math.floor(low) + 1; line < high; line++) made.push((line - from) / (to - from));
    return made;
  };
  corners.forEach(([ax, ay], at) => {
    const [bx, by] = corners[(at + 1) % corners.length],
      cuts = [0, ...lines(ax, bx), ...lines(ay, by), 1].sort((a, b) => a - b);
    for (let k = 0; k + 1 < cuts.length; k++) {
      const [t, u] = [cuts[k], cuts[k + 1]],
        high = (u - t) * (by - ay),
        x = ax + ((t + u) / 2) * (bx - ax),
        row = Math.floor(ay + ((t + u) / 2) * (by - ay));
      if (high === 0 || row < 0 || row >= rows) continue;
      const middle = Math.min(Math.max(x, 0), columns),
        column = Math.min(Math.floor(middle), columns - 1);
      if (!area.has(row)) area.set(row, new Float64Array(columns + 1));
      const sums = area.get(row),
        share = column + 1 - middle;
      sums[column] += high * share;
      sums[column + 1] += high * (1 - share);
    }
  });
  for (const [row, sums] of area) {
    let running = 0;
    for (let column = 0; column < columns; column++) {
      running += sums[column];
      const fraction = Math.abs(running);
      if (fraction > ROUNDING) found.set(row * columns + column, fraction > 1 - ROUNDING ? 1 : fraction);
    }
  }
  return found;
}
