-- JSON is kept as text: jsonb refuses escapes that a message may hold, and would reorder it.
CREATE TABLE threads (
    id               text PRIMARY KEY,
    agent_id         text NOT NULL,
    user_id          text NOT NULL,
    title            text,
    title_is_set     boolean NOT NULL DEFAULT false,
    preview          text,
    preview_role     text,
    -- Whose preview it is: an older message that is imported later does not replace it.
    preview_position bigint NOT NULL DEFAULT 0,
    message_count    bigint NOT NULL DEFAULT 0,
    epoch            bigint NOT NULL DEFAULT 0,
    last_position    bigint NOT NULL DEFAULT 0,
    settings         text NOT NULL DEFAULT '{}',
    served_at        timestamptz NOT NULL DEFAULT 'epoch',
    typing_at        timestamptz,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL
);
CREATE INDEX threads_by_user ON threads (user_id, updated_at DESC, id DESC);

-- What a user wants of all agents. Not deleted with a thread.
CREATE TABLE users (
    user_id    text PRIMARY KEY,
    settings   text NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL
);

-- Append-only but for the archived mark. Batch questions need no join: all of it is in columns.
CREATE TABLE messages (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id         text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    position          bigint NOT NULL,
    message_id        text NOT NULL,
    client_message_id text,
    batch             bigint NOT NULL,
    sequence_num      integer NOT NULL,
    batch_type        text NOT NULL,
    parent_batch      bigint,
    agent_id          text NOT NULL,
    role              text NOT NULL,
    synthetic         boolean NOT NULL,
    trigger_type      text,
    visible           boolean NOT NULL,
    archived          boolean NOT NULL DEFAULT false,
    tokens            integer NOT NULL,
    text              text NOT NULL,
    body              text NOT NULL,
    -- Only what a person may see can be found: both are null for all other messages.
    words             tsvector,
    word_count        integer,
    created_at        timestamptz NOT NULL,
    UNIQUE (thread_id, position),
    UNIQUE (thread_id, batch, sequence_num),
    UNIQUE (thread_id, message_id)
);
CREATE UNIQUE INDEX messages_by_client ON messages (thread_id, client_message_id)
    WHERE client_message_id IS NOT NULL;
CREATE INDEX messages_visible ON messages (thread_id, position) WHERE visible;
-- The tail never walks over what was archived.
CREATE INDEX messages_live ON messages (thread_id, batch, sequence_num) WHERE NOT archived;
CREATE INDEX messages_by_batch ON messages (agent_id, batch, sequence_num);
CREATE INDEX messages_words ON messages USING gin (words);

CREATE TABLE turns (
    id           bigint PRIMARY KEY,
    thread_id    text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    agent_id     text NOT NULL,
    user_id      text NOT NULL,
    batch        bigint NOT NULL,
    kind         text NOT NULL,
    state        text NOT NULL,
    epoch        bigint NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    queued_at    timestamptz NOT NULL,
    available_at timestamptz NOT NULL,
    shown_at     timestamptz,
    error        text,
    payload      text NOT NULL DEFAULT '{}',
    cancel_requested boolean NOT NULL DEFAULT false,
    owner        text,
    token        bigint NOT NULL DEFAULT 0,
    -- Set for the first live turn of a thread, the only one that may be taken: from when on, and
    -- its place in the line. When its thread was served last, when it is to be tried again, or the
    -- end of the lease that holds it.
    wake_at      timestamptz,
    finished_at  timestamptz,
    -- The turn is over, but its batch is not complete.
    left_open    boolean NOT NULL DEFAULT false,
    -- It ended with a question to a person.
    is_waiting   boolean NOT NULL DEFAULT false,
    -- What listeners are told of its end, and where among the messages.
    ending       text,
    end_position bigint,
    -- The message that is being written, as far as it got. No index may know of these two: they
    -- change several times a second.
    partial_id   text,
    partial_text text
);
CREATE INDEX turns_by_thread ON turns (thread_id, id);
CREATE INDEX turns_alive ON turns (thread_id, id) WHERE state IN ('queued', 'running');
CREATE INDEX turns_by_batch ON turns (thread_id, batch);
CREATE UNIQUE INDEX turns_one_running ON turns (thread_id) WHERE state = 'running';
CREATE INDEX turns_awake ON turns (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX turns_unfinished ON turns (agent_id, batch)
    WHERE state IN ('queued', 'running') OR left_open;
CREATE INDEX turns_waiting ON turns (thread_id) WHERE is_waiting;
CREATE INDEX turns_by_end ON turns (thread_id, end_position) WHERE end_position IS NOT NULL;
-- The follow-ups that count: sent or on their way. Without the void ones, so that counting costs
-- what there is to count.
CREATE INDEX turns_counted_by_user ON turns (user_id, queued_at)
    WHERE kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL);
