/**
 * The page's state of its user: the client, the threads, and the one stream that updates them.
 * Elements read it and listen to `change`; `heard` reports a new message in any thread.
 */

import { SegueClient, SegueError } from "./client/segue-client.js";
import { Conversation, compare } from "./conversation.js";
import { moment } from "./words.js";

/** @import { Agent, Frame, Me, Message, StreamState, Thread } from "./client/types.js" */

const KEY = "segue.key";
export const RETRY_AFTER = 2000;

/** Whether a later request may succeed: without a network, over the rate limit, during a restart. */
/** @param {unknown} error */
export const isTemporary = (error) =>
  error instanceof SegueError && (!error.status || error.status === 429 || error.status >= 500);

/** The key, where the user allowed it to be kept; never in an address. */
export const keys = {
  /** @returns {string | null} */
  get: () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY),
  /** @param {string} key @param {boolean} stays */
  set(key, stays) {
    keys.forget();
    (stays ? localStorage : sessionStorage).setItem(KEY, key);
  },
  forget() {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  },
};

/** Why the server requires another key; null if it does not. @param {unknown} error @returns {string | null} */
function whyLocked(error) {
  if (!(error instanceof SegueError)) return null;
  if (error.code === "user") return "This is a program's key, which needs a user with each request. Use a user's key here.";
  return error.status === 401 ? error.message : null;
}

/** @param {Thread[]} threads */
const newest = (threads) =>
  threads.flatMap((thread) => thread.position ?? []).sort(compare).at(-1) ?? "0";

export class Session extends EventTarget {
  /** @param {{api: string | URL, key?: string | null}} options */
  constructor({ api, key = null }) {
    super();
    this.client = new SegueClient({ api, key });
    /** @type {Me | null} */ this.me = null;
    /** @type {Agent[]} */ this.agents = [];
    /** @type {Thread[]} */ this.threads = [];
    /** @type {string | null} */ this.next = null;
    /** @type {Map<string, Conversation>} */ this.conversations = new Map();
    /** @type {StreamState} */ this.state = "connecting";
    this.isReady = false;
    this.isLocked = false;
    /** @type {Error | null} */ this.failure = null;
    this.stream = /** @type {import("./client/stream.js").SegueStream | null} */ (null);
    this.isClosed = false;
    this.retry = 0;
  }

