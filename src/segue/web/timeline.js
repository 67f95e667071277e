/** A thread's batches as bars on a timeline: the computation, without drawing. */

/**
 * @typedef {{
 *   id: string, type: string, state: string, reasons: string[], began_at: string,
 *   messages: any[], turns: any[], nested: Batch[],
 * }} Batch
 */
/** @typedef {{from: number, to: number}} Part */
/** @typedef {Part & {name: string, row: number}} Call */
/** @typedef {Part & {batch: Batch, parts: Part[], parent: Bar | null, calls: Call[]}} Bar */

/** The lanes from the top, and what they are called. */
export const LANES = /** @type {const} */ ([
  ["user_request", "user"],
  ["system_trigger", "first"],
  ["continuation", "going on"],
  ["agent_to_agent", "agents"],
]);

const RUNNING = new Set(["queued", "running"]);

/** A position holds its time: the upper 42 of 64 bits count milliseconds. @param {string} position */
const ticks = (position) => Number(BigInt(position) >> 22n);

/** @param {Batch} batch @param {number} now @param {Bar | null} parent @returns {Bar} */
export function barOf(batch, now, parent) {
  const from = new Date(batch.began_at).getTime();
  const start = ticks(batch.id);
  const times = batch.messages.map((message) =>
    message.metadata?.position ? from + ticks(message.metadata.position) - start : from,
  );
  const isRunning = batch.turns.some((turn) => RUNNING.has(turn.state));
  const to = isRunning ? now : Math.max(from, ...times);
  return { batch, from, to, parent, parts: partsOf(batch, times, to), calls: callsOf(batch, times, to) };
}

/** The turns of a batch: one that is continued later has several, with silence between them. */
/** @param {Batch} batch @param {number[]} times @param {number} end */
function partsOf(batch, times, end) {
  const begun = batch.turns.map((turn) => new Date(turn.begun_at ?? turn.queued_at).getTime()).sort((a, b) => a - b);
  return [Math.min(times[0] ?? end, begun[0] ?? end), ...begun.slice(1)].map((from, index) => {
    const next = begun[index + 1];
    return { from, to: next ? Math.max(from, ...times.filter((time) => time < next)) : Math.max(from, end) };
  });
}

/** @param {Batch} batch @param {number[]} times @param {number} end */
function callsOf(batch, times, end) {
  const calls = /** @type {{id: string, name: string, from: number, to: number, row: number}[]} */ ([]);
  batch.messages.forEach((message, index) => {
    message.tool_calls.forEach((/** @type {any} */ call, /** @type {number} */ row) =>
      calls.push({ id: call.id, name: call.name, from: times[index], to: end, row }));
    const answered = calls.find((call) => call.id && call.id === message.tool_call_id);
    if (answered) answered.to = times[index];
  });
  return calls;
}

/** All bars, those of nested batches too. */
/** @param {Batch[]} batches @param {number} now @param {Bar | null} [parent] @returns {Bar[]} */
export const barsOf = (batches, now, parent = null) =>
  batches.flatMap((batch) => {
    const bar = barOf(batch, now, parent);
    return [bar, ...barsOf(batch.nested ?? [], now, bar)];
  });

/**
 * The first view: the newest batches, up to the next planned follow-up.
 * @param {Bar[]} bars @param {string | null} due @param {number} now
 */
export function firstView(bars, due, now) {
  const newest = bars.map((bar) => bar.from).sort((a, b) => b - a).slice(0, 4);
  const from = newest.at(-1) ?? now - 60_000;
  const next = due ? new Date(due).getTime() : 0;
  const last = Math.max(...bars.map((bar) => bar.to), from + 1000);
  const to = Math.max(last, next && next - now < 4 * (now - from) ? next : 0);
  const margin = (to - from) * 0.06;
  return { from: from - margin, to: to + margin };
}
