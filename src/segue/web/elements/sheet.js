/** Base of the user's lists: a title, tools, the list, and a text while it is empty. */

import { controls, sheet } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { SegueView } from "./element.js";

/** @import { SegueClient } from "../client/segue-client.js" */

/** @template Item */
export class SegueSheet extends SegueView {
  static properties = { ...SegueView.properties, items: { state: true }, isAdding: { state: true } };
  static styles = [controls, sheet];

  constructor() {
    super();
    /** @type {Item[] | null} */ this.items = null;
    this.isAdding = false;
  }

  firstUpdated() {
    this.act();
  }

  /** What the list holds. @param {SegueClient} client @returns {Promise<{items: Item[]}>} */
  async load(client) {
    throw new Error(`${client.api} has no list here.`);
  }

  /**
   * Run an action, then reload the list; returns whether it succeeded.
   * @param {(client: SegueClient) => Promise<unknown>} [action]
   */
  async act(action) {
    const isDone = await this.attempt(async (client) => {
      await action?.(client);
      await this.newest(this.load(client), ({ items }) => void (this.items = items));
    });
    this.items ??= [];
    return isDone;
  }

  /** Add what a field holds; typed while it is on its way, the next one stays. */
  /** @param {HTMLInputElement} field @param {(client: SegueClient) => Promise<unknown>} action */
  async add(field, action) {
    const { value } = field;
    this.isAdding = true;
    if ((await this.act(action)) && field.value === value) field.value = "";
    this.isAdding = false;
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

/** @param {HTMLFormElement} form @param {string} name */
export const fieldOf = (form, name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
