/** Searches the user's own messages and the replies to them. */

import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { moment } from "../words.js";
import { SegueElement, define } from "./element.js";

/** @import { Found } from "../client/types.js" */

export class SegueSearch extends SegueElement {
  static properties = {
    session: { attribute: false },
    found: { state: true },
    asked: { state: true },
    problem: { state: true },
  };

  static styles = [
    controls,
    css`
      dialog { width: min(600px, calc(100vw - 32px)); margin: 10vh auto auto; padding: 0; border: 1px solid var(--line); border-radius: 10px; background: var(--ground); color: var(--text); box-shadow: 0 8px 32px rgb(0 0 0 / .25); }
      input { width: 100%; border: 0 !important; padding: 14px 16px !important; background: none !important; font-size: 18px !important; }
      input:focus-visible { outline-offset: -2px; border-radius: 10px; } /* the dialog would cut off a ring around it */
      ul { list-style: none; margin: 0; padding: 4px; max-height: 60vh; overflow-y: auto; border-top: 1px solid var(--line); }
      a { display: block; padding: 8px 12px; border-radius: 6px; text-decoration: none; color: inherit; }
      a:hover, a:focus-visible { background: var(--hover); }
      p { margin: 0; padding: 16px; border-top: 1px solid var(--line); }
      .text { display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden; }
    `,
  ];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    /** @type {Found[]} */ this.found = [];
    this.asked = this.wanted = "";
    this.problem = "";
  }

  open() {
    this.renderRoot.querySelector("dialog")?.showModal();
    this.renderRoot.querySelector("input")?.select();
  }

  close() {
    this.renderRoot.querySelector("dialog")?.close();
  }

  render() {
    return html`<dialog aria-label="Search" @keydown=${this.#key}>
      <input type="search" aria-label="Search your conversations" placeholder="Search your conversations" @input=${this.#input}>
      ${this.problem ? html`<p class="bad">${this.problem}</p>` : nothing}
      ${this.found.length
        ? html`<ul>${this.found.map(this.#row)}</ul>`
        : this.asked ? html`<p class="dim" role="status">Nothing found for “${this.asked}”.</p>` : nothing}
    </dialog>`;
  }

  #row = (/** @type {Found} */ { thread_id, message }) => html`<li>
    <a href="./#/t/${thread_id}/${message.position}" @click=${this.close}>
      <span class="small dim">${this.session?.find(thread_id)?.title ?? "A conversation"} · ${moment(message.created_at)}</span>
      <span class="text">${message.text}</span>
    </a></li>`;

  /** Down and up walk through what was found, Enter opens it, Esc closes. @param {KeyboardEvent} event */
  #key(event) {
    const places = [...this.renderRoot.querySelectorAll("input, a")];
    const here = places.findIndex((place) => place.matches(":focus"));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) /** @type {HTMLElement} */ (places[Math.min(Math.max(here + step, 0), places.length - 1)]).focus();
    else if (event.key === "Enter" && here === 0) {
      // The listed results may belong to the previous query.
      if (this.asked === this.wanted) /** @type {HTMLElement | undefined} */ (places[1])?.click();
    }
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {Event} event */
  #input(event) {
    const text = (this.wanted = /** @type {HTMLInputElement} */ (event.target).value.trim());
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#search(text), 200);
  }

  /** @param {string} text */
  async #search(text) {
    this.problem = "";
    try {
      const found = text ? (await this.session?.client.search(text))?.items ?? [] : [];
      if (text !== this.wanted) return; // the query has changed in the meantime
      this.found = found;
      this.asked = text;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
    }
  }
}

define("segue-search", SegueSearch);
