/**
 * One thread as this tab knows it: a window of its stored messages, what is being written, what was
 * sent and not stored yet. Pages of history and frames of the stream may come in any order and more
 * than once; the result is the same.
 */

/** @import { SegueClient } from "./client/segue-client.js" */
/** @import { Content, Frame, Message } from "./client/types.js" */

/** At most this many messages are in the document; further ones are a scroll away. */
export const WINDOW = 120;
const PAGE = 30;
const AT_ONCE = 6;

/** @typedef {{id: string, content: Content, text: string, error: string | null}} Unsent */
/** @typedef {{id: string, text: string, origin: string | null, turn_id: string | null}} Draft */
/** @typedef {{turn_id: string, questions: Record<string, any>}} Question */

/** Positions are numbers of up to 19 digits, as text. @param {string} a @param {string} b */
export const compare = (a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);

/** @param {Content} content */
export const textOf = (content) =>
  typeof content === "string"
    ? content
    : content.map((block) => (block.type === "text" ? block.text : "")).join("");

/** Until the next frame; a hidden tab draws none, and waits a moment instead. */
export const drawn = () => new Promise((resolve) => { requestAnimationFrame(resolve); setTimeout(resolve, 100); });

export class Conversation extends EventTarget {
  /** @param {SegueClient} client @param {string} id */
  constructor(client, id) {
    super();
    this.client = client;
    this.id = id;
    /** @type {Message[]} In their order. */ this.messages = [];
    /** @type {Map<string, Draft>} */ this.drafts = new Map();
    /** @type {Unsent[]} */ this.unsent = [];
    /** @type {Map<string, {name: string, state: string}>} */ this.tools = new Map();
    /** @type {Question | null} */ this.question = null;
    /** @type {Set<string>} Turns that run. */ this.running = new Set();
    /** @type {Set<string>} Turns that ended while this tab listened. */ this.ended = new Set();
    /** @type {string | null} */ this.before = null;
    /** @type {string | null} */ this.after = null;
    /** Messages that came while the window ends before them. */ this.below = 0;
    this.isLoaded = false;
    /** @type {Error | null} */ this.failure = null;
    /** @type {Promise<void> | null} */ this.loading = null;
    this.refreshes = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */ this.watching = undefined;
  }

  get isAtEnd() { return this.after === null; }
  get isBusy() { return this.running.size > 0 || this.drafts.size > 0; }
  get last() { return this.messages.at(-1) ?? null; }

