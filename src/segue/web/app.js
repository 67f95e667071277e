/**
 * The page: threads, one conversation, and beside it what belongs to the user or the operator.
 * The address after `#` says what is shown, so that back, reload and links work.
 */

import { Session, keys } from "./session.js";
import { allow, decline, mayAsk, notify, register } from "./notifications.js";
import { icon } from "./icons.js";
import { controls, tokens } from "./styles.js";
import { ago } from "./words.js";
import { css, html, nothing } from "./vendor/lit.js";
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

export class SegueApp extends SegueElement {
  static properties = { route: { state: true }, isInspecting: { state: true }, problem: { state: true } };

  static styles = [
    tokens,
    controls,
    css`
      :host { display: block; }
      .frame { height: 100%; display: grid; grid-template-columns: 280px minmax(0, 1fr); }
      .frame.inspecting { grid-template-columns: 280px minmax(0, 1fr) minmax(360px, 36vw); }
      aside { background: var(--raised); border-right: 1px solid var(--line); display: flex; flex-direction: column; min-height: 0; }
      aside segue-threads { flex: 1; }
      .places { border-top: 1px solid var(--line); padding: 8px; display: grid; grid-template-columns: 1fr 1fr; gap: 2px; }
      .places a { display: inline-flex; gap: 6px; align-items: center; padding: 6px 8px; border-radius: 6px; font-size: 13px; line-height: 20px; text-decoration: none; color: var(--dim); }
      .places a:hover, .places a[aria-current] { background: var(--hover); color: var(--text); }
      .middle { display: flex; flex-direction: column; min-height: 0; min-width: 0; }
      .middle > :is(segue-conversation, segue-memories, segue-preferences, segue-reminders) { flex: 1; }
      header { display: flex; gap: 8px; align-items: center; border-bottom: 1px solid var(--line); padding: 8px 12px 8px 20px; min-height: 53px; }
      header h1 { flex: 1; min-width: 0; }
      header h1 .dim { font-weight: 400; }
      .back { display: none; }
      .offer { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; padding: 8px 20px; background: var(--accent-soft); font-size: 13px; }
      dialog.help { border: 1px solid var(--line); border-radius: 10px; background: var(--ground); color: var(--text); padding: 20px 24px; }
      dialog.help dl { display: grid; grid-template-columns: auto 1fr; gap: 6px 16px; }
      dialog.help dd { margin: 0; }
      kbd { font: 12px ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: 1px 5px; background: var(--raised); }
      .welcome { margin: auto; text-align: center; width: min(68ch, 100%); padding: 24px; box-sizing: border-box; }
      .welcome segue-composer { text-align: left; margin-top: 16px; }
      .recent { display: grid; gap: 8px; margin-top: 16px; }
      .recent a { border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; text-decoration: none; color: inherit; text-align: left; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
      .recent a:hover { background: var(--hover); }
      .welcome h1 { font-size: 24px; line-height: 32px; margin-bottom: 8px; }
      .inspector { border-left: 1px solid var(--line); min-height: 0; display: flex; flex-direction: column; }
      .inspector segue-inspector { flex: 1; }
      @media (max-width: 1000px) { .frame.inspecting { grid-template-columns: 240px minmax(0, 1fr) 340px; } .frame { grid-template-columns: 240px minmax(0, 1fr); } }
      @media (max-width: 800px) {
        .frame, .frame.inspecting { grid-template-columns: minmax(0, 1fr); }
        .inspector, .inspect { display: none !important; }
        .frame.reading aside, .frame:not(.reading) .middle { display: none; }
        .back { display: block; }
        header { padding-left: 8px; }
      }
    `,
  ];

