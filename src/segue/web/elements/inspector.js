/** For operators: what happened in a thread and why, triggers included; and what comes next. */

import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { clock, countdown, exact, moment } from "../words.js";
import { SegueElement, define } from "./element.js";
import "./context.js";
import "./timeline.js";

const TABS = /** @type {const} */ ([["batches", "Time line"], ["decisions", "Decisions"], ["context", "Context"]]);
const MARKS = /** @type {Record<string, string>} */ ({ allow: "✓", postpone: "⏸", suppress: "✕" });

export class SegueInspector extends SegueElement {
  static properties = {
    session: { attribute: false },
    thread: {},
    tab: { state: true },
    data: { state: true },
    chosen: { state: true },
    now: { state: true },
    problem: { state: true },
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
      .role { color: var(--dim); }
      .trigger .role, .trigger .text { color: var(--accent); font-style: italic; }
      .gates { display: grid; grid-template-columns: 20px 120px 1fr; gap: 2px 8px; padding: 0 10px 10px; margin: 0; }
      .gates dt, .gates dd { margin: 0; }
      .allow { color: var(--good); } .suppress { color: var(--bad); } .postpone { color: var(--warn); }
      .state { color: var(--dim); } .state.bad { color: var(--bad); }
      .command { margin-top: 16px; color: var(--dim); overflow-x: auto; white-space: pre; font-size: 12px; }
    `,
  ];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    this.thread = "";
    /** @type {string} */ this.tab = "batches";
    /** @type {{batches: any[], decisions: any[], timers: any[], context: any}} */
    this.data = { batches: [], decisions: [], timers: [], context: null };
    this.chosen = "";
    this.now = Date.now();
    this.problem = "";
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

  /** Read again when the thread has changed, but not at every word. */
  #soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.#load(), 400);
  }

  async #load() {
    const { client } = this.session ?? {};
    const id = this.thread;
    if (!client) return;
    try {
      const [batches, decisions, timers, context] = await Promise.all([
        client.inspect(id, "batches"), client.inspect(id, "decisions"), client.inspect(id, "timers"), client.getContext(id),
      ]);
      if (id === this.thread) this.data = { batches, decisions, timers, context };
      this.problem = "";
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
    }
  }

  get #pending() {
    return this.data.timers.filter((timer) => timer.state === "pending").sort((a, b) => (a.due_at < b.due_at ? -1 : 1));
  }

  render() {
    return html`<div class="tabs" role="tablist" aria-label="Inspector">${TABS.map(([id, name]) =>
        html`<button role="tab" id="tab-${id}" aria-controls="panel" aria-selected=${this.tab === id} @click=${() => (this.tab = id)}>${name}</button>`)}</div>
      <div class="body" role="tabpanel" id="panel" aria-labelledby="tab-${this.tab}" tabindex="0">
        ${this.problem ? html`<p class="bad" role="alert">${this.problem}</p>` : nothing}
        ${this.tab === "batches" ? this.#batches() : this.tab === "decisions" ? this.#decisions() : html`<segue-context .context=${this.data.context}></segue-context>`}
        <div class="command mono">segue ${this.tab === "decisions" ? "why" : this.tab} ${this.thread}</div>
      </div>`;
  }

  #batches() {
    const [timer] = this.#pending;
    return html`${timer
        ? html`<p class="next">Next: <b>${countdown(timer.due_at, this.now)}</b> <span>${timer.kind.replaceAll("_", " ")}${timer.trigger_type ? ` · ${timer.trigger_type.replaceAll("_", " ")}` : ""}</span>
            <span class="dim" title=${exact(timer.due_at)}>${moment(timer.due_at)}</span></p>`
        : html`<p class="next">Nothing is planned.</p>`}
      <segue-timeline .batches=${this.data.batches} .decisions=${this.data.decisions} .timer=${timer ?? null} .now=${this.now} @chosen=${this.#choose}></segue-timeline>
      ${this.data.batches.map((batch) => this.#batch(batch))}`;
  }

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
      <summary><span class="grow">${batch.type.replaceAll("_", " ")}</span>
        <span class="state ${isWhole ? "" : "bad"}">${batch.state.replaceAll("_", " ")} · ${batch.messages.length} messages</span>
        <time class="dim" title=${exact(batch.began_at)}>${clock(batch.began_at)}</time></summary>
      ${batch.reasons.length ? html`<p class="bad lines">${batch.reasons.join(" ")}</p>` : nothing}
      <ul class="lines">${batch.messages.map((/** @type {any} */ message) =>
        html`<li class=${message.role}><span class="role">${message.role}</span><span class="text">${message.text}</span></li>`)}</ul>
      ${(batch.nested ?? []).map((/** @type {any} */ each) => this.#batch(each))}
    </details>`;
  }

  #decisions() {
    if (!this.data.decisions.length) return html`<p class="dim">Nothing was decided yet.</p>`;
    return this.data.decisions.map((decision, index) => html`<details ?open=${index < 1 || decision.facts.verdicts}>
      <summary><span class="grow">${decision.kind.replaceAll("_", " ")}</span><span class=${decision.outcome}>${decision.outcome.replaceAll("_", " ")}</span>
        <time class="dim" title=${exact(decision.decided_at)}>${clock(decision.decided_at)}</time></summary>
      <ul class="lines"><li class="one"><span class="role">${decision.facts.trigger?.replaceAll("_", " ") ?? "why"}</span><span>${decision.reasons[0] ?? ""}</span></li>
        ${decision.facts.source ? html`<li><span class="role">query</span><span>${decision.facts.source.replaceAll("_", " ")}</span></li>` : nothing}</ul>
      ${this.#gates(decision)}
    </details>`);
  }

  /** @param {any} decision */
  #gates(decision) {
    const verdicts = Object.entries(decision.facts.verdicts ?? {});
    if (!verdicts.length) return nothing;
    return html`<dl class="gates">${verdicts.map(([gate, verdict], index) => html`<dt class=${verdict} title=${verdict}>${MARKS[verdict] ?? "?"}<span class="unseen">${verdict}</span></dt>
      <dd>${gate.replaceAll("_", " ")}</dd><dd class="dim">${decision.reasons[index + 1] ?? ""}</dd>`)}</dl>`;
  }
}

define("segue-inspector", SegueInspector);
