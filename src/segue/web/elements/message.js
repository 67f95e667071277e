/** One message: the user's words to the right, the agent's to the left without a bubble. */

import { icon } from "../icons.js";
import { MarkdownWriter } from "../markdown.js";
import { copy, mediaOf } from "../media.js";
import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { clock, exact } from "../words.js";
import { SegueElement, define } from "./element.js";
import { prose } from "./prose.js";
import { readQuestion } from "./question.js";
import "./why.js";

/** @import { Asked, Content } from "../client/types.js" */

export class SegueMessage extends SegueElement {
  static properties = {
    message: { attribute: false },
    client: { attribute: false },
    thread: { attribute: false },
    name: {},
    live: { type: Boolean },
    isExplaining: { state: true },
  };

  static styles = [
    controls,
    prose,
    css`
      :host { display: block; position: relative; }
      article { max-width: 68ch; }
      .user { margin-left: auto; width: fit-content; max-width: min(85%, 60ch); }
      .user .text {
        width: fit-content; margin-left: auto; background: var(--bubble); border-radius: 10px; padding: 8px 12px; white-space: pre-wrap;
        overflow-wrap: anywhere;
      }
      .asked p { margin: 8px 0 12px; max-width: 68ch; }
      .foot { display: flex; gap: 8px; align-items: center; font-size: 12px; line-height: 16px;
        color: var(--dim); min-height: 20px; margin-top: 2px; }
      .user .foot { flex-direction: row-reverse; }
      .foot .quiet { opacity: 0; transition: opacity var(--quick); }
      article:hover .quiet, article:focus-within .quiet { opacity: 1; }
      @media (hover: none) { .foot .quiet { opacity: 1; } }
      .foot button { font-size: 12px; line-height: 16px; }
      .foot button.dim { color: var(--dim); }
      .first { border-left: 2px solid var(--accent); padding-left: 14px; margin-left: -16px; }
      .mark { display: inline-flex; align-items: center; gap: 4px; color: var(--accent); }
      .mark svg { width: 14px; height: 14px; }
      .state.failed { color: var(--bad); }
      .state.cancelled, .state.waiting { color: var(--warn); }
      .media { display: flex; flex-wrap: wrap; align-items: start; gap: 8px; margin: 4px 0; }
      .user .media { justify-content: flex-end; }
      .media img { max-width: min(320px, 100%); max-height: 240px; border-radius: 10px; display: block; }
      .file { display: inline-flex; gap: 6px; align-items: center; border: 1px solid var(--line);
        border-radius: 6px; padding: 4px 10px; font-size: 13px; text-decoration: none; color: var(--text); }
      .caret::after { content: ""; display: inline-block; width: 7px; height: 15px; vertical-align: -2px;
        background: var(--dim); border-radius: 1px; animation: blink 1s steps(2) infinite; }
      @keyframes blink { 50% { opacity: 0; } }
      @media (prefers-reduced-motion: reduce) { .caret::after { animation: none; } }
    `,
  ];

  constructor() {
    super();
    /** @type {any} */ this.message = null;
    /** @type {any} */ this.client = null;
    this.thread = "";
    this.name = "";
    this.live = false;
    this.isExplaining = false;
    /** @type {MarkdownWriter | null} */ this.writer = null;
  }

  get isFirst() {
    return this.message.role === "agent" && !["reply", null, undefined].includes(this.message.origin);
  }

  render() {
    const { message } = this;
    const isUser = message.role === "user";
    return html`<article class=${isUser ? "user" : this.isFirst ? "first" : "agent"}>
      <h2 class="unseen">${isUser ? "You" : this.name}, ${clock(message.created_at)}</h2>
      ${this.#media(message.content ?? "")}
      ${isUser
        ? message.text && html`<div class="text">${message.text}</div>`
        : html`<div class="prose"></div>`}
      <div class="foot">
        ${this.isFirst ? this.#mark() : nothing} ${isUser ? this.#state() : nothing}
        <time class="quiet" datetime=${message.created_at} title=${exact(message.created_at)}
          >${clock(message.created_at)}</time>
        ${this.live ? nothing : html`<button class="link quiet dim" @click=${this.#copy}>Copy</button>`}
      </div>
      ${this.isExplaining
        ? html`<segue-why .client=${this.client} .thread=${this.thread} .message=${message}
            .name=${this.name} @closed=${() => (this.isExplaining = false)}></segue-why>`
        : nothing}
    </article>
    ${(message.asked ?? []).filter((/** @type {Asked} */ each) => each.answer !== null).map(this.#asked)}`;
  }

  /** The agent's questions, and the user's answers. */
  #asked = (/** @type {Asked} */ { questions, answer }) => Object.entries(questions).map(([id, question]) => {
    const given = answer?.[id] ?? answer;
    return html`<section class="asked" aria-label="A question from ${this.name}">
      <p>${readQuestion(question).text}</p>
      <div class="user"><div class="text">${typeof given === "string" ? given : JSON.stringify(given)}</div></div></section>`;
  });

  updated() {
    const place = this.renderRoot.querySelector(".prose");
    if (!(place instanceof HTMLElement)) return;
    if (this.writer?.root !== place) this.writer = new MarkdownWriter(place);
    this.writer.write(this.message.text, !this.live);
    place.classList.toggle("caret", this.live && !this.message.text);
  }

  #mark() {
    return html`<span class="mark" title="${this.name} wrote first">${icon("follow")}<span
        class="unseen">${this.name} wrote first.</span></span>
      ${this.live || !this.client
        ? nothing
        : html`<button class="link" aria-expanded=${this.isExplaining}
            @click=${() => (this.isExplaining = !this.isExplaining)}>why?</button>`}`;
  }

  #state() {
    const { state, error } = this.message;
    switch (state) {
      case "failed":
        return html`<span class="state failed" role="status">Not answered${error ? `: ${error}` : "."}</span>
          <button class="link" @click=${() => this.emit("again", this.message)}>Ask again</button>`;
      case "cancelled":
        return html`<span class="state cancelled">Stopped</span>`;
      case "waiting":
        return html`<span class="state waiting">Waiting for your answer</span>`;
      default:
        return nothing;
    }
  }

  /** @param {Content} content */
  #media(content) {
    const found = mediaOf(content);
    if (!found.length) return nothing;
    return html`<div class="media">${found.map((each) =>
      each.kind === "picture"
        ? html`<img src=${/** @type {string} */ (each.url)} alt="A picture">`
        : html`<a class="file" href=${each.url ?? nothing} download=${each.name}>${icon("file")} ${each.name}</a>`,
    )}</div>`;
  }

  /** @param {Event} event */
  #copy(event) {
    copy(this.message.text, /** @type {HTMLButtonElement} */ (event.currentTarget));
  }
}

define("segue-message", SegueMessage);
