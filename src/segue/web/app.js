/**
 * The page: threads, one conversation, and beside it what belongs to the user or the operator.
 * The address says what is shown, so that back, reload and links work: after `#`, or as a path.
 */

import { Session, isTemporary, keys } from "./session.js";
import { allow, decline, mayAsk, notify, register } from "./notifications.js";
import { icon } from "./icons.js";
import { controls, tokens } from "./styles.js";
import { ago } from "./words.js";
import { html, nothing } from "./vendor/lit.js";
import { appStyles } from "./elements/app-styles.js";
import { SegueElement, define } from "./elements/element.js";
import { helpDialog } from "./elements/help.js";
import "./elements/conversation.js";
import "./elements/memories.js";
import "./elements/preferences.js";
import "./elements/reminders.js";
import "./elements/search.js";
import "./elements/sign-in.js";
import "./elements/threads.js";

/** @import { Thread } from "./client/types.js" */

const INSPECTOR = "segue.inspector";
/** @type {Record<string, string>} */
const PLACES = { preferences: "Preferences", memories: "Memories", reminders: "Reminders", outcomes: "Outcomes", simulate: "Simulator" };
const OWN_PATHS = new Set(["outcomes", "simulate"]);

export class SegueApp extends SegueElement {
  static properties = { route: { state: true }, isInspecting: { state: true }, missing: { state: true } };

  static styles = [tokens, controls, appStyles];

