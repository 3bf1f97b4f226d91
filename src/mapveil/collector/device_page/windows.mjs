// The windows of a series: which one a moment lies in, by a clock's reading (mapveil_client/public_windows.py).

import { uniformsBelow } from "./randomness.mjs";
import { insist } from "./refusal.mjs";

const BROKEN = "The collector's terms name no windows that this page knows; it takes no part.";
const KEYS = ["by", "every", "start", "until", "values", "zone"];
const DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const HOURS = Array.from({ length: 24 }, (_, hour) => `${String(hour).padStart(2, "0")}:00`);
const MOST = 2 ** 14;
const HOUR = 3600000;
const LENGTHS = { h: HOUR, d: 24 * HOUR, w: 7 * 24 * HOUR };
const PROFILES = {
  hour: HOURS,
  weekday: DAYS,
  weekend: ["working day", "weekend"],
  "hour-of-week": DAYS.flatMap((day) => HOURS.map((hour) => `${day} ${hour}`)),
};

const monday = (at) => (new Date(at).getUTCDay() + 6) % 7;
const monthAfter = (at, months) => Date.UTC(new Date(at).getUTCFullYear(), new Date(at).getUTCMonth() + months, 1);

/**
 * Windows of the terms' record; a Refusal for a record that is none. Edges are readings of the clock, kept as if they were
 * UTC; those of hours are moments.
 */
export class Windows {
  constructor(record) {
    insist(typeof record === "object" && record !== null && Object.keys(record).sort().join() === KEYS.join(), BROKEN);
    const { by, every, start, until, values, zone } = record;
    const texts = [by, every, start, until, zone].every((each) => each === null || typeof each === "string");
    insist(texts && Array.isArray(values) && values.every((each) => typeof each === "string"), BROKEN);
    insist((every !== null) === (start !== null) && (every !== null) === (until !== null), BROKEN);
    insist(every !== null || by !== null, BROKEN);
    insist(new Set(values).size === values.length, BROKEN);
    const profile = by !== null && Object.hasOwn(PROFILES, by);
    insist(by === null || profile ? values.length === 0 : values.length > 0, BROKEN);
    this.groups = profile ? PROFILES[by] : values;
    this.profile = profile ? by : null;
    this.category = by !== null && !profile ? by : null;
    this.zone = zone ?? "UTC";
    try {
      this.clock = new Intl.DateTimeFormat("en-GB", {
        timeZone: this.zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric",
        minute: "numeric", second: "numeric",
      });
    } catch {
      insist(false, BROKEN);
    }
    const readings = every === null ? [] : edgesOf(every, start, until);
    this.hours = every !== null && every.endsWith("h");
    this.edges = this.hours ? this.moments(readings, HOUR * Number.parseInt(every, 10)) : readings;
    insist(every === null || this.edges.length > 1, BROKEN);
    this.names = (every === null ? [""] : this.hours ? this.hourNames() : namesOf(every, this.edges))
      .flatMap((period) => (this.groups.length ? this.groups : [""]).map((group) => `${period} ${group}`.trim()));
    this.count = this.names.length;
    insist(this.count > 1 && this.count <= MOST, BROKEN);
  }

  /** Whether a moment decides the window; else a category alone does. */
  get readsTime() {
    return this.edges.length > 0 || this.profile !== null;
  }