  async start() {
    this.failure = null;
    this.isLocked = this.isClosed = false;
    try {
      const [me, agents, threads] = await Promise.all([
        this.client.getMe(),
        this.client.listAgents(),
        this.client.listThreads({ limit: 50 }),
      ]);
      if (this.isClosed) return;
      this.me = me;
      this.agents = agents.items;
      threads.items.forEach((thread) => this.#keep(thread));
      this.next = threads.next;
      this.isReady = true;
      // From the newest message that is listed, so that nothing falls between.
      this.stream ??= this.client.listen({
        since: newest(threads.items),
        onFrame: (frame) => this.#hear(frame),
        onState: (state, code) => this.#connect(state, code),
      });
    } catch (error) {
      if (this.isClosed) return;
      const lock = whyLocked(error);
      this.isLocked = lock !== null;
      this.failure = lock === null ? /** @type {Error} */ (error) : new Error(lock);
      if (isTemporary(this.failure)) this.retry = setTimeout(() => this.start(), RETRY_AFTER);
    }
    this.#changed();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.retry);
    this.stream?.close();
    this.stream = null;
  }

  /** @param {string} key @param {boolean} stays */
  async unlock(key, stays) {
    this.client.key = key;
    this.close();
    await this.start();
    if (this.isReady) keys.set(key, stays);
  }

  async loadMoreThreads() {
    if (!this.next) return;
    const page = await this.client.listThreads({ limit: 50, after: this.next });
    this.next = page.next;
    page.items.forEach((thread) => this.#keep(thread));
    this.#changed();
  }

  /** @param {string} id */
  open(id) {
    let found = this.conversations.get(id);
    if (!found) {
      this.conversations.set(id, (found = new Conversation(this.client, id)));
      const heard = (/** @type {Event} */ event) => this.#announce(id, event);
      found.addEventListener("heard", heard);
      found.loadLatest();
    }
    return found;
  }

  /** @param {string} [agent_id] */
  async create(agent_id) {
    const thread = await this.client.createThread(agent_id ? { agent_id } : {});
    this.#keep(thread);
    this.#changed();
    return thread;
  }

  /** @param {string} id */
  find = (id) => this.threads.find((thread) => thread.id === id) ?? null;
  /** @param {string | undefined} agent_id */
  nameOf = (agent_id) => this.agents.find((agent) => agent.id === agent_id)?.name ?? agent_id ?? "";
  get unread() {
    return this.threads.filter((thread) => thread.unread > 0).length;
  }

  /** @param {string} id @param {string} position */
  async markRead(id, position) {
    const thread = this.find(id);
    if (!thread?.unread) return;
    thread.unread = 0;
    this.#changed();
    await this.client.markRead(id, position).then((read) => this.keep(read), () => {});
  }

  /** @param {import("./client/types.js").Preferences} changes */
  async setPreferences(changes) {
    const before = this.me;
    const me = await this.client.setPreferences(changes);
    if (before !== this.me) return this.refreshMe(); // changed in the meantime, and the response may be older
    this.me = me;
    this.#changed();
  }

  /** A user may ask in a message that agents do not write first, and the server stores it. */
  /** @returns {Promise<void>} */
  async refreshMe() {
    const before = this.me;
    const me = await this.client.getMe().catch(() => null);
    if (before !== this.me) return this.refreshMe(); // changed in the meantime, and the response may be older
    if (!me || JSON.stringify(me) === JSON.stringify(this.me)) return;
    this.me = me;
    this.#changed();
  }

  /**
   * What prevents agents from writing first in a thread; null if nothing does.
   * @param {Thread} thread
   * @returns {{text: string, undo: () => Promise<unknown>} | null}
   */
  heldBack(thread) {
    const [mine, own] = [this.me?.preferences ?? {}, thread.preferences ?? {}];
    const name = this.nameOf(thread.agent_id);
    const isAhead = (/** @type {string | null | undefined} */ time) => time && new Date(time).getTime() > Date.now();
    const here = (/** @type {object} */ back) => async () => this.keep(await this.client.updateThread(thread.id, back));
    const anywhere = (/** @type {object} */ back) => () => this.setPreferences(back);
    const [stop, snooze] = [{ muted: null, opted_out: null }, { snoozed_until: null }];
    if (mine.opted_out || mine.muted) return { text: "Agents no longer write to you first.", undo: anywhere(stop) };
    if (own.opted_out || own.muted) return { text: `${name} does not write first here.`, undo: here(stop) };
    if (isAhead(mine.snoozed_until)) {
      return { text: `No agent writes first before ${moment(mine.snoozed_until ?? "")}.`, undo: anywhere(snooze) };
    }
    if (isAhead(own.snoozed_until)) {
      return { text: `${name} does not write first before ${moment(own.snoozed_until ?? "")}.`, undo: here(snooze) };
    }
    return null;
  }

  /** A newer entry of the list. @param {Thread} thread */
  keep(thread) {
    this.#keep(thread);
    this.#changed();
  }

  /** @param {string} id */
  drop(id) {
    this.threads = this.threads.filter((thread) => thread.id !== id);
    this.conversations.delete(id);
    this.#changed();
  }

  /** Answers and frames come in any order: an older entry is left out. @param {Thread} thread */
  #keep(thread) {
    if (compare(this.find(thread.id)?.position ?? "0", thread.position ?? "0") > 0) return;
    const others = this.threads.filter((each) => each.id !== thread.id);
    this.threads = [...others, thread].sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
  }

  /** @param {Frame} frame */
  #hear(frame) {
    if (frame.type === "thread") this.keep(frame.thread);
    else if (frame.type === "deleted") frame.thread_id ? this.drop(frame.thread_id) : this.start();
    else if (frame.type === "lagged") this.conversations.forEach((each) => each.apply(frame));
    else if (frame.thread_id) this.#pass(frame.thread_id, frame);
    if (frame.type === "done") this.refreshMe();
  }

  /** @param {string} id @param {Frame} frame */
  #pass(id, frame) {
    const open = this.conversations.get(id);
    if (open) open.apply(frame);
    else if (frame.type === "message") this.#tell(id, frame.message);
  }

  /** @param {string} id @param {Event} event */
  #announce(id, event) {
    const { message, isNew } = /** @type {CustomEvent} */ (event).detail;
    if (isNew) this.#tell(id, message);
  }

  /** @param {string} thread @param {Message} message */
  #tell(thread, message) {
    this.dispatchEvent(new CustomEvent("heard", { detail: { thread, message } }));
  }

  /** @param {StreamState} state @param {number} [code] */
  #connect(state, code) {
    this.state = state;
    if (state === "refused" && code === 4401) {
      this.isLocked = true;
      this.stream = null;
    }
    if (state === "open") this.conversations.forEach((each) => each.failure && !each.isLoaded && each.loadLatest());
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
