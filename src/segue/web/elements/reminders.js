/** Reminders that wait: list, add, cancel. */

import { icon } from "../icons.js";
import { controls, sheet } from "../styles.js";
import { html, nothing, repeat } from "../vendor/lit.js";
import { exact } from "../words.js";
import { SegueElement, define } from "./element.js";

/** @import { Reminder } from "../client/types.js" */

const AFTER = [["20m", "in 20 minutes"], ["1h", "in an hour"], ["3h", "in three hours"], ["1d", "in a day"], ["7d", "in a week"]];
const EVERY = [["FREQ=DAILY", "every day"], ["FREQ=WEEKLY", "every week"], ["FREQ=MONTHLY", "every month"]];

export class SegueReminders extends SegueElement {
  static properties = {
    session: { attribute: false },
    reminders: { state: true },
    how: { state: true },
    problem: { state: true },
  };
  static styles = [controls, sheet];

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    /** @type {Reminder[] | null} */ this.reminders = null;
    this.how = "after";
    this.problem = "";
  }

  firstUpdated() {
    this.#act(async () => {});
  }

  render() {
    const { session } = this;
    if (!session) return nothing;
    return html`<div class="page">
      <h1>Reminders</h1>
      <p class="lead">What agents will remind you of. You can also just ask: “Remind me in 20 minutes to call mum.”</p>
      ${session.threads.length ? this.#form(session) : nothing}
      ${this.problem ? html`<p class="notice bad" role="alert">${this.problem}</p>` : nothing}
      ${this.reminders?.length
        ? html`<ul class="list">${repeat(this.reminders, (each) => each.id, this.#row)}</ul>`
        : this.reminders ? html`<p class="empty">No reminder waits.</p>` : nothing}
    </div>`;
  }

  /** @param {import("../session.js").Session} session */
  #form = (session) => html`<form class="add" @submit=${this.#add}>
    <input class="grow" name="text" required maxlength="1000" aria-label="Remind me to" placeholder="Remind me to…" autocomplete="off">
    <select aria-label="When" @change=${(/** @type {any} */ event) => (this.how = event.target.value)}>
      <option value="after">in a while</option><option value="at">at a time</option><option value="every">again and again</option>
    </select>
    ${this.how === "after"
      ? html`<select name="after" aria-label="In how long">${AFTER.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>`
      : this.how === "at"
        ? html`<input type="datetime-local" name="at" required aria-label="Day and time">`
        : html`<select name="every" aria-label="How often">${EVERY.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>
            <input type="time" name="time" required value="09:00" aria-label="At">`}
    <select name="thread" aria-label="In which conversation">${session.threads.map((thread) =>
      html`<option value=${thread.id}>${session.nameOf(thread.agent_id)}: ${thread.title ?? "new"}</option>`)}</select>
    <button class="main">Add</button>
  </form>`;

  #row = (/** @type {Reminder} */ reminder) => html`<li><div class="row">
    <span class="grow">${reminder.text}<br><time class="small dim" datetime=${reminder.due_at} title=${exact(reminder.due_at)}>${reminder.description}</time></span>
    <button class="icon" aria-label="Cancel: ${reminder.text}" title="Cancel" @click=${() => this.#act((client) => client.cancelReminder(reminder.id))}>${icon("close")}</button>
  </div></li>`;

  /** @param {SubmitEvent} event */
  async #add(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const { text, thread, after, at, every, time } = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
    const [hour, minute] = (time ?? "").split(":").map(Number);
    const when = every ? { every: `${every};BYHOUR=${hour};BYMINUTE=${minute}` } : at ? { at } : { after };
    if (await this.#act((client) => client.createReminder(thread, { text, ...when }))) {
      /** @type {HTMLInputElement} */ (form.elements.namedItem("text")).value = "";
    }
  }

  /** @param {(client: import("../client/segue-client.js").SegueClient) => Promise<unknown>} action */
  async #act(action) {
    const client = this.session?.client;
    if (!client) return false;
    this.problem = "";
    try {
      await action(client);
      this.reminders = (await client.listReminders()).items;
      return true;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
      this.reminders ??= [];
      return false;
    }
  }
}

define("segue-reminders", SegueReminders);
