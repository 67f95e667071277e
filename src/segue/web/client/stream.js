/**
 * One socket that stays open: it reconnects with the cursor of the last frame, so that the server
 * repeats what was missed, also across its own restart.
 */

/** @import { Frame, StreamState } from "./types.js" */

const FIRST_WAIT = 250;
const LONGEST_WAIT = 10_000;
const PING_EVERY = 20_000;
const PONG_WITHIN = 10_000;
// Close codes for which a retry is useless: credentials, origin, no such thread.
const REFUSALS = new Set([4401, 4403, 4404]);

export class SegueStream {
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;
  /** @type {StreamState} */ #state = "connecting";
  #attempts = 0;
  #heardAt = 0;
  #wake = () => this.#hurry();

  /**
   * @param {(since: string | null) => WebSocket} connect
   * @param {{onFrame: (frame: Frame) => void, onState?: (state: StreamState, code?: number) => void, since?: string | null}} options
   *   `since` is the cursor to begin after; without it only new frames come.
   */
  constructor(connect, { onFrame, onState = () => {}, since = null }) {
    this.connect = connect;
    this.onFrame = onFrame;
    this.onState = onState;
    /** The cursor of the last frame. */
    this.cursor = since;
    globalThis.addEventListener?.("online", this.#wake);
    globalThis.document?.addEventListener("visibilitychange", this.#wake);
    this.#open();
  }

  get state() {
    return this.#state;
  }

  /** @param {Record<string, unknown>} frame @returns {boolean} whether the socket took it */
  send(frame) {
    if (this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  close() {
    globalThis.removeEventListener?.("online", this.#wake);
    globalThis.document?.removeEventListener("visibilitychange", this.#wake);
    clearTimeout(this.#timer);
    this.#enter("closed");
    this.#socket?.close(1000);
    this.#socket = null;
  }

  #open() {
    this.#enter("connecting");
    const socket = (this.#socket = this.connect(this.cursor));
    socket.onopen = () => {
      this.#attempts = 0;
      this.#heardAt = Date.now();
      this.#enter("open");
      this.#schedule(PING_EVERY, () => this.#ping());
    };
    socket.onmessage = (event) => {
      this.#heardAt = Date.now();
      const frame = JSON.parse(event.data);
      if (frame.type === "pong") return;
      this.onFrame(frame);
      if (frame.cursor) this.cursor = frame.cursor;
    };
    socket.onclose = (event) => {
      if (socket === this.#socket) this.#lost(event.code);
    };
  }

  /** @param {number} code */
  #lost(code) {
    this.#socket = null;
    if (REFUSALS.has(code)) {
      clearTimeout(this.#timer);
      this.#enter("refused", code);
      return;
    }
    this.#enter("waiting", code);
    const wait = Math.min(FIRST_WAIT * 2 ** this.#attempts++, LONGEST_WAIT);
    // Randomised, because a restarting server loses all its clients at the same moment.
    this.#schedule(wait * (0.5 + Math.random() / 2), () => this.#open());
  }

  /** A sleeping laptop or a dead network closes no socket; a missing pong shows it. */
  #ping() {
    const asked = Date.now();
    this.send({ type: "ping" });
    this.#schedule(PONG_WITHIN, () => {
      if (this.#heardAt < asked) {
        this.#socket?.close();
        this.#lost(1006);
      } else this.#schedule(PING_EVERY, () => this.#ping());
    });
  }

  #hurry() {
    if (this.#state === "waiting") this.#schedule(0, () => this.#open());
  }

  /** @param {number} wait @param {() => void} action */
  #schedule(wait, action) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(action, wait);
  }

  /** @param {StreamState} state @param {number} [code] */
  #enter(state, code) {
    this.#state = state;
    this.onState(state, code);
  }
}
