export { SegueStream };
/** @import { Accepted, Agent, Content, FollowUp, Found, Frame, HistoryPage, Me, Memory, Preferences, Reason, Reminder, StreamState, Thread } from "./types.js" */
/** @import { Message, Block } from "./types.js" */
/** An error response of the server. */
export class SegueError extends Error {
    /** @param {number} status @param {string} code @param {string} detail */
    constructor(status: number, code: string, detail: string);
    /** The HTTP status; 0 if the server could not be reached. */
    status: number;
    /** A stable word for programs. */
    code: string;
}
/** @template T @typedef {{items: T[], next: string | null}} Page */
export class SegueClient {
    /**
     * @param {object} [options]
     * @param {string | URL} [options.api]  The server's address; this page's own by default.
     * @param {string | null} [options.key]  An API key or a JWT.
     * @param {(request: Request) => Promise<Response>} [options.fetch]
     */
    constructor({ api, key, fetch }?: {
        api?: string | URL | undefined;
        key?: string | null | undefined;
        fetch?: ((request: Request) => Promise<Response>) | undefined;
    });
    api: URL;
    key: string | null;
    fetch: (request: Request) => Promise<Response>;
    /**
     * One stream for all threads of the user, or for one thread.
     * @param {{onFrame: (frame: Frame) => void, onState?: (state: StreamState, code?: number) => void, since?: string | null, thread?: string}} options
     */
    listen({ thread, ...options }: {
        onFrame: (frame: Frame) => void;
        onState?: (state: StreamState, code?: number) => void;
        since?: string | null;
        thread?: string;
    }): SegueStream;
    /** @returns {Promise<Me>} */
    getMe: () => Promise<Me>;
    /** @param {Preferences} changes @returns {Promise<Me>} */
    setPreferences: (changes: Preferences) => Promise<Me>;
    /** @returns {Promise<Page<Agent>>} */
    listAgents: () => Promise<Page<Agent>>;
    /** @param {{limit?: number, after?: string | null}} [page] @returns {Promise<Page<Thread>>} */
    listThreads: (page?: {
        limit?: number;
        after?: string | null;
    }) => Promise<Page<Thread>>;
    /** @param {{agent_id?: string, title?: string}} [thread] @returns {Promise<Thread>} */
    createThread: (thread?: {
        agent_id?: string;
        title?: string;
    }) => Promise<Thread>;
    /** @param {string} id @returns {Promise<Thread>} */
    getThread: (id: string) => Promise<Thread>;
    /** @param {string} id @param {Preferences & {title?: string}} changes @returns {Promise<Thread>} */
    updateThread: (id: string, changes: Preferences & {
        title?: string;
    }) => Promise<Thread>;
    /** @param {string} id @returns {Promise<unknown>} */
    deleteThread: (id: string) => Promise<unknown>;
    /** @param {string} id @param {string} position @returns {Promise<Thread>} */
    markRead: (id: string, position: string) => Promise<Thread>;
    /**
     * The visible messages, oldest first.
     * @param {string} id
     * @param {{limit?: number, before?: string | null, after?: string | null}} [page]
     * @returns {Promise<HistoryPage>}
     */
    getHistory: (id: string, page?: {
        limit?: number;
        before?: string | null;
        after?: string | null;
    }) => Promise<HistoryPage>;
    /**
     * Send a message; sent again with the same `client_message_id`, it is stored once.
     * @param {string} id
     * @param {Content} content
     * @param {{client_message_id?: string, strategy?: "enqueue" | "interrupt" | "reject" | "collect"}} [options]
     * @returns {Promise<Accepted>}
     */
    send: (id: string, content: Content, options?: {
        client_message_id?: string;
        strategy?: "enqueue" | "interrupt" | "reject" | "collect";
    }) => Promise<Accepted>;
    /** @param {string} id @returns {Promise<unknown>} */
    cancel: (id: string) => Promise<unknown>;
    /** @param {string} id @param {string} turn_id @param {unknown} answer @returns {Promise<unknown>} */
    answer: (id: string, turn_id: string, answer: unknown) => Promise<unknown>;
    /** @param {string} id @returns {Promise<unknown>} */
    reportTyping: (id: string) => Promise<unknown>;
    /** @param {string} id @returns {Promise<Page<Reason>>} */
    why: (id: string) => Promise<Page<Reason>>;
    /** @param {string} id @returns {Promise<Page<FollowUp>>} */
    listFollowUps: (id: string) => Promise<Page<FollowUp>>;
    /** @param {string} id @returns {Promise<unknown>} */
    cancelFollowUps: (id: string) => Promise<unknown>;
    /** @param {string} id @param {string} until @returns {Promise<Thread>} */
    snooze: (id: string, until: string) => Promise<Thread>;
    /** @returns {Promise<Page<Reminder>>} */
    listReminders: () => Promise<Page<Reminder>>;
    /**
     * @param {string} id
     * @param {{text: string, after?: string, at?: string, every?: string, until?: string}} reminder
     * @returns {Promise<Reminder>}
     */
    createReminder: (id: string, reminder: {
        text: string;
        after?: string;
        at?: string;
        every?: string;
        until?: string;
    }) => Promise<Reminder>;
    /** @param {string} id @returns {Promise<unknown>} */
    cancelReminder: (id: string) => Promise<unknown>;
    /** @param {{agent_id?: string, limit?: number, before?: string}} [page] @returns {Promise<Page<Memory>>} */
    listMemories: (page?: {
        agent_id?: string;
        limit?: number;
        before?: string;
    }) => Promise<Page<Memory>>;
    /** @param {string} q @param {string} [agent_id] @returns {Promise<Page<Memory>>} */
    searchMemories: (q: string, agent_id?: string) => Promise<Page<Memory>>;
    /** @param {{content: string, key?: string, agent_id?: string}} memory @returns {Promise<Memory>} */
    createMemory: (memory: {
        content: string;
        key?: string;
        agent_id?: string;
    }) => Promise<Memory>;
    /** @param {string} key @param {{content: string, agent_id?: string}} memory @returns {Promise<Memory>} */
    updateMemory: (key: string, memory: {
        content: string;
        agent_id?: string;
    }) => Promise<Memory>;
    /** @param {string} key @param {string} [agent_id] @returns {Promise<unknown>} */
    deleteMemory: (key: string, agent_id?: string) => Promise<unknown>;
    /** The key for `pushManager.subscribe`; 404 if notifications are off. @returns {Promise<{key: string}>} */
    getPushKey: () => Promise<{
        key: string;
    }>;
    /** @param {PushSubscriptionJSON} subscription @returns {Promise<{id: string, created_at: string}>} */
    subscribePush: (subscription: PushSubscriptionJSON) => Promise<{
        id: string;
        created_at: string;
    }>;
    /** @param {string} endpoint @returns {Promise<unknown>} */
    unsubscribePush: (endpoint: string) => Promise<unknown>;
    /** @param {string} q @returns {Promise<Page<Found>>} */
    search: (q: string) => Promise<Page<Found>>;
    /**
     * An operator's view of a thread.
     * @param {string} id
     * @param {"batches" | "decisions" | "memories" | "timers" | "turns"} what
     * @returns {Promise<Page<any>>}
     */
    inspect: (id: string, what: "batches" | "decisions" | "memories" | "timers" | "turns") => Promise<Page<any>>;
    /** The next request to the model. @param {string} id @returns {Promise<any>} */
    getContext: (id: string) => Promise<any>;
    /** Close an open batch. @param {string} id @param {string} batch @returns {Promise<unknown>} */
    settleBatch: (id: string, batch: string) => Promise<unknown>;
    /**
     * An operator's view of the whole server.
     * @param {"turns" | "timers" | "dead-letters"} what
     * @returns {Promise<Page<any>>}
     */
    inspectServer: (what: "turns" | "timers" | "dead-letters") => Promise<Page<any>>;
    /** @param {string} id @returns {Promise<any>} */
    retryDeadLetter: (id: string) => Promise<any>;
    /** @param {Record<string, unknown>} [query] @returns {Promise<any>} */
    getStats: (query?: Record<string, unknown>) => Promise<any>;
    /** The scenarios and policies to choose from. @returns {Promise<any>} */
    getSimulationOptions: () => Promise<any>;
    /**
     * Compares what one or two policies would send, and why.
     * @param {{scenario?: string, agent_id?: string, thread_id?: string, days?: number, policies: Record<string, unknown>[]}} asked
     * @returns {Promise<any>}
     */
    simulate: (asked: {
        scenario?: string;
        agent_id?: string;
        thread_id?: string;
        days?: number;
        policies: Record<string, unknown>[];
    }) => Promise<any>;
    /** The newest conversations of all users. @returns {Promise<Page<Thread>>} */
    listAllThreads: () => Promise<Page<Thread>>;
    /** All messages of the user and replies to them, as JSON lines. @returns {Promise<Blob>} */
    exportAll: () => Promise<Blob>;
    #private;
}
export type Page<T> = {
    items: T[];
    next: string | null;
};
import { SegueStream } from "./stream.js";
import type { Frame } from "./types.js";
import type { StreamState } from "./types.js";
import type { Me } from "./types.js";
import type { Preferences } from "./types.js";
import type { Agent } from "./types.js";
import type { Thread } from "./types.js";
import type { HistoryPage } from "./types.js";
import type { Accepted } from "./types.js";
import type { Content } from "./types.js";
import type { Reason } from "./types.js";
import type { FollowUp } from "./types.js";
import type { Reminder } from "./types.js";
import type { Memory } from "./types.js";
import type { Found } from "./types.js";
