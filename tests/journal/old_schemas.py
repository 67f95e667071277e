"""Scripts that take a store back to an older schema, as an installation of then would have it."""

# Before words had the mark of their owner.
UNMARKED_FILE = """
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
UNMARKED_SERVER = """
DROP INDEX turns_held;
CREATE INDEX turns_held ON turns (held_at) WHERE attempts > 0 AND wake_at IS NOT NULL;
CREATE INDEX turns_untried ON turns (wake_at)
    WHERE state = 'queued' AND attempts = 0 AND wake_at IS NOT NULL;
UPDATE messages SET words = coalesce((
    SELECT string_agg(substr(lexeme, 9) || ':' || array_to_string(positions, ','), ' ')
    FROM unnest(words)), '')::tsvector WHERE words IS NOT NULL;
DELETE FROM segue_schema WHERE version > 5;
"""