  constructor() {
    super();
    this.session = new Session({ api: new URL("..", import.meta.url), key: keys.get() });
    this.route = read(location);
    this.isInspecting = localStorage.getItem(INSPECTOR) === "open";
    /** A conversation of the address that the server does not show to this user. */ this.missing = "";
    /** @type {object | null} The conversation that got the focus. */ this.shown = null;
    addEventListener("hashchange", () => (this.route = read(location)));
    globalThis.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("focus", () => this.session.refreshMe());
    this.session.start();
    register();
    this.session.addEventListener("heard", (event) => this.#heard(/** @type {CustomEvent} */ (event)));
  }

  willUpdate() {
    this.follow(this.session);
    const { session, route } = this;
    document.title = `${session.unread ? `(${session.unread}) ` : ""}${PLACES[route.place] ? `${PLACES[route.place]} · ` : ""}Segue`;
    if (this.isInspecting && session.me?.is_operator) import("./elements/inspector.js");
    if (route.place === "outcomes") import("./elements/outcomes.js");
    if (route.place === "simulate") import("./elements/simulator.js");
    if (!session.isReady || route.place !== "thread" || session.find(route.id) || this.missing === route.id) return;
    session.client.getThread(route.id).then((found) => session.keep(found), (error) => {
      if (error.status === 404) this.missing = route.id;
      else go("");
    });
  }

  updated() {
    const talk = /** @type {any} */ (this.renderRoot.querySelector("segue-conversation"));
    const field = talk ?? this.renderRoot.querySelector(".welcome segue-composer");
    const shown = talk?.conversation ?? field;
    if (shown === this.shown) return; // new messages do not move the focus
    this.shown = shown;
    // A phone's keyboard would cover the messages.
    if (field && matchMedia("(pointer: fine)").matches) field.updateComplete.then(() => field.focus());
  }

  render() {
    const { session, route } = this;
    if (session.isLocked) {
      return html`<segue-sign-in .problem=${session.client.key ? session.failure?.message ?? "" : ""}
        @unlock=${(/** @type {CustomEvent} */ { detail }) => session.unlock(detail.key, detail.stays)}></segue-sign-in>`;
    }
    const thread = route.place === "thread" ? session.find(route.id) : null;
    const isOperator = session.me?.is_operator ?? false;
    const inspects = this.isInspecting && isOperator && thread;
    return html`<div class="frame ${inspects ? "inspecting" : ""} ${route.place ? "reading" : ""} ${this.#isFirstVisit ? "first" : ""}">
        <aside>
          <segue-threads .session=${session} .current=${route.id} @create=${this.#create} @search=${this.#search}></segue-threads>
          <nav class="places" aria-label="Yours">
            ${this.#place("preferences", "sliders")} ${this.#place("memories", "book")} ${this.#place("reminders", "clock")}
            ${isOperator ? html`${this.#place("outcomes", "chart")} ${this.#place("simulate", "flask")}` : nothing}
          </nav>
        </aside>
        <main class="middle">${this.#middle(thread)}</main>
        ${inspects
          ? html`<section class="inspector" aria-label="Inspector"><segue-inspector .session=${session} .thread=${thread.id}></segue-inspector></section>`
          : nothing}
      </div>
      <segue-search .session=${session}></segue-search>
      ${helpDialog}`;
  }

  /** Then a phone shows the welcome, since there is no list. */
  get #isFirstVisit() {
    const { session, route } = this;
    return !route.place && !session.threads.length && (session.isReady || Boolean(session.failure));
  }

  /** @param {string} name @param {Parameters<typeof icon>[0]} picture */
  #place = (name, picture) => html`<a href=${OWN_PATHS.has(name) ? name : `./#/${name}`}
    aria-current=${this.route.place === name ? "page" : nothing}>${icon(picture)} ${PLACES[name]}</a>`;

  /** @param {Thread | null} thread */
  #middle(thread) {
    const { session, route } = this;
    const back = html`<button class="plain icon back" aria-label="Back to the conversations" @click=${() => go("")}>${icon("back")}</button>`;
    if (thread) return html`${this.#header(thread, back)}${this.#offer()}${this.#conversation(thread)}`;
    if (route.place === "thread") return route.id === this.missing ? html`<header class="back">${back}</header>${this.#welcome()}` : nothing;
    if (!session.isReady || !PLACES[route.place]) return this.#welcome();
    return html`<header class="back">${back}</header>${this.#view(route.place)}`;
  }

  /** @param {string} place */
  #view(place) {
    const { session } = this;
    switch (place) {
      case "preferences": return html`<segue-preferences .session=${session}></segue-preferences>`;
      case "memories": return html`<segue-memories .session=${session}></segue-memories>`;
      case "reminders": return html`<segue-reminders .session=${session}></segue-reminders>`;
      case "outcomes": return html`<segue-outcomes .session=${session}></segue-outcomes>`;
      default: return html`<segue-simulator .session=${session}></segue-simulator>`;
    }
  }

  /** @param {Thread} thread */
  #conversation = (thread) => html`<segue-conversation .session=${this.session}
    .conversation=${this.session.open(thread.id)} .highlighted=${this.route.position}></segue-conversation>`;

  /** @param {Thread} thread @param {unknown} back */
  #header(thread, back) {
    const name = this.session.nameOf(thread.agent_id);
    const held = this.session.heldBack(thread);
    return html`<header>
      ${back}
      <span class="face" aria-hidden="true">${name.slice(0, 1).toUpperCase()}</span>
      <h1 class="cut">${name}${thread.title ? html`<span class="dim"> · ${thread.title}</span>` : nothing}</h1>
      <button class="plain icon" aria-pressed=${Boolean(held)} title=${held ? `${held.text} Click to allow it again.` : `${name} may write first. Click to stop it here.`}
        aria-label="Do not write first" @click=${held?.undo ?? (() => this.#mute(thread))}>${icon(held ? "mute" : "bell")}</button>
      <button class="plain icon" title="Delete this conversation" aria-label="Delete this conversation" @click=${() => this.#delete(thread)}>${icon("trash")}</button>
      ${this.session.me?.is_operator
        ? html`<button class="plain icon inspect" title="Inspector" aria-label="Inspector" aria-pressed=${this.isInspecting} @click=${this.#inspect}>${icon("gauge")}</button>`
        : nothing}
    </header>`;
  }

  #offer() {
    if (!mayAsk()) return nothing;
    return html`<div class="offer" role="region" aria-label="Notifications"><span class="grow">Notify you when an agent writes while this page is hidden?</span>
      <button @click=${() => this.#ask(true)}>Yes, please</button><button class="plain" @click=${() => this.#ask(false)}>No</button></div>`;
  }

  #welcome() {
    const { session } = this;
    if (session.failure) return html`<div class="welcome" role="status"><h1>The server does not respond</h1><p class="dim">${session.failure.message} ${isTemporary(session.failure) ? "This page retries automatically." : ""}</p></div>`;
    if (!session.isReady) return nothing;
    const missing = this.route.place === "thread" && html`<p class="notice" role="status">This conversation does not exist, or it belongs to another user.</p>`;
    return html`<div class="welcome">${missing || nothing}<h1>${session.threads.length ? "Pick up where you left off" : "Say hello"}</h1>
      <p class="dim">${session.threads.length ? "Continue one of these, or write to start a new conversation." : "Then wait a while: here, agents write first."}</p>
      <div class="recent">${session.threads.slice(0, 3).map((thread) => html`<a href="./#/t/${thread.id}">
        <span class="face" aria-hidden="true">${session.nameOf(thread.agent_id).slice(0, 1).toUpperCase()}</span>
        <span class="grow cut">${thread.title ?? `New, with ${session.nameOf(thread.agent_id)}`}</span><span class="small dim">${ago(thread.updated_at)}</span></a>`)}</div>
      <segue-composer thread="new" .name=${session.nameOf(session.agents[0]?.id)} @send=${this.#begin}></segue-composer></div>`;
  }

  /** @param {CustomEvent} event */
  async #create(event) {
    const agent = typeof event.detail === "string" ? event.detail : undefined;
    await this.#start(agent).catch(() => null);
  }

  /** @param {CustomEvent} event */
  async #begin(event) {
    const composer = /** @type {import("./elements/composer.js").SegueComposer} */ (event.target);
    try {
      const thread = await this.#start();
      if (thread) this.session.open(thread.id).send(event.detail);
      else composer.restore("");
    } catch (error) {
      composer.restore(/** @type {Error} */ (error).message);
    }
  }

  #isStarting = false;

  /** Null while another one starts: a second click on a slow network counts as the first. */
  /** @param {string} [agent] */
  async #start(agent) {
    if (this.#isStarting) return null;
    this.#isStarting = true;
    try {
      const thread = await this.session.create(agent);
      go(`t/${thread.id}`);
      return thread;
    } finally {
      this.#isStarting = false;
    }
  }

  /** @param {Thread} thread */
  async #mute(thread) {
    this.session.keep(await this.session.client.updateThread(thread.id, { muted: true }));
  }

  /** @param {Thread} thread */
  async #delete(thread) {
    if (!confirm("Delete this conversation? What the agent remembers of you stays.")) return;
    await this.session.client.deleteThread(thread.id);
    this.session.drop(thread.id);
    go("");
  }

  #inspect() {
    this.isInspecting = !this.isInspecting;
    localStorage.setItem(INSPECTOR, this.isInspecting ? "open" : "closed");
  }

