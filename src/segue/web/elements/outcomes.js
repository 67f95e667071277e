/** The page of outcomes, for operators: the sentence, small multiples with intervals, the numbers. */

import { COUNTS, csv, nameOf, percent, periods, pooled, sentence, unknown } from "../outcomes.js";
import { save } from "../media.js";
import { controls, sheet } from "../styles.js";
import { css, html, nothing, svg } from "../vendor/lit.js";
import { plain, span } from "../words.js";
import { SegueView, define } from "./element.js";

/** @import { Row, Arm } from "../outcomes.js" */

const WIDTH = 240;
const HEIGHT = 110;

export class SegueOutcomes extends SegueView {
  static properties = {
    ...SegueView.properties,
    days: { state: true },
    hours: { state: true },
    rows: { state: true },
    arms: { state: true },
    past: { state: true },
  };

  static styles = [
    controls,
    sheet,
    css`
      .page { max-width: 1120px; container-type: inline-size; }
      header { display: flex; gap: 8px 16px; align-items: center; flex-wrap: wrap; margin-bottom: 24px; }
      header label { font-size: 13px; display: flex; gap: 8px; align-items: center; color: var(--dim); }
      h1 { flex: 1; margin: 0; }
      .sentence { font-size: 24px; line-height: 34px; max-width: 34ch; margin: 0 0 32px; text-wrap: balance; }
      .multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 24px; }
      figure { margin: 0; } figcaption { font-weight: 600; font-size: 13px; margin-bottom: 4px; } figure p { margin: 0; font-size: 13px; }
      svg { width: 100%; max-width: 256px; height: auto; overflow: visible; }
      text { fill: var(--dim); font-size: 11px; } text.value { fill: var(--text); font-size: 13px; font-weight: 600; paint-order: stroke; stroke: var(--ground); stroke-width: 5px; }
      .axis { stroke: var(--line); } .interval { stroke: var(--accent); stroke-width: 2; opacity: .45; } .dot { fill: var(--accent); }
      .path { fill: none; stroke: var(--accent); stroke-width: 1.5; }
      .scroll { overflow-x: auto; margin-top: 40px; }
      table { border-collapse: collapse; font-size: 13px; width: 100%; }
      th, td { text-align: left; padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
      td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
      td:last-child { white-space: normal; min-width: 12ch; }
      @container (max-width: 820px) {
        thead { display: none; } table, tbody, tr, td { display: block; }
        tr { border: 1px solid var(--line); border-radius: 10px; padding: 8px 12px; margin-bottom: 12px; }
        td, td.number { display: flex; justify-content: space-between; gap: 16px; text-align: right; border: 0; padding: 2px 0; white-space: normal; }
        td::before { content: attr(data-name); color: var(--dim); text-align: left; }
        .sentence { font-size: 18px; line-height: 28px; }
      }
    `,
  ];

  constructor() {
    super();
    this.days = 7;
    this.hours = 24;
    /** @type {Row[] | null} */ this.rows = null;
    /** @type {Arm[]} */ this.arms = [];
    /** @type {Row[][]} */ this.past = [];
  }

  firstUpdated() {
    this.#load();
  }

