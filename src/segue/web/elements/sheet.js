/** What pages beside the conversation share: a title, a list of the user's, and what went wrong. */

import { controls, sheet } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { SegueElement } from "./element.js";

/** @import { SegueClient } from "../client/segue-client.js" */

/** @template Item */
export class SegueSheet extends SegueElement {
  static properties = {
    session: { attribute: false },
    items: { state: true },
    problem: { state: true },
  };
  static styles = [controls, sheet];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    /** @type {Item[] | null} */ this.items = null;
    this.problem = "";
  }

  willUpdate() {
    this.follow(this.session);
  }

  firstUpdated() {
    this.act(async () => {});
  }

  /** What the list holds. @param {SegueClient} client @returns {Promise<{items: Item[]}>} */
  async load(client) {
    throw new Error(`${client.api} has no list here.`);
  }

  /**
   * Do something, then read the list again; whether it was done.
   * @param {(client: SegueClient) => Promise<unknown>} action
   */
  async act(action) {
    const client = this.session?.client;
    if (!client) return false;
    this.problem = "";
    try {
      await action(client);
      this.items = (await this.load(client)).items;
      return true;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
      this.items ??= [];
      return false;
    }
  }

  /**
   * @param {{title: string, lead: unknown, tools: unknown, empty: string}} parts
   * @param {(item: Item) => unknown} key @param {(item: Item) => unknown} row
   */
  frame({ title, lead, tools, empty }, key, row) {
    return html`<div class="page">
      <h1>${title}</h1>
      <p class="lead">${lead}</p>
      ${tools}
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem}</p>` : nothing}
      ${this.items?.length
        ? html`<ul class="list">${repeat(this.items, key, (item) => html`<li>${row(item)}</li>`)}</ul>`
        : this.items ? html`<p class="empty">${empty}</p>` : nothing}
    </div>`;
  }
}
