-- The state of a thread's own graph between turns: one row for each channel beside its messages.
-- `declared` is the channel's type when the value was stored.
CREATE TABLE states (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    channel   TEXT NOT NULL,
    form      TEXT NOT NULL,
    declared  TEXT NOT NULL,
    value     BLOB NOT NULL,
    PRIMARY KEY (thread_id, channel)
) STRICT;
