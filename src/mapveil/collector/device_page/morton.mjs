// Morton codes: a row and a column as one number whose prefixes are the nodes of a quadtree. Codes are whole numbers
// below 2^53, so a shift is a division.

function spread(value) {
  let x = value & 0xffff;
  x = (x | (x << 8)) & 0x00ff00ff;
  x = (x | (x << 4)) & 0x0f0f0f0f;
  x = (x | (x << 2)) & 0x33333333;
  return (x | (x << 1)) & 0x55555555;
}

function gather(value) {
  let x = value & 0x55555555;
  x = (x | (x >>> 1)) & 0x33333333;
  x = (x | (x >>> 2)) & 0x0f0f0f0f;
  x = (x | (x >>> 4)) & 0x00ff00ff;
  return (x | (x >>> 8)) & 0xffff;
}

/** The code of a row and a column, each below 2^26. */
export function interleave(row, col) {
  const low = (spread(row) * 2 + spread(col));
  const high = spread(row >>> 16) * 2 + spread(col >>> 16);
  return high * 2 ** 32 + low;
}

/** [row, col] of a code below 2^52. */
export function deinterleave(code) {
  const low = code % 2 ** 32;
  const high = Math.floor(code / 2 ** 32);
  const odd = (value) => gather(Math.floor(value / 2) >>> 0);
  return [odd(high) * 65536 + odd(low), gather(high >>> 0) * 65536 + gather(low >>> 0)];
}
