// Arrays of a scene's record: words of 32 or 64 bits, bytes of like weight together, deflated, base64.

export function bytesOf(text) {
  const letters = atob(text),
    bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function unpack({ type, data }) {
  const stream = new Blob([bytesOf(data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const weight = type === "f8" ? 8 : 4,
    count = planes.length / weight,
    bytes = new Uint8Array(planes.length);
  // The file's bytes begin with the least, as those of every processor that runs a browser today.
  for (let at = 0; at < weight; at++) for (let i = 0; i < count; i++) bytes[weight * i + at] = planes[count * at + i];
  return new { i4: Int32Array, f4: Float32Array, f8: Float64Array }[type](bytes.buffer);
}

/** The same record with every packed array unpacked. */
export async function unpackAll(record) {
  if (record === null || typeof record !== "object") return record;
  if (record.data && record.type) return unpack(record);
  // Long lists of numbers and names are what they are.
  if (Array.isArray(record))
    return typeof record[0] === "object" ? Promise.all(record.map(unpackAll)) : record;
  const parts = Object.entries(record).map(async ([name, part]) => [name, await unpackAll(part)]);
  return Object.fromEntries(await Promise.all(parts));
}

/** Closed paths of rings, by the cell they belong to. */
export function pathsOf({ x, y, start, cell }) {
  const made = new Map();
  for (let k = 0; k + 1 < start.length; k++) {
    const path = made.get(cell[k]) || new Path2D();
    for (let i = start[k]; i < start[k + 1]; i++) {
      if (i === start[k]) path.moveTo(x[i], y[i]);
      else path.lineTo(x[i], y[i]);
    }
    path.closePath();
    made.set(cell[k], path);
  }
  return made;
}
