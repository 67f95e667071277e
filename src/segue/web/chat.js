/**
 * A conversation in any site, by one script tag:
 *
 *     <script type="module" src="https://segue.example/web/chat.js"></script>
 *     <segue-chat theme="light"></segue-chat>
 *
 * Attributes: `api` (the server; where this script came from by default), `thread` (a conversation;
 * by default the one that the reader has with the agent in this browser), `agent` (the server's first
 * by default), `theme` (light or dark; the reader's by default). The key of the reader is a property,
 * so that it stands in no page source: `document.querySelector("segue-chat").key = token`.
 */

import { SegueError } from "./client/segue-client.js";
import { SegueElement, define } from "./elements/element.js";
import "./elements/composer.js";
import "./elements/conversation.js";
import { RETRY_AFTER, Session, isTemporary } from "./session.js";
import { controls, tokens } from "./styles.js";
import { css, html } from "./vendor/lit.js";

/** @import { Thread } from "./client/types.js" */

export class SegueChat extends SegueElement {
  static properties = {
    api: {},
    thread: {},
    agent: {},
    theme: { reflect: true },
    key: { attribute: false },
    shown: { state: true },
    failure: { state: true },
  };

  static styles = [
    tokens,
    controls,
    css`
      :host { display: flex; flex-direction: column; height: 480px; border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
      segue-conversation { flex: 1; }
      .middle { margin: auto; padding: 24px; text-align: center; color: var(--dim); }
      .middle h2 { color: var(--text); font-size: 18px; line-height: 28px; }
      segue-composer { margin: 0 20px 16px; }
      @media (max-width: 640px) { segue-composer { margin: 0 8px 8px; } }
    `,
  ];

  constructor() {
    super();
    /** @type {string | URL} */ this.api = new URL("..", import.meta.url);
    this.thread = "";
    this.agent = "";
    this.theme = "";
    /** @type {string | null} */ this.key = null;
    /** @type {string | null | undefined} Undefined until it is found; null before the first message. */
    this.shown = undefined;
    /** @type {Error | null} */ this.failure = null;
    /** @type {Session | null} */ this.session = null;
    this.isStarting = false;
  }

  /** What is looked for; a later search replaces an earlier one. */
  #sought = { place: "", thread: "" };

  /** @param {import("./vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    if (!this.session || changed.has("api") || changed.has("key")) this.#begin();
    const session = /** @type {Session} */ (this.session);
    this.follow(session);
    if (!session.isReady) return;
    const { place, thread } = this.#sought;
    const isGone = this.shown && !session.find(this.shown);
    if (isGone || place !== this.#place || thread !== this.thread) this.#search(session);
    const opened = this.shown === null && !this.isStarting && session.threads.find(this.#isOpened);
    if (opened) this.#show(opened);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.session?.close();
    this.session = null;
  }

  /** Whether the agent wrote first and the reader has not answered: the first answer becomes the title. */
  #isOpened = (/** @type {Thread} */ thread) =>
    thread.agent_id === this.#agent && thread.message_count > 0 && !thread.title;

  get #agent() {
    return this.agent || this.session?.agents[0]?.id || "";
  }

  /** Each user has one conversation with each agent of a server. Keys are replaced, users stay. */
  get #place() {
    return JSON.stringify([this.session?.client.api, this.#agent, this.session?.me?.user_id]);
  }

  get #memory() {
    return `segue.chat.${this.#place}`;
  }

  #begin() {
    this.session?.close();
    this.session = new Session({ api: this.api, key: this.key });
    this.shown = undefined;
    this.failure = null;
    this.#sought = { place: "", thread: "" };
    this.session.start();
  }

  /** @param {Session} session */
  async #search(session) {
    const sought = (this.#sought = { place: this.#place, thread: this.thread });
    this.shown = undefined;
    const isOld = () => session !== this.session || sought !== this.#sought;
    try {
      const found = this.thread ? await this.#get(session, this.thread) : await this.#recall(session);
      if (isOld()) return;
      if (!found && !session.agents.some((agent) => agent.id === this.#agent)) {
        throw new Error(`The server has no agent "${this.#agent}".`);
      }
      this.#show(found);
    } catch (error) {
      if (isOld()) return;
      this.failure = /** @type {Error} */ (error);
      if (isTemporary(this.failure)) setTimeout(() => isOld() || this.#search(session), RETRY_AFTER);
    }
  }

  /** @param {Session} session @param {string} id */
  async #get(session, id) {
    return session.find(id) ?? session.client.getThread(id);
  }

  /** The conversation of this browser; null if there is none, or if it was deleted. */
  /** @param {Session} session */
  async #recall(session) {
    const memory = this.#memory;
    const id = localStorage.getItem(memory);
    if (!id) return null;
    try {
      return await this.#get(session, id);
    } catch (error) {
      if (!(error instanceof SegueError) || error.status !== 404) throw error;
      localStorage.removeItem(memory);
      return null;
    }
  }

  /** @param {Thread | null} thread */
  #show(thread) {
    const wasNew = this.shown === null;
    this.shown = thread?.id ?? null;
    this.failure = null;
    if (!thread) return;
    this.session?.keep(thread);
    if (!this.thread) localStorage.setItem(this.#memory, thread.id);
    if (wasNew) this.#moveDraft(thread.id);
  }

  /** What the reader writes meanwhile stays in the field, and so does the focus. @param {string} id */
  #moveDraft(id) {
    const from = `segue.draft.${this.#place}`;
    const draft = localStorage.getItem(from);
    if (draft) localStorage.setItem(`segue.draft.${id}`, draft);
    localStorage.removeItem(from);
    if (/** @type {ShadowRoot} */ (this.renderRoot).activeElement) this.updateComplete.then(() => this.#focus());
  }

  async #focus() {
    const talk = /** @type {SegueElement | null} */ (this.renderRoot.querySelector("segue-conversation"));
    await talk?.updateComplete;
    talk?.focus();
  }

  /** The first message creates the conversation, unless another tab did. @param {CustomEvent} event */
  async #start(event) {
    const composer = /** @type {import("./elements/composer.js").SegueComposer} */ (event.target);
    const session = /** @type {Session} */ (this.session);
    if (this.isStarting) return composer.restore("");
    const { sent } = composer;
    const sought = this.#sought;
    this.isStarting = true;
    try {
      const thread = (await this.#recall(session)) ?? (await session.create(this.#agent));
      if (sought === this.#sought) this.#show(thread);
      session.open(thread.id).send(event.detail);
    } catch (error) {
      composer.sent = sent; // a second message may have come back in the meantime
      composer.restore(/** @type {Error} */ (error).message);
    } finally {
      this.isStarting = false;
    }
  }

  render() {
    const { session, shown } = this;
    const failure = this.failure ?? (session?.isReady ? null : session?.failure);
    if (failure) {
      return html`<p class="middle" role="status">${failure.message} ${isTemporary(failure) ? "Trying again…" : ""}</p>`;
    }
    if (session?.isReady && shown === null) return this.#welcome(session);
    if (!session?.isReady || !shown || !session.find(shown)) return html`<p class="middle" role="status">…</p>`;
    return html`<segue-conversation .session=${session} .conversation=${session.open(shown)}></segue-conversation>`;
  }

  /** @param {Session} session */
  #welcome(session) {
    const name = session.nameOf(this.#agent);
    return html`<div class="middle"><h2>Say hello</h2><p>Then wait a while: ${name} may write first.</p></div>
      <segue-composer .thread=${this.#place} .name=${name} @send=${this.#start}></segue-composer>`;
  }
}

define("segue-chat", SegueChat);