  #search() {
    /** @type {any} */ (this.renderRoot.querySelector("segue-search"))?.open();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const isCommand = event.metaKey || event.ctrlKey;
    const [target] = event.composedPath();
    const isWriting = target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    if (isCommand && event.key === "k") this.#search();
    else if (isCommand && event.key === "j") this.#nextUnread();
    else if (event.key === "?" && !isWriting) this.renderRoot.querySelector("dialog")?.showModal();
    else if (event.key === "Escape" && !this.renderRoot.querySelector("dialog[open]")) {
      /** @type {any} */ (this.renderRoot.querySelector("segue-conversation"))?.stop();
      return;
    } else return;
    event.preventDefault();
  }

  #nextUnread() {
    const next = this.session.threads.find((thread) => thread.unread && thread.id !== this.route.id);
    if (next) go(`t/${next.id}`);
  }

  /** @param {CustomEvent} event */
  #heard(event) {
    notify(this.session, event.detail);
    this.requestUpdate();
  }

  /** @param {boolean} wants */
  async #ask(wants) {
    if (wants) await allow();
    else decline();
    this.requestUpdate();
  }
}

/** @param {string} place */
const go = (place) => location.assign(`./#/${place}`);

/** What an address shows. @param {{pathname: string, hash: string}} address */
function read({ pathname, hash }) {
  const path = pathname.split("/").at(-1) ?? "";
  if (OWN_PATHS.has(path)) return { place: path, id: "", position: "" };
  const [place = "", id = "", position = ""] = hash.replace(/^#\/?/, "").split("/");
  return place === "t" ? { place: "thread", id, position } : { place, id: "", position: "" };
}

define("segue-app", SegueApp);
