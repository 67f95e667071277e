/** Pending reminders: list, add, cancel. */

import { icon } from "../icons.js";
import { html, nothing } from "../vendor/lit.js";
import { moment } from "../words.js";
import { define } from "./element.js";
import { SegueSheet, fieldOf } from "./sheet.js";

/** @import { SegueClient } from "../client/segue-client.js" */
/** @import { Reminder } from "../client/types.js" */

const AFTER = [["20m", "in 20 minutes"], ["1h", "in an hour"], ["3h", "in three hours"], ["1d", "in a day"], ["7d", "in a week"]];
const EVERY = [["FREQ=DAILY", "every day"], ["FREQ=WEEKLY", "every week"], ["FREQ=MONTHLY", "every month"]];

/** @extends {SegueSheet<Reminder>} */
export class SegueReminders extends SegueSheet {
  static properties = { ...SegueSheet.properties, how: { state: true } };

  constructor() {
    super();
    this.how = "after";
  }

  /** @param {SegueClient} client */
  async load(client) {
    return client.listReminders();
  }

  render() {
    const { session } = this;
    if (!session) return nothing;
    const agent = session.agents.find((each) => each.takes_reminders);
    const lead = `What agents will remind you of.${agent ? ` You can also ask ${agent.name}: “Remind me in 20 minutes to call mum.”` : ""}`;
    const tools = session.threads.length ? this.#form(session) : nothing;
    const empty = html`<p>No reminders yet.</p>${session.threads.length
      ? "A reminder arrives at its time, in the conversation that you choose." : "Start a conversation first: reminders arrive there."}`;
    return this.frame({ title: "Reminders", lead, tools, empty }, (each) => each.id, this.#row);
  }

  /** @param {import("../session.js").Session} session */
  #form = (session) => html`<form class="add" @submit=${this.#add}>
    <input class="grow" name="text" required maxlength="1000" aria-label="Remind me to" placeholder="Remind me to…" autocomplete="off">
    <select aria-label="When" @change=${(/** @type {any} */ event) => (this.how = event.target.value)}>
      <option value="after">after a while</option><option value="at">at a time</option><option value="every">repeatedly</option>
    </select>
    ${this.how === "after"
      ? html`<select name="after" aria-label="After how long">${AFTER.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>`
      : this.how === "at"
        ? html`<input type="datetime-local" name="at" required aria-label="Day and time">`
        : html`<select name="every" aria-label="How often">${EVERY.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>
            <input type="time" name="time" required value="09:00" aria-label="At">`}
    <select name="thread" class="grow" aria-label="In which conversation">${session.threads.map((thread) =>
      html`<option value=${thread.id}>${session.nameOf(thread.agent_id)}: ${thread.title ?? "new"}</option>`)}</select>
    <button class="main" ?disabled=${this.isAdding}>Add</button>
  </form>`;

  #row = (/** @type {Reminder} */ reminder) => html`<div class="row">
    <span class="grow">${reminder.text}<br><time class="small dim" datetime=${reminder.due_at} title=${reminder.description}>${when(reminder)} · ${this.session?.nameOf(this.session.find(reminder.thread_id)?.agent_id)}</time></span>
    <button class="plain icon" aria-label="Cancel: ${reminder.text}" title="Cancel" @click=${() => this.act((client) => client.cancelReminder(reminder.id))}>${icon("close")}</button>
  </div>`;

  /** @param {SubmitEvent} event */
  #add(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const { text, thread, after, at, every, time } = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
    const [hour, minute] = (time ?? "").split(":").map(Number);
    const when = every ? { every: `${every};BYHOUR=${hour};BYMINUTE=${minute}` } : at ? { at } : { after };
    this.add(fieldOf(form, "text"), (client) => client.createReminder(thread, { text, ...when }));
  }
}

/** The next time, and the rule. @param {Reminder} reminder */
function when({ due_at, description }) {
  const next = moment(due_at);
  const [, rule] = description.split(", then ");
  return `${/^\d+:/.test(next) ? `today ${next}` : next}${rule ? `, then ${rule}` : ""}`;
}

define("segue-reminders", SegueReminders);
