"""The journal of messages: appending, and reading what models and people get of it."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.metadata import MessageMetadata, check_messages
from segue.core.snowflake import MAX_ID, SnowflakeSource, time_of, to_text
from segue.errors import BackendError, ConflictError, UsageError
from segue.journal.batches import (
    RisingIds,
    append_to_batch,
    batch_of,
    batches_among,
    bring_back,
    place_of,
    storing,
)
from segue.journal.records import WINDOW_BYTES, Page, Thread, TurnLease, Window
from segue.journal.rows import body_size, decode_batch, decode_message, encode_message, readable
from segue.journal.summaries import newest_summary
from segue.journal.threads import lock_thread, thread_of
from segue.journal.turns import clear_partial
from segue.journal.tx import Part, Row, Tx, get, looks, reads, writes
from segue.telemetry import log_event

logger = logging.getLogger(__name__)

# Prefix of the threads that a start tests its stores with.
SELF_TEST: Final = "segue-self-test-"
# Half of the range of ids: decades from now.
_LATEST_IMPORT: Final = MAX_ID // 2
_BATCHES_PER_READ: Final = 16
_LIVE_BATCHES: Final = """
    SELECT DISTINCT batch FROM messages INDEXED BY messages_live
    WHERE thread_id = :thread AND archived = false
