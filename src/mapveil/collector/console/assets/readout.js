// What is known of the cell that somebody points at, by mouse, finger or keys.
import { announce, el } from "./dom.js";
import { markCell } from "./map_view.js";
import { degree, range } from "./scale.js";
import { number, percent } from "./words.js";

const bounds = (low, high) => (low === null && high === null ? "nothing bounds it" : range(low, high));

/** The rows of a table of one cell, the same in one line for a small screen, and for those who hear it. */
export function rowsOf(cells, lon, lat) {
  const cell = cells.at(lon, lat);
  if (cell < 0)
    return {
      short: "",
      rows: [
        ["Place", `${degree(lat, "NS")}, ${degree(lon, "EW")}`],
        ["Here", "outside the region"],
      ],
      text: "outside the region",
    };
  const read = cells.reading(cell),
    sure = percent(cells.record.certainty);
  return {
    rows: [
      ["Density", `${number(read.density)} per km²`, "main"],
      cells.record.low
        ? [`${sure} interval`, `${bounds(read.lowDensity, read.highDensity)} per km²`]
        : ["Interval", "none: the method gives no bounds"],
      ["Persons in the cell", number(read.persons)],
      cells.record.low ? [`${sure} interval`, bounds(read.low, read.high)] : null,
      ["Area", `${number(read.area)} km²`],
      read.name ? ["Site", read.name] : null,
      ["Place", `${degree(lat, "NS")}, ${degree(lon, "EW")}`],
    ].filter(Boolean),
    short: `${number(read.density)} per km²${cells.record.low ? `, ${sure}: ${bounds(read.lowDensity, read.highDensity)}` : ""}`,
    text: `${number(read.density)} persons per square kilometre${cells.record.low ? `, ${sure} interval ${bounds(read.lowDensity, read.highDensity)}` : ""}`,
  };
}

/** Whether the page is used by finger. */
export const byFinger = () => matchMedia("(pointer: coarse)").matches;

/** What stands there before anybody has pointed anywhere. */
export const nothingRead = () =>
  el(
    "div",
    { class: "hint" },
    el("dt", {}, byFinger() ? "Tap a cell of the map" : "Point at the map, or reach it with the Tab key"),
    el("dd", {}),
  );

/**
 * Follows pointer, clicks and keys on a map; `tell(lon, lat, byKeys)` shows what is there. A click pins the
 * cell until the next, Escape lets it go.
 */
export function followPointer(map, frame, cells, tell) {
  let pinned = false,
    timer = null;
  const cross = el("div", { class: "cross", "aria-hidden": "true", hidden: true });
  frame.append(cross);
  const canvas = map.getCanvas();
  const read = ({ lng, lat }, byKeys = false) => {
    markCell(map, cells.ring(lng, lat));
    tell(lng, lat, byKeys);
  };
  map.on("mousemove", (event) => {
    cross.hidden = true;
    if (!pinned) read(event.lngLat);
  });
  map.on("click", (event) => {
    pinned = cells.at(event.lngLat.lng, event.lngLat.lat) >= 0;
    read(event.lngLat);
  });
  const centre = () => {
    pinned = false;
    cross.hidden = false;
    read(map.getCenter(), true);
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pinned = false;
    if (/^Arrow|^[+=\-_]$|^Enter$| /.test(event.key)) {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        centre();
        return;
      }
      clearTimeout(timer);
      map.once("moveend", centre);
      cross.hidden = false;
    }
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) centre();
  });
  canvas.addEventListener("blur", () => {
    cross.hidden = true;
  });
  return {
    announce: (text) => {
      clearTimeout(timer);
      timer = setTimeout(() => announce(text), 300);
    },
  };
}
