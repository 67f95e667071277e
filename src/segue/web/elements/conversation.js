/**
 * A thread on the screen: its messages in a log, gaps of silence between them, and the composer.
 * It loads upward, keeps a bounded window, and sticks to the end only if it was there.
 */

import { drawn } from "../conversation.js";
import { icon } from "../icons.js";
import { controls } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { clock, moment, plain, span } from "../words.js";
import { conversationStyles } from "./conversation-styles.js";
import { SegueElement, define } from "./element.js";
import "./composer.js";
import "./message.js";
import "./question.js";

/** @import { Conversation } from "../conversation.js" */
/** @import { Message } from "../client/types.js" */

const LONG_SILENCE = 30 * 60_000;
// Before a follow-up even a short silence is drawn: it is why the agent wrote.
const SHORT_SILENCE = 2_000;
const NEAR = 48;
const SOON = 600;

export class SegueConversation extends SegueElement {
  static properties = {
    session: { attribute: false },
    conversation: { attribute: false },
    highlighted: {},
    isAway: { state: true },
    said: { state: true },
  };

  static styles = [controls, conversationStyles];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    /** @type {Conversation | null} */ this.conversation = null;
    this.highlighted = "";
    this.isAway = false;
    this.said = "";
    /** @type {{element: Element, top: number} | null} What is read while away from the end. */
    this.anchor = null;
    this.missed = false;
    this.seen = { top: 0, height: 0 };
    // After the layout of a frame and before its paint, sizes are known without another layout.
    this.resized = new ResizeObserver(() => this.#stick());
    this.heard = (/** @type {Event} */ event) => this.#heard(event);
  }

  /** Once per frame, regardless of the number of new tokens. */
  async scheduleUpdate() {
    if (this.hasUpdated) await drawn();
    super.scheduleUpdate();
  }

