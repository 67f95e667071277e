/** What our elements have in common: they follow a source of `change` events while connected. */

import { LitElement } from "../vendor/lit.js";

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

/** @param {string} name @param {CustomElementConstructor} element */
export function define(name, element) {
  if (!customElements.get(name)) customElements.define(name, element);
}
