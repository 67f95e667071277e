"""What is true of every journal at every moment, as questions that find what is not.

They know what `writer` does: its timers are follow-ups, and each turn that it finishes leaves one
effect, which says at which attempt.
"""

# ruff: noqa: S608 - all of it is spelled out here

import sqlite3

import psycopg

from tests.journal.stores import is_file, raw

ALIVE = "state IN ('queued', 'running')"
WAITING = "state IN ('pending', 'postponed', 'claimed')"

EVERYWHERE = {
    "a position is there twice": """
        SELECT position FROM messages GROUP BY position HAVING count(*) > 1""",
    "a batch has a gap": """
        SELECT batch FROM messages GROUP BY thread_id, batch
        HAVING min(sequence_num) <> 0 OR max(sequence_num) + 1 <> count(*)""",
    "a batch has no turn": """
        SELECT batch FROM messages WHERE batch NOT IN (SELECT batch FROM turns)""",
    "a thread has two live follow-ups": f"""
        SELECT thread_id FROM timers WHERE kind = 'follow_up' AND {WAITING}
        GROUP BY thread_id HAVING count(*) > 1""",
    "a live timer will never wake": f"""
        SELECT id FROM timers WHERE ({WAITING}) <> (wake_at IS NOT NULL)""",
    "a turn is nobody's and runs": """
        SELECT id FROM turns WHERE (state = 'running') <> (owner IS NOT NULL)""",
    "a turn will never wake, or out of turn": f"""
        SELECT id FROM turns WHERE (wake_at IS NOT NULL)
            <> (id IN (SELECT min(id) FROM turns WHERE {ALIVE} GROUP BY thread_id))""",
    "a thread runs two turns": """
        SELECT thread_id FROM turns WHERE state = 'running'
        GROUP BY thread_id HAVING count(*) > 1""",
    "a fired timer has no turn, or a turn no timer": """
        SELECT 1 WHERE (SELECT count(*) FROM timers WHERE state = 'fired')
            <> (SELECT count(*) FROM turns WHERE kind = 'follow_up')""",
    "a finished turn has no effect, or two": """
        SELECT 1 WHERE (SELECT count(*) FROM turns WHERE state = 'done')
            <> (SELECT count(*) FROM effects)""",
    "a turn was finished by one who had lost it": """
        SELECT id FROM turns WHERE state = 'done'
            AND 'turn ' || id || ' at attempt ' || attempts NOT IN (SELECT dedupe_key FROM effects)
        """,
    "a thread's columns lag behind its messages": """
        SELECT id FROM threads JOIN (SELECT thread_id, count(*) FILTER (WHERE visible) AS seen,
                count(*) FILTER (WHERE role = 'human' AND NOT synthetic) AS said,
                max(position) AS last FROM messages GROUP BY thread_id) AS its ON thread_id = id
        WHERE message_count <> seen OR last_position < last OR epoch <> said""",
    "a batch is archived in part": """
        SELECT batch FROM messages GROUP BY thread_id, batch
        HAVING count(*) FILTER (WHERE archived) NOT IN (0, count(*))""",
    "a batch is archived without a summary, or the reverse": """
        SELECT 1 WHERE (SELECT count(DISTINCT batch) FROM messages WHERE archived) <>
            (SELECT coalesce(sum(1 + length(batches) - length(replace(batches, ',', ''))), 0)
            FROM summaries)""",
    "a row has lost its thread": """
        SELECT thread_id FROM messages UNION SELECT thread_id FROM turns
        UNION SELECT thread_id FROM timers UNION SELECT thread_id FROM effects
        UNION SELECT thread_id FROM summaries EXCEPT SELECT id FROM threads""",
}
ORDER = """
    SELECT position FROM (SELECT position, lag(position) OVER
        (PARTITION BY thread_id ORDER BY {}) AS earlier FROM messages) AS told
    WHERE position <= earlier"""
SEARCH = """
    SELECT 1 WHERE (SELECT count(*) FROM {}) <>
        (SELECT count(*) FROM messages WHERE role = 'human' AND NOT synthetic)"""

SQLITE = EVERYWHERE | {
    "a position does not rise": ORDER.format("rowid"),
    "the search does not know a message": SEARCH.format(
        "messages_terms WHERE term LIKE '________question'"
    ),
    "the file is damaged": """
        SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'""",
}
POSTGRES = EVERYWHERE | {
    "a position does not rise": ORDER.format("id"),
    "the search does not know a message": SEARCH.format(
        "messages WHERE words::text LIKE '%question%'"
    ),
    "a table is damaged": """
        SELECT msg FROM pg_class, verify_heapam(oid)
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace""",
    # Raises what it finds, and so ends the transaction: it is the last one.
    "an index is damaged": """
        SELECT checked FROM (SELECT bt_index_check(pg_class.oid, true) AS checked
            FROM pg_class JOIN pg_am ON pg_am.oid = relam
            WHERE amname = 'btree' AND relnamespace = 'public'::regnamespace OFFSET 0) AS indexes
        WHERE checked IS NULL""",
}


def broken_rules(address: str) -> list[str]:
    """The rules that do not hold, all asked of one moment."""
    with raw(address) as connection:
        if is_file(address):
            rules = SQLITE
            connection.execute("BEGIN")
        else:
            rules = POSTGRES
            connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        return [rule for rule, sql in rules.items() if _finds(connection, sql)]


def _finds(connection: sqlite3.Connection | psycopg.Connection, sql: str) -> bool:
    try:
        return connection.execute(sql).fetchone() is not None
    except (psycopg.errors.IndexCorrupted, psycopg.errors.DataCorrupted):
        return True
