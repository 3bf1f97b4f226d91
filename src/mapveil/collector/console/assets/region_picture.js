// Where a collection asks: its region on a map without a ground.
import { alertBox, card, el } from "./dom.js";
import { makeMap } from "./map_view.js";

export function regionPicture(region, signal) {
  const frame = el("div", { class: "map small" });
  // The map needs its place on the page first.
  requestAnimationFrame(async () => {
    if (signal.aborted || !frame.isConnected) return;
    try {
      await makeMap(frame, {
        bounds: region,
        signal,
        label: "Where the collection asks; arrow keys move the map",
      });
    } catch (error) {
      frame.replaceChildren(alertBox(error.message));
    }
  });
  return card("Region", frame);
}
