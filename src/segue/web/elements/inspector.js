/** For operators: what happened in a thread and why, triggers included; and what comes next. */

import { icon } from "../icons.js";
import { save } from "../media.js";
import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { clock, countdown, exact, moment, plain } from "../words.js";
import { SegueView, define } from "./element.js";
import "./context.js";
import "./runs.js";
import "./timeline.js";

const TABS = /** @type {const} */ ([["batches", "Timeline"], ["decisions", "Decisions"], ["context", "Context"], ["server", "Server"]]);
const MARKS = /** @type {const} */ ({ allow: "check", postpone: "pause", suppress: "close" });

export class SegueInspector extends SegueView {
  static properties = {
    ...SegueView.properties,
    thread: {},
    tab: { state: true },
    data: { state: true },
    chosen: { state: true },
    now: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: flex; flex-direction: column; min-height: 0; font-size: 13px; line-height: 20px; background: var(--raised); }
      .tabs { display: flex; gap: 2px; padding: 8px 12px; border-bottom: 1px solid var(--line); min-height: 53px; align-items: center; }
      .tabs button { border-color: transparent; background: none; }
      .tabs button[aria-selected="true"] { background: var(--accent-soft); color: var(--accent); font-weight: 600; }
      .body { flex: 1; overflow-y: auto; padding: 12px; }
      .next { background: var(--accent-soft); border-radius: 6px; padding: 8px 12px; margin-bottom: 12px; display: flex; gap: 8px; align-items: baseline; flex-wrap: wrap; }
      .next b { font-variant-numeric: tabular-nums; }
      details { border: 1px solid var(--line); border-radius: 6px; background: var(--ground); margin: 8px 0; }
      details.chosen { border-color: var(--accent); }
      summary { padding: 6px 10px; cursor: pointer; display: flex; gap: 8px; align-items: baseline; }
      summary .grow { font-weight: 600; }
      .lines { margin: 0; padding: 0 10px 8px; list-style: none; }
      .lines li { display: grid; grid-template-columns: 64px 1fr; gap: 8px; padding: 2px 0; overflow-wrap: anywhere; }
      .actions { padding: 0 6px 6px; gap: 2px; }
      .actions button { padding: 2px 8px; color: var(--dim); }
      .held { flex-basis: 100%; display: inline-flex; gap: 4px; align-items: center; }
      .held svg, .gates svg { width: 14px; height: 14px; }
      .gates dt { padding-top: 3px; }
      .role { color: var(--dim); }
      .trigger .role, .trigger .text { color: var(--accent); font-style: italic; }
      .gates { display: grid; grid-template-columns: 20px 120px 1fr; gap: 2px 8px; padding: 0 10px 10px; margin: 0; }
      .gates dt, .gates dd { margin: 0; }
      .allow { color: var(--good); } .suppress { color: var(--bad); } .postpone { color: var(--warn); }
      .state { color: var(--dim); } .waits { color: var(--warn); }
      .command { margin-top: 16px; color: var(--dim); overflow-x: auto; white-space: pre; font-size: 12px; }
    `,
  ];

  constructor() {
    super();
    this.thread = "";
    /** @type {string} */ this.tab = "batches";
    /** @type {{batches: any[], decisions: any[], timers: any[], context: any}} */
    this.data = { batches: [], decisions: [], timers: [], context: null };
    this.chosen = "";
    this.now = Date.now();
    this.changed = () => this.#soon();
  }

  connectedCallback() {
    super.connectedCallback();
    this.ticking = setInterval(() => (this.now = Date.now()), 1000);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.ticking);
    this.talk?.removeEventListener("change", this.changed);
  }

  /** @param {import("../vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    if (!changed.has("thread")) return;
    this.talk?.removeEventListener("change", this.changed);
    this.talk = this.session?.open(this.thread);
    this.talk?.addEventListener("change", this.changed);
    this.data = { batches: [], decisions: [], timers: [], context: null };
    this.#load();
  }

  /** Reload when the thread has changed, but not at every token. */
  #soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.#load(), 400);
  }

  async #load() {
    const id = this.thread;
    await this.attempt(async (client) => {
      const found = Promise.all([
        client.getContext(id), client.inspect(id, "batches"), client.inspect(id, "decisions"), client.inspect(id, "timers"), client.inspect(id, "memories"),
      ]);
      await this.newest(found, ([context, ...lists]) => {
        const [batches, decisions, timers, memories] = lists.map((list) => list.items);
        if (id === this.thread) this.data = { batches, decisions, timers, context: { ...context, memories } };
      });
    });
  }

  get #pending() {
    return this.data.timers.filter((timer) => ["pending", "postponed"].includes(timer.state)).sort((a, b) => (a.due_at < b.due_at ? -1 : 1));
  }

  render() {
    return html`<div class="tabs" role="tablist" aria-label="Inspector">${TABS.map(([id, name]) =>
        html`<button role="tab" id="tab-${id}" aria-controls="panel" aria-selected=${this.tab === id} @click=${() => (this.tab = id)}>${name}</button>`)}</div>
      <div class="body" role="tabpanel" id="panel" aria-labelledby="tab-${this.tab}" tabindex="0">
        ${this.trouble} ${this.#panel()}
      </div>`;
  }

  #panel() {
    if (!this.data.context && this.tab !== "server") return nothing; // it is being read
    const command = (/** @type {string} */ name) => html`<div class="command mono">segue ${name} ${this.thread}</div>`;
    switch (this.tab) {
      case "batches":
        return html`${this.#batches()}${command("batches")}`;
      case "decisions":
        return html`${this.#decisions()}${command("why")}`;
      case "context":
        return html`<segue-context .context=${this.data.context}></segue-context>${command("context")}`;
      default:
        return html`<segue-runs .session=${this.session} .now=${this.now}></segue-runs>`;
    }
  }

