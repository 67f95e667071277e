/** The next request to the model: its parts with their share of tokens, and what is left out. */

import { copy } from "../media.js";
import { controls } from "../styles.js";
import { css, html, nothing, svg } from "../vendor/lit.js";
import { plain } from "../words.js";
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
      .pair { display: flex; gap: 8px; align-items: baseline; } .pair.text { padding: 6px 10px; } .pair .cut { flex: 1; }
      h3 { margin: 16px 0 4px; } .gone.text { padding: 6px 10px; }
      .block.trigger .role { color: var(--accent); }
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
    return html`<div class="top"><span class="grow">About <b>${context.tokens.toLocaleString()}</b> tokens${context.reserved ? `, ${context.reserved.toLocaleString()} more reserved for the reply` : ""}${context.over_budget ? html` · <span class="bad">over its budget</span>` : nothing}</span>
        <button @click=${this.#copy}>Copy as JSON</button></div>
      ${context.lines.map(this.#block)}
      ${context.dropped.length || context.shortened.length || context.is_cut ? html`<h3>Left out</h3>` : nothing}
      ${[...context.dropped, ...context.shortened].map((/** @type {any} */ each) => html`<div class="block gone text">${each.reason ? html`<b>${plain(each.reason)}</b> ` : nothing}${each.detail} <span class="dim">batch ${each.batch}</span></div>`)}
      ${context.is_cut ? html`<div class="block gone text">Earlier batches do not fit into the window.</div>` : nothing}
      ${this.#memories()}
      ${context.state.length ? html`<h3>State of the graph</h3>` : nothing}
      ${context.state.map((/** @type {any} */ each) => html`<details class="block"><summary class="pair"><span class="role">${each.channel}</span><span class="cut">${each.value}</span><span class="count">${each.bytes.toLocaleString()} B</span></summary><div class="text mono">${each.value}</div></details>`)}`;
  }

  /** The memory query of a follow-up now, and its results. */
  #memories() {
    const { memory_query: query, memories } = this.context;
    if (!query) return nothing;
    return html`<h3>Memories</h3>
      <p class="dim">A follow-up now would search with the ${plain(query.source)}: “${query.text}”</p>
      ${memories.length ? memories.map((/** @type {any} */ each) => html`<div class="block text pair"><span class="grow">${each.content}</span><span class="count">${Math.round(each.score * 100)} %</span></div>`) : html`<p class="dim">Nothing is found.</p>`}`;
  }

  #block = (/** @type {{role: string, text: string, tokens: number}} */ line) => {
    const share = line.tokens / (this.context.tokens || 1);
    return html`<details class="block ${line.role}">
      <summary><span class="role">${line.role}</span><span class="cut">${line.text}</span>
        <svg viewBox="0 0 76 6" width="76" height="6" role="img" aria-label="${Math.round(share * 100)} % of the request">${svg`<rect class="all" width="76" height="6" rx="3" /><rect class="part" width=${Math.min(76, Math.max(2, share * 76))} height="6" rx="3" />`}</svg>
        <span class="count">${line.tokens.toLocaleString()}</span></summary>
      <div class="text">${line.text}</div>
    </details>`;
  };

  /** @param {Event} event */
  #copy(event) {
    copy(JSON.stringify(this.context.messages, null, 2), /** @type {HTMLElement} */ (event.target));
  }
}

define("segue-context", SegueContext);
