// The windows of a series: one map, or a map for each period, or for each recurring time.
import { el } from "./dom.js";
import { field } from "./fields.js";

const KINDS = {
  none: "One map of all the time",
  "1d": "A map for every day",
  "1w": "A map for every week",
  "1mo": "A map for every month",
  weekday: "A map for each day of the week",
  hour: "A map for each hour of the day",
  "hour-of-week": "A map for each hour of the week",
};
const HINT =
  "Randomized reports: each device draws one window by itself, whatever its data, and reports about that one only, with " +
  "the whole epsilon. A device that is in no place then sends nothing. Allow time to report until the last window is over. " +
  "Secure sums and two operators: each device counts 1 over all its places in all windows, which must be over by now.";
const METHODS = { local: "olh-h", distributed: "multiscale", operators: "multiscale" };

/** Kind, dates and time zone; `value` is the specification's `windows`, or nothing. */
export function windowsPicker() {
  const kind = el(
    "select",
    { id: "windows" },
    Object.entries(KINDS).map(([value, name]) => el("option", { value }, name)),
  );
  const from = el("input", { id: "windows-from", type: "date" }),
    until = el("input", { id: "windows-until", type: "date" });
  const zone = el("input", { id: "windows-zone", type: "text", maxlength: 60, placeholder: "Europe/Paris" });
  const dates = el("div", { class: "two" }, field("From", from), field("Until, not included", until));
  const zoneField = field("Time zone, UTC by default", zone);
  const element = el("fieldset", {}, el("legend", {}, "Windows"), field("Maps", kind, HINT), dates, zoneField);
  const isPeriod = () => /^\d/.test(kind.value);
  return {
    element,
    /** Only these methods make a series. */
    renew(trust, method) {
      element.hidden = METHODS[trust] !== method;
      dates.hidden = !isPeriod();
      zoneField.hidden = kind.value === "none";
      from.required = until.required = !element.hidden && isPeriod();
    },
    value() {
      if (element.hidden || kind.value === "none") return {};
      const own = zone.value.trim() ? { zone: zone.value.trim() } : {};
      const given = isPeriod() ? { every: kind.value, start: from.value, until: until.value } : { by: kind.value };
      return { windows: { ...given, ...own } };
    },
  };
}
