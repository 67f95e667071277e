/** A simulated week as days and hours, and a policy as a form: no element, no request. */

import { plain } from "./words.js";

/**
 * @typedef {{
 *   at: string, kind: string, who: string, what: string, why: string,
 *   trigger: string | null, gate: string | null, until: string | null,
 * }} Entry
 */
/** @typedef {{start: string, end: string} | "none"} Hours */
/** @typedef {{policy: any, quiet_hours: Hours, entries: Entry[], totals: any}} Run */
/** @typedef {{title: string, start: string, end: string, time_zone: string, runs: Run[], difference: string[]}} Simulation */

/** The fields of a policy that the page edits: path and label. */
export const FIELDS = /** @type {const} */ ([
  ["delays.question_unanswered", "After a question"],
  ["delays.waiting_for_decision", "After an open decision"],
  ["delays.task_incomplete", "After unfinished work"],
  ["delays.check_in", "After anything else"],
  ["policy.backoff", "If ignored, wait ×"],
  ["policy.max_consecutive", "In a row, at most"],
  ["policy.max_per_day", "A day, at most"],
  ["policy.cooldown", "Between two, at least"],
  ["policy.quiet_hours", "Quiet hours"],
]);

/** @param {Hours} hours */
export const sayHours = (hours) => (hours === "none" ? "none" : `${hours.start} to ${hours.end}`);

/** A policy as texts by place. @param {any} policy @returns {Record<string, string>} */
export const toForm = (policy) =>
  Object.fromEntries(FIELDS.map(([place]) => {
    const [part, name] = place.split(".");
    const value = policy[part][name];
    return [place, name === "quiet_hours" ? sayHours(value) : `${value}`];
  }));

/** The changes of a form to the policy; the server checks them. @param {Record<string, string>} form @param {any} policy */
export function toChanges(form, policy) {
  const known = toForm(policy);
  /** @type {Record<string, Record<string, unknown>>} */ const changes = {};
  for (const [place] of FIELDS) {
    const text = form[place].trim();
    if (text === known[place]) continue;
    const [part, name] = place.split(".");
    (changes[part] ??= {})[name] = name === "quiet_hours" ? readHours(text) : text;
  }
  return changes;
}

/** @param {string} text */
function readHours(text) {
  const found = /^(\d{1,2}:\d{2}) *(?:to|-|–) *(\d{1,2}:\d{2})$/.exec(text);
  return found ? { start: found[1].padStart(5, "0"), end: found[2].padStart(5, "0") } : text;
}

/** The fields that an error of the server names, and whose. @param {string} problem */
export const placesOf = (problem) =>
  [...problem.matchAll(/policy ([AB])\.((?:policy|delays)\.\w+)/g)].map(([, policy, place]) => ({ policy, place }));

// Times are written on the user's clock: their first letters are its date and its hour.
/** @param {string} time */
export const dayOf = (time) => time.slice(0, 10);
/** @param {string} time */
export const hourOf = (time) => +time.slice(11, 13) + +time.slice(14, 16) / 60;
/** @param {string} time */
export const clockOf = (time) => time.slice(11, 16);
/** @param {string} day @param {Intl.DateTimeFormatOptions} [options] */
export const sayDay = (day, options = { weekday: "short", day: "numeric" }) =>
  new Intl.DateTimeFormat("en", { ...options, timeZone: "UTC" }).format(new Date(`${day}T00:00Z`));

/** All days from the start to the end. @param {Simulation} simulation */
export function daysOf({ start, end }) {
  const days = [];
  for (let at = Date.parse(`${dayOf(start)}T00:00Z`); at <= Date.parse(`${dayOf(end)}T00:00Z`); at += 86_400_000) {
    days.push(new Date(at).toISOString().slice(0, 10));
  }
  // A story ends at the hour at which it began; a last day of no time is not drawn.
  if (days.length > 1 && hourOf(end) === 0) days.pop();
  return days;
}

/**
 * Entries of one kind that would be drawn over each other, together.
 * @param {Entry[]} entries @param {number} width Of a mark, in hours.
 */
export function spots(entries, width) {
  /** @type {Entry[][]} */ const found = [];
  for (const entry of entries) {
    const spot = found.find(([{ kind, at }]) =>
      kind === entry.kind && dayOf(at) === dayOf(entry.at) && Math.abs(hourOf(entry.at) - hourOf(at)) < width);
    if (spot) spot.push(entry);
    else found.push([entry]);
  }
  return found;
}

/** The quiet parts of a day, in hours. @param {Hours} hours @returns {[number, number][]} */
export function quietParts(hours) {
  if (hours === "none") return [];
  const [from, until] = [hours.start, hours.end].map((text) => +text.slice(0, 2) + +text.slice(3, 5) / 60);
  return from < until ? [[from, until]] : [[0, until], [from, 24]];
}

const CAUSES = /** @type {Record<string, string>} */ ({
  quiet_hours: "quiet hours",
  daily_cap: "the daily cap",
  consecutive_cap: "the cap in a row",
  cooldown: "the cooldown",
  cancelled: "the user wrote first",
  held_out: "held out for comparison",
  enabled: "follow-ups are off",
  decider: "nothing plans follow-ups",
});

/** One sentence about what happened. @param {Entry} entry */
export function sayEntry(entry) {
  const when = `${sayDay(dayOf(entry.at), { weekday: "short" })} ${clockOf(entry.at)}`;
  const until = entry.until ? ` until ${sayDay(dayOf(entry.until), { weekday: "short" })} ${clockOf(entry.until)}` : "";
  const cause = entry.gate ? ` (${CAUSES[entry.gate] ?? plain(entry.gate)})` : "";
  const why = entry.why ? ` ${entry.why}` : "";
  switch (entry.kind) {
    // In a replay it is known that a follow-up would be sent, but not its text.
    case "follow_up": return `${when}, ${plain(entry.trigger)}${entry.what ? `: “${entry.what}”` : " would be sent."}${why}`;
    case "postponed": return `${when}, ${plain(entry.trigger)} is postponed${until}${cause}.${why}`;
    case "not_sent": return `${when}, ${plain(entry.trigger) || "a follow-up"} is not sent${cause}.${why}`;
    case "pending": return `${when}, ${plain(entry.trigger)} is still planned.${why}`;
    case "not_planned": return `${when}, nothing is planned.${why}`;
    default: return `${when}, ${entry.who}: ${entry.what}`;
  }
}
