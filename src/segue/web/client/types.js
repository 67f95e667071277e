/**
 * The shapes that a Segue server sends; ids, positions and cursors are text, times are RFC 3339.
 *
 * @typedef {{type: string, [field: string]: any}} Block  Text, a picture or a file, as LangChain has it.
 * @typedef {string | Block[]} Content
 *
 * @typedef {object} Message
 * @property {string} id
 * @property {string} position
 * @property {"user" | "agent"} role
 * @property {string} text
 * @property {Content} content
 * @property {string} created_at
 * @property {string | null} origin  Of an agent: `reply`, or why it wrote first: `follow_up`, `reminder`, …
 * @property {"queued" | "running" | "waiting" | "answered" | "failed" | "cancelled" | null} state  Of a user's message.
 * @property {string | null} error
 * @property {Asked[]} asked  Of a user's message: what the agent asked before it could go on.
 * @property {string | null} [client_message_id]
 *
 * @typedef {object} Thread
 * @property {string} id
 * @property {string} agent_id
 * @property {string | null} title
 * @property {string | null} preview
 * @property {"user" | "agent" | null} preview_role
 * @property {number} message_count
 * @property {number} unread
 * @property {string | null} position
 * @property {Preferences} preferences
 * @property {string} created_at
 * @property {string} updated_at
 *
 * @typedef {object} Preferences
 * @property {string | null} [time_zone]
 * @property {{start: string, end: string} | false | null} [quiet_hours]
 * @property {boolean | null} [muted]
 * @property {string | null} [snoozed_until]
 * @property {boolean | null} [opted_out]
 *
 * @typedef {{user_id: string, is_operator: boolean, preferences: Preferences}} Me
 * @typedef {{id: string, name: string, takes_reminders: boolean, quiet_hours: {start: string, end: string} | null}} Agent
 * @typedef {{turn_id: string, questions: Record<string, any>, answer: any}} Asked  What an agent asked back, by id.
 * @typedef {{items: Message[], before: string | null, after: string | null}} HistoryPage
 * @typedef {{message: Message, turn_id: string, is_new: boolean}} Accepted
 * @typedef {{thread_id: string, message: Message}} Found
 * @typedef {{at: string, what: string, outcome: string, why: string, details: Record<string, any>}} Reason
 *
 * @typedef {object} FollowUp
 * @property {string} id
 * @property {string} kind
 * @property {string | null} trigger
 * @property {string} state
 * @property {string | null} reason
 * @property {string} due_at
 *
 * @typedef {object} Reminder
 * @property {string} id
 * @property {string} thread_id
 * @property {string} text
 * @property {string} due_at
 * @property {string | null} every
 * @property {string} description
 *
 * @typedef {object} Memory
 * @property {string} agent_id
 * @property {string} key
 * @property {string} content
 * @property {string} updated_at
 * @property {number | null} [score]
 *
 * @typedef {{type: string, thread_id?: string, cursor?: string, [field: string]: any}} Frame
 *   A frame of a stream; docs/server.md lists the types and their fields.
 * @typedef {"connecting" | "open" | "waiting" | "refused" | "closed"} StreamState
 */
export {};
