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
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX threads_by_user ON threads (user_id, updated_at DESC, id DESC);

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
    -- The turn is over, but its batch is not complete.
    left_open    INTEGER NOT NULL DEFAULT 0,
    owner        TEXT,
    token        INTEGER NOT NULL DEFAULT 0,
    -- Set for the first live turn of a thread, the only one that may be taken: when it wants
    -- attention, its available time or the end of the lease that holds it.
    wake_at      INTEGER,
    -- When its thread was served before: the one that has waited longest goes first.
    served_at    INTEGER,
    finished_at  INTEGER
) STRICT;
CREATE INDEX turns_alive ON turns (thread_id, id) WHERE state IN ('queued', 'running');
CREATE INDEX turns_by_batch ON turns (thread_id, batch);
CREATE UNIQUE INDEX turns_one_running ON turns (thread_id) WHERE state = 'running';
CREATE INDEX turns_awake ON turns (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX turns_next ON turns (served_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX turns_unfinished ON turns (agent_id, batch)
    WHERE state IN ('queued', 'running') OR left_open;

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
    owner       TEXT,
    token       INTEGER NOT NULL DEFAULT 0,
    wake_at     INTEGER,
    created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX effects_awake ON effects (wake_at, id) WHERE wake_at IS NOT NULL;

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
    embedding       BLOB,
    embedding_model TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    UNIQUE (agent_id, user_id, key)
) STRICT;
CREATE INDEX memories_by_user ON memories (agent_id, user_id, id);
CREATE VIRTUAL TABLE memories_words USING fts5 (
    content, content = 'memories', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memories_words (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memories_words (memories_words, rowid, content) VALUES ('delete', old.id, old.content);
END;
CREATE TRIGGER memories_changed AFTER UPDATE OF content ON memories BEGIN
    INSERT INTO memories_words (memories_words, rowid, content) VALUES ('delete', old.id, old.content);
    INSERT INTO memories_words (rowid, content) VALUES (new.id, new.content);
END;

CREATE TABLE nodes (
    node        INTEGER PRIMARY KEY,
    owner       TEXT NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT;
