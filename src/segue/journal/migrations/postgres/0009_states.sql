-- The state of a thread's own graph between turns: one row for each channel beside its messages.
-- `declared` is the channel's type when the value was stored.
CREATE TABLE states (
    thread_id text NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    channel   text NOT NULL,
    form      text NOT NULL,
    declared  text NOT NULL,
    value     bytea NOT NULL,
    PRIMARY KEY (thread_id, channel)
);
