/** What an agent remembers about the user: read, search, correct, delete. */

import { icon } from "../icons.js";
import { html, nothing } from "../vendor/lit.js";
import { ago, exact } from "../words.js";
import { define } from "./element.js";
import { SegueSheet, fieldOf } from "./sheet.js";

/** @import { SegueClient } from "../client/segue-client.js" */
/** @import { Memory } from "../client/types.js" */

/** @extends {SegueSheet<Memory>} */
export class SegueMemories extends SegueSheet {
  static properties = { ...SegueSheet.properties, agent: { state: true }, edited: { state: true }, query: { state: true } };

  constructor() {
    super();
    this.agent = "";
    this.edited = "";
    this.query = "";
  }

  /** @param {SegueClient} client */
  async load(client) {
    return this.query ? client.searchMemories(this.query, this.agent || undefined) : client.listMemories(this.#of);
  }

  render() {
    const agents = this.session?.agents ?? [];
    const tools = html`<form class="add" @submit=${this.#add}>
        <input class="grow" name="content" required aria-label="Something to remember" placeholder="Something to remember, such as: I play the guitar." autocomplete="off">
        <button class="main" ?disabled=${this.isAdding}>Remember</button>
      </form>
      <div class="row">${agents.length > 1
        ? html`<select aria-label="Agent" @change=${this.#choose}>${agents.map((agent) =>
            html`<option value=${agent.id}>${agent.name}</option>`)}</select>`
        : nothing}<input type="search" class="wide grow" aria-label="Search memories" placeholder="Search as the agent would" @change=${this.#search} @search=${this.#search}></div>`;
    const lead = "What agents remember about you, and use when they answer.";
    const empty = this.query ? html`<p>Nothing found for “${this.query}”.</p>Try other words.`
      : html`<p>Nothing is remembered yet.</p>Agents note facts that you tell them, such as “I play the guitar”. You can also add some yourself.`;
    return this.frame({ title: "Memories", lead, tools, empty }, (memory) => memory.key, this.#row);
  }

  #row = (/** @type {Memory} */ memory) => this.edited === memory.key
    ? html`<form class="row" @submit=${(/** @type {SubmitEvent} */ event) => this.#save(event, memory)}>
        <input class="grow" name="content" required aria-label="The memory" .value=${memory.content}>
        <button class="main">Save</button><button type="button" @click=${() => (this.edited = "")}>Cancel</button></form>`
    : html`<div class="row"><span class="grow">${memory.content}<br>
        <time class="tiny dim" datetime=${memory.updated_at} title=${exact(memory.updated_at)}>${ago(memory.updated_at)}${typeof memory.score === "number" ? ` · match ${Math.round(memory.score * 100)} %` : ""}</time></span>
        <button @click=${() => (this.edited = memory.key)} aria-label="Edit: ${memory.content}">Edit</button>
        <button class="plain icon" @click=${() => this.act((client) => client.deleteMemory(memory.key, memory.agent_id))} aria-label="Forget: ${memory.content}" title="Forget">${icon("close")}</button></div>`;

  /** @param {Event} event */
  #choose(event) {
    this.agent = /** @type {HTMLSelectElement} */ (event.target).value;
    this.act();
  }

  /** @param {Event} event */
  #search(event) {
    this.query = /** @type {HTMLInputElement} */ (event.target).value.trim();
    this.act();
  }

  /** @param {SubmitEvent} event */
  #add(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const memory = { content: contentOf(form), ...this.#of };
    this.add(fieldOf(form, "content"), (client) => client.createMemory(memory));
  }

  /** @param {SubmitEvent} event @param {Memory} memory */
  #save(event, memory) {
    event.preventDefault();
    const content = contentOf(/** @type {HTMLFormElement} */ (event.target));
    this.edited = "";
    this.act((client) => client.updateMemory(memory.key, { content, agent_id: memory.agent_id }));
  }

  get #of() {
    return this.agent ? { agent_id: this.agent } : {};
  }
}

/** @param {HTMLFormElement} form */
const contentOf = (form) => `${new FormData(form).get("content")}`;

define("segue-memories", SegueMemories);
