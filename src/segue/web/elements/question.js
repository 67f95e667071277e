/** An open question of the agent: answered by a button, a choice, or text. */

import { controls } from "../styles.js";
import { css, html, nothing } from "../vendor/lit.js";
import { SegueElement, define } from "./element.js";

/** A graph's question as readable text. @param {any} asked */
export function readQuestion(asked) {
  if (typeof asked === "string") return { text: asked, choices: [] };
  const text = asked?.question ?? asked?.text ?? asked?.message ?? asked?.description ?? "";
  const choices = asked?.choices ?? asked?.options ?? asked?.allowed ?? [];
  const rest = text ? null : JSON.stringify(asked, null, 2);
  return { text: text || "The agent waits for your answer.", choices: [...choices].map(String), rest };
}

export class SegueQuestion extends SegueElement {
  static properties = { question: { attribute: false }, problem: { state: true }, busy: { state: true } };

  static styles = [
    controls,
    css`
      :host { display: block; max-width: 68ch; }
      form { border: 1px solid var(--warn); background: var(--warn-soft); border-radius: 10px; padding: 12px; }
      fieldset { border: 0; margin: 0; padding: 0; min-width: 0; }
      fieldset + * { margin-top: 12px; }
      legend { padding: 0; margin-bottom: 8px; white-space: pre-wrap; }
      .row { flex-wrap: wrap; }
      input { flex: 1; min-width: 160px; }
      pre { margin: 0 0 8px; overflow-x: auto; font-size: 12px; }
    `,
  ];

  constructor() {
    super();
    /** @type {any} */ this.question = null;
    this.problem = "";
    this.busy = false;
  }

  render() {
    const asked = Object.entries(this.question.questions);
    return html`<form @submit=${this.#submit} aria-label="A question for you">
      ${asked.map(([id, value]) => this.#one(id, readQuestion(value), asked.length === 1))}
      ${asked.length > 1 ? html`<button class="main" ?disabled=${this.busy}>Answer</button>` : nothing}
      ${this.problem ? html`<p class="bad small" role="alert">${this.problem}</p>` : nothing}
    </form>`;
  }

  /** @param {string} id @param {ReturnType<typeof readQuestion>} asked @param {boolean} isOnly */
  #one(id, asked, isOnly) {
    return html`<fieldset>
      <legend>${asked.text}</legend>
      ${asked.rest ? html`<pre>${asked.rest}</pre>` : nothing}
      <div class="row">
        ${isOnly && asked.choices.length
          ? asked.choices.map((choice) => html`<button type="button" ?disabled=${this.busy}
              @click=${() => this.#give(choice)}>${choice}</button>`)
          : html`<input name=${id} aria-label="Your answer" autocomplete="off" required>
              ${isOnly ? html`<button class="main" ?disabled=${this.busy}>Answer</button>` : nothing}`}
      </div>
    </fieldset>`;
  }

  /** @param {SubmitEvent} event */
  #submit(event) {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target)));
    const values = Object.values(given);
    this.#give(values.length === 1 ? values[0] : given);
  }

  /** @param {unknown} answer */
  #give(answer) {
    this.busy = true;
    this.emit("answer", { answer, fail: (/** @type {Error} */ error) => {
      this.problem = error.message;
      this.busy = false;
    } });
  }
}

define("segue-question", SegueQuestion);