  #load = () => this.attempt(async (client) => {
    const window = this.hours * 3600;
    const spans = periods(this.days, Date.now());
    const parts = [{ since: spans[0].since, until: null }, ...spans].map(({ since, until }) =>
      client.getStats({ window, since: since.toISOString(), ...(until && { until: until.toISOString() }) }));
    await this.newest(Promise.all(parts), ([all, ...past]) => {
      this.rows = all.outcomes;
      this.arms = all.arms;
      this.past = past.map((each) => each.outcomes);
    });
  });

  render() {
    const { rows } = this;
    return html`<div class="page">
      <header><h1>Outcomes</h1>
        <label>Per <select @change=${(/** @type {any} */ event) => { this.days = +event.target.value; this.#load(); }}>
          <option value="1">day</option><option value="7" selected>week</option><option value="30">month</option></select></label>
        <label>Answered within <select @change=${(/** @type {any} */ event) => { this.hours = +event.target.value; this.#load(); }}>
          <option value="1">an hour</option><option value="24" selected>a day</option><option value="168">a week</option></select></label>
        ${rows?.length ? html`<button @click=${this.#download}>CSV</button>` : nothing}
      </header>
      ${this.trouble}
      ${rows ? html`<p class="sentence">${sentence(rows, this.arms)}</p>` : nothing}
      ${rows?.length ? html`<div class="multiples">${this.#groups(rows).map((group) => this.#multiple(group))}</div>${this.#table(rows)}`
        : rows ? html`<p class="empty">Talk to an agent, then wait: the outcomes of its follow-ups are counted here, per trigger and variant.</p>` : nothing}
    </div>`;
  }

  /** @param {Row[]} rows */
  #groups(rows) {
    const names = new Map(rows.map((row) => [`${row.agent} ${row.trigger}`, row]));
    return [...names.values()].map(({ agent, trigger }) => ({ agent, trigger }));
  }

  /** @param {{agent: string, trigger: string | null}} group */
  #multiple({ agent, trigger }) {
    const points = this.past.map((rows) => pooled(rows.filter((row) => row.agent === agent && row.trigger === trigger)));
    const x = (/** @type {number} */ index) => 40 + (index / Math.max(1, points.length - 1)) * (WIDTH - 100);
    const y = (/** @type {number} */ share) => 8 + (1 - share) * (HEIGHT - 30);
    const known = points.flatMap((point, index) => (point ? [{ ...point, x: x(index) }] : []));
    const last = known.at(-1);
    return html`<figure><figcaption>${this.session?.nameOf(agent)} · ${nameOf(trigger)}</figcaption>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Answered: ${last ? `${percent(last.value)}, of ${last.cases}` : "nothing known yet"}">
        ${[0, 0.5, 1].map((share) => svg`<line class="axis" x1="40" x2=${WIDTH - 60} y1=${y(share)} y2=${y(share)} /><text x="34" y=${y(share) + 4} text-anchor="end">${percent(share)}</text>`)}
        ${known.map((point) => svg`<line class="interval" x1=${point.x} x2=${point.x} y1=${y(point.low)} y2=${y(point.high)} />`)}
        <path class="path" d=${known.map((point, index) => `${index ? "L" : "M"}${point.x} ${y(point.value)}`).join("") || nothing}></path>
        ${known.map((point) => svg`<circle class="dot" cx=${point.x} cy=${y(point.value)} r="3"><title>${percent(point.value)} of ${point.cases}</title></circle>`)}
        ${last ? svg`<text class="value" x=${last.x + 8} y=${y(last.value) + 4}>${percent(last.value)}</text>` : nothing}
        <text x="40" y=${HEIGHT - 4}>8 ${this.days === 1 ? "days" : this.days === 7 ? "weeks" : "months"} ago</text><text x=${WIDTH - 60} y=${HEIGHT - 4} text-anchor="end">now</text>
      </svg>${last || !points.length ? nothing : html`<p class="dim">${unknown((this.rows ?? []).filter((row) => row.agent === agent && row.trigger === trigger))}</p>`}</figure>`;
  }

  /** @param {Row[]} rows */
  #table(rows) {
    const refused = (/** @type {Row} */ row) => Object.entries(row.suppressed_by).map(([gate, count]) => `${plain(gate)}: ${count}`).join(", ");
    const shown = COUNTS.filter((name) => ["replied", "ignored"].includes(name) || rows.some((row) => row[name]));
    const cells = (/** @type {Row} */ row) => /** @type {[string, unknown, boolean?][]} */ ([
      ["agent", this.session?.nameOf(row.agent)], ["trigger", nameOf(row.trigger)], ["variant", row.variant ?? "–"],
      ...shown.map((name) => [plain(name), row[name], true]),
      ["answered", row.reply_rate ? `${percent(row.reply_rate.value)} (${percent(row.reply_rate.low)} to ${percent(row.reply_rate.high)})` : "–"],
      ["median time", row.median_latency_seconds === null ? "–" : span(row.median_latency_seconds * 1000)],
      ["refused by", refused(row) || "–"],
    ]);
    return html`<div class="scroll" tabindex="0" role="group" aria-label="The numbers"><table>
      <thead><tr>${cells(rows[0]).map(([name, , isNumber]) => html`<th scope="col" class=${isNumber ? "number" : ""}>${name}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${cells(row).map(([name, value, isNumber]) => html`<td class=${isNumber ? "number" : ""} data-name=${name}>${value}</td>`)}</tr>`)}</tbody>
    </table></div>`;
  }

  #download() {
    save(new Blob([csv(this.rows ?? [])], { type: "text/csv" }), "outcomes.csv");
  }
}

define("segue-outcomes", SegueOutcomes);
