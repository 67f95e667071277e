"""What is true of every journal file at every moment, as questions that find what is not.

They know what `writer` does: its timers are follow-ups, and each of its turns leaves one effect.
"""

import sqlite3

BROKEN_RULES = {
    "a position does not rise": """
        SELECT position FROM (SELECT position, lag(position) OVER
            (PARTITION BY thread_id ORDER BY rowid) AS earlier FROM messages)
        WHERE position <= earlier""",
    "a batch has a gap": """
        SELECT batch FROM messages GROUP BY thread_id, batch
        HAVING min(sequence_num) <> 0 OR max(sequence_num) + 1 <> count(*)""",
    "a batch has no turn": """
        SELECT batch FROM messages WHERE batch NOT IN (SELECT batch FROM turns)""",
    "a thread has two live follow-ups": """
        SELECT thread_id FROM timers WHERE kind = 'follow_up'
            AND state IN ('pending', 'postponed', 'claimed')
        GROUP BY thread_id HAVING count(*) > 1""",
    "a live timer will never wake": """
        SELECT id FROM timers WHERE (state IN ('pending', 'postponed', 'claimed'))
            <> (wake_at IS NOT NULL)""",
    "a turn runs without a lease": """
        SELECT id FROM turns WHERE (state = 'running') <> (lease_until IS NOT NULL)""",
    "a thread runs two turns": """
        SELECT thread_id FROM turns WHERE state = 'running'
        GROUP BY thread_id HAVING count(*) > 1""",
    "a fired timer has no turn, or a turn no timer": """
        SELECT 1 WHERE (SELECT count(*) FROM timers WHERE state = 'fired')
            <> (SELECT count(*) FROM turns WHERE kind = 'follow_up')""",
    "a finished turn has no effect": """
        SELECT 1 WHERE (SELECT count(*) FROM turns WHERE state = 'done')
            <> (SELECT count(*) FROM effects)""",
    "a thread's columns lag behind its messages": """
        SELECT id FROM threads JOIN (SELECT thread_id, sum(visible) AS seen, max(position) AS last,
                sum(role = 'human' AND NOT synthetic) AS said FROM messages GROUP BY thread_id)
            ON thread_id = id
        WHERE message_count <> seen OR last_position < last OR epoch <> said""",
    "a batch is archived in part, or without a summary": """
        SELECT batch FROM messages GROUP BY thread_id, batch
        HAVING max(archived) <> min(archived) OR (max(archived) = 1 AND batch NOT IN
            (SELECT value FROM summaries, json_each(summaries.batches)))""",
    "the search does not know a message": """
        SELECT 1 WHERE (SELECT count(*) FROM messages_words WHERE messages_words MATCH 'question')
            <> (SELECT sum(role = 'human' AND NOT synthetic) FROM messages)""",
    "the file is damaged": """
        SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'""",
    "a row has lost its thread": "SELECT * FROM pragma_foreign_key_check",
}


def broken_rules(connection: sqlite3.Connection) -> list[str]:
    return [rule for rule, sql in BROKEN_RULES.items() if connection.execute(sql).fetchone()]
