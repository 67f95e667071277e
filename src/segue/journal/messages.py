"""The journal of messages: appending them, and reading them for models and users."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.metadata import MessageMetadata, check_messages
from segue.core.snowflake import MAX_ID, SnowflakeSource, time_of, to_text
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.batches import (
    MOST_MEMBERS,
    RisingIds,
    append_to_batch,
    batch_of,
    bring_back,
    message_statements,
    place_of,
)
from segue.journal.records import PAGE_BYTES, WINDOW_BYTES, Page, Summary, Thread, TurnLease
from segue.journal.rows import (
    DamagedError,
    body_size,
    decode_batch,
    decode_message,
    encode_message,
    read_settings,
    readable,
)
from segue.journal.summaries import Window
from segue.journal.threads import lock_thread, thread_of
from segue.journal.turns import clear_partial
from segue.journal.tx import Part, Row, Tx, reads, single_read, writes
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

# Prefix of the threads of the self-test at start.
SELF_TEST: Final = "segue-self-test-"
# Half of the range of ids: decades from now.
_LATEST_IMPORT: Final = MAX_ID // 2
# A read of a tail takes as many rows as may fill it, if a message has this many tokens.
_TOKENS_OF_ROW: Final = 64
_FEWEST_ROWS: Final = 16
_MOST_ROWS: Final = 128
_LIVE_BATCHES: Final = """
    SELECT DISTINCT batch FROM messages INDEXED BY messages_live
    WHERE thread_id = :thread AND archived = false
"""
# The settings, and the newest summary if there is one.
HEAD: Final = """
    SELECT threads.settings AS thread_settings, users.settings AS user_settings, newest.*
    FROM threads LEFT JOIN users ON users.user_id = threads.user_id
    LEFT JOIN summaries AS newest ON newest.id = (
        SELECT max(id) FROM summaries WHERE thread_id = :thread)
    WHERE threads.id = :thread
"""
# In the order of the index.
_NEWEST: Final = """
    SELECT batch, tokens, body FROM messages INDEXED BY messages_live
    WHERE thread_id = :thread AND archived = false AND batch {batches}
    ORDER BY batch DESC, sequence_num DESC LIMIT :limit
