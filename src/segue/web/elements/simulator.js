/** The simulator, for operators: two policies, one story, and the week that each of them makes. */

import { FIELDS, dayOf, daysOf, hourOf, placesOf, quietParts, sayDay, sayEntry, sayHours, spots, toChanges, toForm } from "../simulate.js";
import { controls, sheet } from "../styles.js";
import { css, html, nothing, svg } from "../vendor/lit.js";
import { SegueView, define } from "./element.js";

/** @import { Entry, Run, Simulation } from "../simulate.js" */

const NAMES = /** @type {const} */ (["A", "B"]);
const ROW = 36;
const MARK = 10;
const LEFT = 58;
const RIGHT = 68;
const SAID = new Set(["user_message", "reply"]);
const TOLD = new Set(["follow_up", "postponed", "not_sent", "pending"]);

export class SegueSimulator extends SegueView {
  static properties = {
    ...SegueView.properties, options: { state: true }, threads: { state: true }, story: { state: true }, agent: { state: true }, forms: { state: true },
    simulation: { state: true }, isBusy: { state: true }, told: { state: true }, width: { state: true },
  };

  static styles = [
    controls,
    sheet,
    css`
      .page { max-width: 1240px; container-type: inline-size; }
      .lead { max-width: 68ch; }
      form { border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px 16px; background: var(--raised); margin-bottom: 24px; }
      .choice { display: flex; gap: 16px; flex-wrap: wrap; align-items: end; margin-bottom: 8px; }
      .choice label { display: grid; grid-template-columns: minmax(0, 1fr); gap: 4px; font-size: 13px; color: var(--dim); min-width: 0; }
      .choice select { color: var(--text); max-width: min(100%, 360px); }
      .fields { display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: 4px 24px; }
      .field { display: grid; grid-template-columns: 1fr 88px 88px; gap: 8px; align-items: center; font-size: 13px; }
      .field.wide { grid-template-columns: 1fr 124px 124px; }
      .field input { width: 100%; font-size: 13px; padding: 3px 8px; }
      .field input.other { border-color: var(--accent); background: var(--accent-soft); }
      .field input[aria-invalid="true"] { border-color: var(--bad); background: var(--bad-soft); }
      .heads { font-weight: 600; text-align: center; } .heads .tiny { text-align: left; font-weight: 400; }
      @container (max-width: 1071px) { .heads:nth-child(3) { display: none; } }
      @container (max-width: 717px) { .heads:nth-child(2) { display: none; } }
      .sentences { font-size: 18px; line-height: 28px; max-width: 60ch; margin: 0 0 24px; padding: 0; list-style: none; }
      .sentences li + li { font-size: 15px; line-height: 24px; color: var(--dim); }
      .weeks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 32px 40px; }
      figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; font-size: 13px; margin-bottom: 4px; }
      figcaption .dim { font-weight: 400; }
      text { fill: var(--dim); font-size: 12px; } text.full { fill: var(--warn); font-weight: 600; }
      .grid { stroke: var(--line); } .quiet { fill: var(--hover); }
      .user_message { fill: var(--dim); } .reply { fill: var(--ground); stroke: var(--dim); stroke-width: 1.5; }
      .follow_up { fill: var(--accent); } .pending { fill: none; stroke: var(--accent); stroke-width: 1.5; }
      .postponed { fill: none; stroke: var(--warn); stroke-width: 1.75; } .not_sent { stroke: var(--bad); stroke-width: 1.75; fill: none; }
      .mark { outline: none; cursor: default; } .mark:focus-visible .halo, .mark:hover .halo { stroke: var(--accent); stroke-width: 2; }
      .halo { fill: transparent; }
      .told { min-height: 40px; font-size: 13px; line-height: 20px; margin: 4px 0 0; max-width: 68ch; }
      .key { display: flex; gap: 4px 16px; flex-wrap: wrap; font-size: 12px; color: var(--dim); margin: 24px 0 0; padding: 0; list-style: none; }
      .key li { display: flex; gap: 6px; align-items: center; } .key svg { flex: none; }
      details { margin-top: 8px; font-size: 13px; } details ol { margin: 8px 0; padding-left: 20px; } summary { cursor: pointer; color: var(--dim); }
      .busy { opacity: .5; transition: opacity var(--quick); }
      @container (max-width: 390px) { .fields { grid-template-columns: 1fr; } .field, .field.wide { grid-template-columns: 1fr 84px 84px; } .field.wide input { font-size: 11px; padding: 3px 4px; } }
    `,
  ];

  constructor() {
    super();
    /** @type {any} */ this.options = null;
    /** @type {any[]} */ this.threads = [];
    this.story = "";
    this.agent = "";
    /** @type {Record<string, string>[]} */ this.forms = [];
    /** @type {Simulation | null} */ this.simulation = null;
    this.isBusy = false;
    /** @type {(Entry[] | null)[]} */ this.told = [null, null];
    this.width = 520;
    this.sizes = new ResizeObserver(([{ contentRect }]) => (this.width = Math.max(300, Math.floor(contentRect.width))));
  }

