"""What listeners see of a thread on PostgreSQL: messages, ends of turns, the message being
written.
"""

from typing import LiteralString

from psycopg.rows import DictRow

from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_one
from segue.journal.postgres.threads import thread_of
from segue.journal.postgres.turns import to_turn
from segue.journal.records import Event, Events, Partial
from segue.journal.rows import decode_message, readable

_MESSAGES: LiteralString = (
    "SELECT position, body FROM messages WHERE thread_id = %s AND visible AND position > %s "
    "ORDER BY position LIMIT %s"
)
_ENDS: LiteralString = (
    "SELECT end_position AS position, turns.* FROM turns WHERE thread_id = %s "
    "AND end_position > %s ORDER BY end_position LIMIT %s"
)
# A follow-up that was not shown may still be withdrawn: nothing of it may be seen.
_RUNNING: LiteralString = (
    "SELECT id, token, partial_id, partial_text, partial_id IS NOT NULL "
    "AND (kind <> 'follow_up' OR shown_at IS NOT NULL) AS is_seen "
    "FROM turns WHERE thread_id = %s AND state = 'running'"
)


class EventSteps:
    _db: Database

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 200) -> Events:
        async def step(db: Connection) -> Events:
            await thread_of(db, thread_id)
            events, is_cut = await _events_above(db, thread_id, after, limit)
            # Read last: a message that voids a turn is not seen without that.
            row = await fetch_one(db, _RUNNING, (thread_id,))
            if row is None:
                return Events(events, None)
            # Whoever has not seen all before it has no use for what comes next.
            is_seen = row["is_seen"] and not is_cut
            partial = Partial(row["id"], row["partial_id"], row["partial_text"])
            return Events(events, partial if is_seen else None, (row["id"], row["token"]))

        return await self._db.read(step)


async def _events_above(
    db: Connection, thread_id: str, after: int, limit: int
) -> tuple[list[Event], bool]:
    """The next events, and whether there are more. Rows that cannot be read hold up nobody."""
    while True:
        messages = await fetch_all(db, _MESSAGES, (thread_id, after, limit + 1))
        ends = await fetch_all(db, _ENDS, (thread_id, after, limit + 1))
        rows = sorted([*messages, *ends], key=lambda row: row["position"])
        is_cut = len(rows) > limit
        events = readable(_to_event, rows[:limit])
        if events or not is_cut or limit < 1:
            return events, is_cut
        after = rows[limit - 1]["position"]


def _to_event(row: DictRow) -> Event:
    if "body" in row:
        return Event(row["position"], message=decode_message(row["body"]))
    return Event(row["position"], turn=to_turn(row))
