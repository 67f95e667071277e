"""The events for listeners: the stored events of a thread, or of all threads of a user, in the
order of their positions, and the running turns.

Positions rise over all threads of a user, and are committed in that order (`lock_thread`): reading
above one misses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.snowflake import MAX_ID
from segue.journal.records import NESTING, PAGE_BYTES, Thread, Turn, TurnKind
from segue.journal.rows import body_size, decode_message, readable
from segue.journal.threads import thread_of
from segue.journal.tx import Part, Row, Tx, reads, single_read

_NEW_MESSAGES: Final = (
    "SELECT thread_id, position, body FROM messages WHERE thread_id = :thread AND visible = true "
    "AND position > :after ORDER BY position LIMIT :limit"
)
_NEW_ENDS: Final = (
    "SELECT turns.*, end_position AS position, NULL AS body FROM turns WHERE thread_id = :thread "
    "AND end_position > :after ORDER BY end_position LIMIT :limit"
)
# A thread in which agents ask each other is not the user's.
_CHANGED: Final = f"""
    threads.user_id = :user AND threads.changed_position > :after
    AND strpos(threads.id, '{NESTING}') = 0
"""
# The bodies are read after the page is chosen: they need not be sorted.
_NEW_MESSAGES_OF_USER: Final = f"""
    SELECT thread_id, position, body FROM messages WHERE (thread_id, position) IN (
        SELECT new.thread_id, new.position FROM threads JOIN messages AS new
        ON new.thread_id = threads.id WHERE {_CHANGED} AND new.visible = true
        AND new.position > :after AND new.position <= :upto ORDER BY new.position LIMIT :limit
    ) ORDER BY position
"""
_NEW_ENDS_OF_USER: Final = f"""
    SELECT turns.*, end_position AS position, NULL AS body
    FROM threads JOIN turns ON turns.thread_id = threads.id WHERE {_CHANGED}
    AND end_position > :after AND end_position <= :upto ORDER BY end_position LIMIT :limit