  async firstUpdated() {
    const isLoaded = await this.attempt(async (client) => {
      this.options = await client.getSimulationOptions();
      this.threads = (await client.listAllThreads()).items.filter((thread) => !thread.id.includes("/"));
      this.story = this.options.scenarios[0].name;
      this.#choose(this.options.agents[0].id);
    });
    if (isLoaded) this.#run();
  }

  get #policy() {
    return this.options.agents.find((/** @type {any} */ agent) => agent.id === this.agent)?.policy;
  }

  /** @param {string} agent */
  #choose(agent) {
    this.agent = agent;
    this.forms = NAMES.map(() => toForm(this.#policy));
    this.#clear();
  }

  #wanted = {};

  /** The result belongs to another story or other policies. */
  #clear() {
    this.#wanted = {};
    this.simulation = null;
    this.problem = "";
  }

  /** @param {Event} event */
  #tell(event) {
    this.story = /** @type {HTMLSelectElement} */ (event.target).value;
    this.#clear();
    const thread = this.threads.find((each) => `thread ${each.id}` === this.story);
    const isKnown = (/** @type {string} */ id) => this.options.agents.some((/** @type {any} */ each) => each.id === id);
    if (thread && thread.agent_id !== this.agent && isKnown(thread.agent_id)) this.#choose(thread.agent_id);
  }

  /** @param {Event} [event] */
  async #run(event) {
    event?.preventDefault();
    if (this.isBusy) return;
    this.isBusy = true;
    const wanted = this.#wanted;
    const policies = this.forms.map((form) => toChanges(form, this.#policy));
    const thread = this.story.startsWith("thread ") ? this.story.slice(7) : null;
    const isDone = await this.attempt(async (client) => {
      const found = await client.simulate(thread ? { thread_id: thread, policies } : { scenario: this.story, agent_id: this.agent, policies });
      if (wanted !== this.#wanted) return; // another story or agent was chosen in the meantime
      this.simulation = found;
      this.told = [null, null];
    });
    if (!isDone) this.simulation = null;
    this.isBusy = false;
  }

  updated() {
    const figure = this.renderRoot.querySelector("figure");
    this.sizes.disconnect();
    if (figure) this.sizes.observe(figure);
  }

  render() {
    const { simulation } = this;
    return html`<div class="page">
      <h1>Simulator</h1>
      <p class="lead">What would agents send, and what not? Change a policy and see the same days under both. No model is called, and no user gets a message.</p>
      ${this.forms.length ? this.#form() : nothing}
      ${this.trouble}
      <div aria-live="polite" class=${this.isBusy ? "busy" : ""}>
        ${this.isBusy && !simulation ? html`<p class="dim">Simulating…</p>` : nothing}
        ${simulation ? html`<h2 class="unseen">${simulation.title}</h2>
          <ul class="sentences">${simulation.difference.map((sentence) => html`<li>${sentence}</li>`)}</ul>` : nothing}
      </div>
      ${simulation ? html`<div class="weeks ${this.isBusy ? "busy" : ""}">${simulation.runs.map((run, index) => this.#week(simulation, run, index))}</div>${key}` : nothing}
    </div>`;
  }

  #form() {
    return html`<form @submit=${this.#run} aria-label="Policies">
      <div class="choice">
        <label>Story <select @change=${this.#tell}>
          <optgroup label="Scenarios">${this.options.scenarios.map((/** @type {any} */ each) => html`<option value=${each.name} ?selected=${each.name === this.story}>${each.title}</option>`)}</optgroup>
          ${this.threads.length ? html`<optgroup label="The past of a conversation">${this.threads.map((each) =>
            html`<option value="thread ${each.id}" ?selected=${`thread ${each.id}` === this.story}>${each.title ?? "Untitled"} · ${each.user_id}</option>`)}</optgroup>` : nothing}
        </select></label>
        ${this.options.agents.length > 1 ? html`<label>Agent <select .value=${this.agent} @change=${(/** @type {any} */ event) => this.#choose(event.target.value)}>
          ${this.options.agents.map((/** @type {any} */ each) => html`<option value=${each.id} ?selected=${each.id === this.agent}>${each.name}</option>`)}</select></label>` : nothing}
        <button class="main" ?disabled=${this.isBusy}>Simulate</button>
        <button type="button" @click=${() => this.#choose(this.agent)}>Reset</button>
      </div>
      <div class="fields">${["Times: 30m, 2h, 1d", "", ""].map((note) => html`<div class="field heads" aria-hidden="true">
        <span class="tiny dim">${note}</span><span>A</span><span>B</span></div>`)}
        ${FIELDS.map(([place, label]) => html`<div class="field ${place.endsWith("hours") ? "wide" : ""}"><span>${label}</span>
        ${NAMES.map((name, index) => this.#input(place, label, name, index))}</div>`)}</div>
    </form>`;
  }

  /** @param {string} place @param {string} label @param {string} name @param {number} index */
  #input(place, label, name, index) {
    const isWrong = placesOf(this.problem).some((each) => each.policy === name && each.place === place);
    const isOther = index === 1 && this.forms[0][place] !== this.forms[1][place];
    return html`<input aria-label="${label}, policy ${name}" autocomplete="off" class=${isOther ? "other" : ""} .value=${this.forms[index][place]}
      aria-invalid=${isWrong ? "true" : nothing}
      @input=${(/** @type {any} */ event) => {
        this.forms = this.forms.map((form, number) => (number === index ? { ...form, [place]: event.target.value } : form));
      }}>`;
  }

  /** @param {Simulation} simulation @param {Run} run @param {number} index */
  #week(simulation, run, index) {
    const days = daysOf(simulation);
    const height = 18 + days.length * ROW;
    const sent = run.totals.sent;
    const cap = +run.policy.policy.max_per_day;
    const room = this.width - LEFT - RIGHT;
    const x = (/** @type {number} */ hour) => LEFT + (hour / 24) * room;
    const top = (/** @type {number} */ row) => 18 + row * ROW;
    const place = (/** @type {Entry} */ { kind, at }) => {
      const beside = kind === "reply" ? 8 : 0; // an answer comes in the same minute as what it answers
      return `translate(${(x(hourOf(at)) + beside).toFixed(1)} ${top(days.indexOf(dayOf(at))) + (SAID.has(kind) ? 9 : 24)})`;
    };
    const told = this.told[index];
    return html`<figure>
      <figcaption>Policy ${NAMES[index]} <span class="dim">· ${sent} ${sent === 1 ? "follow-up" : "follow-ups"} · quiet ${sayHours(run.quiet_hours)} · ${simulation.time_zone}</span></figcaption>
      <svg width=${this.width} height=${height} role="group" aria-label="The days of policy ${NAMES[index]}">
        ${days.map((_, row) => quietParts(run.quiet_hours).map(([from, until]) =>
          svg`<rect class="quiet" x=${x(from)} width=${x(until) - x(from)} y=${top(row)} height=${ROW - 2} />`))}
        ${[0, 6, 12, 18, 24].map((hour) => svg`<line class="grid" x1=${x(hour)} x2=${x(hour)} y1="16" y2=${height} /><text x=${x(hour)} y="11" text-anchor="middle">${hour}</text>`)}
        ${days.map((day, row) => {
          const count = run.entries.filter((entry) => entry.kind === "follow_up" && dayOf(entry.at) === day).length;
          return svg`<text x="0" y=${top(row) + 21}>${sayDay(day)}</text>
            <text class=${count >= cap ? "full" : ""} x=${this.width} y=${top(row) + 21} text-anchor="end">${count}/${cap}</text>`;
        })}
        ${run.entries.filter((entry) => SAID.has(entry.kind)).map((entry) => svg`<g transform=${place(entry)}>${shape(entry.kind)}</g>`)}
        ${spots(run.entries.filter((entry) => TOLD.has(entry.kind)), (MARK / room) * 24).map((entries) => this.#mark(entries, index, place(entries[0])))}
      </svg>
      <p class="told" aria-live="polite">${told ? told.map((entry) => html`${sayEntry(entry)}<br>`) : html`<span class="dim">Point at a mark, or reach it with Tab, to read why.</span>`}</p>
      <details><summary>As a list</summary><ol>${run.entries.filter((entry) => entry.kind !== "planned").map((entry) => html`<li>${sayEntry(entry)}</li>`)}</ol></details>
    </figure>`;
  }

  /** Entries of one spot, with their number if there are several. @param {Entry[]} entries @param {number} index @param {string} place */
  #mark(entries, index, place) {
    const [{ kind }] = entries;
    const show = () => (this.told = this.told.map((old, number) => (number === index ? entries : old)));
    return svg`<g class="mark" transform=${place} tabindex="0" role="img" aria-label=${entries.map(sayEntry).join(" ")} @focus=${show} @mouseenter=${show}>
      <circle class="halo" r="9" />${shape(kind)}${entries.length > 1 ? svg`<text x="10" y="4">×${entries.length}</text>` : nothing}</g>`;
  }
}

/** @param {string} kind */
function shape(kind) {
  switch (kind) {
    case "user_message": return svg`<circle class="user_message" r="3.5" />`;
    case "reply": return svg`<circle class="reply" r="3" />`;
    case "follow_up": return svg`<path class="follow_up" d="M0-6 6 0 0 6-6 0Z" />`;
    case "pending": return svg`<path class="pending" d="M0-5 5 0 0 5-5 0Z" />`;
    case "postponed": return svg`<path class="postponed" d="M-3-4 3 0-3 4Z" />`;
    default: return svg`<path class="not_sent" d="M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5" />`;
  }
}

const key = html`<ul class="key" aria-label="What the marks mean">
  ${[["user_message", "the user wrote"], ["reply", "answer"], ["follow_up", "follow-up"], ["postponed", "postponed"], ["not_sent", "not sent"], ["pending", "still planned"]].map(
    ([kind, text]) => html`<li><svg width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true">${shape(kind)}</svg>${text}</li>`)}
  <li><svg width="16" height="16" aria-hidden="true"><rect class="quiet" width="16" height="16" /></svg>quiet hours</li>
  <li>×2: two at one spot</li>
  <li>1/5: sent of the day's cap</li>
</ul>`;

define("segue-simulator", SegueSimulator);
