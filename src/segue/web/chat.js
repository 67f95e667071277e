/**
 * A conversation in any site, by one script tag:
 *
 *     <script type="module" src="https://segue.example/web/chat.js"></script>
 *     <segue-chat agent="ada" theme="light"></segue-chat>
 *
 * Attributes: `api` (the server; where this script came from by default), `thread`, `agent` (of a
 * new conversation), `theme` (light or dark; the reader's by default). The key of the reader is a
 * property, so that it stands in no page source: `document.querySelector("segue-chat").key = token`.
 */

import { SegueElement, define } from "./elements/element.js";
import "./elements/conversation.js";
import { Session } from "./session.js";
import { controls, tokens } from "./styles.js";
import { css, html } from "./vendor/lit.js";

export class SegueChat extends SegueElement {
  static properties = {
    api: {},
    thread: {},
    agent: {},
    theme: { reflect: true },
    key: { attribute: false },
    problem: { state: true },
  };

  static styles = [
    tokens,
    controls,
    css`
      :host { display: flex; flex-direction: column; height: 480px; border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
      segue-conversation { flex: 1; }
      .problem { margin: auto; padding: 24px; text-align: center; color: var(--dim); }
    `,
  ];

  constructor() {
    super();
    /** @type {string | URL} */ this.api = new URL("..", import.meta.url);
    this.thread = "";
    this.agent = "";
    this.theme = "";
    /** @type {string | null} */ this.key = null;
    this.problem = "";
    /** @type {Session | null} */ this.session = null;
  }

  /** @param {import("./vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    if (!this.session || changed.has("api") || changed.has("key")) this.#begin();
    this.follow(this.session);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.session?.close();
    this.session = null;
  }

  get #memory() {
    return `segue.chat.${this.api}`;
  }

  async #begin() {
    this.session?.close();
    const session = (this.session = new Session({ api: this.api, key: this.key }));
    await session.start();
    if (session !== this.session || !session.isReady) return;
    try {
      const wanted = this.thread || localStorage.getItem(this.#memory) || "";
      const found = wanted ? await session.client.getThread(wanted).catch(() => null) : null;
      const thread = found ?? (await session.create(this.agent || undefined));
      session.keep(thread);
      this.thread = thread.id;
      localStorage.setItem(this.#memory, thread.id);
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
    }
  }

  render() {
    const { session } = this;
    const problem = this.problem || session?.failure?.message;
    if (problem) return html`<p class="problem" role="status">${problem}</p>`;
    if (!session?.isReady || !session.find(this.thread)) return html`<p class="problem" role="status">…</p>`;
    return html`<segue-conversation .session=${session} .conversation=${session.open(this.thread)}></segue-conversation>`;
  }
}

define("segue-chat", SegueChat);
