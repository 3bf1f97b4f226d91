// Degrees of places of a scene's plane, by the nodes that its record holds.

/** The value at a fractional index, straight between nodes and beyond the ends. */
function valueAt(nodes, at) {
  const i = Math.min(Math.max(Math.floor(at), 0), nodes.length - 2);
  return nodes[i] + (at - i) * (nodes[i + 1] - nodes[i]);
}

/** The fractional index of a value among nodes that rise, or fall. */
function indexOf(nodes, value) {
  const sign = Math.sign(nodes.at(-1) - nodes[0]);
  let low = 0,
    high = nodes.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sign * (value - nodes[middle]) >= 0) low = middle;
    else high = middle - 1;
  }
  return low + (value - nodes[low]) / (nodes[low + 1] - nodes[low]);
}

/**
 * Longitude and latitude of places; the places of both too (`x`, `y`) where meridians and parallels run straight along
 * the plane's sides; null without georeference.
 */
export function degreesOf({ degrees, extent: [width, height] }) {
  if (!degrees) return null;
  const { lon, lat, mesh } = degrees;
  if (!mesh) {
    const across = lon.length - 1,
      down = lat.length - 1;
    return {
      at: (x, y) => [valueAt(lon, (x / width) * across), valueAt(lat, (y / height) * down)],
      x: (value) => (indexOf(lon, value) / across) * width,
      y: (value) => (indexOf(lat, value) / down) * height,
    };
  }
  const rows = (grid) =>
    Array.from({ length: mesh + 1 }, (_, row) => grid.slice(row * (mesh + 1), (row + 1) * (mesh + 1)));
  const grids = [rows(lon), rows(lat)];
  return {
    at: (x, y) =>
      grids.map((grid) => {
        const row = grid.map((nodes) => valueAt(nodes, (x / width) * mesh));
        return valueAt(row, (y / height) * mesh);
      }),
  };
}