  #batches() {
    const planned = this.#pending;
    return html`${planned.length ? planned.slice(0, 5).map(this.#planned) : html`<p class="next">Nothing is planned.</p>`}
      <segue-timeline .batches=${this.data.batches} .decisions=${this.data.decisions} .timers=${planned} .now=${this.now} @chosen=${this.#choose}></segue-timeline>
      ${this.data.batches.map((batch) => this.#batch(batch))}`;
  }

  #planned = (/** @type {any} */ timer, /** @type {number} */ index) => html`<p class="next"><span>${index ? "Then" : "Next"}: <b>${countdown(timer.due_at, this.now)}</b></span>
    <span class="grow">${plain(timer.kind)}${timer.trigger_type && timer.trigger_type !== timer.kind ? ` · ${plain(timer.trigger_type)}` : ""}${timer.payload?.text ? `: ${timer.payload.text}` : ""}</span>
    <span class="dim" title=${exact(timer.due_at)}>${moment(timer.due_at)}</span>
    ${timer.expected ? html`<span class="held ${timer.expected.outcome}">${icon(MARKS[/** @type {"postpone"} */ (timer.expected.outcome)] ?? "pause")}
      ${timer.expected.outcome === "postpone" ? `Will be postponed by ${plain(timer.expected.gate)} until ${moment(timer.expected.until)}.` : `Will not be sent: ${timer.expected.reason}`}</span>` : nothing}</p>`;

  /** @param {CustomEvent} event */
  async #choose(event) {
    this.chosen = event.detail;
    await this.updateComplete;
    this.renderRoot.querySelector("details.chosen")?.scrollIntoView({ block: "nearest" });
  }

  /** @param {any} batch @returns {unknown} */
  #batch(batch) {
    const isWhole = batch.state === "complete";
    return html`<details class=${batch.id === this.chosen ? "chosen" : ""} ?open=${batch.id === this.chosen || batch.id === this.data.batches[0]?.id}>
      <summary><span class="grow">${plain(batch.type)}</span>
        <span class="state ${isWhole ? "" : "waits"}">${plain(batch.state)} · ${batch.messages.length} ${batch.messages.length === 1 ? "message" : "messages"}</span>
        <time class="dim" title=${exact(batch.began_at)}>${clock(batch.began_at)}</time></summary>
      ${batch.reasons.length ? html`<p class="waits lines">${batch.reasons.join(" ")}</p>` : nothing}
      <ul class="lines">${batch.messages.map((/** @type {any} */ message) =>
        html`<li class=${message.role}><span class="role">${message.role}</span><span class="text">${message.text}</span></li>`)}</ul>
      ${(batch.nested ?? []).map((/** @type {any} */ each) => this.#batch(each))}
      <div class="row actions"><button class="plain" @click=${() => save(batch, `batch-${batch.id}.json`)}>Export</button>
        ${isWhole || batch.turns.some((/** @type {any} */ turn) => ["queued", "running"].includes(turn.state)) ? nothing
          : html`<button class="plain" title="Drop its question or continuation, and close the batch" @click=${() => this.#settle(batch)}>Settle</button>`}</div>
    </details>`;
  }

  /** @param {any} batch */
  async #settle(batch) {
    if (await this.attempt((client) => client.settleBatch(batch.thread_id, batch.id))) await this.#load();
  }

  #decisions() {
    if (!this.data.decisions.length) return html`<p class="dim">No decisions yet.</p>`;
    return this.data.decisions.map((decision, index) => html`<details ?open=${index < 1 || decision.facts.verdicts}>
      <summary><span class="grow">${plain(decision.kind)}${decision.facts.trigger ? html` <span class="dim">${plain(decision.facts.trigger)}</span>` : nothing}</span><span class=${decision.outcome}>${plain(decision.outcome)}</span>
        <time class="dim" title=${exact(decision.decided_at)}>${clock(decision.decided_at)}</time></summary>
      <p class="lines">${decision.reasons[0] ?? ""}${decision.facts.keys ? ` Found: ${decision.facts.keys.join(", ") || "nothing"}.` : ""}</p>
      ${this.#gates(decision)}
    </details>`);
  }

  /** @param {any} decision */
  #gates(decision) {
    const verdicts = Object.entries(decision.facts.verdicts ?? {});
    if (!verdicts.length) return nothing;
    return html`<dl class="gates">${verdicts.map(([gate, verdict], index) => html`<dt class=${verdict} title=${verdict}>${icon(MARKS[/** @type {"allow"} */ (verdict)] ?? "pause")}<span class="unseen">${verdict}</span></dt>
      <dd>${plain(gate)}</dd><dd class="dim">${decision.reasons[index + 1] ?? ""}</dd>`)}</dl>`;
  }
}

define("segue-inspector", SegueInspector);