  constructor() {
    super();
    this.session = new Session({ api: new URL("..", import.meta.url), key: keys.get() });
    this.route = read(location.hash);
    this.isInspecting = localStorage.getItem(INSPECTOR) === "open";
    this.problem = "";
    addEventListener("hashchange", () => (this.route = read(location.hash)));
    globalThis.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("focus", () => this.session.refreshMe());
    this.session.start();
    register();
    this.session.addEventListener("heard", (event) => this.#heard(/** @type {CustomEvent} */ (event)));
  }

  willUpdate() {
    this.follow(this.session);
    const { session, route } = this;
    document.title = session.unread ? `(${session.unread}) Segue` : "Segue";
    if (this.isInspecting && session.me?.is_operator) import("./elements/inspector.js");
    if (!session.isReady || route.place !== "thread" || session.find(route.id)) return;
    session.client.getThread(route.id).then((found) => session.keep(found), () => (location.hash = "#/"));
  }

  /** @param {import("./vendor/lit.js").PropertyValues} changed */
  updated(changed) {
    const old = changed.get("route");
    const { place, id } = this.route;
    if (place !== "thread" || (old?.id === id && old)) return;
    // A phone's keyboard would cover what is to be read.
    if (matchMedia("(pointer: fine)").matches) {
      const talk = /** @type {any} */ (this.renderRoot.querySelector("segue-conversation"));
      talk?.updateComplete.then(() => talk.focusComposer());
    }
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
    return html`<div class="frame ${inspects ? "inspecting" : ""} ${route.place ? "reading" : ""}">
        <aside>
          <segue-threads .session=${session} .current=${route.id} @create=${this.#create} @search=${this.#search}></segue-threads>
          <nav class="places" aria-label="Yours">
            ${this.#place("preferences", "sliders", "Preferences")} ${this.#place("memories", "book", "Memories")}
            ${this.#place("reminders", "clock", "Reminders")}
            ${isOperator ? html`<a href="outcomes">${icon("chart")} Outcomes</a><a href="simulate">${icon("flask")} Simulator</a>` : nothing}
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

  /** @param {string} name @param {"sliders" | "book" | "clock"} picture @param {string} title */
  #place = (name, picture, title) => html`<a href="#/${name}"
    aria-current=${this.route.place === name ? "page" : nothing}>${icon(picture)} ${title}</a>`;

  /** @param {Thread | null} thread */
  #middle(thread) {
    const { session, route } = this;
    const back = html`<button class="plain icon back" aria-label="Back to the conversations" @click=${() => (location.hash = "#/")}>${icon("back")}</button>`;
    switch (route.place) {
      case "preferences":
        return html`<header class="back">${back}</header><segue-preferences .session=${session}></segue-preferences>`;
      case "memories":
        return html`<header class="back">${back}</header><segue-memories .session=${session}></segue-memories>`;
      case "reminders":
        return html`<header class="back">${back}</header><segue-reminders .session=${session}></segue-reminders>`;
      case "thread":
        return thread ? html`${this.#header(thread, back)}${this.#offer()}${this.#conversation(thread)}` : nothing;
      default:
        return this.#welcome();
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
    return html`<div class="offer" role="region" aria-label="Notifications"><span class="grow">Be told when an agent writes while this page is hidden?</span>
      <button @click=${() => this.#ask(true)}>Yes, please</button><button class="plain" @click=${() => this.#ask(false)}>No</button></div>`;
  }

  #welcome() {
    const { session } = this;
    if (session.failure) return html`<div class="welcome" role="status"><h1>The server is away</h1><p class="dim">${session.failure.message} This page tries again by itself.</p></div>`;
    if (!session.isReady) return nothing;
    return html`<div class="welcome"><h1>${session.threads.length ? "Pick up where you left off" : "Say hello"}</h1>
      <p class="dim">${session.threads.length ? "Go on with one of these, or write to start a new conversation." : "Then be quiet for half a minute: here, agents write first."}</p>
      <div class="recent">${session.threads.slice(0, 3).map((thread) => html`<a href="#/t/${thread.id}">${thread.title ?? `New, with ${session.nameOf(thread.agent_id)}`}<span class="dim"> · ${ago(thread.updated_at)}</span></a>`)}</div>
      <segue-composer thread="new" .name=${session.nameOf(session.agents[0]?.id)} @send=${this.#begin}></segue-composer></div>`;
  }

  /** @param {CustomEvent} event */
  async #create(event) {
    const agent = typeof event.detail === "string" ? event.detail : undefined;
    const thread = await this.session.create(agent).catch(() => null);
    if (thread) location.hash = `#/t/${thread.id}`;
  }

  /** @param {CustomEvent} event */
  async #begin(event) {
    const thread = await this.session.create().catch(() => null);
    if (!thread) return;
    location.hash = `#/t/${thread.id}`;
    this.session.open(thread.id).send(event.detail);
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
    location.hash = "#/";
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
    const isWriting = event.composedPath()[0] instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(/** @type {HTMLElement} */ (event.composedPath()[0]).tagName);
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
    if (next) location.hash = `#/t/${next.id}`;
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

/** @param {string} hash */
function read(hash) {
  const [place = "", id = "", position = ""] = hash.replace(/^#\/?/, "").split("/");
  return place === "t" ? { place: "thread", id, position } : { place, id: "", position: "" };
}

define("segue-app", SegueApp);