CREATE INDEX turns_counted_by_thread ON turns (thread_id, epoch)
    WHERE kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL);

CREATE TABLE timers (
    id           bigint PRIMARY KEY,
    thread_id    text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    agent_id     text NOT NULL,
    user_id      text NOT NULL,
    kind         text NOT NULL,
    state        text NOT NULL,
    trigger_type text,
    reason       text,
    batch        bigint,
    epoch        bigint NOT NULL,
    due_at       timestamptz NOT NULL,
    expires_at   timestamptz,
    missed       text NOT NULL,
    payload      text NOT NULL,
    state_reason text,
    owner        text,
    token        bigint NOT NULL DEFAULT 0,
    -- When the timer wants attention: its due time, or the end of the lease that holds it.
    wake_at      timestamptz,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL
);
CREATE INDEX timers_awake ON timers (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX timers_by_thread ON timers (thread_id, id);
CREATE UNIQUE INDEX timers_one_follow_up ON timers (thread_id)
    WHERE kind = 'follow_up' AND state IN ('pending', 'postponed', 'claimed');

CREATE TABLE effects (
    id          bigint PRIMARY KEY,
    thread_id   text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    kind        text NOT NULL,
    payload     text NOT NULL,
    dedupe_key  text NOT NULL UNIQUE,
    state       text NOT NULL,
    attempts    integer NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    error       text,
    evidence    text,
    owner       text,
    token       bigint NOT NULL DEFAULT 0,
    wake_at     timestamptz,
    created_at  timestamptz NOT NULL
);
CREATE INDEX effects_awake ON effects (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX effects_dead ON effects (id) WHERE state = 'dead';
CREATE INDEX effects_by_thread ON effects (thread_id, id);

CREATE TABLE decisions (
    id         bigint PRIMARY KEY,
    thread_id  text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    kind       text NOT NULL,
    outcome    text NOT NULL,
    reasons    text NOT NULL,
    facts      text NOT NULL,
    timer_id   bigint,
    turn_id    bigint,
    decided_at timestamptz NOT NULL
);
CREATE INDEX decisions_by_thread ON decisions (thread_id, id);

CREATE TABLE summaries (
    id          bigint PRIMARY KEY,
    thread_id   text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    text        text NOT NULL,
    first_batch bigint NOT NULL,
    last_batch  bigint NOT NULL,
    batches     text NOT NULL,
    previous_id bigint,
    created_at  timestamptz NOT NULL
);
CREATE INDEX summaries_by_thread ON summaries (thread_id, id);

-- A search reads the whole namespace for its vectors, so the words need no index of their own.
-- An embedding is an array. Where pgvector is installed, `open` adds a copy of it as a vector, which
-- follows the array; it does not matter when the extension comes or goes.
CREATE TABLE memories (
    id              bigint PRIMARY KEY,
    agent_id        text NOT NULL,
    user_id         text NOT NULL,
    key             text NOT NULL,
    content         text NOT NULL,
    metadata        text NOT NULL,
    embedding       real[],
    embedding_model text,
    word_count      integer NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    UNIQUE (agent_id, user_id, key)
) WITH (toast_tuple_target = 8160); -- a vector that is kept apart from its row is slow to reach
CREATE INDEX memories_by_user ON memories (agent_id, user_id, id) INCLUDE (word_count);

-- Not a tsvector: how often each word of a query is in each memory takes 70 times as long to find
-- out from there.
CREATE TABLE memory_words (
    agent_id   text NOT NULL,
    user_id    text NOT NULL,
    word       text COLLATE "C" NOT NULL,
    memory_id  bigint NOT NULL REFERENCES memories ON DELETE CASCADE,
    times      integer NOT NULL,
    word_count integer NOT NULL, -- of the memory
    PRIMARY KEY (agent_id, user_id, word, memory_id) INCLUDE (times, word_count)
);
CREATE INDEX memory_words_by_memory ON memory_words (memory_id);

CREATE TABLE nodes (
    node        integer PRIMARY KEY,
    owner       text NOT NULL,
    lease_until timestamptz NOT NULL
);