"""
_MEMBERS: Final = """
    SELECT batch, tokens, body FROM messages WHERE thread_id = :thread AND batch = :batch
    AND archived = false ORDER BY sequence_num
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
    """The append-only journal."""

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

        The user sees a follow-up's message as soon as it is stored: call `turns.show` first.

        Positions rise above everything in the thread, sequence numbers go on without a gap. A
        message whose id is in the batch already is not stored again but returned as stored, so an
        interrupted step can be repeated.
        """
        thread = await lock_thread(tx, lease.turn.thread_id)
        # A stored message has no draft: a listener must not see it twice.
        await clear_partial(tx, lease)
        return await append_to_batch(tx, thread, lease.turn, messages, RisingIds(thread, ids, now))

    @writes
    async def import_messages(self, tx: Tx, thread_id: str, messages: Iterable[BaseMessage]) -> int:
        """Store messages that have their positions already; those that are there are left alone.
        Returns how many were new.
        """
        given = importable(messages)
        thread = await lock_thread(tx, thread_id)
        rows = await tx.all(
            "SELECT message_id FROM messages WHERE thread_id = :thread AND message_id = ANY(:ids)",
            thread=thread_id,
            ids=[message.id for message in given],
        )
        known = {row["message_id"] for row in rows}
        new = [message for message in given if message.id not in known]
        for message in new:
            row = encode_message(message)
            await tx.together(*storing(tx, thread, row, time_of(row.position)))
        await bring_back(tx, thread_id, {MessageMetadata.of(each).batch or 0 for each in new})
        return len(new)

    @looks
    async def load_batch(self, tx: Tx, thread_id: str, batch: int) -> Batch:
        """The batch with all its messages; `rows.DamagedError` if one of them cannot be read."""
        return await batch_of(tx, thread_id, batch, keep=False)

    @looks
    async def load_batches(self, tx: Tx, thread_id: str, batches: Collection[int]) -> list[Batch]:
        """Several batches with all their messages, oldest first, in one statement.

        Ends with the batch that brings them to `WINDOW_BYTES`; ask again for those after it.
        One that is not there is left out, `NotFoundError` if none is; one that cannot be read is
        left out with a line in the log.
        """
        return await batches_among(tx, thread_id, batches)

    @reads
    async def tail(
        self, tx: Tx, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> list[Batch]:
        """The newest batches that are not archived, newest first, with at least `max_tokens`.

        Ends sooner with the batch that brings them to `WINDOW_BYTES`. Never a cut batch. With a
        current batch, nothing newer than it. Cost follows the budget, not the length of the thread.
        """
        return await _tail(tx, thread_id, max_tokens, current_batch)

    @reads
    async def window(
        self, tx: Tx, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> Window:
        """The tail together with the newest summary, of one snapshot."""
        batches = await _tail(tx, thread_id, max_tokens, current_batch)
        return Window(batches, await newest_summary(tx, thread_id))

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

        Paging is stable while messages are added: nothing twice, nothing left out. Content does not
        decide visibility, only metadata. A page ends after `limit` messages, or with the message
        that brings it to `PAGE_BYTES`.
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
        seen = [row["position"] for row in found]
        first, last = _edges(seen, before=before, after=after)
        around = await get(tx, _AROUND, thread=thread_id, first=first, last=last)
        page = Page(
            messages=readable(lambda row: decode_message(row["body"]), found),
            before=first if around["older"] else None,
            after=last if around["newer"] else None,
        )
        await _log_hidden(tx, thread, *_span(page, before=before, after=after))
        return page

    @looks
    async def list_batch(self, tx: Tx, agent_id: str, batch: int) -> list[BaseMessage]:
        """All messages of a batch that belong to an agent, in sequence."""
        rows = await tx.all(
            "SELECT body FROM messages WHERE agent_id = :agent AND batch = :batch "
            "ORDER BY sequence_num",
            agent=agent_id,
            batch=batch,
        )
        return [decode_message(row["body"]) for row in rows]

    @reads
    async def list_incomplete_batches(
        self, tx: Tx, agent_id: str, *, limit: int = 100
    ) -> list[tuple[str, Batch]]:
        """An agent's unfinished batches with their threads, oldest first.

        Those that a turn works on or left open; not those of void follow-ups nor imported ones,
        which no turn continues.
        """
        rows = await tx.all(
            "SELECT DISTINCT thread_id, batch FROM turns "
            "WHERE agent_id = :agent AND (state IN ('queued', 'running') OR left_open) "
            "ORDER BY batch",
            agent=agent_id,
        )
        found: list[tuple[str, Batch]] = []
        for row in rows:
            try:
                batch = await batch_of(tx, row["thread_id"], row["batch"])
            except BackendError as error:
                logger.error("%s It is left out.", error)  # noqa: TRY400 - the row is the fault
                continue
            if not batch.is_complete:
                found.append((row["thread_id"], batch))
            if len(found) >= limit:
                break
        return found


def above(batch: int | None) -> int:
    """The first id above the batches that a turn sees: its own and all before it."""
    return MAX_ID if batch is None else min(batch + 1, MAX_ID)


async def _tail(tx: Tx, thread_id: str, max_tokens: int, current_batch: int | None) -> list[Batch]:
    await thread_of(tx, thread_id)
    tail = Tail(thread_id, max_tokens, above(current_batch))
    while not tail.is_done:
        sql = f"{_LIVE_BATCHES} AND batch < :below ORDER BY batch DESC LIMIT :limit"
        found = await tx.all(sql, thread=thread_id, below=tail.below, limit=_BATCHES_PER_READ)
        for row in found:
            if not tail.is_done:  # one by one: a batch may have many megabytes
                tail.add(await tx.all(_MEMBERS, thread=thread_id, batch=row["batch"]))
        if len(found) < _BATCHES_PER_READ:
            tail.below = 0
    return tail.batches


@dataclass(slots=True)
class Tail:
    """The newest batches below an id, whole and newest first, until their tokens fill `room` or
    their bodies reach `WINDOW_BYTES`.
    """

    thread_id: str
    room: int
    # Below which batch there may be more; 0 if there are none.
    below: int
    batches: list[Batch] = field(default_factory=list)
    bytes: int = WINDOW_BYTES

    @property
    def is_done(self) -> bool:
        return self.room <= 0 or self.bytes <= 0 or not self.below

    def add(self, rows: Sequence[Row]) -> None:
        """Add the rows of batches, the members of each together."""
        groups = [[*members] for _, members in groupby(rows, key=lambda row: row["batch"])]
        for members in groups:
            self.below = members[0]["batch"]
            self.bytes -= sum(body_size(row["body"]) for row in members)
            for batch in readable(_to_batch, [members]):  # an unreadable one takes no room
                self.batches.append(batch)
                self.room -= sum(row["tokens"] for row in members)


def _to_batch(rows: list[Row]) -> Batch:
    return decode_batch(rows[0]["batch"], (row["body"] for row in rows))


async def _log_hidden(tx: Tx, thread: Thread, first: int, last: int) -> None:
    """Log what a page of history left out: a line for each message, one for all of them."""
    hidden = await tx.all(
        "SELECT message_id, trigger_type FROM messages WHERE thread_id = :thread "
        "AND position BETWEEN :first AND :last AND synthetic = true",
        thread=thread.id,
        first=first,
        last=last,
    )
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
                f"Message {message.id!r} has a position in {time_of(place_of(message)).year}; that "
                "is no real message's. Nothing was written."
            )
        named = message.model_copy(update={"id": message.id or to_text(place_of(message))})
        if known.setdefault(named.id or "", named) != named:
            raise ConflictError(
                f"Two different messages have the id {named.id!r}. Nothing was written."
            )
    return list(known.values())


def _edges(seen: Sequence[int], *, before: int | None, after: int | None) -> tuple[int, int]:
    """The first and the last position of a page of history; of an empty one, those of the gap."""
    if seen:
        return seen[0], seen[-1]
    return min((after or 0) + 1, MAX_ID), MAX_ID if before is None else before - 1


def _span(page: Page, *, before: int | None, after: int | None) -> tuple[int, int]:
    """The first and the last position that a page of history looked at."""
    first = 0 if after is None else min(after + 1, MAX_ID)
    last = MAX_ID if before is None else before - 1
    if after is None:
        return first if page.before is None else page.before, last
    return first, last if page.after is None else page.after