"""
# Whole batches, up to the one with which their bodies reach `size`. They are counted apart, since
# SQLite copies what a window function passes on.
_AMONG: Final = """
    SELECT batch, body FROM messages WHERE thread_id = :thread AND batch IN (
        SELECT batch FROM (
            SELECT batch, sum(sum(octet_length(body))) OVER (
                ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM messages WHERE thread_id = :thread AND batch = ANY(:batches) GROUP BY batch
        ) AS counted WHERE coalesce(before, 0) < :size
    ) ORDER BY batch, sequence_num
"""
_PAGE: Final = """
    SELECT position, body FROM messages WHERE thread_id = :thread AND visible = true
    AND position < :before AND position > :after ORDER BY position {order} LIMIT :limit
"""
# Whether there are visible messages before and after a page.
_AROUND: Final = """
    SELECT EXISTS (
        SELECT 1 FROM messages WHERE thread_id = :thread AND visible = true AND position < :first
    ) AS older, EXISTS (
        SELECT 1 FROM messages WHERE thread_id = :thread AND visible = true AND position > :last
    ) AS newer
"""


class Messages(Part):
    @writes
    async def append(
        self,
        tx: Tx,
        lease: TurnLease,
        messages: Sequence[BaseMessage],
        *,
        ids: SnowflakeSource,
        now: datetime,
    ) -> list[BaseMessage]:
        """Store messages at the end of the turn's batch and return them as stored.

        Positions rise above everything in the thread, sequence numbers have no gap. A message
        whose id is in the batch already is returned as stored, so an interrupted step can be
        repeated. Call `turns.show` first: what a follow-up stores is visible.
        """
        thread = await lock_thread(tx, lease.turn.thread_id)
        # A stored message has no draft: a listener must not see it twice.
        await clear_partial(tx, lease)
        return await append_to_batch(tx, thread, lease.turn, messages, RisingIds(thread, ids, now))

    @writes
    async def import_messages(self, tx: Tx, thread_id: str, messages: Iterable[BaseMessage]) -> int:
        """Store stamped messages unless their ids are there; the number of new ones."""
        given = importable(messages)
        thread = await lock_thread(tx, thread_id)
        sql = "SELECT message_id FROM messages WHERE thread_id = :thread AND message_id = ANY(:ids)"
        rows = await tx.all(sql, thread=thread_id, ids=[message.id for message in given])
        known = {row["message_id"] for row in rows}
        new = [message for message in given if message.id not in known]
        for message in new:
            row = encode_message(message)
            await tx.together(*message_statements(tx, thread, row, time_of(row.position)))
        await bring_back(tx, thread_id, {MessageMetadata.of(each).batch or 0 for each in new})
        if not thread.unread:  # imported history is not new to listeners
            sql = "UPDATE threads SET read_position = preview_position, unread = 0 WHERE id = :id"
            await tx.run(sql, id=thread_id)
        return len(new)

    @single_read
    async def load_batch(self, tx: Tx, thread_id: str, batch: int) -> Batch:
        """The batch with all its messages; `rows.DamagedError` if one of them cannot be read."""
        return await batch_of(tx, thread_id, batch, keep=False)

    @reads
    async def load_batches(self, tx: Tx, thread_id: str, batches: Collection[int]) -> list[Batch]:
        """Whole batches, oldest first, until they reach `WINDOW_BYTES`.

        Batches that are missing or cannot be read are left out; `NotFoundError` if all are missing.
        """
        rows = await tx.all(_AMONG, thread=thread_id, batches=[*batches], size=WINDOW_BYTES)
        if not rows:
            raise NotFoundError(f"None of these batches is in thread {thread_id!r}.")
        groups = [[*members] for _, members in groupby(rows, key=itemgetter("batch"))]
        return readable(lambda members: _to_batch(members, keep=False), groups)

    @reads
    async def tail(
        self, tx: Tx, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> list[Batch]:
        """The newest batches that are not archived, newest first, until they have `max_tokens`.

        Ends sooner before the batch that would bring them over `WINDOW_BYTES`. Never a cut batch.
        With a current batch, nothing newer than it. The cost depends on the budget, not on the
        length of the thread.
        """
        await thread_of(tx, thread_id)
        tail = Tail.upto(thread_id, max_tokens, current_batch)
        await self._fill(tx, tail)
        return tail.batches

    async def window(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> Window:
        """The tail together with the newest summary and the settings, of one snapshot."""
        head, batches = await self._read(thread_id, max_tokens, current_batch)
        settings = (head["thread_settings"], head["user_settings"] or "{}")
        summary = None if head["id"] is None else Summary.of(head)
        return Window(batches, summary, *map(read_settings, settings))

    @reads
    async def _read(
        self, tx: Tx, thread_id: str, max_tokens: int, current_batch: int | None
    ) -> tuple[Row, list[Batch]]:
        """The row of `HEAD`, and the tail."""
        head = await tx.get(HEAD, f"There is no thread {thread_id!r}.", thread=thread_id)
        tail = Tail.upto(thread_id, max_tokens, current_batch)
        await self._fill(tx, tail)
        return head, tail.batches

    async def _fill(self, tx: Tx, tail: "Tail") -> None:
        while not tail.is_done:
            await _read_on(tx, tail)

    @reads
    async def list_live_batches(
        self, tx: Tx, thread_id: str, *, after: int = 0, limit: int = 100
    ) -> list[int]:
        """The ids of batches that are not archived, above an id, oldest first."""
        await thread_of(tx, thread_id)
        sql = f"{_LIVE_BATCHES} AND batch > :after ORDER BY batch LIMIT :limit"
        rows = await tx.all(sql, thread=thread_id, after=after, limit=limit)
        return [row["batch"] for row in rows]

    @reads
    async def history(
        self,
        tx: Tx,
        thread_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        """Visible messages, oldest first: the newest, or those next to a position.

        A page ends after `limit` messages, or with the message that brings it to `PAGE_BYTES`.
        Paging is stable while messages are added.
        """
        thread = await thread_of(tx, thread_id)
        rows = await tx.bounded(
            _PAGE.format(order="DESC" if after is None else "ASC"),
            thread=thread_id,
            before=MAX_ID if before is None else before,
            after=after or 0,
            limit=limit,
        )
        found = sorted(rows, key=lambda row: row["position"])
        low = 0 if after is None else min(after + 1, MAX_ID)
        high = MAX_ID if before is None else before - 1
        first, last = (found[0]["position"], found[-1]["position"]) if found else (low, high)
        around = await tx.get(_AROUND, thread=thread_id, first=first, last=last)
        page = Page(
            messages=readable(lambda row: decode_message(row["body"]), found),
            before=first if around["older"] else None,
            after=last if around["newer"] else None,
        )
        # The positions that the page looked at.
        span = (page.before or low, high) if after is None else (low, page.after or high)
        await _log_hidden(tx, thread, *span)
        return page

    @single_read
    async def list_batch(self, tx: Tx, agent_id: str, batch: int) -> list[BaseMessage]:
        """All messages of a batch that belong to an agent, in sequence."""
        sql = (
            "SELECT body FROM messages WHERE agent_id = :agent AND batch = :batch "
            "ORDER BY sequence_num"
        )
        rows = await tx.all(sql, agent=agent_id, batch=batch)
        return [decode_message(row["body"]) for row in rows]

    @reads
    async def list_incomplete_batches(
        self, tx: Tx, agent_id: str, *, limit: int = 100
    ) -> list[tuple[str, Batch]]:
        """An agent's unfinished batches with their threads, oldest first: those that a turn works
        on or left open.
        """
        sql = (
            "SELECT DISTINCT thread_id, batch FROM turns "
            "WHERE agent_id = :agent AND (state IN ('queued', 'running') OR left_open) "
            "ORDER BY batch"
        )
        found: list[tuple[str, Batch]] = []
        for row in await tx.all(sql, agent=agent_id):
            try:
                batch = await batch_of(tx, row["thread_id"], row["batch"])
            except DamagedError as error:
                logger.error("%s It is left out.", error)  # noqa: TRY400 - the row is the fault
                continue
            if not batch.is_complete:
                found.append((row["thread_id"], batch))
            if len(found) >= limit:
                break
        return found


async def _read_on(tx: Tx, tail: "Tail") -> None:
    """Read the next older batches: many small ones at once, or one that may have megabytes."""
    limit = min(max(tail.room // _TOKENS_OF_ROW, _FEWEST_ROWS), _MOST_ROWS)
    wanted = {"thread": tail.thread_id, "batch": tail.below, "limit": limit}
    rows = await tx.bounded(_NEWEST.format(batches="< :batch"), **wanted)
    if len(rows) < limit and sum(body_size(row["body"]) for row in rows) < PAGE_BYTES:
        tail.add(rows)
        tail.below = 0
        return
    oldest = rows[-1]["batch"]  # it may be cut
    while rows and rows[-1]["batch"] == oldest:
        rows.pop()
    if not rows:
        wanted |= {"batch": oldest, "limit": MOST_MEMBERS}
        rows = await tx.all(_NEWEST.format(batches="= :batch"), **wanted)
    tail.add(rows)


@dataclass(slots=True)
class Tail:
    """The newest batches below an id, whole and newest first, until their tokens fill `room` or
    the next one would bring their bodies over `WINDOW_BYTES`.
    """

    thread_id: str
    room: int
    # Below which batch there may be more; 0 if there are none.
    below: int
    batches: list[Batch] = field(default_factory=list)
    bytes: int = WINDOW_BYTES

    @classmethod
    def upto(cls, thread_id: str, max_tokens: int, batch: int | None) -> "Tail":
        """An empty tail for a turn, which sees its own batch and all before it."""
        return cls(thread_id, max_tokens, MAX_ID if batch is None else min(batch + 1, MAX_ID))

    @property
    def is_done(self) -> bool:
        return self.room <= 0 or self.bytes <= 0 or not self.below

    def add(self, rows: Sequence[Row]) -> None:
        """Add the rows of batches, from the newest to the oldest."""
        for batch_id, newest_first in groupby(rows, key=itemgetter("batch")):
            if self.is_done:
                return
            members = [*newest_first][::-1]
            self.below = batch_id
            self.bytes -= sum(body_size(row["body"]) for row in members)
            if self.bytes < 0 and self.batches:
                return
            for batch in readable(_to_batch, [members]):  # an unreadable one takes no room
                self.batches.append(batch)
                self.room -= sum(row["tokens"] for row in members)


def _to_batch(members: list[Row], *, keep: bool = True) -> Batch:
    return decode_batch(members[0]["batch"], (row["body"] for row in members), keep=keep)


async def _log_hidden(tx: Tx, thread: Thread, first: int, last: int) -> None:
    """Log the messages that a page of history left out: a line for each, and one for all."""
    sql = (
        "SELECT message_id, trigger_type FROM messages WHERE thread_id = :thread "
        "AND position BETWEEN :first AND :last AND synthetic = true"
    )
    hidden = await tx.all(sql, thread=thread.id, first=first, last=last)
    where: Mapping[str, Any] = {"thread_id": thread.id, "agent_id": thread.agent_id}
    for row in hidden:
        log_event(
            logger,
            "synthetic_message_hidden",
            "Left message {message_id} (trigger {trigger_type}) out of the history of thread "
            "{thread_id}",
            logging.DEBUG,
            message_id=row["message_id"],
            trigger_type=row["trigger_type"],
            **where,
        )
    if hidden:
        log_event(
            logger,
            "synthetic_messages_filtered",
            "Filtered {count} synthetic messages from the history of thread {thread_id} of agent "
            "{agent_id}",
            logging.DEBUG if thread.id.startswith(SELF_TEST) else logging.INFO,
            count=len(hidden),
            **where,
        )


def importable(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Stamped messages in order of position, each once, and each with an id.

    `ConflictError` for two different messages under one id: storing one would lose the other.
    """
    known: dict[str, BaseMessage] = {}
    for message in sorted(check_messages(messages), key=place_of):
        # Later ids are above all that are there: one near the end of the range would be the last.
        if place_of(message) > _LATEST_IMPORT:
            raise UsageError(
                f"Message {message.id!r} has a position in {time_of(place_of(message)).year}; "
                "expected one of the present. Nothing was written."
            )
        named = message.model_copy(update={"id": message.id or to_text(place_of(message))})
        if known.setdefault(named.id or "", named) != named:
            raise ConflictError(
                f"Two different messages have the id {named.id!r}. Nothing was written."
            )
    return list(known.values())
