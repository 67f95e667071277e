-- Each word stands behind a mark of its owner, so that a search reads what is the caller's alone.
DROP INDEX messages_words;
UPDATE messages SET words = marked.words FROM (
    SELECT messages.id, coalesce(string_agg(
        left(encode(sha256(convert_to(threads.user_id, 'UTF8')), 'hex'), 8) || term.lexeme
            || ':' || array_to_string(term.positions, ','), ' '), '')::tsvector AS words
    FROM messages JOIN threads ON threads.id = messages.thread_id
    LEFT JOIN LATERAL unnest(messages.words) AS term ON true
    WHERE messages.words IS NOT NULL GROUP BY messages.id
) AS marked WHERE marked.id = messages.id;
CREATE INDEX messages_words ON messages USING gin (words);