  /** @param {import("../vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    this.follow(this.session, this.conversation);
    if (changed.has("conversation")) {
      changed.get("conversation")?.removeEventListener("heard", this.heard);
      this.conversation?.addEventListener("heard", this.heard);
      this.isAway = false;
      this.said = "";
    }
    this.anchor = this.isAway && !changed.has("conversation") ? this.#findAnchor() : null;
  }

  updated() {
    const log = this.#log;
    if (!log) return;
    // Observed again, they are reported with this frame even if their sizes stay.
    for (const each of [log, ...log.children]) this.resized.observe(each);
    if (this.highlighted) this.#seek();
    else if (this.anchor) this.#hold(log, this.anchor);
    this.#read();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.resized.disconnect();
    this.conversation?.removeEventListener("heard", this.heard);
  }

  #stick() {
    const log = this.#log;
    if (!log || this.isAway || this.highlighted) return;
    log.scrollTop = log.scrollHeight;
    this.#grow(log);
  }

  #findAnchor() {
    const log = this.#log;
    if (!log) return null;
    const edge = log.getBoundingClientRect().top;
    for (const element of log.querySelectorAll("segue-message")) {
      const { top, bottom } = element.getBoundingClientRect();
      if (bottom > edge) return { element, top };
    }
    return null;
  }

  /** Keep the visible messages in place while others come and go above. */
  /** @param {HTMLElement} log @param {{element: Element, top: number}} anchor */
  async #hold(log, anchor) {
    await this.#settled();
    if (anchor.element.isConnected) log.scrollTop += anchor.element.getBoundingClientRect().top - anchor.top;
  }

  get #log() {
    return /** @type {HTMLElement | null} */ (this.renderRoot?.querySelector(".log"));
  }

  get #name() {
    return this.session?.nameOf(this.session.find(this.conversation?.id ?? "")?.agent_id) || "the agent";
  }

  render() {
    const talk = this.conversation;
    if (!talk || !this.session) return nothing;
    const name = this.#name;
    return html`
      <div class="log" tabindex="0" role="log" aria-label="Messages" aria-live="off" @scroll=${this.#scrolled}>
        <div class="column" @thread=${(/** @type {CustomEvent} */ event) => this.session?.keep(event.detail)}
          @again=${(/** @type {CustomEvent} */ event) => talk.send(event.detail.content)}>
          ${talk.before ? html`<div class="top">Earlier messages…</div>` : nothing}
          ${this.#empty(talk)} ${repeat(this.#rows(talk, name), (row) => row.key, (row) => row.view)}
        </div>
      </div>
      <div class="unseen" aria-live="polite">${this.said}</div>
      ${this.isAway || !talk.isAtEnd
        ? html`<button class="pill" @click=${this.toEnd}>${icon("down")} ${talk.below || this.missed ? "New messages" : "To the end"}</button>`
        : nothing}
      <div class="foot">
        <div class="status ${this.#trouble ? "warn" : ""}" role="status">${this.#status(talk)}</div>
        <segue-composer .thread=${talk.id} .name=${name} ?busy=${talk.isBusy} @send=${this.#send}
          @stop=${this.stop} @typing=${this.#typing}></segue-composer>
      </div>`;
  }

  /** @param {Conversation} talk */
  #empty(talk) {
    if (talk.failure) {
      return html`<div class="empty"><p>${talk.failure.message}</p>
        <button @click=${talk.loadLatest}>Try again</button></div>`;
    }
    if (!talk.isLoaded || talk.messages.length || talk.unsent.length) return nothing;
    return html`<div class="empty"><h2>Say hello</h2>
      <p>Then wait a while: ${this.#name} may write first.</p></div>`;
  }

  /** @param {Conversation} talk @param {string} name */
  #rows(talk, name) {
    const rows = /** @type {{key: string, view: unknown}[]} */ ([]);
    let before = /** @type {Message | null} */ (null);
    const drafts = [...talk.drafts.values()].map((draft) => ({
      ...draft, role: "agent", content: draft.text, created_at: new Date().toISOString(), live: true,
    }));
    for (const message of /** @type {any[]} */ ([...talk.messages, ...drafts])) {
      const gap = before && this.#gap(before, message);
      if (gap) rows.push({ key: `gap-${message.id}`, view: gap });
      rows.push({ key: message.id, view: this.#message(talk, message, name) });
      before = message;
    }
    for (const each of talk.unsent) rows.push({ key: each.id, view: this.#unsent(talk, each) });
    if (talk.question) rows.push({ key: "question", view: this.#question(talk) });
    return rows;
  }

  /** @param {Conversation} talk @param {any} message @param {string} name */
  #message = (talk, message, name) => html`<segue-message data-id=${message.id}
    class=${message.position === this.highlighted ? "found" : ""} .message=${message}
    ?live=${message.live ?? false} .client=${talk.client} .thread=${talk.id} .name=${name}></segue-message>`;

  /** @param {Message} before @param {Message} message */
  #gap(before, message) {
    const silence = new Date(message.created_at).getTime() - new Date(before.created_at).getTime();
    const isFirst = message.role === "agent" && !["reply", null].includes(message.origin);
    if (silence < (isFirst ? SHORT_SILENCE : LONG_SILENCE)) return null;
    const isOtherDay = new Date(before.created_at).toDateString() !== new Date(message.created_at).toDateString();
    return html`<div class="gap" title="Silence until ${clock(message.created_at)}"><span>${span(silence)}${isOtherDay ? ` · ${moment(message.created_at)}` : ""}</span></div>`;
  }

  /** @param {Conversation} talk @param {import("../conversation.js").Unsent} each */
  #unsent = (talk, each) => html`<div class="unsent ${each.error ? "" : "going"}">
    <div class="text">${each.text || "A file"}</div>
    ${each.error
      ? html`<div class="small" role="alert">Not sent: ${each.error}
          <button class="link" @click=${() => talk.resend(each.id)}>Try again</button>
          <button class="link" @click=${() => talk.discard(each.id)}>Discard</button></div>`
      : nothing}
  </div>`;

  /** @param {Conversation} talk */
  #question = (talk) => html`<segue-question .question=${talk.question}
    @answer=${(/** @type {CustomEvent} */ event) => talk.answer(event.detail.answer).catch(event.detail.fail)}></segue-question>`;

  get #trouble() {
    return this.session?.state === "waiting" || this.session?.state === "refused";
  }

  /** @param {Conversation} talk */
  #status(talk) {
    const dots = html`<span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>`;
    if (this.#trouble) return html`Connection lost; reconnecting… ${dots}`;
    const tools = [...talk.tools.values()].filter((tool) => tool.state === "running");
    if (tools.length) return html`${dots} ${this.#name} is using ${tools.map((tool) => plain(tool.name)).join(", ")}`;
    if (talk.isBusy) return html`${dots} ${this.#name} is writing`;
    const thread = this.session?.find(talk.id);
    const held = thread && talk.messages.length ? this.session?.heldBack(thread) : null;
    return held ? html`${icon("mute")} ${held.text} <button class="link" @click=${held.undo}>Undo</button>` : nothing;
  }

  /** @param {CustomEvent} event */
  #send(event) {
    this.isAway = false;
    this.conversation?.send(event.detail);
  }

  stop() {
    if (this.conversation?.isBusy) this.conversation.stop().catch(() => {});
  }

  #typing() {
    const { conversation, session } = this;
    if (conversation) session?.stream?.send({ type: "typing", thread_id: conversation.id });
  }

  focus() {
    /** @type {HTMLElement | null} */ (this.renderRoot.querySelector("segue-composer"))?.focus();
  }

  toEnd = async () => {
    const talk = this.conversation;
    this.highlighted = "";
    if (talk && !talk.isAtEnd) await talk.loadLatest();
    this.isAway = this.missed = false;
    this.requestUpdate();
  };

  #scrolled() {
    const log = this.#log;
    if (!log) return;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight <= NEAR;
    // Messages that come, grow and shrink scroll, too; only a person scrolls up in an unchanged log.
    if (isAtEnd) this.isAway = this.missed = false;
    else if (log.scrollTop < this.seen.top && log.scrollHeight === this.seen.height) this.isAway = true;
    this.seen = { top: log.scrollTop, height: log.scrollHeight };
    if (!this.#isSeeking) this.highlighted = "";
    this.#grow(log);
    this.#read();
  }

  /** Load messages shortly before they are scrolled into view. @param {HTMLElement} log */
  #grow(log) {
    const talk = this.conversation;
    if (!talk || talk.loading || !talk.isLoaded) return;
    const below = log.scrollHeight - log.scrollTop - log.clientHeight;
    if (log.scrollTop < SOON && talk.before) talk.loadOlder();
    else if (below < SOON && !talk.isAtEnd) talk.loadNewer();
  }

  #isSeeking = false;

  async #seek() {
    const found = this.renderRoot.querySelector(".found");
    if (!found || this.#isSeeking) return;
    this.#isSeeking = this.isAway = true;
    await this.#settled();
    found.scrollIntoView({ block: "center" });
    requestAnimationFrame(() => requestAnimationFrame(() => (this.#isSeeking = false)));
  }

  async #settled() {
    const inside = [...this.renderRoot.querySelectorAll("segue-message")];
    await Promise.all(inside.map((each) => /** @type {any} */ (each).updateComplete));
  }

  /** @param {Event} event */
  #heard(event) {
    const { message, isNew } = /** @type {CustomEvent} */ (event).detail;
    if (!isNew || message.role !== "agent") return;
    this.said = `${this.#name}: ${message.text}`;
    if (this.isAway) this.missed = true;
  }

  #read() {
    const last = this.conversation?.last;
    if (last && !this.isAway && document.visibilityState === "visible") {
      this.session?.markRead(this.conversation?.id ?? "", last.position);
    }
  }
}

define("segue-conversation", SegueConversation);
