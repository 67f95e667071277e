-- Times are microseconds since 1970, UTC. Flags are 0 or 1.
CREATE TABLE threads (
    id            TEXT PRIMARY KEY,
    agent_id      TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    title         TEXT,
    title_is_set  INTEGER NOT NULL DEFAULT 0,
    preview       TEXT,
    preview_role  TEXT,
    preview_position INTEGER NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL DEFAULT 0,
    epoch         INTEGER NOT NULL DEFAULT 0,
    last_position INTEGER NOT NULL DEFAULT 0,
    settings      TEXT NOT NULL DEFAULT '{}',
    served_at     INTEGER NOT NULL DEFAULT 0,
    typing_at     INTEGER,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX threads_by_user ON threads (user_id, updated_at DESC, id DESC);

-- What a user wants of all agents. Not deleted with a thread.
CREATE TABLE users (
    user_id    TEXT PRIMARY KEY,
    settings   TEXT NOT NULL DEFAULT '{}',
    updated_at INTEGER NOT NULL
) STRICT;

-- Append-only but for the archived mark. Batch questions need no join: all of it is in columns.
CREATE TABLE messages (
    rowid             INTEGER PRIMARY KEY,
    thread_id         TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    position          INTEGER NOT NULL,
    message_id        TEXT NOT NULL,
    client_message_id TEXT,
    batch             INTEGER NOT NULL,
    sequence_num      INTEGER NOT NULL,
    batch_type        TEXT NOT NULL,
    parent_batch      INTEGER,
    agent_id          TEXT NOT NULL,
    role              TEXT NOT NULL,
    synthetic         INTEGER NOT NULL,
    trigger_type      TEXT,
    visible           INTEGER NOT NULL,
    archived          INTEGER NOT NULL DEFAULT 0,
    tokens            INTEGER NOT NULL,
    text              TEXT NOT NULL,
    body              TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    UNIQUE (thread_id, position),
    UNIQUE (thread_id, batch, sequence_num),
    UNIQUE (thread_id, message_id)
) STRICT;
CREATE UNIQUE INDEX messages_by_client ON messages (thread_id, client_message_id)
    WHERE client_message_id IS NOT NULL;
CREATE INDEX messages_visible ON messages (thread_id, position) WHERE visible = 1;
CREATE INDEX messages_live ON messages (thread_id, batch, sequence_num) WHERE archived = 0;
CREATE INDEX messages_by_batch ON messages (agent_id, batch, sequence_num);
-- Only what a person may see can be found.
CREATE VIRTUAL TABLE messages_words USING fts5 (
    text, content = 'messages', content_rowid = 'rowid', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.visible = 1 BEGIN
    INSERT INTO messages_words (rowid, text) VALUES (new.rowid, new.text);
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.visible = 1 BEGIN
    INSERT INTO messages_words (messages_words, rowid, text) VALUES ('delete', old.rowid, old.text);
END;

CREATE TABLE turns (
    id           INTEGER PRIMARY KEY,
    thread_id    TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    agent_id     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    batch        INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    state        TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    queued_at    INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    shown_at     INTEGER,
    error        TEXT,
    payload      TEXT NOT NULL DEFAULT '{}',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    -- The turn is over, but its batch is not complete.
    left_open    INTEGER NOT NULL DEFAULT 0,
    -- It ended with a question to a person.
    is_waiting   INTEGER NOT NULL DEFAULT 0,
    -- What listeners are told of its end, and where among the messages.
    ending       TEXT,
    end_position INTEGER,
    owner        TEXT,
    token        INTEGER NOT NULL DEFAULT 0,
    -- Set for the first live turn of a thread, the only one that may be taken: from when on, and
    -- its place in the line. When its thread was served last, when it is to be tried again, or the
    -- end of the lease that holds it.
    wake_at      INTEGER,
    finished_at  INTEGER,
    -- The message that is being written, as far as it got.
    partial_id   TEXT,
    partial_text TEXT
) STRICT;
CREATE INDEX turns_alive ON turns (thread_id, id) WHERE state IN ('queued', 'running');
CREATE INDEX turns_by_thread ON turns (thread_id, id);
CREATE INDEX turns_by_batch ON turns (thread_id, batch);
CREATE UNIQUE INDEX turns_one_running ON turns (thread_id) WHERE state = 'running';
CREATE INDEX turns_awake ON turns (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX turns_unfinished ON turns (agent_id, batch)
    WHERE state IN ('queued', 'running') OR left_open;
CREATE INDEX turns_waiting ON turns (thread_id) WHERE is_waiting = 1;
CREATE INDEX turns_by_end ON turns (thread_id, end_position) WHERE end_position IS NOT NULL;
-- The follow-ups that count: sent or on their way. Without the void ones, so that counting costs
-- what there is to count.
CREATE INDEX turns_counted_by_user ON turns (user_id, queued_at)
    WHERE kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL);
CREATE INDEX turns_counted_by_thread ON turns (thread_id, epoch)
    WHERE kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL);

CREATE TABLE timers (
    id           INTEGER PRIMARY KEY,
    thread_id    TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    agent_id     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    kind         TEXT NOT NULL,
    state        TEXT NOT NULL,
    trigger_type TEXT,
    reason       TEXT,
    batch        INTEGER,
    epoch        INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    expires_at   INTEGER,
    missed       TEXT NOT NULL,
    payload      TEXT NOT NULL,
    state_reason TEXT,
    owner        TEXT,
    token        INTEGER NOT NULL DEFAULT 0,
    -- When the timer wants attention: its due time, or the end of the lease that holds it.
    wake_at      INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX timers_awake ON timers (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX timers_by_thread ON timers (thread_id, id);
CREATE UNIQUE INDEX timers_one_follow_up ON timers (thread_id)
    WHERE kind = 'follow_up' AND state IN ('pending', 'postponed', 'claimed');

CREATE TABLE effects (
    id          INTEGER PRIMARY KEY,
    thread_id   TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL,
    payload     TEXT NOT NULL,
    dedupe_key  TEXT NOT NULL UNIQUE,
    state       TEXT NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    error       TEXT,
    evidence    TEXT,
    owner       TEXT,
    token       INTEGER NOT NULL DEFAULT 0,
    wake_at     INTEGER,
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX effects_awake ON effects (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX effects_by_thread ON effects (thread_id, id);

CREATE TABLE decisions (
    id         INTEGER PRIMARY KEY,
    thread_id  TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    reasons    TEXT NOT NULL,
    facts      TEXT NOT NULL,
    timer_id   INTEGER,
    turn_id    INTEGER,
    decided_at INTEGER NOT NULL
) STRICT;
CREATE INDEX decisions_by_thread ON decisions (thread_id, id);

CREATE TABLE summaries (
    id          INTEGER PRIMARY KEY,
    thread_id   TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    text        TEXT NOT NULL,
    first_batch INTEGER NOT NULL,
    last_batch  INTEGER NOT NULL,
    batches     TEXT NOT NULL,
    previous_id INTEGER,
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX summaries_by_thread ON summaries (thread_id, id);

CREATE TABLE memories (
    id              INTEGER PRIMARY KEY,
    agent_id        TEXT NOT NULL,
    user_id         TEXT NOT NULL,
    key             TEXT NOT NULL,
    content         TEXT NOT NULL,
    metadata        TEXT NOT NULL,
    word_count      INTEGER NOT NULL,
    embedding_model TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    embedding       BLOB, -- last: it is large, and what lies behind it is slow to reach
    UNIQUE (agent_id, user_id, key)
) STRICT;
CREATE INDEX memories_by_user ON memories (agent_id, user_id, id, word_count);

-- Not FTS5: a search has to cost what its own namespace holds, and to count words in it alone.
CREATE TABLE memory_words (
    agent_id   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    word       TEXT NOT NULL,
    memory_id  INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
    times      INTEGER NOT NULL,
    word_count INTEGER NOT NULL, -- of the memory
    PRIMARY KEY (agent_id, user_id, word, memory_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_words_by_memory ON memory_words (memory_id);

-- Rises with every change in a namespace, whoever makes it: so a process knows whether the vectors
-- that it has read are still right.
CREATE TABLE memory_changes (
    agent_id TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    changes  INTEGER NOT NULL,
    PRIMARY KEY (agent_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_changes VALUES (new.agent_id, new.user_id, 1)
        ON CONFLICT DO UPDATE SET changes = changes + 1;
END;
CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    UPDATE memory_changes SET changes = changes + 1
        WHERE agent_id = old.agent_id AND user_id = old.user_id;
END;
CREATE TRIGGER memories_changed AFTER UPDATE ON memories BEGIN
    UPDATE memory_changes SET changes = changes + 1
        WHERE agent_id = old.agent_id AND user_id = old.user_id;
END;

CREATE TABLE nodes (
    node        INTEGER PRIMARY KEY,
    owner       TEXT NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;
