/**
 * Text, a picture or a file, as LangChain has it.
 */
export type Block = {
    type: string;
    [field: string]: any;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Content = string | Block[];
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Message = {
    id: string;
    position: string;
    role: "user" | "agent";
    text: string;
    content: Content;
    created_at: string;
    /**
     * Of an agent: `reply`, or why it wrote first: `follow_up`, `reminder`, …
     */
    origin: string | null;
    /**
     * Of a user's message.
     */
    state: "queued" | "running" | "waiting" | "answered" | "failed" | "cancelled" | null;
    error: string | null;
    /**
     * Of a user's message: what the agent asked before it could go on.
     */
    asked: Asked[];
    client_message_id?: string | null | undefined;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Thread = {
    id: string;
    agent_id: string;
    title: string | null;
    preview: string | null;
    preview_role: "user" | "agent" | null;
    message_count: number;
    unread: number;
    position: string | null;
    preferences: Preferences;
    created_at: string;
    updated_at: string;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Preferences = {
    time_zone?: string | null | undefined;
    quiet_hours?: false | {
        start: string;
        end: string;
    } | null | undefined;
    muted?: boolean | null | undefined;
    snoozed_until?: string | null | undefined;
    opted_out?: boolean | null | undefined;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Me = {
    user_id: string;
    is_operator: boolean;
    preferences: Preferences;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Agent = {
    id: string;
    name: string;
    takes_reminders: boolean;
    quiet_hours: {
        start: string;
        end: string;
    } | null;
};
/**
 * What an agent asked back, by id.
 */
export type Asked = {
    turn_id: string;
    questions: Record<string, any>;
    answer: any;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type HistoryPage = {
    items: Message[];
    before: string | null;
    after: string | null;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Accepted = {
    message: Message;
    turn_id: string;
    is_new: boolean;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Found = {
    thread_id: string;
    message: Message;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Reason = {
    at: string;
    what: string;
    outcome: string;
    why: string;
    details: Record<string, any>;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type FollowUp = {
    id: string;
    kind: string;
    trigger: string | null;
    state: string;
    reason: string | null;
    due_at: string;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Reminder = {
    id: string;
    thread_id: string;
    text: string;
    due_at: string;
    every: string | null;
    description: string;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type Memory = {
    agent_id: string;
    key: string;
    content: string;
    updated_at: string;
    score?: number | null | undefined;
};
/**
 * A frame of a stream; docs/server.md lists the types and their fields.
 */
export type Frame = {
    type: string;
    thread_id?: string;
    cursor?: string;
    [field: string]: any;
};
/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 */
export type StreamState = "connecting" | "open" | "waiting" | "refused" | "closed";
