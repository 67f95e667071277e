-- Browsers that show what an agent writes first while the page is closed. A browser has one user.
CREATE TABLE push_subscriptions (
    id         INTEGER PRIMARY KEY,
    user_id    TEXT NOT NULL,
    endpoint   TEXT NOT NULL UNIQUE,
    public_key BLOB NOT NULL,
    auth       BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX push_subscriptions_of_user ON push_subscriptions (user_id, id);
-- The key that names this server to push services, one for all processes.
CREATE TABLE push_keys (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    private_key BLOB NOT NULL
) STRICT;