"""
_CHANGED_THREADS: Final = (
    f"SELECT * FROM threads WHERE {_CHANGED} ORDER BY threads.changed_position LIMIT :limit"
)
_RUNNING: Final = (
    "SELECT id, thread_id, token, kind, shown_at, partial_id, partial_text FROM turns "
    "WHERE {whose} AND state = 'running'"
)
_Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A listener's event: a visible message with its stored `size` in bytes, or a turn's end."""

    position: int
    thread_id: str
    message: BaseMessage | None = None
    turn: Turn | None = None
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Partial:
    """The text so far of a message that a running turn writes."""

    turn_id: int
    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that some process runs. `partial` is None unless the user may see it."""

    id: int
    token: int
    kind: TurnKind
    is_shown: bool
    partial: Partial | None = None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """The events of a thread, or of all threads of a user, in order, and the turns that run now.

    `position` is how far the page goes, and `is_cut` if there is more. For a user, `threads` are
    those that changed, and `has_deletions` if one was deleted.
    """

    events: list[StoredEvent]
    position: int
    running: Mapping[str, RunningTurn] = field(default_factory=dict)
    is_cut: bool = False
    threads: Sequence[Thread] = ()
    has_deletions: bool = False

    @property
    def drafts(self) -> dict[str, Partial]:
        """The drafts in progress, by thread; valid only after all events before them."""
        turns = {} if self.is_cut else self.running
        return {name: turn.partial for name, turn in turns.items() if turn.partial is not None}


class Feed(Part):
    @reads
    async def read(self, tx: Tx, thread_id: str, *, after: int = 0, limit: int = 200) -> FeedPage:
        """The events above a position, oldest first: visible messages and ends of turns; and the
        running turn with the draft of the next message.

        Ends after `limit` events, or with the message that brings the page to `PAGE_BYTES`.
        """
        await thread_of(tx, thread_id)
        queries = (_NEW_MESSAGES, _NEW_ENDS)
        events, cut = await _events_above(tx, queries, {"thread": thread_id}, after, limit)
        # Read last, so that a turn which one of the messages voided is not returned as running.
        running = await _running(tx, "thread_id = :thread", thread=thread_id)
        last = events[-1].position if events else after
        return FeedPage(events, cut or last, running, is_cut=cut is not None)

    @reads
    async def read_user(
        self, tx: Tx, user_id: str, *, after: int = 0, limit: int = 200
    ) -> FeedPage:
        """The same for all threads of a user, with the threads whose list entries changed.

        `limit` bounds the threads, too. Cost follows what is new, not the number of threads. A user
        without threads has an empty feed.
        """
        sql = "SELECT last_position, deleted_position FROM feeds WHERE user_id = :user"
        feed = await tx.find(sql, user=user_id)
        if feed is None:
            return FeedPage([], 0, has_deletions=after > 0)
        values = {"user": user_id, "after": after, "limit": limit + 1}
        changed = await tx.all(_CHANGED_THREADS, **values)
        upto = MAX_ID if len(changed) <= limit else changed[limit - 1]["changed_position"]
        events, cut = await _events_above(
            tx,
            (_NEW_MESSAGES_OF_USER, _NEW_ENDS_OF_USER),
            {"user": user_id, "upto": upto},
            after,
            limit,
        )
        upto = upto if cut is None else cut
        running = await _running(tx, "user_id = :user", user=user_id)
        return FeedPage(
            events,
            max(after, feed["last_position"]) if upto == MAX_ID else upto,
            {name: turn for name, turn in running.items() if NESTING not in name},
            is_cut=upto < MAX_ID,
            threads=readable(
                Thread.of, [row for row in changed if row["changed_position"] <= upto]
            ),
            has_deletions=after < feed["deleted_position"] <= upto,
        )

    @single_read
    async def last_position(self, tx: Tx, user_id: str) -> int:
        """The highest position among a user's threads; 0 if there is none."""
        row = await tx.find("SELECT last_position FROM feeds WHERE user_id = :u", u=user_id)
        return 0 if row is None else int(row["last_position"])


async def _running(tx: Tx, whose: str, **values: Any) -> dict[str, RunningTurn]:
    """The running turns by thread. A follow-up that was not shown may still be withdrawn, so none
    of it is returned.
    """
    found = {}
    for row in await tx.all(_RUNNING.format(whose=whose), **values):
        kind = TurnKind(row["kind"])
        is_shown = not kind.speaks_first or row["shown_at"] is not None
        partial = None
        if is_shown and row["partial_id"] is not None:
            partial = Partial(row["id"], row["partial_id"], row["partial_text"])
        turn = RunningTurn(row["id"], row["token"], kind, is_shown, partial)
        found[row["thread_id"]] = turn
    return found


async def _events_above(
    tx: Tx, queries: tuple[str, str], whose: _Values, after: int, limit: int
) -> tuple[list[StoredEvent], int | None]:
    """The next events, and up to which position they go if there are more. Unreadable rows are
    skipped.
    """
    of_messages, of_ends = queries
    while True:
        values = {**whose, "after": after, "limit": limit + 1}
        messages = await tx.bounded(of_messages, **values)
        rows = sorted(
            [*messages, *await tx.all(of_ends, **values)], key=lambda row: int(row["position"])
        )
        is_full = sum(body_size(row["body"]) for row in messages) >= PAGE_BYTES
        last = messages[-1]["position"] if is_full else MAX_ID
        page = [row for row in rows[:limit] if row["position"] <= last]
        is_cut = len(page) < len(rows) or last < MAX_ID
        events = readable(_to_event, page)
        if not is_cut or limit < 1:
            return events, None
        if events:
            return events, int(page[-1]["position"])
        after = page[-1]["position"]


def _to_event(row: Row) -> StoredEvent:
    place = row["position"], row["thread_id"]
    if row["body"] is None:
        return StoredEvent(*place, turn=Turn.of(row))
    message = decode_message(row["body"])
    return StoredEvent(*place, message=message, size=body_size(row["body"]))
