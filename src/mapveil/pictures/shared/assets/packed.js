// Arrays of a scene's record: words of 32 bits, bytes of like weight together, deflated, base64.

export function bytesOf(text) {
  const letters = atob(text),
    bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function unpack({ type, data }) {
  const stream = new Blob([bytesOf(data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = planes.length / 4,
    words = new Uint32Array(count);
  for (let i = 0; i < count; i++)
    words[i] = planes[i] | (planes[count + i] << 8) | (planes[2 * count + i] << 16) | (planes[3 * count + i] << 24);
  return type === "i4" ? new Int32Array(words.buffer) : new Float32Array(words.buffer);
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
