/** Where the user writes: a draft per thread that survives reloads, files, send and stop. */

import { icon } from "../icons.js";
import { MOST_BYTES, attach } from "../media.js";
import { controls } from "../styles.js";
import { css, html, live, nothing } from "../vendor/lit.js";
import { SegueElement, define } from "./element.js";

/** @import { Content } from "../client/types.js" */
/** @import { Attachment } from "../media.js" */

const TYPING_EVERY = 3000;

/** Why files do not fit into one message; empty if they do. @param {{name: string, size: number}[]} files */
function tooLarge(files) {
  const most = `${MOST_BYTES / 1_000_000} MB`;
  const large = files.find((file) => file.size > MOST_BYTES);
  if (large) return `“${large.name}” is larger than ${most}, the limit of a message.`;
  const size = files.reduce((sum, file) => sum + file.size, 0);
  return size > MOST_BYTES ? `Together, these files are larger than ${most}, the limit of a message.` : "";
}

export class SegueComposer extends SegueElement {
  static properties = {
    thread: {},
    name: {},
    busy: { type: Boolean },
    text: { state: true },
    files: { state: true },
    problem: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: block; }
      form {
        display: grid; grid-template-columns: auto 1fr auto; align-items: end; gap: 4px;
        border: 1px solid var(--edge); border-radius: 10px; background: var(--field); padding: 4px;
      }
      form:focus-within { border-color: var(--accent); box-shadow: 0 0 0 1px var(--accent); }
      .field { display: grid; }
      .field::after { content: attr(data-text) " "; white-space: pre-wrap; visibility: hidden; overflow-wrap: anywhere; }
      .field::after, .field > textarea { grid-area: 1 / 1; padding: 6px 4px; font: inherit; line-height: 22px; max-height: 40vh; min-height: 34px; }
      textarea { resize: none; border: 0 !important; background: none !important; outline: none; overflow-y: auto; }
      textarea:focus-visible { outline: none; }
      button.main { border-radius: 8px; line-height: 0; padding: 8px; }
      button.main:disabled { background: var(--hover); border-color: var(--hover); color: var(--dim); opacity: 1; }
      .files { display: flex; gap: 8px; flex-wrap: wrap; margin-bottom: 8px; }
      .file { display: inline-flex; align-items: center; gap: 4px; border: 1px solid var(--line); border-radius: 6px; padding: 2px 2px 2px 8px; font-size: 13px; max-width: 240px; }
      .file img { height: 28px; max-width: 48px; object-fit: cover; border-radius: 4px; }
      .problem { color: var(--bad); font-size: 13px; margin: 0 0 8px; }
    `,
  ];

  constructor() {
    super();
    this.thread = "";
    this.name = "";
    this.busy = false;
    this.text = "";
    /** @type {Attachment[]} */ this.files = [];
    this.problem = "";
    this.typedAt = 0;
    /** What was sent last. */ this.sent = { text: "", files: this.files };
  }

  /** @param {import("../vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    if (!changed.has("thread")) return;
    this.text = localStorage.getItem(this.#draft) ?? "";
    this.files = [];
    this.problem = "";
  }

  get #draft() {
    return `segue.draft.${this.thread}`;
  }

  focus() {
    this.renderRoot.querySelector("textarea")?.focus();
  }

  render() {
    const isEmpty = !this.text.trim() && !this.files.length;
    return html`
      ${this.files.length ? html`<div class="files">${this.files.map(this.#file)}</div>` : nothing}
      ${this.problem ? html`<p class="problem" role="alert">${this.problem}</p>` : nothing}
      <form @submit=${this.#submit} @paste=${this.#paste}>
        <input id="attach" type="file" multiple hidden @change=${this.#pick}>
        <button type="button" class="plain icon" title="Attach pictures or files"
          aria-label="Attach pictures or files" @click=${this.#browse}>${icon("clip")}</button>
        <div class="field" data-text=${this.text}>
          <textarea rows="1" placeholder="Write to ${this.name}…" aria-label="Write to ${this.name}"
            .value=${live(this.text)} @input=${this.#input} @keydown=${this.#key}></textarea>
        </div>
        ${this.busy && isEmpty
          ? html`<button type="button" class="main" title="Stop (Esc)" aria-label="Stop" @click=${() => this.emit("stop")}>${icon("stop")}</button>`
          : html`<button class="main" title="Send (Enter)" aria-label="Send" ?disabled=${isEmpty}>${icon("send")}</button>`}
      </form>`;
  }

  #file = (/** @type {Attachment} */ file) => html`<span class="file">
    ${file.kind.startsWith("image/") ? html`<img src=${file.url} alt="">` : icon("file")}
    <span class="cut">${file.name}</span>
    <button class="plain icon" aria-label="Remove ${file.name}"
      @click=${() => (this.files = this.files.filter((each) => each !== file))}>${icon("close")}</button>
  </span>`;

  /** @param {Event} event */
  #input(event) {
    this.text = /** @type {HTMLTextAreaElement} */ (event.target).value;
    this.#keep();
    if (this.text && Date.now() - this.typedAt > TYPING_EVERY) {
      this.typedAt = Date.now();
      this.emit("typing");
    }
  }

  #keep() {
    if (this.text) localStorage.setItem(this.#draft, this.text);
    else localStorage.removeItem(this.#draft);
  }

  /** Restore text that could not be sent, before newer input. @param {string} problem */
  restore(problem) {
    this.text = [this.sent.text, this.text].filter(Boolean).join("\n");
    this.files = [...this.sent.files, ...this.files];
    this.problem = problem;
    this.#keep();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#submit(event);
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    const text = this.text.trim();
    if (!text && !this.files.length) return;
    /** @type {Content} */
    const content = this.files.length
      ? [...(text ? [{ type: "text", text }] : []), ...this.files.map((file) => file.block)]
      : text;
    this.sent = { text, files: this.files };
    this.text = this.problem = "";
    this.files = [];
    this.#keep();
    this.emit("send", content);
  }

  #browse() {
    /** @type {HTMLInputElement} */ (this.renderRoot.querySelector("#attach")).click();
  }

  /** @param {Event} event */
  #pick(event) {
    const input = /** @type {HTMLInputElement} */ (event.target);
    this.add([...(input.files ?? [])]);
    input.value = "";
  }

  /** @param {ClipboardEvent} event */
  #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  /** @param {File[]} files */
  async add(files) {
    this.problem = tooLarge([...this.files, ...files]);
    const added = this.problem ? [] : await Promise.all(files.map(attach));
    this.files = [...this.files, ...added]; // others may have been added in the meantime
    this.focus();
  }
}

define("segue-composer", SegueComposer);
