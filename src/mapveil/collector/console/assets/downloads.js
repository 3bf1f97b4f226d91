// The map to take away, with its guarantee inside every file.
import { blob } from "./api.js";
import { alertBox, announce, card, el } from "./dom.js";

const FORMATS = [
  ["geotiff", "tif", "GeoTIFF", "rasters, for GIS"],
  ["geoparquet", "parquet", "GeoParquet", "tables; cells of any shape"],
  ["geojson", "geojson", "GeoJSON", "any web map"],
  ["png", "png", "Picture", "PNG, with legend and promise"],
  ["html", "html", "Page", "one file that works offline"],
];

const nameOf = (one, suffix) =>
  `${
    (one.title || "map")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-|-$/g, "") || "map"
  }.${suffix}`;

export function downloadsCard(one) {
  const trouble = el("div", {});
  const fetchIt = (format, suffix, name) => async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      const link = el("a", {
        download: nameOf(one, suffix),
        href: URL.createObjectURL(await blob(`/collections/${one.id}/map/exports/${format}`)),
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      trouble.replaceChildren();
      announce(`${name} downloaded`);
    } catch (error) {
      trouble.replaceChildren(alertBox(`${name}: ${error.message}`));
    }
    button.disabled = false;
  };
  return card(
    "Take it with you",
    el(
      "ul",
      { class: "files" },
      FORMATS.map(([format, suffix, name, use]) =>
        el(
          "li",
          {},
          el(
            "button",
            { type: "button", "data-format": format, on: { click: fetchIt(format, suffix, name) } },
            name,
          ),
          el("span", { class: "quiet" }, use),
        ),
      ),
    ),
    trouble,
    el("p", { class: "hint" }, "Every file carries the promise, the parameters and the intervals."),
  );
}