  /** The newest page, instead of what is shown. */
  loadLatest = () =>
    this.#once(async () => {
      const page = await this.client.getHistory(this.id, { limit: PAGE });
      const newer = this.isLoaded ? [] : this.messages; // received while the page was loading
      this.messages = [];
      this.#merge([...page.items, ...newer]);
      this.before = page.before;
      this.after = null;
      this.below = 0;
      this.isLoaded = true;
    });

  loadOlder = () =>
    this.#once(async () => {
      if (!this.before) return;
      const page = await this.client.getHistory(this.id, { limit: PAGE, before: this.before });
      await this.#mergeGently(page.items.toReversed());
      this.before = page.before;
      if (this.messages.length > WINDOW) {
        this.messages.length = WINDOW;
        this.after = this.messages[WINDOW - 1].position;
      }
    });

  loadNewer = () =>
    this.#once(async () => {
      if (!this.after) return;
      const page = await this.client.getHistory(this.id, { limit: PAGE, after: this.after });
      await this.#mergeGently(page.items);
      this.after = page.after;
      if (this.isAtEnd) this.below = 0;
      this.#trimTop();
    });

  /** The page around a message that was searched for. @param {string} position */
  loadAround = (position) =>
    this.#once(async () => {
      const half = PAGE / 2;
      const upTo = `${BigInt(position) + 1n}`; // `before` leaves out the message itself
      const pages = [{ before: upTo }, { after: position }].map((page) => this.client.getHistory(this.id, { limit: half, ...page }));
      const [older, newer] = await Promise.all(pages);
      this.messages = [];
      this.#merge([...older.items, ...newer.items]);
      this.before = older.before;
      this.after = newer.after;
      this.isLoaded = true;
    });

  /** @param {Content} content @param {string} [id] */
  async send(content, id = crypto.randomUUID()) {
    this.unsent = [...this.unsent, { id, content, text: textOf(content), error: null }];
    if (!this.isAtEnd) await this.loadLatest();
    await this.#deliver(id, content);
  }

  /** @param {string} id */
  async resend(id) {
    const found = this.unsent.find((each) => each.id === id);
    if (found) found.error = null;
    if (found) await this.#deliver(id, found.content);
  }

  /** @param {string} id @param {Content} content */
  async #deliver(id, content) {
    this.#changed();
    try {
      const accepted = await this.client.send(this.id, content, { client_message_id: id });
      this.unsent = this.unsent.filter((each) => each.id !== id);
      // A quick turn may be over before the answer to our request says that it is queued.
      if (this.ended.has(accepted.turn_id)) this.refresh();
      else {
        this.#store({ ...accepted.message, client_message_id: id });
        this.running.add(accepted.turn_id);
      }
    } catch (error) {
      const found = this.unsent.find((each) => each.id === id);
      if (found) found.error = error instanceof Error ? error.message : `${error}`;
    }
    this.#changed();
  }

  /** @param {string} id */
  discard(id) {
    this.unsent = this.unsent.filter((each) => each.id !== id);
    this.#changed();
  }

  stop = () => this.client.cancel(this.id);

  /** @param {unknown} answer */
  async answer(answer) {
    if (!this.question) return;
    await this.client.answer(this.id, this.question.turn_id, answer);
    this.question = null;
    await this.refresh();
  }

  /** @param {Frame} frame */
  apply(frame) {
    const turn = frame.turn_id ?? null;
    switch (frame.type) {
      case "message":
        this.#hear(frame.message);
        break;
      case "token":
        this.#write(frame, turn);
        break;
      case "retracted":
        this.drafts.delete(frame.message_id);
        break;
      case "started":
        if (!this.ended.has(turn)) this.running.add(turn);
        this.question = null;
        break;
      case "tool":
        this.tools.set(frame.call_id, { name: frame.name, state: frame.state });
        break;
      case "question":
        this.question = { turn_id: turn, questions: frame.questions };
        break;
      case "done": case "error": case "cancelled":
        this.#end(frame, turn);
        break;
      case "lagged":
        this.drafts.clear();
        break;
      default:
        return;
    }
    this.#changed();
  }

  /** @param {Frame} frame @param {string | null} turn_id */
  #write(frame, turn_id) {
    const known = this.drafts.get(frame.message_id);
    // An offset behind what is known repeats it, as after a reconnect.
    const text = (known?.text ?? "").slice(0, frame.offset) + frame.text;
    if (this.messages.some((message) => message.id === frame.message_id)) return;
    const origin = frame.origin ?? null;
    this.drafts.set(frame.message_id, { id: frame.message_id, text, origin, turn_id });
  }

  /** @param {Message} message */
  #hear(message) {
    this.drafts.delete(message.id);
    if (message.role === "user") {
      // Ours, received before the response to our request.
      const mine = this.unsent.find((each) => (message.client_message_id ? each.id === message.client_message_id : each.text === message.text));
      this.unsent = this.unsent.filter((each) => each !== mine);
    }
    const isKnown = this.messages.some((each) => each.id === message.id);
    if (!this.isAtEnd && !isKnown) {
      this.below += 1;
      return;
    }
    this.#store(message);
    this.dispatchEvent(new CustomEvent("heard", { detail: { message, isNew: !isKnown } }));
  }

  /** @param {Frame} frame @param {string | null} turn */
  #end(frame, turn) {
    if (turn) this.running.delete(turn);
    if (turn && frame.state !== "waiting") this.ended.add(turn);
    for (const draft of this.drafts.values()) {
      if (!turn || !draft.turn_id || draft.turn_id === turn) this.drafts.delete(draft.id);
    }
    this.tools.clear();
    if (frame.type !== "done" || frame.state !== "waiting") this.question = null;
    this.refresh();
  }

  /** Read the states of the newest messages again: answered, failed, stopped. */
  async refresh() {
    const number = ++this.refreshes;
    const page = await this.client.getHistory(this.id, { limit: 10 }).catch(() => null);
    // An outdated response may still contain a question that was answered since.
    if (!page || !this.isAtEnd || number !== this.refreshes) return;
    this.#merge(page.items);
    const asked = this.messages.findLast((message) => message.role === "user");
    if (!["queued", "running"].includes(asked?.state ?? "")) this.running.clear();
    this.#changed();
  }

  /** An end that was missed, such as during a restart, is found in the history. */
  #watch() {
    clearTimeout(this.watching);
    if (this.running.size) this.watching = setTimeout(() => this.refresh(), 5000);
  }

  /** @param {Message} message */
  #store(message) {
    this.#merge([message]);
    this.#trimTop();
  }

  #trimTop() {
    if (this.messages.length <= WINDOW) return;
    this.messages = this.messages.slice(-WINDOW);
    this.before = this.messages[0].position;
  }

  /** @param {Message[]} found */
  #merge(found) {
    const known = new Map(this.messages.map((message) => [message.id, message]));
    for (const message of found) {
      const old = known.get(message.id);
      // A frame has no state; what history said of it stays.
      const asked = message.asked?.length ? message.asked : (old?.asked ?? []);
      known.set(message.id, { ...old, ...message, asked, state: message.state ?? old?.state ?? null });
    }
    this.messages = [...known.values()].sort((a, b) => compare(a.position, b.position));
    for (const message of found) this.drafts.delete(message.id);
    const last = this.messages.findLast((message) => message.role === "user");
    if (last?.state === "waiting") this.question ??= last.asked.at(-1) ?? null;
  }

  /** @param {() => Promise<void>} load */
  #once(load) {
    this.loading ??= load()
      .then(() => void (this.failure = null), (error) => void (this.failure = error))
      .finally(() => {
        this.loading = null;
        this.#changed();
      });
    this.#changed();
    return this.loading;
  }

  /** A few in each frame: a whole page at once would make scrolling stutter. @param {Message[]} found */
  async #mergeGently(found) {
    for (let start = 0; start < found.length; start += AT_ONCE) {
      this.#merge(found.slice(start, start + AT_ONCE));
      this.#changed();
      if (start + AT_ONCE < found.length) await drawn();
    }
  }

  #changed() {
    this.#watch();
    this.dispatchEvent(new Event("change"));
  }
}
