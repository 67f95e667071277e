/** What an agent remembers about the user: read, search, correct, delete. */

import { icon } from "../icons.js";
import { controls, sheet } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { ago, exact } from "../words.js";
import { SegueElement, define } from "./element.js";

/** @import { Memory } from "../client/types.js" */

export class SegueMemories extends SegueElement {
  static properties = {
    session: { attribute: false },
    agent: { state: true },
    memories: { state: true },
    edited: { state: true },
    query: { state: true },
    problem: { state: true },
  };
  static styles = [controls, sheet];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    this.agent = "";
    /** @type {Memory[] | null} */ this.memories = null;
    this.edited = "";
    this.query = "";
    this.problem = "";
  }

  firstUpdated() {
    this.#load();
  }

  render() {
    const { session } = this;
    if (!session) return nothing;
    return html`<div class="page">
      <h1>Memories</h1>
      <p class="lead">What agents remember about you, and use when they answer.</p>
      ${session.agents.length > 1
        ? html`<label class="row small">Of <select @change=${this.#choose}>${session.agents.map((agent) =>
            html`<option value=${agent.id}>${agent.name}</option>`)}</select></label>`
        : nothing}
      <form class="add" @submit=${this.#add}>
        <input class="grow" name="content" required aria-label="Something to remember" placeholder="Something to remember, such as: I play the guitar." autocomplete="off">
        <button class="main">Remember</button>
      </form>
      <input type="search" class="grow" aria-label="Search memories" placeholder="Search as the agent would" @change=${this.#search} @search=${this.#search}>
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem}</p>` : nothing}
      ${this.memories?.length
        ? html`<ul class="list">${repeat(this.memories, (memory) => memory.key, this.#row)}</ul>`
        : this.memories
          ? html`<p class="empty">${this.query ? `Nothing found for “${this.query}”.` : "Nothing yet. Agents note facts that you tell them, and you can write some yourself."}</p>`
          : nothing}
    </div>`;
  }

  #row = (/** @type {Memory} */ memory) => html`<li>${this.edited === memory.key
    ? html`<form class="row" @submit=${(/** @type {SubmitEvent} */ event) => this.#save(event, memory)}>
        <input class="grow" name="content" required aria-label="The memory" .value=${memory.content}>
        <button class="main">Save</button><button type="button" @click=${() => (this.edited = "")}>Cancel</button></form>`
    : html`<div class="row"><span class="grow">${memory.content}<br>
        <time class="tiny dim" datetime=${memory.updated_at} title=${exact(memory.updated_at)}>${ago(memory.updated_at)}${typeof memory.score === "number" ? ` · match ${Math.round(memory.score * 100)} %` : ""}</time></span>
        <button @click=${() => (this.edited = memory.key)} aria-label="Edit: ${memory.content}">Edit</button>
        <button class="icon" @click=${() => this.#forget(memory)} aria-label="Forget: ${memory.content}" title="Forget">${icon("close")}</button></div>`}</li>`;

  /** @param {Event} event */
  #choose(event) {
    this.agent = /** @type {HTMLSelectElement} */ (event.target).value;
    this.#load();
  }

  /** @param {Event} event */
  #search(event) {
    this.query = /** @type {HTMLInputElement} */ (event.target).value.trim();
    this.#load();
  }

  /** @param {SubmitEvent} event */
  #add(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const content = `${new FormData(form).get("content")}`;
    this.#act((client) => client.createMemory({ content, ...this.#of })).then((done) => done && form.reset());
  }

  /** @param {SubmitEvent} event @param {Memory} memory */
  #save(event, memory) {
    event.preventDefault();
    const content = `${new FormData(/** @type {HTMLFormElement} */ (event.target)).get("content")}`;
    this.edited = "";
    this.#act((client) => client.updateMemory(memory.key, { content, agent_id: memory.agent_id }));
  }

  /** @param {Memory} memory */
  #forget(memory) {
    this.#act((client) => client.deleteMemory(memory.key, memory.agent_id));
  }

  get #of() {
    return this.agent ? { agent_id: this.agent } : {};
  }

  #load = () => this.#act(async () => {});

  /** @param {(client: import("../client/segue-client.js").SegueClient) => Promise<unknown>} action */
  async #act(action) {
    const client = this.session?.client;
    if (!client) return false;
    this.problem = "";
    try {
      await action(client);
      const found = this.query ? client.searchMemories(this.query, this.agent || undefined) : client.listMemories(this.#of);
      this.memories = (await found).items;
      return true;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
      this.memories ??= [];
      return false;
    }
  }
}

define("segue-memories", SegueMemories);
