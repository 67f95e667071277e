/** The timeline: a lane per type of batch, bars for batches, ticks for decisions, rings for planned follow-ups. */

import { controls } from "../styles.js";
import { LANES, barsOf, firstView } from "../timeline.js";
import { css, html, nothing, svg } from "../vendor/lit.js";
import { clock, countdown, label, plain } from "../words.js";
import { SegueElement, define } from "./element.js";

/** @import { Bar } from "../timeline.js" */

const LANE = 30;
const LEFT = 62;
const TOP = 22;

export class SegueTimeline extends SegueElement {
  static properties = {
    batches: { attribute: false },
    decisions: { attribute: false },
    timers: { attribute: false },
    now: { type: Number },
    view: { state: true },
    width: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: block; }
      svg { touch-action: pan-y; }
      text { fill: var(--dim); font-size: 12px; }
      .lane { stroke: var(--line); }
      .grid { stroke: var(--line); stroke-dasharray: 2 3; }
      .bar { fill: var(--edge); cursor: pointer; }
      .user_request { fill: var(--dim); }
      .system_trigger { fill: var(--accent); }
      .continuation { fill: var(--good); }
      .agent_to_agent { fill: var(--warn); }
      .call { fill: var(--good); stroke: var(--ground); stroke-width: .5; }
      .open { fill: url(#hatch); stroke: var(--accent); }
      .hatch { stroke: var(--accent); stroke-width: 3; }
      .allow, .follow_up { stroke: var(--good); } .suppress, .nothing { stroke: var(--dim); } .postpone { stroke: var(--warn); }
      .tick { stroke-width: 2; }
      .later { stroke: var(--edge); stroke-width: 2; stroke-dasharray: 3 3; }
      .link { stroke: var(--warn); fill: none; stroke-dasharray: 2 2; }
      .ring { fill: var(--ground); stroke: var(--line); stroke-width: 3; }
      .filled { fill: none; stroke: var(--accent); stroke-width: 3; }
      .now { stroke: var(--bad); opacity: .6; }
      .row { justify-content: flex-end; }
      button { padding: 2px 8px; }
      a:focus-visible .bar { outline: 2px solid var(--accent); }
    `,
  ];

  constructor() {
    super();
    /** @type {any[]} */ this.batches = [];
    /** @type {any[]} */ this.decisions = [];
    /** @type {any[]} What is planned, the next first. */ this.timers = [];
    this.now = Date.now();
    /** @type {{from: number, to: number} | null} */ this.view = null;
    this.width = 480;
    this.sizes = new ResizeObserver(([{ contentRect }]) => (this.width = Math.floor(contentRect.width) || this.width));
  }

  connectedCallback() {
    super.connectedCallback();
    this.sizes.observe(this);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.sizes.disconnect();
  }

  render() {
    const bars = barsOf(this.batches, this.now);
    const view = this.view ?? firstView(bars, this.timers[0]?.due_at ?? null, this.now);
    const x = (/** @type {number} */ time) =>
      LEFT + ((time - view.from) / (view.to - view.from)) * (this.width - LEFT - 12);
    const used = LANES.filter(([type]) => ["user_request", "system_trigger"].includes(type) || bars.some((bar) => bar.batch.type === type));
    const top = (/** @type {Bar} */ bar) => TOP + used.findIndex(([type]) => type === bar.batch.type) * LANE;
    const lanes = [...used.map(([, name]) => name), "decided", "next"];
    const height = TOP + lanes.length * LANE + 6;
    return html`<div class="row">
        <button aria-label="Zoom out" @click=${() => this.#zoom(2)}>−</button>
        <button aria-label="Zoom in" @click=${() => this.#zoom(0.5)}>+</button>
        <button @click=${() => (this.view = null)}>Newest</button>
      </div>
      <svg width=${this.width} height=${height} role="group" aria-label="Timeline" @wheel=${this.#wheel}>
        <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="6"></line></pattern></defs>
        ${this.#grid(view, x, height)}
        ${lanes.map((name, row) => svg`<text x="0" y=${TOP + row * LANE + 19}>${name}</text><line class="lane" x1=${LEFT} x2=${this.width} y1=${TOP + row * LANE + 15} y2=${TOP + row * LANE + 15} />`)}
        ${bars.map((bar) => bar.parent ? this.#link(bar, top(bar), top(bar.parent), x) : nothing)}
        ${bars.map((bar) => this.#bar(bar, top(bar), x))}
        ${this.decisions.map((decision) => this.#tick(decision, TOP + used.length * LANE, x))}
        ${this.timers.map((timer, index) => this.#ring(timer, TOP + (used.length + 1) * LANE, x, view, index === 0))}
        ${this.now < view.to ? svg`<line class="now" x1=${x(this.now)} x2=${x(this.now)} y1=${TOP} y2=${height} />` : nothing}
      </svg>`;
  }

  /** @param {{from: number, to: number}} view @param {(time: number) => number} x @param {number} height */
  #grid(view, x, height) {
    const length = view.to - view.from;
    return [0.02, 0.34, 0.66, 0.98].map((share) => {
      const time = view.from + length * share;
      const anchor = share > 0.9 ? "end" : share < 0.1 ? "start" : "middle";
      return svg`<line class="grid" x1=${x(time)} x2=${x(time)} y1=${TOP} y2=${height} /><text x=${x(time)} y="12" text-anchor=${anchor}>${label(time, length)}</text>`;
    });
  }

  /** @param {Bar} bar @param {number} y @param {(time: number) => number} x */
  #bar(bar, y, x) {
    const { batch, from, to } = bar;
    const left = Math.max(x(from), LEFT);
    const width = Math.max(x(to) - left, 6);
    if (x(to) + 6 < LEFT || left > this.width) return nothing;
    const kind = batch.state === "complete" ? batch.type : "open";
    const says = `${plain(batch.type)}, ${batch.messages.length} messages, ${plain(batch.state)}, ${clock(batch.began_at)}`;
    return svg`<a href="#" aria-label=${says} @click=${(/** @type {Event} */ event) => { event.preventDefault(); this.emit("chosen", batch.id); }}>
      ${bar.parts.length > 1 ? svg`<line class="later" x1=${left} x2=${left + width} y1=${y + 15} y2=${y + 15} />` : nothing}
      ${bar.parts.map((part) => svg`<rect class="bar ${kind}" x=${Math.max(x(part.from), LEFT)} y=${y + 6} width=${Math.max(x(part.to) - Math.max(x(part.from), LEFT), 6)} height="18" rx="3"><title>${says}</title></rect>`)}
      ${bar.calls.map((call) => svg`<rect class="call" x=${Math.max(x(call.from), LEFT)} y=${y + 7.5 + (call.row % 3) * 6} width=${Math.max(x(call.to) - x(call.from), 3)} height="4"><title>${call.name}</title></rect>`)}
    </a>`;
  }

  /** From the batch that asked to the nested one. */
  /** @param {Bar} bar @param {number} y @param {number} parent @param {(time: number) => number} x */
  #link(bar, y, parent, x) {
    const at = x(bar.from) + 3;
    return at < LEFT ? nothing : svg`<path class="link" d="M${at} ${parent + 24}V${y + 6}" />`;
  }

  /** @param {any} decision @param {number} y @param {(time: number) => number} x */
  #tick(decision, y, x) {
    const at = x(new Date(decision.decided_at).getTime());
    if (at < LEFT || at > this.width) return nothing;
    return svg`<line class="tick ${decision.outcome}" x1=${at} x2=${at} y1=${y + 7} y2=${y + 23}><title>${decision.kind}: ${decision.outcome}. ${decision.reasons[0] ?? ""}</title></line>`;
  }

  /**
   * @param {any} timer @param {number} y @param {(time: number) => number} x
   * @param {{from: number, to: number}} view @param {boolean} isNext
   */
  #ring(timer, y, x, view, isNext) {
    const due = new Date(timer.due_at).getTime();
    const from = new Date(timer.created_at).getTime();
    const share = Math.min(1, Math.max(0, (this.now - from) / Math.max(1, due - from)));
    const at = Math.min(Math.max(x(Math.min(due, view.to)), LEFT + 60), this.width - 10);
    const round = 2 * Math.PI * 7;
    return svg`<g><title>${plain(timer.kind)}, ${clock(timer.due_at)}</title>
      <circle class="ring ${timer.kind}" cx=${at} cy=${y + 15} r="7" /><circle class="filled" cx=${at} cy=${y + 15} r="7" stroke-dasharray="${round * share} ${round}" transform="rotate(-90 ${at} ${y + 15})" />
      ${isNext ? svg`<text x=${at - 14} y=${y + 19} text-anchor="end">${countdown(timer.due_at, this.now)}</text>` : nothing}</g>`;
  }

  /** @param {number} factor @param {number} [about] */
  #zoom(factor, about = 0.5) {
    const bars = barsOf(this.batches, this.now);
    const { from, to } = this.view ?? firstView(bars, this.timers[0]?.due_at ?? null, this.now);
    const center = from + (to - from) * about;
    this.view = { from: center - (center - from) * factor, to: center + (to - center) * factor };
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    event.preventDefault();
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  }
}

define("segue-timeline", SegueTimeline);
