/** Times in words; the exact time goes into a tooltip. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** @param {Date} date */
const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

/** @type {Map<string, Intl.DateTimeFormat>} Creating one takes as long as rendering a message. */
const formats = new Map();

/** @param {Date} date @param {Intl.DateTimeFormatOptions} options */
function format(date, options) {
  const key = JSON.stringify(options);
  let found = formats.get(key);
  if (!found) formats.set(key, (found = new Intl.DateTimeFormat(undefined, options)));
  return found.format(date);
}

/** How long ago, as short as possible. @param {string} time @param {number} [now] */
export function ago(time, now = Date.now()) {
  const date = new Date(time);
  const past = now - date.getTime();
  if (past < MINUTE) return "now";
  if (past < HOUR) return `${Math.floor(past / MINUTE)} min`;
  if (past < 6 * HOUR) return `${Math.floor(past / HOUR)} h`;
  const days = Math.round((midnight(new Date(now)) - midnight(date)) / DAY);
  if (days === 0) return clock(time);
  if (days < 7) return format(date, { weekday: "short" });
  return format(date, { day: "numeric", month: "short" });
}

/** @param {string} time */
export const clock = (time) =>
  format(new Date(time), { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** On an axis: as much of a time as distinguishes its labels. @param {number} time @param {number} length Of the axis, in milliseconds. */
export const label = (time, length) =>
  format(new Date(time), {
    hour: "2-digit", minute: "2-digit", hourCycle: "h23",
    ...(length < 10 * MINUTE ? { second: "2-digit" } : length > 20 * HOUR ? { weekday: "short" } : {}),
  });

/** The day and the minute, in words if it is near. @param {string} time @param {number} [now] */
export function moment(time, now = Date.now()) {
  const date = new Date(time);
  const days = Math.round((midnight(date) - midnight(new Date(now))) / DAY);
  if (days === 0) return clock(time);
  if (days === 1) return `tomorrow ${clock(time)}`;
  if (days === -1) return `yesterday ${clock(time)}`;
  if (Math.abs(days) < 7) return `${format(date, { weekday: "long" })} ${clock(time)}`;
  return `${format(date, { day: "numeric", month: "short", year: "numeric" })} ${clock(time)}`;
}

/** @param {string} time */
export const exact = (time) => format(new Date(time), { dateStyle: "full", timeStyle: "long" });

/** A length of time in words. @param {number} length In milliseconds. */
export function span(length) {
  const seconds = Math.round(length / 1000);
  if (seconds < 2) return "a second";
  if (seconds < 45) return `${seconds} seconds`;
  for (const [unit, size, one] of /** @type {[string, number, string][]} */ ([
    ["week", 7 * DAY, "a week"],
    ["day", DAY, "a day"],
    ["hour", HOUR, "an hour"],
    ["minute", MINUTE, "a minute"],
  ])) {
    const count = Math.round(length / size);
    if (count > 1) return `${count} ${unit}s`;
    if (count === 1 && length > size * 0.75) return one;
  }
  return "a minute";
}

/** Until a time, as a clock that counts down. @param {string} time @param {number} now */
export function countdown(time, now) {
  const left = Math.max(0, Math.round((new Date(time).getTime() - now) / 1000));
  const parts = [Math.floor(left / 60) % 60, left % 60].map((part) => `${part}`.padStart(2, "0"));
  const hours = Math.floor(left / 3600);
  if (hours >= 48) return span(left * 1000);
  return hours ? `${hours}:${parts.join(":")}` : parts.join(":");
}

/** A server's name, such as a trigger, as words. @param {string | null | undefined} name */
export const plain = (name) => (name ?? "").replaceAll("_", " ");

/** A text in one line without the marks of Markdown. @param {string} text */
export const unmarked = (text) =>
  text.replace(/^\s*(#{1,6}|>|[-*])\s+/gm, "").replace(/\*\*|__|`+|\|/g, "").replace(/\s+/g, " ");
