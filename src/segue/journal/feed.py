"""What listeners of a thread get: messages, ends of turns, and the draft of the next message."""

from typing import Final

from segue.core.snowflake import MAX_ID
from segue.journal.records import PAGE_BYTES, FeedPage, Partial, StoredEvent, Turn
from segue.journal.rows import body_size, decode_message, readable
from segue.journal.threads import thread_of
from segue.journal.tx import Part, Row, Tx, find, reads

_MESSAGES: Final = (
    "SELECT position, body FROM messages WHERE thread_id = :thread AND visible = true "
    "AND position > :after ORDER BY position LIMIT :limit"
)
_ENDS: Final = (
    "SELECT turns.*, end_position AS position, NULL AS body FROM turns WHERE thread_id = :thread "
    "AND end_position > :after ORDER BY end_position LIMIT :limit"
)
# A follow-up that was not shown may still be withdrawn: nothing of it may be seen.
_RUNNING: Final = (
    "SELECT id, token, partial_id, partial_text, partial_id IS NOT NULL "
    "AND (kind <> 'follow_up' OR shown_at IS NOT NULL) AS is_seen "
    "FROM turns WHERE thread_id = :thread AND state = 'running'"
)


class Feed(Part):
    @reads
    async def read(self, tx: Tx, thread_id: str, *, after: int = 0, limit: int = 200) -> FeedPage:
        """The events above a position, oldest first: visible messages and ends of turns that have
        an `ending`; with the draft of the next message, and the running turn.

        Ends after `limit` events, or with the message that brings the page to `PAGE_BYTES`.
        """
        await thread_of(tx, thread_id)
        events, is_cut = await _events_above(tx, thread_id, after, limit)
        # Read last, so that a turn which one of the messages voided is not returned as running.
        row = await find(tx, _RUNNING, thread=thread_id)
        if row is None:
            return FeedPage(events, None, is_cut=is_cut)
        # A draft is useful only after all events before it.
        is_seen = row["is_seen"] and not is_cut
        partial = Partial(row["id"], row["partial_id"], row["partial_text"])
        running = row["id"], row["token"]
        return FeedPage(events, partial if is_seen else None, running, is_cut)


async def _events_above(
    tx: Tx, thread_id: str, after: int, limit: int
) -> tuple[list[StoredEvent], bool]:
    """The next events, and whether there are more. Unreadable rows are skipped."""
    while True:
        values = {"thread": thread_id, "after": after, "limit": limit + 1}
        messages = await tx.bounded(_MESSAGES, **values)
        rows = sorted(
            [*messages, *await tx.all(_ENDS, **values)], key=lambda row: int(row["position"])
        )
        is_full = sum(body_size(row["body"]) for row in messages) >= PAGE_BYTES
        last = messages[-1]["position"] if is_full else MAX_ID
        page = [row for row in rows[:limit] if row["position"] <= last]
        is_cut = len(page) < len(rows) or last < MAX_ID
        events = readable(_to_event, page)
        if events or not is_cut or limit < 1:
            return events, is_cut
        after = page[-1]["position"]


def _to_event(row: Row) -> StoredEvent:
    if row["body"] is None:
        return StoredEvent(row["position"], turn=Turn.of(row))
    message = decode_message(row["body"])
    return StoredEvent(row["position"], message=message, size=body_size(row["body"]))