  /** The clock's reading of a moment, both in milliseconds. */
  reading(at) {
    const found = Object.fromEntries(this.clock.formatToParts(new Date(at)).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(found.year, found.month - 1, found.day, found.hour, found.minute, found.second);
  }

  /** The moments of readings, in order: a reading that comes again after a whole period is two of them. */
  moments(readings, period) {
    const offset = (at) => this.reading(at) - at;
    const each = readings.map((reading) => {
      const [before, after] = [offset(reading - LENGTHS.d), offset(reading + LENGTHS.d)];
      if (before === after) return [reading - before];
      const found = [reading - before, reading - after].filter((at) => this.reading(at) === reading);
      // A reading that the clock skips is read by the offset before.
      if (!found.length) return [reading - before];
      return found.length > 1 && found[1] - found[0] >= period ? found : [found[0]];
    });
    const [first, last] = [each[0][0], each.at(-1)[0]];
    return [...new Set(each.flat())].filter((at) => first <= at && at <= last).sort((one, other) => one - other);
  }

  /** The readings at which periods of hours begin, with the offset where the clock reads so twice. */
  hourNames() {
    const starts = this.edges.slice(0, -1).map((at) => [at, this.reading(at)]);
    const times = new Map();
    for (const [, reading] of starts) times.set(reading, (times.get(reading) ?? 0) + 1);
    return starts.map(([at, reading]) => {
      const ahead = reading - at;
      const offset = (ahead < 0 ? "-" : "+") + new Date(Math.abs(ahead)).toISOString().slice(11, 16);
      return new Date(reading).toISOString().slice(0, 16) + (times.get(reading) > 1 ? offset : "");
    });
  }

  /** Number of the window of a moment, milliseconds since 1970, -1 for none; `category` is its owner's. */
  at(moment, category = null) {
    const reading = this.reading(moment);
    let period = 0;
    if (this.edges.length) {
      const at = this.hours ? moment : reading;
      if (at < this.edges[0] || at >= this.edges.at(-1)) return -1;
      period = this.edges.findLastIndex((edge) => edge <= at);
    }
    let group = 0;
    if (this.category !== null) group = this.groups.indexOf(category);
    else if (this.profile !== null) group = groupOf(this.profile, reading);
    return group < 0 ? -1 : period * Math.max(this.groups.length, 1) + group;
  }

  /** Whether the period of a window is over. */
  over(window, moment) {
    if (!this.edges.length) return false;
    return (this.hours ? moment : this.reading(moment)) >= this.edges[Math.floor(window / Math.max(this.groups.length, 1)) + 1];
  }

  /** Draw the one window that a device answers for, every one equally likely. */
  draw(rng) {
    return uniformsBelow(1, this.count, rng)[0];
  }
}

function groupOf(profile, reading) {
  const [day, hour] = [monday(reading), new Date(reading).getUTCHours()];
  return { hour, weekday: day, weekend: Number(day > 4), "hour-of-week": 24 * day + hour }[profile];
}

function readingOf(text) {
  const found = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2})(?::00(?::00)?)?)?$/.exec(text);
  insist(found !== null, BROKEN);
  const made = Date.parse(`${found[1]}T${found[2] ?? "00"}:00:00Z`);
  insist(Number.isFinite(made), BROKEN);
  return made;
}

/** The clock's reading at every edge of the periods, of a clock that never changes. */
function edgesOf(every, start, until) {
  const step = /^([1-9]\d{0,3})(h|d|w|mo)$/.exec(every);
  insist(step !== null, BROKEN);
  const [number, unit] = [Number(step[1]), step[2]];
  const [first, last] = [readingOf(start), readingOf(until)];
  insist(unit !== "mo" || first === monthAfter(first, 0), BROKEN);
  insist(unit === "h" || (first % LENGTHS.d === 0 && last % LENGTHS.d === 0), BROKEN);
  const edges = [first];
  while (edges.at(-1) < last && edges.length <= 2 * MOST) {
    const passed = edges.length * number;
    edges.push(unit === "mo" ? monthAfter(first, passed) : first + passed * LENGTHS[unit]);
  }
  insist(edges.length > 1 && edges.at(-1) === last, BROKEN);
  return edges;
}

/** The year and the number of a week by ISO 8601: those of its Thursday. */
function weekOf(edge) {
  const thursday = edge + 3 * LENGTHS.d;
  const year = new Date(thursday).getUTCFullYear();
  return `${year}-W${String(1 + Math.floor((thursday - Date.UTC(year, 0, 1)) / LENGTHS.w)).padStart(2, "0")}`;
}

function namesOf(every, edges) {
  const periods = edges.slice(0, -1);
  const iso = (edge, length) => new Date(edge).toISOString().slice(0, length);
  if (every === "1mo") return periods.map((edge) => iso(edge, 7));
  if (every === "1w" && monday(edges[0]) === 0) return periods.map(weekOf);
  return periods.map((edge) => iso(edge, 10));
}
