/** The next request to the model: its parts with their share of tokens, and what is left out. */

import { controls } from "../styles.js";
import { css, html, nothing, svg } from "../vendor/lit.js";
import { SegueElement, define } from "./element.js";

export class SegueContext extends SegueElement {
  static properties = { context: { attribute: false } };

  static styles = [
    controls,
    css`
      :host { display: block; }
      .top { display: flex; gap: 12px; align-items: center; margin-bottom: 12px; }
      .block { border: 1px solid var(--line); border-radius: 6px; background: var(--ground); margin: 6px 0; }
      .block.gone { opacity: .75; border-style: dashed; background: none; }
      summary { display: grid; grid-template-columns: 60px 1fr 76px 60px; gap: 8px; padding: 6px 10px; cursor: pointer; align-items: center; }
      .role { font-weight: 600; }
      .text { padding: 0 10px 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
      .count { text-align: right; color: var(--dim); font-variant-numeric: tabular-nums; }
      rect.all { fill: var(--line); } rect.part { fill: var(--accent); }
    `,
  ];

  constructor() {
    super();
    /** @type {any} */ this.context = null;
  }

  render() {
    const { context } = this;
    if (!context) return nothing;
    const sizes = context.lines.map((/** @type {any} */ line) => line.text.length + 16);
    const all = sizes.reduce((/** @type {number} */ sum, /** @type {number} */ size) => sum + size, 0) || 1;
    return html`<div class="top"><span class="grow">About <b>${context.tokens.toLocaleString()}</b> tokens${context.reserved ? `, ${context.reserved.toLocaleString()} more kept free` : ""}${context.over_budget ? html` · <span class="bad">over its budget</span>` : nothing}</span>
        <button @click=${this.#copy}>Copy as JSON</button></div>
      ${context.lines.map((/** @type {any} */ line, /** @type {number} */ index) => this.#block(line, sizes[index] / all))}
      ${context.dropped.length ? html`<h3>Left out</h3>` : nothing}
      ${context.dropped.map((/** @type {any} */ each) => html`<div class="block gone text">${typeof each === "string" ? each : `${each.batch ?? each.id ?? ""} ${each.reason ?? JSON.stringify(each)}`}</div>`)}`;
  }

  /** @param {{role: string, text: string}} line @param {number} share */
  #block = (line, share) => html`<details class="block">
    <summary><span class="role">${line.role}</span><span class="cut">${line.text}</span>
      <svg viewBox="0 0 76 6" width="76" height="6" role="img" aria-label="${Math.round(share * 100)} % of the request">${svg`<rect class="all" width="76" height="6" rx="3" /><rect class="part" width=${Math.max(2, share * 76)} height="6" rx="3" />`}</svg>
      <span class="count">≈ ${Math.round(share * this.context.tokens).toLocaleString()}</span></summary>
    <div class="text">${line.text}</div>
  </details>`;

  /** @param {Event} event */
  async #copy(event) {
    const button = /** @type {HTMLElement} */ (event.target);
    await navigator.clipboard.writeText(JSON.stringify(this.context.messages, null, 2));
    button.textContent = "Copied";
  }
}

define("segue-context", SegueContext);
