// A device's contribution to sums by two operators: its units at the sites of its places
// (mapveil_client/contribution.py, and SiteEncoding of mapveil_client/encodings.py).

import { insist } from "./refusal.mjs";

/** Levels below a site that hold so many windows, four to a level: a window continues the Morton code of its site. */
export const levelsOf = (windows) => (33 - Math.clz32(windows - 1)) >> 1;

/** The site of a place, in a series that of the place and its window; -1 for nowhere. */
function siteOf({ tiling, windows }, { lon, lat, at, category }) {
  const cell = tiling.locate(lon, lat);
  if (windows === null) return cell < 0 ? -1 : tiling.siteOf(cell);
  insist(!windows.readsTime || Number.isFinite(at), "This collection asks when you were at each place, and the record does not say.");
  insist(
    windows.category === null || typeof category === "string" || category === null,
    `This collection asks for the "${windows.category}" of each place, and the record does not say.`,
  );
  const window = windows.at(at ?? 0, category);
  return cell < 0 || window < 0 ? -1 : tiling.siteOf(cell) * 4 ** levelsOf(windows.count) + window;
}

/** Different sites with their units, in the sites' order: `scale` units divided over the places by largest remainders.
 *
 * `plan` has the `tiling`, the `windows` of a series or null, and the `question` with its `scale`. Every place of the
 * record counts alike; without any on the map, in one of the windows, the list is empty.
 */
export function contributionOf(plan, places) {
  const counts = new Map();
  for (const site of places.map((place) => siteOf(plan, place))) {
    if (site >= 0) counts.set(site, (counts.get(site) ?? 0) + 1);
  }
  const [scale, total] = [BigInt(plan.question.scale), BigInt([...counts.values()].reduce((sum, each) => sum + each, 0))];
  const shares = [...counts].sort(([one], [other]) => one - other).map(([site, count]) => {
    const whole = BigInt(count) * scale;
    return { site, units: Number(whole / total), rest: Number(whole % total) };
  });
  const left = plan.question.scale - shares.reduce((sum, { units }) => sum + units, 0);
  const largest = [...shares].sort((one, other) => other.rest - one.rest).slice(0, left); // stable: of equal ones the first
  for (const share of largest) share.units += 1;
  return shares.filter(({ units }) => units > 0).map(({ site, units }) => [site, units]);
}
