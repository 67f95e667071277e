-- Each word stands behind a mark of its owner, so that a search reads what is the caller's alone.
-- The words of a message as they were indexed: to take them out again, the index has to be told.
DROP TRIGGER messages_added;
DROP TRIGGER messages_removed;
DROP TABLE messages_words;
CREATE TABLE indexed_messages (
    message    INTEGER PRIMARY KEY REFERENCES messages ON DELETE CASCADE,
    owner      TEXT NOT NULL,
    word_count INTEGER NOT NULL,
    words      TEXT NOT NULL
) STRICT;
-- Words are letters and digits of any script, set apart by blanks.
CREATE VIRTUAL TABLE messages_words USING fts5 (
    words, content = '', tokenize = 'ascii'
);
CREATE VIRTUAL TABLE messages_terms USING fts5vocab (messages_words, instance);
CREATE TRIGGER words_added AFTER INSERT ON indexed_messages BEGIN
    INSERT INTO messages_words (rowid, words)
    VALUES (new.message, replace(' ' || new.words, ' ', ' ' || new.owner));
END;
CREATE TRIGGER words_removed AFTER DELETE ON indexed_messages BEGIN
    INSERT INTO messages_words (messages_words, rowid, words)
    VALUES ('delete', old.message, replace(' ' || old.words, ' ', ' ' || old.owner));
END;
INSERT INTO indexed_messages (message, owner, word_count, words)
    SELECT message, owner, length(words) - length(replace(words, ' ', '')) + (words <> ''), words
    FROM (SELECT messages.rowid AS message, segue_mark(user_id) AS owner, segue_words(text) AS words
        FROM messages JOIN threads ON threads.id = thread_id WHERE visible = 1 ORDER BY 1);
-- Only what a person may see can be found.
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.visible = 1 BEGIN
    INSERT INTO indexed_messages (message, owner, word_count, words)
    SELECT new.rowid, owner, length(words) - length(replace(words, ' ', '')) + (words <> ''), words
    FROM (SELECT segue_mark(user_id) AS owner, segue_words(new.text) AS words
        FROM threads WHERE id = new.thread_id);
END;
