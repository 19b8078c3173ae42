//! Times in words: ages, durations, and absolute times with their zone.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Made once: each takes longer to make than to use. */
const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
/** Names of the browser's zone by its offset, which says whether it is summer: to ask for one takes longer than all else of a time. */
const zones = new Map<number, string>();

function zoneAt(date: Date): string {
  const offset = date.getTimezoneOffset();
  let zone = zones.get(offset);
  if (zone === undefined) {
    zone = ZONE.formatToParts(date).find((part) => part.type === "timeZoneName")?.value ?? "";
    zones.set(offset, zone);
  }
  return zone;
}

/** A span in one unit, for example `41 s`, `3 min`, `12 d`. */
export function span(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** A time relative to another: `3 min ago`, `in 12 h`, `now`. */
export function relative(at: number, now: number): string {
  const distance = now - at;
  if (Math.abs(distance) < SECOND) return "now";
  return distance > 0 ? `${span(distance)} ago` : `in ${span(-distance)}`;
}

/** An exact duration, for example `8 ms`, `0.4 s`, `41 s`, `1 min 52 s`, `2 h 5 min`. */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return two(ms, MINUTE, "min", SECOND, "s");
  if (ms < DAY) return two(ms, HOUR, "h", MINUTE, "min");
  return two(ms, DAY, "d", HOUR, "h");
}

function two(ms: number, big: number, bigName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % big) / small);
  return `${Math.floor(ms / big)} ${bigName}${rest > 0 ? ` ${rest} ${smallName}` : ""}`;
}

/** A time by the browser's zone, with seconds and the zone, for example `2026-07-01 14:11:08 GMT+2`. */
export function absolute(at: number): string {
  const date = new Date(at);
  return `${day(date)} ${clockTime(at)} ${zoneAt(date)}`.trim();
}

/** `14:11:08`. */
export function clockTime(at: number): string {
  const date = new Date(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(padded).join(":");
}

/** `today 14:02`, or the day and the time. */
export function dayAndTime(at: number, now: number): string {
  const [date, today] = [new Date(at), new Date(now)];
  const time = `${padded(date.getHours())}:${padded(date.getMinutes())}`;
  return day(date) === day(today) ? `today ${time}` : `${day(date)} ${time}`;
}

function day(date: Date): string {
  return `${date.getFullYear()}-${padded(date.getMonth() + 1)}-${padded(date.getDate())}`;
}

function padded(number: number): string {
  return String(number).padStart(2, "0");
}
