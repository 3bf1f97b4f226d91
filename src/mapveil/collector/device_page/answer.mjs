// From a place to a report: the only code that is given the place, which it forgets.

import { contributionOf } from "./contribution.mjs";
import { writeReport } from "./local_report.mjs";
import { hourOf, operatorsReport } from "./operators_report.mjs";
import { Randomness } from "./randomness.mjs";
import { insist } from "./refusal.mjs";
import { featureReport } from "./random_features.mjs";

function insistPlace({ lon, lat }) {
  const good = Number.isFinite(lon) && Number.isFinite(lat) && Math.abs(lon) <= 180 && Math.abs(lat) <= 90;
  insist(good, "That is not a location: latitude must be -90 to 90 and longitude -180 to 180.");
}

/** The report of a place, null where the place is outside and the collection asks for silence there. To two operators a
 * device outside reports no site, so that nobody learns by its silence that it is there; to them a list of places may be
 * reported, and in a series must be: each with its time and its category, as far as the windows need them.
 *
 * `plan` is what planOf returned, `kept` the frequency and offset that this device keeps, `window` the window of a
 * series that it drew.
 */
export async function answerOf(terms, plan, kept, found, rng = new Randomness(), window = null) {
  const randomizer = await plan.ready();
  if (plan.kind === "operators") {
    insist(plan.windows === null || Array.isArray(found), "This collection asks for a record of places with their times.");
    const places = Array.isArray(found) ? found : [found];
    places.forEach(insistPlace);
    return operatorsReport(plan.question, contributionOf(plan, places), hourOf(Date.now()), rng);
  }
  insistPlace(found);
  const { lon, lat } = found;
  if (plan.kind === "random-features") return featureReport(plan.query, terms.query, kept, plan.jitter, lon, lat);
  let cell = plan.tiling.locate(lon, lat);
  if (cell < 0 && plan.outside !== "nearest") return null;
  if (cell < 0) cell = plan.tiling.nearest(lon, lat);
  return writeReport(await randomizer.draw(cell, rng), randomizer, plan.domain, window);
}
