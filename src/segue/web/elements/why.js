/** “Why did it write?”: one sentence, and three things to do about it. */

import { explain } from "../explain.js";
import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { moment } from "../words.js";
import { SegueElement, define } from "./element.js";

const A_DAY = 86_400_000;

export class SegueWhy extends SegueElement {
  static properties = {
    client: { attribute: false },
    thread: { attribute: false },
    message: { attribute: false },
    name: {},
    sentence: { state: true },
    done: { state: true },
  };

  static styles = [
    controls,
    css`
      :host { display: block; margin: 4px 0 8px; max-width: 60ch; }
      section { background: var(--accent-soft); border-radius: 10px; padding: 10px 12px; font-size: 13px; line-height: 20px; }
      .row { margin-top: 8px; flex-wrap: wrap; }
      p { margin: 0; }
    `,
  ];

  constructor() {
    super();
    /** @type {any} */ this.client = null;
    /** @type {any} */ this.message = null;
    this.thread = "";
    this.name = "";
    this.sentence = "";
    /** @type {{text: string, undo: (() => Promise<unknown>) | null} | null} */ this.done = null;
  }

  async firstUpdated() {
    try {
      const [{ items }, { preferences }] = await Promise.all([this.client.why(this.thread), this.client.getThread(this.thread)]);
      this.sentence = explain(this.message, items, this.name);
      if (preferences?.muted) this.#tell({ muted: null }, this.#muted);
      else if (Date.parse(preferences?.snoozed_until) > Date.now()) this.#tell({ snoozed_until: null }, this.#snoozed(preferences.snoozed_until));
    } catch (error) {
      this.sentence = /** @type {Error} */ (error).message;
    }
  }

  render() {
    return html`<section aria-live="polite">
      <p>${this.sentence || "…"}</p>
      ${this.done ? html`<p>${this.done.text}</p>` : nothing}
      <div class="row">
        ${this.done
          ? this.done.undo
            ? html`<button @click=${this.#undo}>Undo</button>`
            : nothing
          : html`<button @click=${() => this.emit("closed")}>Fine</button>
              <button @click=${this.#later}>Later</button>
              <button @click=${this.#never}>Not again</button>`}
      </div>
    </section>`;
  }

  async #later() {
    const until = new Date(Date.now() + A_DAY).toISOString();
    await this.#change({ snoozed_until: until }, { snoozed_until: null }, this.#snoozed(until));
  }

  async #never() {
    await this.#change({ muted: true }, { muted: null }, this.#muted);
  }

  /** @param {object} changes @param {object} back @param {string} text */
  async #change(changes, back, text) {
    const changed = await this.client.updateThread(this.thread, changes);
    this.emit("thread", changed);
    this.#tell(back, text);
  }

  /** @param {object} back @param {string} text */
  #tell(back, text) {
    this.done = { text, undo: () => this.client.updateThread(this.thread, back) };
  }

  get #muted() {
    return `${this.name} no longer writes first in this conversation.`;
  }

  /** @param {string} until */
  #snoozed = (until) => `${this.name} does not write first here before ${moment(until)}.`;

  async #undo() {
    const changed = await this.done?.undo?.();
    if (changed) this.emit("thread", changed);
    this.done = null;
  }
}

define("segue-why", SegueWhy);
