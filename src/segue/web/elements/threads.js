/** The list of conversations: the newest first, those with something unread marked. */

import { icon } from "../icons.js";
import { controls } from "../styles.js";
import { css, html, nothing, repeat } from "../vendor/lit.js";
import { ago, exact, unmarked } from "../words.js";
import { SegueElement, define } from "./element.js";

/** @import { Thread } from "../client/types.js" */

export class SegueThreads extends SegueElement {
  static properties = {
    session: { attribute: false },
    current: {},
    isChoosing: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: flex; flex-direction: column; min-height: 0; }
      header { display: flex; gap: 8px; padding: 12px; align-items: center; }
      header .main { display: flex; align-items: center; gap: 6px; }
      nav { flex: 1; overflow-y: auto; padding: 0 8px 8px; }
      ul { list-style: none; margin: 0; padding: 0; }
      a { display: grid; grid-template-columns: auto minmax(0, 1fr); column-gap: 10px; align-items: center; padding: 8px 10px; border-radius: 8px; text-decoration: none; color: inherit; margin-bottom: 2px; }
      a:hover { background: var(--hover); }
      a[aria-current] { background: var(--accent-soft); }
      .face { grid-row: 1 / 3; } a[aria-current] .face { background: var(--ground); }
      .head { display: flex; gap: 8px; align-items: baseline; }
      .title { flex: 1; min-width: 0; font-size: 15px; line-height: 22px; }
      .preview { display: block; color: var(--dim); font-size: 13px; line-height: 20px; }
      time { color: var(--dim); font-size: 12px; }
      .unread .title { font-weight: 650; }
      .badge { background: var(--accent); color: var(--on-accent); border-radius: 9px; font-size: 12px; line-height: 18px; min-width: 18px; text-align: center; padding: 0 5px; }
      .empty { color: var(--dim); padding: 16px 12px; font-size: 13px; }
      .choices { padding: 0 12px 12px; display: grid; gap: 4px; }
      .choices button { text-align: left; }
    `,
  ];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    this.current = "";
    this.isChoosing = false;
  }

  connectedCallback() {
    super.connectedCallback();
    this.timer = setInterval(() => this.requestUpdate(), 30_000); // "2 min" becomes "3 min"
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.timer);
  }

  render() {
    this.follow(this.session);
    const { session } = this;
    if (!session) return nothing;
    return html`
      <header>
        <button class="main grow" ?disabled=${!session.isReady} @click=${this.#new} aria-expanded=${session.agents.length > 1 ? `${this.isChoosing}` : nothing}>${icon("plus")} New</button>
        <button class="icon" title="Search (Ctrl K)" aria-label="Search" @click=${() => this.emit("search")}>${icon("search")}</button>
      </header>
      ${this.isChoosing
        ? html`<div class="choices" role="group" aria-label="With whom?">${session.agents.map((agent) =>
            html`<button @click=${() => this.#create(agent.id)}>${agent.name}</button>`)}</div>`
        : nothing}
      <nav aria-label="Conversations">
        ${session.isReady && !session.threads.length
          ? html`<p class="empty">No conversations yet. Start one, say hello, then wait a while.</p>`
          : html`<ul>${repeat(session.threads, (thread) => thread.id, this.#row)}</ul>`}
        ${session.next ? html`<button class="plain" @click=${() => session.loadMoreThreads()}>Show more</button>` : nothing}
      </nav>`;
  }

  #row = (/** @type {Thread} */ thread) => html`<li>
    <a href="./#/t/${thread.id}" class=${thread.unread ? "unread" : ""}
      aria-current=${thread.id === this.current ? "page" : nothing}>
      <span class="face" aria-hidden="true">${this.session?.nameOf(thread.agent_id).slice(0, 1).toUpperCase()}</span>
      <span class="head">
        <span class="title cut">${thread.title ?? `New, with ${this.session?.nameOf(thread.agent_id)}`}</span>
        ${thread.unread ? html`<span class="badge">${thread.unread}<span class="unseen"> unread</span></span>` : nothing}
        <time datetime=${thread.updated_at} title=${exact(thread.updated_at)}>${ago(thread.updated_at)}</time>
      </span>
      <span class="preview cut" ?hidden=${!thread.preview}>${thread.preview_role === "user" ? "You: " : ""}${thread.preview_role === "user" ? thread.preview : unmarked(thread.preview ?? "")}</span>
    </a>
  </li>`;

  #new() {
    if ((this.session?.agents.length ?? 0) > 1) this.isChoosing = !this.isChoosing;
    else this.#create(undefined);
  }

  /** @param {string | undefined} agent */
  #create(agent) {
    this.isChoosing = false;
    this.emit("create", agent);
  }
}

define("segue-threads", SegueThreads);
