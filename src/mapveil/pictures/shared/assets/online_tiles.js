// Tiles of a host that the map's maker named: the one thing that a page may fetch. A page without them asks nobody.
const SIDE = 256; // pixels of a tile
const DEEPEST = 19; // zoom that tile servers have
const MOST_TILES = 96; // on the screen at once
const MOST_HELD = 400;
const STRIPS = 8; // of a tile: its rows are no straight line in another plane
const FLATTEST = 85.0511; // degrees, where web mercator ends
const VEIL = 0.7; // of the colours over tiles

const NONE = { veil: 1, paint: () => false, notice: "" };

/** Column and row of a place in the tiles of a zoom, as fractions. */
export function tileOf(lon, lat, zoom) {
  const across = 2 ** zoom,
    bounded = Math.min(Math.max(lat, -FLATTEST), FLATTEST);
  return [((lon + 180) / 360) * across, (0.5 - Math.asinh(Math.tan((bounded * Math.PI) / 180)) / (2 * Math.PI)) * across];
}

/** Degrees of a column and row. */
export const degreesOfTile = (column, row, zoom) => [
  (column / 2 ** zoom) * 360 - 180,
  (Math.atan(Math.sinh(Math.PI * (1 - (2 * row) / 2 ** zoom))) * 180) / Math.PI,
];

/** The tiles of a view: zoom, and first and last column and row. */
export function tilesOf(box, pixelsPerDegree) {
  const [west, south, east, north] = box;
  let zoom = Math.min(Math.max(Math.round(Math.log2((360 * pixelsPerDegree) / SIDE)), 0), DEEPEST);
  for (; ; zoom -= 1) {
    const most = 2 ** zoom - 1,
      [left, top] = tileOf(west, north, zoom).map((at) => Math.min(Math.max(Math.floor(at), 0), most)),
      [right, bottom] = tileOf(east, south, zoom).map((at) => Math.min(Math.max(Math.floor(at), 0), most));
    if (zoom === 0 || (right - left + 1) * (bottom - top + 1) <= MOST_TILES) return { zoom, left, top, right, bottom };
  }
}

/** Tiles under a map whose meridians and parallels run straight; `renewed()` is called when one has come. */
export function onlineTiles(record, degrees, renewed) {
  if (!record || !degrees?.x) return NONE;
  const held = new Map();
  function imageOf(zoom, column, row) {
    const address = record.template.replace("{z}", zoom).replace("{x}", column).replace("{y}", row);
    if (!held.has(address)) {
      if (held.size >= MOST_HELD) held.delete(held.keys().next().value);
      const image = new Image();
      image.referrerPolicy = "no-referrer";
      image.addEventListener("load", renewed);
      image.src = address;
      held.set(address, image);
    }
    return held.get(address);
  }
  function paint(pen, view) {
    const [west, north] = degrees.at(...view.toPlane(0, 0)),
      [east, south] = degrees.at(...view.toPlane(view.wide, view.high));
    const wide = (degrees.x(east) - degrees.x(west)) * view.scale;
    const { zoom, left, top, right, bottom } = tilesOf([west, south, east, north], wide / (east - west));
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) {
        const image = imageOf(zoom, column, row);
        if (!image.complete || !image.naturalWidth) continue;
        const x0 = degrees.x(degreesOfTile(column, row, zoom)[0]),
          x1 = degrees.x(degreesOfTile(column + 1, row, zoom)[0]),
          high = image.naturalHeight / STRIPS;
        for (let strip = 0; strip < STRIPS; strip++) {
          const y0 = degrees.y(degreesOfTile(column, row + strip / STRIPS, zoom)[1]),
            y1 = degrees.y(degreesOfTile(column, row + (strip + 1) / STRIPS, zoom)[1]);
          pen.drawImage(image, 0, strip * high, image.naturalWidth, high, x0, y0, x1 - x0, y1 - y0);
        }
      }
    }
  }
  return { veil: VEIL, paint, notice: record.notice };
}
