-- Keys of the server's callers. Of the secret only a digest is kept.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- Whom it speaks for; null: for whichever user a request names.
    user_id TEXT,
    is_operator INTEGER NOT NULL,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;

-- Each kind of effect has a line of its own.
DROP INDEX effects_awake;
CREATE INDEX effects_by_kind ON effects (kind, wake_at, id) WHERE wake_at IS NOT NULL;

-- Turns that may be taken and never were: found again when the clock that queued them was ahead.
CREATE INDEX turns_untried ON turns (wake_at)
    WHERE state = 'queued' AND attempts = 0 AND wake_at IS NOT NULL;
