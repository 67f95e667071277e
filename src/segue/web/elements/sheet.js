/** What lists of the user's share: a title, tools, the list, and what it says while it is empty. */

import { controls, sheet } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { SegueView } from "./element.js";

/** @import { SegueClient } from "../client/segue-client.js" */

/** @template Item */
export class SegueSheet extends SegueView {
  static properties = { ...SegueView.properties, items: { state: true } };
  static styles = [controls, sheet];

  constructor() {
    super();
    /** @type {Item[] | null} */ this.items = null;
  }

  firstUpdated() {
    this.act();
  }

  /** What the list holds. @param {SegueClient} client @returns {Promise<{items: Item[]}>} */
  async load(client) {
    throw new Error(`${client.api} has no list here.`);
  }

  /**
   * Do something, then read the list again; whether it was done.
   * @param {(client: SegueClient) => Promise<unknown>} [action]
   */
  async act(action) {
    const isDone = await this.attempt(async (client) => {
      await action?.(client);
      this.items = (await this.load(client)).items;
    });
    this.items ??= [];
    return isDone;
  }

  /**
   * @param {{title: string, lead: unknown, tools: unknown, empty: unknown}} parts
   * @param {(item: Item) => unknown} key @param {(item: Item) => unknown} row
   */
  frame({ title, lead, tools, empty }, key, row) {
    return html`<div class="page">
      <h1>${title}</h1>
      <p class="lead">${lead}</p>
      ${tools} ${this.trouble}
      ${this.items?.length
        ? html`<ul class="list">${repeat(this.items, key, (item) => html`<li>${row(item)}</li>`)}</ul>`
        : this.items ? html`<div class="empty">${empty}</div>` : nothing}
    </div>`;
  }
}
