/** Outcomes of follow-ups: sums, a summary in one sentence, and rows for a spreadsheet. */

import { plain } from "./words.js";

/** @typedef {{cases: number, value: number, low: number, high: number}} Rate */
/** @typedef {{value: number, low: number, high: number}} Difference */
/**
 * Outcomes of the follow-ups of one trigger and variant of an agent.
 * @typedef {{
 *   agent: string, trigger: string | null, variant: string | null,
 *   total: number, replied: number, ignored: number, pending: number, stopped: number,
 *   suppressed: number, withheld: number, held_out: number, failed: number,
 *   suppressed_by: Record<string, number>,
 *   reply_rate: Rate | null, median_latency_seconds: number | null,
 * }} Row
 */
/**
 * One variant against no follow-up at all.
 * @typedef {{
 *   agent: string, trigger: string | null, variant: string | null,
 *   wrote: Rate, difference: Difference | null,
 * }} Arm
 */

export const COUNTS = /** @type {const} */ ([
  "replied", "ignored", "pending", "stopped", "suppressed", "withheld", "held_out", "failed",
]);

/** @param {number} share */
export const percent = (share) => `${Math.round(share * 100)} %`;
/** @param {string | null} trigger */
export const nameOf = (trigger) => plain(trigger ?? "other");

/** The interval of a share, by Wilson's score; 95 %. @param {number} hits @param {number} cases @returns {Rate | null} */
export function rate(hits, cases) {
  if (!cases) return null;
  const z = 1.96;
  const share = hits / cases;
  const center = (share + (z * z) / (2 * cases)) / (1 + (z * z) / cases);
  const half = (z / (1 + (z * z) / cases)) * Math.sqrt((share * (1 - share)) / cases + (z * z) / (4 * cases * cases));
  return { cases, value: share, low: Math.max(0, center - half), high: Math.min(1, center + half) };
}

/** @param {Row[]} rows @param {(typeof COUNTS)[number] | "total"} name */
export const sum = (rows, name) => rows.reduce((all, row) => all + row[name], 0);

/** The rate of several rows together, of follow-ups whose window is over. @param {Row[]} rows */
export function pooled(rows) {
  const known = rows.flatMap((row) => row.reply_rate ?? []);
  const cases = known.reduce((all, each) => all + each.cases, 0);
  const hits = known.reduce((all, each) => all + each.value * each.cases, 0);
  return rate(Math.round(hits), cases);
}

/** The one thing to know. @param {Row[]} rows @param {Arm[]} arms */
export function sentence(rows, arms) {
  const compared = helping(arms) ?? better(rows);
  if (compared) return compared;
  const all = pooled(rows);
  if (all) return `${percent(all.value)} of ${all.cases} follow-ups were answered (95 % interval: ${percent(all.low)} to ${percent(all.high)}).`;
  const were = (/** @type {number} */ count) => (count === 1 ? "1 follow-up was" : `${count} follow-ups were`);
  const sent = sum(rows, "replied") + sum(rows, "ignored") + sum(rows, "pending");
  if (sent) return `${were(sent)} sent; the reply rate is known once ${sent === 1 ? "its window is" : "their windows are"} over.`;
  const planned = sum(rows, "total");
  return planned ? `${were(planned)} planned, and none was sent.` : "No follow-up was sent yet.";
}

/** The best variant with a significant difference to the hold-out. @param {Arm[]} arms */
function helping(arms) {
  const sure = arms.filter((arm) => arm.difference && arm.difference.low > 0);
  const best = sure.sort((a, b) => b.wrote.value - a.wrote.value)[0];
  if (!best?.difference) return null;
  const [more, low, high] = [best.difference.value, best.difference.low, best.difference.high].map((share) => Math.round(share * 100));
  return `“${best.variant}” (${nameOf(best.trigger)}) helps: users wrote after ${percent(best.wrote.value)} of the moments, `
    + `${more} points more than without a follow-up (95 % interval: ${low} to ${high}).`;
}

/** A variant that is significantly more often answered than another of its trigger. @param {Row[]} rows */
function better(rows) {
  for (const { agent, trigger, variant, reply_rate: own } of rows) {
    const worse = rows.find((row) =>
      row.agent === agent && row.trigger === trigger && own && row.reply_rate && own.low > row.reply_rate.high);
    if (own && worse?.reply_rate) {
      return `“${variant}” (${nameOf(trigger)}) is answered more often than “${worse.variant}”: `
        + `${percent(own.value)} against ${percent(worse.reply_rate.value)}.`;
    }
  }
  return null;
}

/** Why there is nothing to draw. @param {Row[]} rows */
export const unknown = (rows) =>
  COUNTS.map((name) => [name, sum(rows, name)]).filter(([, count]) => count)
    .map(([name, count]) => `${count} ${name === "pending" ? "still open" : plain(`${name}`)}`).join(", ") || "none sent";

/** @param {Row[]} rows */
export function csv(rows) {
  const heads = ["agent", "trigger", "variant", "total", ...COUNTS, "reply_rate", "low", "high", "median_latency_seconds"];
  const lines = rows.map((row) => [row.agent, row.trigger, row.variant, row.total, ...COUNTS.map((name) => row[name]),
    row.reply_rate?.value, row.reply_rate?.low, row.reply_rate?.high, row.median_latency_seconds]);
  // A cell that begins like a formula would be run by a spreadsheet.
  const cell = (/** @type {unknown} */ value) => `"${`${value ?? ""}`.replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`;
  return [heads, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** The last periods of a length, oldest first. @param {number} days @param {number} now @param {number} [count] */
export const periods = (days, now, count = 8) =>
  Array.from({ length: count }, (_, index) => ({
    since: new Date(now - (count - index) * days * 86_400_000),
    until: new Date(now - (count - index - 1) * days * 86_400_000),
  }));
