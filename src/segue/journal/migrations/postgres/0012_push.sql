-- Browsers that show what an agent writes first while the page is closed. A browser has one user.
CREATE TABLE push_subscriptions (
    id         bigint PRIMARY KEY,
    user_id    text NOT NULL,
    endpoint   text NOT NULL UNIQUE,
    public_key bytea NOT NULL,
    auth       bytea NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX push_subscriptions_of_user ON push_subscriptions (user_id, id);
-- The key that names this server to push services, one for all processes.
CREATE TABLE push_keys (
    id          integer PRIMARY KEY CHECK (id = 1),
    private_key bytea NOT NULL
);
