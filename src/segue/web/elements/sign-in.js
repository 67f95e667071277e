/** Asks for a key if the server requires one; it is sent in a header, never in a URL. */

import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { SegueElement, define } from "./element.js";

export class SegueSignIn extends SegueElement {
  static properties = { problem: {} };

  static styles = [
    controls,
    css`
      :host { display: grid; place-items: center; padding: 24px; min-height: 100%; }
      main { width: min(360px, 100%); }
      form { width: 100%; display: grid; gap: 12px; }
      h1 { font-size: 24px; line-height: 32px; }
      p { margin: 0; }
      label { display: grid; gap: 4px; font-size: 13px; }
      label.row { display: flex; }
      code { font-size: 13px; }
    `,
  ];

  constructor() {
    super();
    this.problem = "";
  }

  render() {
    return html`<main><form @submit=${this.#submit}>
      <h1>Segue</h1>
      <p class="dim">This server requires a key. <code>segue keys create laptop --user you</code> creates one.</p>
      <label>Key<input name="key" type="password" required autocomplete="current-password" spellcheck="false"></label>
      <label class="row"><input type="checkbox" name="stays"> Remember it in this browser</label>
      ${this.problem ? html`<p class="bad small" role="alert">${this.problem}</p>` : nothing}
      <button class="main">Open</button>
    </form></main>`;
  }

  /** @param {SubmitEvent} event */
  #submit(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    this.emit("unlock", { key: `${form.get("key")}`.trim(), stays: form.has("stays") });
  }
}

define("segue-sign-in", SegueSignIn);
