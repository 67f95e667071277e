/** Base of our elements: they follow a source of `change` events while connected. */

import { LitElement, html, nothing } from "../vendor/lit.js";

export class SegueElement extends LitElement {
  /** @type {Map<EventTarget, () => void>} */ #followed = new Map();

  /** Draw again whenever one of these changes, and no longer what was followed before. */
  /** @param {(EventTarget | null | undefined)[]} sources */
  follow(...sources) {
    for (const [source, stop] of this.#followed) {
      if (sources.includes(source)) continue;
      stop();
      this.#followed.delete(source);
    }
    for (const source of sources) {
      if (!source || this.#followed.has(source)) continue;
      const update = () => this.requestUpdate();
      source.addEventListener("change", update);
      this.#followed.set(source, () => source.removeEventListener("change", update));
    }
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.follow();
  }

  connectedCallback() {
    super.connectedCallback();
    if (this.hasUpdated) this.requestUpdate();
  }

  /** @param {string} name @param {unknown} [detail] */
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

/** Shows data of the session's user or server, and errors. */
export class SegueView extends SegueElement {
  static properties = { session: { attribute: false }, problem: { state: true } };

  constructor() {
    super();
    /** @type {import("../session.js").Session | null} */ this.session = null;
    this.problem = "";
  }

  #isOfPoll = false;

  /** @param {import("../vendor/lit.js").PropertyValues} changed */
  willUpdate(changed) {
    this.follow(this.session);
  }

  /**
   * Run an action with the client and show its error; returns whether it succeeded. A poll leaves the
   * problem of an action on screen.
   * @param {(client: import("../client/segue-client.js").SegueClient) => Promise<unknown>} action
   */
  async attempt(action, isPoll = false) {
    if (!this.session) return false;
    try {
      await action(this.session.client);
      if (!isPoll || this.#isOfPoll) this.problem = "";
      return true;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
      this.#isOfPoll = isPoll;
      return false;
    }
  }

  #asked = 0;
  #shown = 0;

  /**
   * Show a result, unless the response to a later request came first.
   * @template Found
   * @param {Promise<Found>} found @param {(found: Found) => void} show
   */
  async newest(found, show) {
    const number = ++this.#asked;
    const given = await found;
    if (number < this.#shown) return;
    this.#shown = number;
    show(given);
  }

  get trouble() {
    return this.problem ? html`<p class="notice bad" role="alert">${this.problem}</p>` : nothing;
  }
}

/** @param {string} name @param {CustomElementConstructor} element */
export function define(name, element) {
  if (!customElements.get(name)) customElements.define(name, element);
}
