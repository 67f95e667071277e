-- A thread gets a timer with each reply; a message looks for those alone that still wait.
CREATE INDEX timers_alive ON timers (thread_id)
    WHERE state IN ('pending', 'postponed', 'claimed');
-- A search reads the thread and the length of each message that it finds: from an index, since the
-- tables also hold its words and its body.
ALTER TABLE indexed_messages ADD COLUMN thread_id TEXT NOT NULL DEFAULT '';
UPDATE indexed_messages SET thread_id = (
    SELECT thread_id FROM messages WHERE messages.rowid = indexed_messages.message);
CREATE INDEX indexed_threads ON indexed_messages (message, thread_id, word_count);
DROP TRIGGER messages_added;
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.visible = 1 BEGIN
    INSERT INTO indexed_messages (message, thread_id, owner, word_count, words)
    SELECT new.rowid, new.thread_id, owner,
        length(words) - length(replace(words, ' ', '')) + (words <> ''), words
    FROM (SELECT segue_mark(user_id) AS owner, segue_words(new.text) AS words
        FROM threads WHERE id = new.thread_id);
END;
