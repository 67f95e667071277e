/** The whole server, for operators: the queue and its leases, what is planned, and dead letters. */

import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { ago, countdown, exact, plain } from "../words.js";
import { SegueView, define } from "./element.js";

const EVERY = 2000;

export class SegueRuns extends SegueView {
  static properties = {
    ...SegueView.properties,
    now: { type: Number },
    turns: { state: true },
    timers: { state: true },
    letters: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: block; }
      h3 { margin: 16px 0 4px; } h3:first-child { margin-top: 0; }
      table { width: 100%; border-collapse: collapse; }
      td { padding: 4px 8px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
      td:last-child { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; padding-right: 0; }
      td button { padding: 2px 8px; }
      .user { max-width: 120px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    `,
  ];

  constructor() {
    super();
    this.now = Date.now();
    /** @type {any[]} */ this.turns = [];
    /** @type {any[]} */ this.timers = [];
    /** @type {any[]} */ this.letters = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this.timer = setInterval(() => this.#load(), EVERY);
    queueMicrotask(() => this.#load());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.timer);
  }

  async #load() {
    await this.attempt(async (client) => {
      const names = /** @type {const} */ (["turns", "timers", "dead-letters"]);
      await this.newest(Promise.all(names.map((name) => client.inspectServer(name))), (found) => {
        [this.turns, this.timers, this.letters] = found.map((list) => list.items);
      });
    }, true);
  }

  render() {
    const link = (/** @type {string} */ thread) => html`<a href="./#/t/${thread}" title=${thread}>${this.session?.find(thread)?.title ?? thread}</a>`;
    return html`${this.trouble}
      ${this.#list("Queue", "No turns are queued or running.", this.turns, (turn) => html`<tr><td>${plain(turn.kind)}</td><td>${link(turn.thread_id)}</td>
        <td>${turn.state}${turn.owner ? html` <span class="dim">with ${turn.owner}</span>` : nothing}${turn.attempts > 1 ? ` · attempt ${turn.attempts}` : ""}</td>
        <td title=${exact(turn.wake_at)}>${turn.owner ? "lease " : "in "}${countdown(turn.wake_at, this.now)}</td></tr>`)}
      ${this.#list("Planned", "Nothing is planned.", this.timers, (timer) => html`<tr><td>${plain(timer.trigger_type ?? timer.kind)}</td><td>${link(timer.thread_id)}</td>
        <td class="user" title=${timer.user_id}>${timer.user_id}</td><td title=${exact(timer.due_at)}>${countdown(timer.due_at, this.now)}</td></tr>`)}
      ${this.#list("Dead letters", "No failed deliveries.", this.letters, (letter) => html`<tr><td>${letter.kind}</td><td>${letter.error ?? letter.evidence ?? ""}</td>
        <td title=${exact(letter.created_at)}>${ago(letter.created_at)}</td><td><button @click=${() => this.#retry(letter.id)}>Try again</button></td></tr>`)}`;
  }

  /** @param {string} title @param {string} empty @param {any[]} rows @param {(row: any) => unknown} row */
  #list = (title, empty, rows, row) => html`<h3>${title} ${rows.length ? html`<span class="dim">${rows.length}</span>` : nothing}</h3>
    ${rows.length ? html`<table><tbody>${rows.map(row)}</tbody></table>` : html`<p class="dim">${empty}</p>`}`;

  /** @param {string} id */
  async #retry(id) {
    if (await this.attempt((client) => client.retryDeadLetter(id))) await this.#load();
  }
}

define("segue-runs", SegueRuns);
