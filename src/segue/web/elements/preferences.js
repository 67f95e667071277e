/** When agents may write first: the user's zone, quiet hours, mute, snooze, and a full stop. */

import { save } from "../media.js";
import { isSubscribed, subscribe, unsubscribe } from "../notifications.js";
import { controls, sheet } from "../styles.js";
import { html, nothing } from "../vendor/lit.js";
import { moment } from "../words.js";
import { SegueView, define } from "./element.js";

/** @import { Agent, Preferences } from "../client/types.js" */

const HOUR = 3_600_000;

export class SeguePreferences extends SegueView {
  static properties = { ...SegueView.properties, note: { state: true }, pushes: { state: true } };
  static styles = [controls, sheet];

  constructor() {
    super();
    this.note = "";
    /** @type {boolean | null} */ this.pushes = null;
  }

  async firstUpdated() {
    if (this.session) this.pushes = await isSubscribed(this.session.client);
  }

  render() {
    const wishes = this.session?.me?.preferences;
    if (!wishes) return nothing;
    const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const zones = [...new Set([here, wishes.time_zone ?? here, ...Intl.supportedValuesOf("timeZone")])];
    const hours = wishes.quiet_hours || null;
    const isSnoozed = wishes.snoozed_until && new Date(wishes.snoozed_until).getTime() > Date.now();
    const isStopped = Boolean(wishes.opted_out || wishes.muted);
    return html`<div class="page">
      <h1>Preferences</h1>
      <p class="lead">When agents may write to you first. They always answer what you write.</p>
      ${this.trouble}
      <p class="unseen" aria-live="polite">${this.note}</p>
      <div class="setting"><div class="grow"><label for="zone"><strong>Your time zone</strong></label>
        <span class="small dim">Quiet hours and daily reminders follow it. This browser is in ${here}.
          ${wishes.time_zone === here ? nothing : html`<button class="link" @click=${() => this.#move(here)}>Use that</button>`}</span></div>
        <select id="zone" @change=${this.#zone}>
          <option value="" ?selected=${!wishes.time_zone}>the server's</option>
          ${zones.map((zone) => html`<option value=${zone} ?selected=${zone === wishes.time_zone}>${zone}</option>`)}
        </select></div>
      <div class="setting"><div class="grow"><strong>Quiet hours</strong>
        <span class="small dim">${wishes.quiet_hours === false ? "None: they may write at any hour." : hours ? "No agent writes first between these hours." : agentHours(this.session?.agents ?? [])}</span></div>
        <form class="row" @submit=${this.#hours}>
          <input type="time" name="start" aria-label="From" required .value=${hours?.start ?? "22:00"}>
          <input type="time" name="end" aria-label="To" required .value=${hours?.end ?? "08:00"}>
          <button>Set</button>
          ${hours ? html`<button type="button" @click=${() => this.#save({ quiet_hours: null }, "Each agent's own quiet hours apply.")}>Clear</button>` : nothing}
        </form></div>
      <div class="setting"><div class="grow"><strong>Take a break</strong>
        <span class="small dim">${isSnoozed ? `No agent writes first before ${moment(/** @type {string} */ (wishes.snoozed_until))}.` : "For a while, no agent writes first."}</span></div>
        <div class="row">${isSnoozed
          ? html`<button @click=${() => this.#save({ snoozed_until: null }, "The break is over.")}>End it</button>`
          : [[1, "An hour"], [24, "A day"], [168, "A week"]].map(([hours, name]) =>
              html`<button @click=${() => this.#snooze(+hours)}>${name}</button>`)}</div></div>
      <label class="setting"><span class="grow"><strong>Agents may write to me first</strong>
        <span class="small dim">${isStopped ? "Off: no follow-ups and no reminders. Agents still reply." : "Also switched off when you tell an agent to stop writing to you."}</span></span>
        <input type="checkbox" .checked=${!isStopped} @change=${this.#allow}></label>
      ${this.pushes === null ? nothing : html`<label class="setting"><span class="grow"><strong>Notify this browser</strong>
        <span class="small dim">When an agent writes first, also while this page is closed.</span></span>
        <input type="checkbox" .checked=${this.pushes} @change=${this.#push}></label>`}
      <h2>Your data</h2>
      <p class="small dim">Everything you wrote and received, as JSON lines:
        <button class="link" @click=${this.#export}>download it</button>.</p>
    </div>`;
  }

  /** @param {Event} event */
  #allow(event) {
    const isAllowed = /** @type {HTMLInputElement} */ (event.target).checked;
    if (isAllowed) this.#save({ opted_out: null, muted: null }, "Agents may write to you first.");
    else this.#save({ opted_out: true }, "Agents no longer write to you first.");
  }

  /** @param {Event} event */
  async #push(event) {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (await this.attempt(box.checked ? subscribe : unsubscribe)) {
      this.pushes = box.checked;
      this.note = box.checked ? "Notifications are on in this browser." : "Notifications are off in this browser.";
    } else box.checked = Boolean(this.pushes);
  }

  /** @param {Event} event */
  #zone(event) {
    this.#move(/** @type {HTMLSelectElement} */ (event.target).value || null);
  }

  /** @param {string | null} zone */
  #move(zone) {
    this.#save({ time_zone: zone }, `Your time zone is ${zone ?? "the server's"}.`);
  }

  /** @param {SubmitEvent} event */
  #hours(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const quiet_hours = { start: `${form.get("start")}`, end: `${form.get("end")}` };
    this.#save({ quiet_hours }, `Quiet from ${quiet_hours.start} to ${quiet_hours.end}.`);
  }

  /** @param {number} hours */
  #snooze(hours) {
    const until = new Date(Date.now() + hours * HOUR).toISOString();
    this.#save({ snoozed_until: until }, "No agent writes first for now.");
  }

  /** @param {Preferences} changes @param {string} note */
  async #save(changes, note) {
    if (await this.attempt(async () => this.session?.setPreferences(changes))) this.note = note;
  }

  async #export() {
    const blob = await this.session?.client.exportAll();
    if (blob) save(blob, "segue-export.jsonl");
  }
}

/** The quiet hours of a user who has not set any. @param {Agent[]} agents */
function agentHours(agents) {
  const own = agents.map(({ quiet_hours: hours }) => (hours ? `${hours.start} to ${hours.end}` : "none"));
  if (new Set(own).size < 2) return own[0] && own[0] !== "none" ? `As your agents are set: ${own[0]}.` : "None is set: agents may write at any hour.";
  const named = [...new Set(own)].map((hours) => `${agents.filter((_, index) => own[index] === hours).map(({ name }) => name).join(", ")} ${hours}`);
  return `As your agents are set: ${named.join("; ")}.`;
}

define("segue-preferences", SeguePreferences);
