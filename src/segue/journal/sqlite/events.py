"""What listeners see of a thread on SQLite: messages, ends of turns, the message being written."""

import sqlite3

from segue.journal.records import Event, Events, Partial
from segue.journal.rows import decode_message, readable
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.threads import thread_of
from segue.journal.sqlite.turns import to_turn

_MESSAGES = (
    "SELECT position, body FROM messages WHERE thread_id = ? AND visible = 1 AND position > ? "
    "ORDER BY position LIMIT ?"
)
_ENDS = (
    "SELECT end_position AS position, * FROM turns WHERE thread_id = ? AND end_position > ? "
    "ORDER BY end_position LIMIT ?"
)
# A follow-up that was not shown may still be withdrawn: nothing of it may be seen.
_RUNNING = (
    "SELECT id, token, partial_id, partial_text, partial_id IS NOT NULL "
    "AND (kind != 'follow_up' OR shown_at IS NOT NULL) AS is_seen "
    "FROM turns WHERE thread_id = ? AND state = 'running'"
)


class EventSteps:
    _db: Database

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 200) -> Events:
        def step(db: sqlite3.Connection) -> Events:
            thread_of(db, thread_id)
            events, is_cut = _events_above(db, thread_id, after, limit)
            row = db.execute(_RUNNING, (thread_id,)).fetchone()
            if row is None:
                return Events(events, None)
            # Whoever has not seen all before it has no use for what comes next.
            is_seen = row["is_seen"] and not is_cut
            partial = Partial(row["id"], row["partial_id"], row["partial_text"])
            return Events(events, partial if is_seen else None, (row["id"], row["token"]))

        return await self._db.read(step)


def _events_above(
    db: sqlite3.Connection, thread_id: str, after: int, limit: int
) -> tuple[list[Event], bool]:
    """The next events, and whether there are more. Rows that cannot be read hold up nobody."""
    while True:
        rows = [
            row
            for sql in (_MESSAGES, _ENDS)
            for row in db.execute(sql, (thread_id, after, limit + 1))
        ]
        rows.sort(key=lambda row: row["position"])
        is_cut = len(rows) > limit
        events = readable(_to_event, rows[:limit])
        if events or not is_cut or limit < 1:
            return events, is_cut
        after = rows[limit - 1]["position"]


def _to_event(row: sqlite3.Row) -> Event:
    if "body" in row.keys():  # noqa: SIM118 - a row is not a mapping, `in` looks at its values
        return Event(row["position"], message=decode_message(row["body"]))
    return Event(row["position"], turn=to_turn(row))
