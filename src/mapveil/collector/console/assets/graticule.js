// Meridians and parallels of the view, at round degrees, with their names at the edge.
const STEPS = [
  90, 45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001,
];
const LINES = 5;

const stepOf = (span) => STEPS.find((step) => span / step >= LINES - 1) || STEPS.at(-1);
function between(low, high, step) {
  const made = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++) made.push(at * step);
  return made;
}
function name(value, step, letters) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const letter = Math.abs(value) < step / 2 ? "" : letters[value < 0 ? 1 : 0];
  return `${Math.abs(value).toFixed(digits)}°${letter && ` ${letter}`}`;
}

// Pixels at the edges where a name would be cut off, or meet the buttons and the scale bar.
const MARGIN = { left: 36, right: 84, top: 30, bottom: 44 };

/** Lines and labelled points of a view's bounds on a frame of so many pixels; GeoJSON. */
export function graticule(west, south, east, north, width, height) {
  // A square look: the coarser of both steps.
  const step = Math.max(stepOf(east - west), stepOf(north - south));
  const features = [];
  const line = (coordinates) =>
    features.push({ type: "Feature", properties: {}, geometry: { type: "LineString", coordinates } });
  const point = (coordinates, label, anchor) =>
    features.push({
      type: "Feature",
      properties: { label, anchor },
      geometry: { type: "Point", coordinates },
    });
  for (const lon of between(Math.max(west, -180), Math.min(east, 180), step)) {
    line([
      [lon, south],
      [lon, north],
    ]);
    const at = ((lon - west) / (east - west)) * width;
    if (at > MARGIN.left && at < width - MARGIN.right) point([lon, north], name(lon, step, "EW"), "top");
  }
  for (const lat of between(Math.max(south, -85), Math.min(north, 85), step)) {
    line([
      [west, lat],
      [east, lat],
    ]);
    const at = ((north - lat) / (north - south)) * height;
    if (at > MARGIN.top && at < height - MARGIN.bottom) point([west, lat], name(lat, step, "NS"), "left");
  }
  return { type: "FeatureCollection", features };
}

/** Keeps a map's graticule as its view moves. */
export function addGraticule(map, signal) {
  const data = () => {
    const view = map.getBounds(),
      frame = map.getContainer();
    return graticule(
      view.getWest(),
      view.getSouth(),
      view.getEast(),
      view.getNorth(),
      frame.clientWidth,
      frame.clientHeight,
    );
  };
  map.addSource("graticule", { type: "geojson", data: data() });
  map.addLayer({
    id: "graticule",
    type: "line",
    source: "graticule",
    filter: ["==", ["geometry-type"], "LineString"],
    paint: { "line-width": 0.75, "line-opacity": 0.8 },
  });
  map.addLayer({
    id: "degrees",
    type: "symbol",
    source: "graticule",
    filter: ["==", ["geometry-type"], "Point"],
    layout: {
      "text-field": ["get", "label"],
      "text-size": 11,
      "text-anchor": ["get", "anchor"],
      "text-padding": 8,
      "text-offset": ["match", ["get", "anchor"], "top", ["literal", [0, 0.5]], ["literal", [0.5, 0]]],
    },
    paint: { "text-halo-width": 1.5 },
  });
  const renew = () => {
    if (!signal.aborted) map.getSource("graticule").setData(data());
  };
  map.on("moveend", renew);
  map.on("resize", renew);
}
