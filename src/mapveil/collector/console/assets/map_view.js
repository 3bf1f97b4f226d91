// A MapLibre map with a ground of our own: nothing is fetched but this server's tiles.
import { Map as MapLibre, NavigationControl, ScaleControl } from "./vendor/maplibre-gl.mjs";
import { transformRequest } from "./api.js";
import { addGraticule } from "./graticule.js";
import { css, onTheme } from "./theme.js";

const EMPTY = { type: "FeatureCollection", features: [] };

/** The ring of a box, degrees. */
export const boxRing = ([west, south, east, north]) => [
  [west, south],
  [east, south],
  [east, north],
  [west, north],
  [west, south],
];
const outlineOf = (rings) => ({
  type: "Feature",
  properties: {},
  geometry: { type: "MultiLineString", coordinates: rings },
});

/**
 * Makes a map of the given bounds in an element, with outline, graticule and a mark for one cell; resolves once
 * it can be drawn on. `label` says what it shows; the signal takes it away.
 */
export async function makeMap(
  container,
  { bounds, rings = [boxRing(bounds)], label, signal, controls = true, keep = 0.5 },
) {
  const [west, south, east, north] = bounds,
    padX = (east - west) * keep + 0.01,
    padY = (north - south) * keep + 0.01;
  let map;
  try {
    map = new MapLibre({
      container,
      transformRequest,
      style: {
        version: 8,
        sources: {},
        layers: [{ id: "ground", type: "background", paint: { "background-color": css("--field") } }],
      },
      bounds: [west, south, east, north],
      fitBoundsOptions: { padding: 24 },
      // Nothing lies beyond the region; a little room shows its edge.
      maxBounds:
        keep > 3
          ? undefined
          : [
              Math.max(-180, west - 3 * padX),
              Math.max(-85, south - 3 * padY),
              Math.min(180, east + 3 * padX),
              Math.min(85, north + 3 * padY),
            ],
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      rollEnabled: false,
      // On a touch screen one finger scrolls the page, two move the map.
      cooperativeGestures: matchMedia("(pointer: coarse)").matches,
      renderWorldCopies: false,
      maxZoom: 21,
      fadeDuration: 0,
    });
  } catch (error) {
    const why = /WebGL/.test(error.message) ? "it offers no WebGL 2" : error.message;
    throw new Error(`This browser cannot draw the map: ${why}.`);
  }
  map.touchZoomRotate.disableRotation();
  map.keyboard.disableRotation();
  if (controls) map.addControl(new NavigationControl({ showCompass: false }), "top-right");
  map.addControl(new ScaleControl({ maxWidth: 110, unit: "metric" }), "bottom-left");
  const canvas = map.getCanvas();
  canvas.setAttribute("aria-label", label);
  canvas.setAttribute("role", "application");
  signal.addEventListener("abort", () => map.remove());
  await new Promise((resolve) => {
    map.once("load", resolve);
  });
  if (signal.aborted) return map;
  map.addSource("outline", { type: "geojson", data: outlineOf(rings) });
  map.addSource("cell", { type: "geojson", data: EMPTY });
  addGraticule(map, signal);
  map.addLayer({ id: "outline", type: "line", source: "outline", paint: { "line-width": 1.5 } });
  map.addLayer({ id: "cell-under", type: "line", source: "cell", paint: { "line-width": 4 } });
  map.addLayer({ id: "cell", type: "line", source: "cell", paint: { "line-width": 2 } });
  onTheme(() => {
    map.setPaintProperty("ground", "background-color", css("--field"));
    map.setPaintProperty("outline", "line-color", css("--quiet"));
    map.setPaintProperty("cell-under", "line-color", css("--card"));
    map.setPaintProperty("cell", "line-color", css("--mark"));
    map.setPaintProperty("graticule", "line-color", css("--line"));
    map.setPaintProperty("degrees", "text-color", css("--quiet"));
    map.setPaintProperty("degrees", "text-halo-color", css("--field"));
  }, signal);
  return map;
}

export const setOutline = (map, rings) => map.getSource("outline").setData(outlineOf(rings));
export const markCell = (map, ring) =>
  map
    .getSource("cell")
    .setData(
      ring ? { type: "Feature", properties: {}, geometry: { type: "LineString", coordinates: ring } } : EMPTY,
    );

/** Where a collection's tiles are; `scale` is one that two maps share. */
export function tileAddress(id, layer, theme, scale = null) {
  const own = scale ? `&top=${scale.top}&knee=${scale.knee}` : "";
  return `${location.origin}/v1/collections/${id}/map/tiles/{z}/{x}/{y}.png?layer=${layer}&theme=${theme}${own}`;
}

/** Lays a collection's tiles under the outline; calling `show` again changes them, `fade` their opacity. */
export function addTiles(map, id, record) {
  let opacity = 1;
  return {
    show(layer, theme, scale = null) {
      const tiles = [tileAddress(id, layer, theme, scale)];
      if (map.getSource("tiles")) {
        map.getSource("tiles").setTiles(tiles);
        return;
      }
      map.addSource("tiles", {
        type: "raster",
        tiles,
        tileSize: 256,
        bounds: record.bounds,
        maxzoom: record.maxzoom,
      });
      map.addLayer(
        {
          id: "tiles",
          type: "raster",
          source: "tiles",
          paint: { "raster-resampling": "nearest", "raster-fade-duration": 0, "raster-opacity": opacity },
        },
        "graticule",
      );
    },
    fade(value) {
      opacity = value;
      if (map.getLayer("tiles")) map.setPaintProperty("tiles", "raster-opacity", value);
    },
  };
}
