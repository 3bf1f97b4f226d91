// The ground of the region picker: this collector is asked for what is seen, and for some of what lies around it.
import { get } from "./api.js";
import { groundOf } from "./ground.js";
import { unpackAll } from "./packed.js";

const AROUND = 0.5; // of the view, beyond each of its sides
const COARSEST = 4; // times as wide as the view: then finer ground is fetched
const REST = 150; // milliseconds for which the view must rest
const WORLD = [-180, -85, 180, 85];

/** The box of degrees to fetch for a view of `seen`; null where `held` is as good. */
export function boxToFetch(seen, held) {
  const [west, south, east, north] = seen,
    [wide, high] = [east - west, north - south];
  if (!(wide > 0 && high > 0)) return null;
  const covers = held && held[0] <= west && held[1] <= south && held[2] >= east && held[3] >= north;
  if (covers && held[2] - held[0] <= COARSEST * wide) return null;
  const box = [west - AROUND * wide, south - AROUND * high, east + AROUND * wide, north + AROUND * high];
  return box.map((value, at) => (at < 2 ? Math.max(value, WORLD[at]) : Math.min(value, WORLD[at])));
}

/**
 * Makes the ground of a view in web mercator, `toPlane(lon, lat)` its places: `look(seen)` fetches what a view needs,
 * then `renewed()` is called; `under`, `over` and `names` draw what is there.
 */
export function regionGround(toPlane, renewed, signal) {
  let held = null,
    wanted = null,
    drawn = groundOf(null),
    corner = [0, 0],
    timer = null;

  async function fetchGround() {
    const box = wanted;
    try {
      const record = await get(`/ground?box=${box.map((value) => value.toFixed(7)).join()}`, signal);
      const found = groundOf(await unpackAll(record));
      if (box !== wanted) return;
      [held, drawn, corner] = [box, found, toPlane(box[0], box[3])];
      renewed(drawn.attribution);
    } catch (error) {
      // What was drawn stays; a view that leaves the box asks again.
      if (error.name !== "AbortError") renewed("The coast and names could not be fetched.");
    }
  }
  function look(seen) {
    const box = boxToFetch(seen, wanted ?? held);
    if (!box) return;
    wanted = box;
    clearTimeout(timer);
    timer = setTimeout(fetchGround, REST);
  }
  signal?.addEventListener("abort", () => clearTimeout(timer));
  /** Draws in the ground's own plane, whose corner is near: the world's metres are too many for the canvas's numbers. */
  function inPlane(pen, view, draw) {
    const [x, y] = view.toScreen(...corner),
      size = view.scale * view.dense;
    pen.save();
    pen.setTransform(size, 0, 0, size, x * view.dense, y * view.dense);
    draw();
    pen.restore();
  }
  return {
    look,
    paint: (pen, view) =>
      inPlane(pen, view, () => {
        drawn.under(pen);
        drawn.over(pen, view);
      }),
    names(pen, view) {
      const toScreen = (x, y) => view.toScreen(x + corner[0], y + corner[1]);
      drawn.names(pen, { ...view, toScreen });
    },
  };
}
