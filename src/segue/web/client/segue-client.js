/**
 * A client of a Segue server, for browsers and any runtime with `fetch` and `WebSocket`.
 *
 *     const segue = new SegueClient({ api: "https://segue.example/", key: "sgu_…" });
 *     const thread = await segue.createThread({ agent_id: "ada" });
 *     segue.listen({ onFrame: (frame) => console.log(frame) });
 *     await segue.send(thread.id, "Which chords first?");
 */

import { SegueStream } from "./stream.js";

export { SegueStream };

/** @import { Accepted, Agent, Content, FollowUp, Found, Frame, HistoryPage, Me, Memory, Preferences, Reason, Reminder, StreamState, Thread } from "./types.js" */
/** @import { Message, Block } from "./types.js" */

/** An error response of the server. */
export class SegueError extends Error {
  /** @param {number} status @param {string} code @param {string} detail */
  constructor(status, code, detail) {
    super(detail);
    this.name = "SegueError";
    /** The HTTP status; 0 if the server could not be reached. */
    this.status = status;
    /** A stable word for programs. */
    this.code = code;
  }
}

/** @template T @typedef {{items: T[], next: string | null}} Page */

export class SegueClient {
  /**
   * @param {object} [options]
   * @param {string | URL} [options.api]  The server's address; this page's own by default.
   * @param {string | null} [options.key]  An API key or a JWT.
   * @param {(request: Request) => Promise<Response>} [options.fetch]
   */
  constructor({ api = globalThis.location?.href, key = null, fetch } = {}) {
    this.api = new URL(`${api}`.replace(/\/?([?#].*)?$/, "/"));
    this.key = key;
    this.fetch = fetch ?? ((request) => globalThis.fetch(request));
  }

  /**
   * One stream for all threads of the user, or for one thread.
   * @param {{onFrame: (frame: Frame) => void, onState?: (state: StreamState, code?: number) => void, since?: string | null, thread?: string}} options
   */
  listen({ thread, ...options }) {
    const path = thread ? `api/threads/${encodeURIComponent(thread)}/ws` : "api/ws";
    const protocols = ["segue", ...(this.key ? [`bearer.${this.key}`] : [])];
    return new SegueStream((since) => {
      const url = this.#url(path, { since });
      url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
      return new WebSocket(url, protocols);
    }, options);
  }

  /** @returns {Promise<Me>} */
  getMe = () => this.#get("api/me");
  /** @param {Preferences} changes @returns {Promise<Me>} */
  setPreferences = (changes) => this.#call("PATCH", "api/me", changes);
  /** @returns {Promise<Page<Agent>>} */
  listAgents = () => this.#get("api/agents");

  /** @param {{limit?: number, after?: string | null}} [page] @returns {Promise<Page<Thread>>} */
  listThreads = (page = {}) => this.#get("api/threads", page);
  /** @param {{agent_id?: string, title?: string}} [thread] @returns {Promise<Thread>} */
  createThread = (thread = {}) => this.#call("POST", "api/threads", thread);
  /** @param {string} id @returns {Promise<Thread>} */
  getThread = (id) => this.#get(this.#of(id));
  /** @param {string} id @param {Preferences & {title?: string}} changes @returns {Promise<Thread>} */
  updateThread = (id, changes) => this.#call("PATCH", this.#of(id), changes);
  /** @param {string} id @returns {Promise<unknown>} */
  deleteThread = (id) => this.#call("DELETE", this.#of(id));
  /** @param {string} id @param {string} position @returns {Promise<Thread>} */
  markRead = (id, position) => this.#call("POST", this.#of(id, "read"), { position });

  /**
   * The visible messages, oldest first.
   * @param {string} id
   * @param {{limit?: number, before?: string | null, after?: string | null}} [page]
   * @returns {Promise<HistoryPage>}
   */
  getHistory = (id, page = {}) => this.#get(this.#of(id, "history"), page);

  /**
   * Send a message; sent again with the same `client_message_id`, it is stored once.
   * @param {string} id
   * @param {Content} content
   * @param {{client_message_id?: string, strategy?: "enqueue" | "interrupt" | "reject" | "collect"}} [options]
   * @returns {Promise<Accepted>}
   */
  send = (id, content, options = {}) =>
    this.#call("POST", this.#of(id, "messages"), { content, ...options });
  /** @param {string} id @returns {Promise<unknown>} */
  cancel = (id) => this.#call("POST", this.#of(id, "cancel"));
  /** @param {string} id @param {string} turn_id @param {unknown} answer @returns {Promise<unknown>} */
  answer = (id, turn_id, answer) => this.#call("POST", this.#of(id, "answer"), { turn_id, answer });
  /** @param {string} id @returns {Promise<unknown>} */
  reportTyping = (id) => this.#call("POST", this.#of(id, "typing"));
  /** @param {string} id @returns {Promise<Page<Reason>>} */
  why = (id) => this.#get(this.#of(id, "why"));

  /** @param {string} id @returns {Promise<Page<FollowUp>>} */
  listFollowUps = (id) => this.#get(this.#of(id, "follow-ups"));
  /** @param {string} id @returns {Promise<unknown>} */
  cancelFollowUps = (id) => this.#call("DELETE", this.#of(id, "follow-ups"));
  /** @param {string} id @param {string} until @returns {Promise<Thread>} */
  snooze = (id, until) => this.#call("POST", this.#of(id, "follow-ups/snooze"), { until });

  /** @returns {Promise<Page<Reminder>>} */
  listReminders = () => this.#get("api/reminders");
  /**
   * @param {string} id
   * @param {{text: string, after?: string, at?: string, every?: string, until?: string}} reminder
   * @returns {Promise<Reminder>}
   */
  createReminder = (id, reminder) => this.#call("POST", this.#of(id, "reminders"), reminder);
  /** @param {string} id @returns {Promise<unknown>} */
  cancelReminder = (id) => this.#call("DELETE", `api/reminders/${encodeURIComponent(id)}`);

  /** @param {{agent_id?: string, limit?: number, before?: string}} [page] @returns {Promise<Page<Memory>>} */
  listMemories = (page = {}) => this.#get("api/memories", page);
  /** @param {string} q @param {string} [agent_id] @returns {Promise<Page<Memory>>} */
  searchMemories = (q, agent_id) => this.#get("api/memories/search", { q, agent_id });
  /** @param {{content: string, key?: string, agent_id?: string}} memory @returns {Promise<Memory>} */
  createMemory = (memory) => this.#call("POST", "api/memories", memory);
  /** @param {string} key @param {{content: string, agent_id?: string}} memory @returns {Promise<Memory>} */
  updateMemory = (key, memory) => this.#call("PUT", `api/memories/${encodeURIComponent(key)}`, memory);
  /** @param {string} key @param {string} [agent_id] @returns {Promise<unknown>} */
  deleteMemory = (key, agent_id) =>
    this.#call("DELETE", `api/memories/${encodeURIComponent(key)}`, undefined, { agent_id });

  /** The key for `pushManager.subscribe`; 404 if notifications are off. @returns {Promise<{key: string}>} */
  getPushKey = () => this.#get("api/push/key");
  /** @param {PushSubscriptionJSON} subscription @returns {Promise<{id: string, created_at: string}>} */
  subscribePush = (subscription) => this.#call("POST", "api/push/subscriptions", subscription);
  /** @param {string} endpoint @returns {Promise<unknown>} */
  unsubscribePush = (endpoint) => this.#call("DELETE", "api/push/subscriptions", { endpoint });

  /** @param {string} q @returns {Promise<Page<Found>>} */
  search = (q) => this.#get("api/search", { q });

  /**
   * An operator's view of a thread.
   * @param {string} id
   * @param {"batches" | "decisions" | "memories" | "timers" | "turns"} what
   * @returns {Promise<Page<any>>}
   */
  inspect = (id, what) => this.#get(this.#admin(id, what));
  /** The next request to the model. @param {string} id @returns {Promise<any>} */
  getContext = (id) => this.#get(this.#admin(id, "context"));
  /** Close an open batch. @param {string} id @param {string} batch @returns {Promise<unknown>} */
  settleBatch = (id, batch) => this.#call("POST", this.#admin(id, `batches/${batch}/settle`));
  /**
   * An operator's view of the whole server.
   * @param {"turns" | "timers" | "dead-letters"} what
   * @returns {Promise<Page<any>>}
   */
  inspectServer = (what) => this.#get(`api/admin/${what}`);
  /** @param {string} id @returns {Promise<any>} */
  retryDeadLetter = (id) => this.#call("POST", `api/admin/dead-letters/${id}/retry`);
  /** @param {Record<string, unknown>} [query] @returns {Promise<any>} */
  getStats = (query = {}) => this.#get("api/admin/stats", query);

  /** The scenarios and policies to choose from. @returns {Promise<any>} */
  getSimulationOptions = () => this.#get("api/admin/simulations");
  /**
   * Compares what one or two policies would send, and why.
   * @param {{scenario?: string, agent_id?: string, thread_id?: string, days?: number, policies: Record<string, unknown>[]}} asked
   * @returns {Promise<any>}
   */
  simulate = (asked) => this.#call("POST", "api/admin/simulations", asked);
  /** The newest conversations of all users. @returns {Promise<Page<Thread>>} */
  listAllThreads = () => this.#get("api/admin/threads");

  /** @param {string} id @param {string} [rest] */
  #of = (id, rest) => `api/threads/${encodeURIComponent(id)}${rest ? `/${rest}` : ""}`;

  /** @param {string} id @param {string} rest */
  #admin = (id, rest) => `api/admin/threads/${encodeURIComponent(id)}/${rest}`;

  /** @param {string} path @param {Record<string, unknown>} [query] */
  #url(path, query = {}) {
    const url = new URL(path, this.api);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) url.searchParams.set(name, `${value}`);
    }
    return url;
  }

  /** @param {string} path @param {Record<string, unknown>} [query] */
  #get = (path, query) => this.#call("GET", path, undefined, query);

  /** All messages of the user and replies to them, as JSON lines. @returns {Promise<Blob>} */
  exportAll = async () => (await this.#respond("GET", "api/export")).blob();

  /**
   * @param {string} method @param {string} path
   * @param {unknown} [body] @param {Record<string, unknown>} [query]
   * @returns {Promise<any>}
   */
  async #call(method, path, body, query) {
    const text = await (await this.#respond(method, path, body, query)).text();
    return text ? JSON.parse(text) : null;
  }

  /**
   * @param {string} method @param {string} path
   * @param {unknown} [body] @param {Record<string, unknown>} [query]
   */
  async #respond(method, path, body, query) {
    const headers = new Headers({ Accept: "application/json" });
    if (this.key) headers.set("Authorization", `Bearer ${this.key}`);
    if (body !== undefined) headers.set("Content-Type", "application/json");
    const request = new Request(this.#url(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    let response;
    try {
      response = await this.fetch(request);
    } catch {
      throw new SegueError(0, "unreachable", "The server cannot be reached.");
    }
    if (response.ok) return response;
    const problem = parse(await response.text());
    throw new SegueError(
      response.status,
      problem.code ?? "failed",
      problem.detail ?? `The server answered ${response.status}.`,
    );
  }
}

/** @param {string} text @returns {{code?: string, detail?: string}} */
function parse(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}
