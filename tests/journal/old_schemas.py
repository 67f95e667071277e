"""Scripts that take a store back to an older schema, as an installation of then would have it."""

# ruff: noqa: S608 - all of it is written here

# Before live timers had an index, browsers were notified, and users had feeds.
_WITHOUT_FEEDS = """
DROP INDEX timers_alive;
DROP TABLE push_subscriptions;
DROP TABLE push_keys;
DROP TABLE feeds;
DROP INDEX threads_changed;
DROP INDEX turns_running_of_user;
DROP INDEX turns_waiting_of_user;
ALTER TABLE threads DROP COLUMN changed_position;
ALTER TABLE threads DROP COLUMN read_position;
ALTER TABLE threads DROP COLUMN unread;
"""
# Before timers had keys.
_WITHOUT_KEYS = f"""{_WITHOUT_FEEDS}
DROP TABLE states;
DROP INDEX turns_reminders;
DROP INDEX timers_keys;
DROP INDEX timers_by_key;
DROP INDEX timers_of_turns;
DROP INDEX timers_reminders;
DROP INDEX timers_one_follow_up;
CREATE UNIQUE INDEX timers_one_follow_up ON timers (thread_id)
    WHERE kind = 'follow_up' AND state IN ('pending', 'postponed', 'claimed');
ALTER TABLE timers DROP COLUMN key;
ALTER TABLE timers DROP COLUMN turn_id;
"""
# Before words had the mark of their owner.
UNMARKED_FILE = f"""
DROP TRIGGER threads_added;
DROP TRIGGER threads_followed;
DROP TRIGGER threads_forgotten;
{_WITHOUT_KEYS}
DROP INDEX turns_held;
CREATE INDEX turns_held ON turns (held_at) WHERE attempts > 0 AND wake_at IS NOT NULL;
CREATE INDEX turns_untried ON turns (wake_at)
    WHERE state = 'queued' AND attempts = 0 AND wake_at IS NOT NULL;
DROP TRIGGER messages_added;
DROP TABLE messages_terms;
DROP TABLE messages_words;
DROP TABLE indexed_messages;
CREATE VIRTUAL TABLE messages_words USING fts5 (
    text, content = 'messages', content_rowid = 'rowid', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.visible = 1 BEGIN
    INSERT INTO messages_words (rowid, text) VALUES (new.rowid, new.text);
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.visible = 1 BEGIN
    INSERT INTO messages_words (messages_words, rowid, text) VALUES ('delete', old.rowid, old.text);
END;
INSERT INTO messages_words (rowid, text) SELECT rowid, text FROM messages WHERE visible = 1;
PRAGMA user_version = 5;
"""
UNMARKED_SERVER = f"""
DROP FUNCTION segue_follow_thread CASCADE;
DROP FUNCTION segue_forget_thread CASCADE;
{_WITHOUT_KEYS}
DROP INDEX turns_held;
CREATE INDEX turns_held ON turns (held_at) WHERE attempts > 0 AND wake_at IS NOT NULL;
CREATE INDEX turns_untried ON turns (wake_at)
    WHERE state = 'queued' AND attempts = 0 AND wake_at IS NOT NULL;
UPDATE messages SET words = coalesce((
    SELECT string_agg(substr(lexeme, 9) || ':' || array_to_string(positions, ','), ' ')
    FROM unnest(words)), '')::tsvector WHERE words IS NOT NULL;
DELETE FROM segue_schema WHERE version > 5;
"""
