"""Batches and the ids of a thread. Called inside the steps of other modules.

A step that writes here holds the thread's lock.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.batch import Batch, settle
from segue.core.metadata import BatchType, MessageMetadata, has_place, is_synthetic
from segue.core.snowflake import SnowflakeSource, latest_id, time_of
from segue.core.stamp import places, with_place
from segue.core.text import one_line
from segue.errors import BackendError, MetadataError, NotFoundError, UsageError
from segue.journal.records import LockedThread, Thread, Turn
from segue.journal.rows import (
    CLOCK_SKEW,
    PREVIEW_LENGTH,
    TITLE_LENGTH,
    MessageRow,
    aware,
    decode_batch,
    decode_message,
    encode_message,
)
from segue.journal.tx import Row, Statement, Tx

logger = logging.getLogger(__name__)

# Practically no limit: a batch has tens of messages.
MOST_MEMBERS: Final = 1_000_000
_COLUMNS: Final = tuple(column.name for column in fields(MessageRow))
# Above all positions that the user's listeners have, even if the thread's own are lower: its
# messages were imported, or a clock was far ahead in another thread.
_CHANGED: Final = (
    "greatest(:last, (SELECT feeds.last_position + 1 FROM feeds WHERE user_id = threads.user_id))"
)
_NOTE: Final = f"""
    UPDATE threads SET last_position = :last,
        changed_position = CASE WHEN :is_seen THEN {_CHANGED} ELSE changed_position END
    WHERE id = :thread AND last_position < :last
"""
# `count` is the number of messages in the batch for its members, NULL for messages found by id.
# SQLite would copy each body several times for a window function.
_OPEN: Final = """
    SELECT * FROM (
        SELECT batch, sequence_num, message_id, batch_type, parent_batch, archived, body, (
            SELECT max(sequence_num) + 1 FROM messages
            WHERE thread_id = :thread AND batch = :batch) AS count
        FROM messages WHERE thread_id = :thread AND batch = :batch
        ORDER BY sequence_num LIMIT :limit) AS members
    UNION ALL
    SELECT batch, sequence_num, message_id, batch_type, parent_batch, archived, body, NULL
    FROM messages WHERE thread_id = :thread AND message_id = ANY(:wanted)
"""
_TURNS_OF: Final = "WHERE thread_id = :thread AND batch = :batch"
# Title, preview, count and time in the thread list follow each stored message.
_FOLLOW: Final = f"""
    UPDATE threads SET epoch = :epoch,
        typing_at = CASE WHEN epoch < :epoch THEN NULL ELSE typing_at END,
        last_position = greatest(last_position, :last),
        changed_position = CASE WHEN :is_seen THEN {_CHANGED} ELSE changed_position END,
        message_count = message_count + CASE WHEN :visible THEN 1 ELSE 0 END,
        updated_at = CASE WHEN :visible THEN greatest(updated_at, :now) ELSE updated_at END,
        title = CASE WHEN title IS NULL AND NOT title_is_set THEN :title ELSE title END,
        preview = CASE WHEN :visible AND preview_position < :position
            THEN :preview ELSE preview END,
        preview_role = CASE WHEN :visible AND preview_position < :position
            THEN :role ELSE preview_role END,
        preview_position = CASE WHEN :visible
            THEN greatest(preview_position, :position) ELSE preview_position END,
        read_position = CASE WHEN :is_users
            THEN greatest(read_position, :position) ELSE read_position END,
        unread = CASE WHEN :is_users THEN 0
            WHEN :visible AND :position > read_position THEN unread + 1 ELSE unread END
    WHERE id = :thread
"""


class RisingIds:
    """Ids of one step in a locked thread: each above all ids of the thread, and of the user's other
    threads, even if this process's clock is behind.

    If the user's positions are more than a day ahead, a clock was wrong: only the threads that were
    written to then continue above them.
    """

    def __init__(self, thread: LockedThread, ids: SnowflakeSource, now: datetime) -> None:
        self._ids = ids
        is_sound = thread.feed_position <= latest_id(aware(now))
        self.last = max(thread.last_position, thread.feed_position if is_sound else 0)
        self.now = now

    @property
    def node(self) -> int:
        return self._ids.node

    def next(self, after: int = 0) -> int:
        self.last = self._ids.next(after=max(after, self.last))
        return self.last


def last_id_update(thread_id: str, ids: RisingIds, *, is_seen: bool = False) -> Statement:
    """Store the highest id that the step used: later ids are higher in every process. `is_seen`:
    the step stores something for listeners.
    """
    return Statement(_NOTE, {"last": ids.last, "thread": thread_id, "is_seen": is_seen})


def check_new(message: BaseMessage, *, synthetic: bool) -> None:
    """Refuse anything but a new human message: a user's own, or a `synthetic` one, which users do
    not see.
    """
    if has_place(message):
        raise UsageError(
            f"Message {message.id!r} names a batch of its own; the journal gives it a new one. "
            "Nothing was written."
        )
    if isinstance(message, HumanMessage) and is_synthetic(message) is synthetic:
        return
    kind = "synthetic" if is_synthetic(message) else "real"
    expected = (
        "A timer fires a synthetic message, made with synthetic_message() or continuation_message()"
        if synthetic
        else "Only a user's own message can be accepted, made with user_message()"
    )
    raise UsageError(f"{expected}, not a {kind} {type(message).__name__}. Nothing was written.")


def check_past(new_id: int, now: datetime, what: str) -> None:
    """Refuse an id from the future: all later ids of its thread would be above it."""
    if new_id > latest_id(now):
        raise UsageError(
            f"{what} has an id of {time_of(new_id):%Y-%m-%d}, more than a day from now "
            f"({now:%Y-%m-%d}). Correct its time or this machine's clock. Nothing was written."
        )


def place_of(message: BaseMessage) -> int:
    """The position of a message; `MetadataError` if it has none."""
    position = MessageMetadata.of(message).position
    if position is None:
        raise MetadataError(f"Message {message.id!r} has no place in a batch; stamp it first.")
    return position


def stamp_now(
    message: BaseMessage, ids: RisingIds, *place: Any, **more: Any
) -> tuple[BaseMessage, MessageRow]:
    """A message as `stamp` gives it, and its row; `stored_at` is set where the position is too
    late for now: after a clock was ahead, positions continue above its ids.
    """
    [(plain, metadata)] = places([message], ids, *place, **more)
    if time_of(metadata.position or 0) > aware(ids.now) + CLOCK_SKEW:
        metadata = replace(metadata, stored_at=ids.now.isoformat())
    stamped = with_place(plain, metadata)
    return stamped, encode_message(stamped, metadata)


async def batch_of(tx: Tx, thread_id: str, batch: int, *, keep: bool = True) -> Batch:
    sql = (
        "SELECT body FROM messages WHERE thread_id = :thread AND batch = :batch "
        "ORDER BY sequence_num"
    )
    rows = await tx.all(sql, thread=thread_id, batch=batch)
    if not rows:
        raise NotFoundError(f"There is no batch {batch} in thread {thread_id!r}.")
    return decode_batch(batch, (row["body"] for row in rows), keep=keep)


@dataclass(frozen=True, slots=True)
class Placement:
    """Messages as they are in their batch now, and the rows of those that are new."""

    stored: list[BaseMessage]
    new: list[MessageRow]


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that a turn continues: all its messages or the first one, and the messages of the
    thread whose ids the turn is about to store.
    """

    turn: Turn
    members: list[Row]
    known: dict[str, Row]

    def place(
        self, messages: Sequence[BaseMessage], ids: RisingIds, batch_type: BatchType | None = None
    ) -> Placement:
        """Give messages a place at the end; one whose id is in the batch already is not new."""
        first = self.members[0]
        placement = Placement([], [])
        made: dict[str | None, BaseMessage] = {}
        for given in messages:
            message = self._with_own_id(given)
            if (twin := made.get(message.id)) is not None:
                placement.stored.append(twin)
                continue
            if (row := self.known.get(message.id or "")) is not None:
                placement.stored.append(decode_message(row["body"]))
                continue
            # Type and parent are those of the first message: a continuation does not relabel it.
            stamped, new_row = stamp_now(
                _without_place(message, self.turn.batch),
                ids,
                self.turn.batch,
                batch_type or first["batch_type"],
                start=first["count"] + len(placement.new),
                parent_batch=first["parent_batch"],
            )
            made[stamped.id] = stamped
            placement.stored.append(stamped)
            placement.new.append(new_row)
        return placement

    def is_complete_with(self, new: Sequence[MessageRow]) -> bool:
        """Whether the batch, with all members read, is complete once these are stored."""
        bodies = [row["body"] for row in self.members] + [row.body for row in new]
        try:
            return decode_batch(self.turn.batch, bodies).is_complete
        except BackendError:  # a damaged row must not keep the turn from ending
            return False

    def _with_own_id(self, message: BaseMessage) -> BaseMessage:
        """Some providers reuse ids. In another batch it is another message, and gets an id that
        stays the same if the step is repeated.
        """
        known = self.known.get(message.id or "")
        if known is None or known["batch"] == self.turn.batch:
            return message
        return message.model_copy(update={"id": _own_id(message.id, self.turn)})


async def open_batch(
    tx: Tx, turn: Turn, messages: Sequence[BaseMessage], *, whole: bool = False
) -> OpenBatch:
    """The batch of a turn, to store messages at its end; with all members only if `whole`."""
    wanted = [message.id for message in messages if message.id is not None]
    wanted += [_own_id(message_id, turn) for message_id in wanted]
    limit = MOST_MEMBERS if whole else 1
    values = {"thread": turn.thread_id, "batch": turn.batch, "limit": limit, "wanted": wanted}
    rows = await tx.all(_OPEN, **values)
    members = [row for row in rows if row["count"] is not None]
    members.sort(key=lambda row: row["sequence_num"])  # a union promises no order
    if not members:
        raise NotFoundError(
            f"There is no batch {turn.batch} in thread {turn.thread_id!r}. Nothing was written."
        )
    if messages and members[0]["archived"]:
        await bring_back(tx, turn.thread_id, [turn.batch])
    return OpenBatch(turn, members, {r["message_id"]: r for r in rows if r["count"] is None})


async def append_to_batch(
    tx: Tx,
    thread: Thread,
    turn: Turn,
    messages: Sequence[BaseMessage],
    ids: RisingIds,
    batch_type: BatchType | None = None,
) -> list[BaseMessage]:
    """Store messages at the end of a turn's batch; one whose id is there already is not new."""
    if not messages:
        return []
    placement = (await open_batch(tx, turn, messages)).place(messages, ids, batch_type)
    for row in placement.new:
        await tx.together(*message_statements(tx, thread, row, ids.now))
    return placement.stored


async def bring_back(tx: Tx, thread_id: str, batches: Collection[int]) -> None:
    """Unarchive batches: the tail has whole batches only."""
    sql = (
        "UPDATE messages SET archived = false "
        "WHERE thread_id = :thread AND batch = ANY(:batches) AND archived = true"
    )
    await tx.run(sql, thread=thread_id, batches=[*batches])


def message_statements(
    tx: Tx,
    thread: Thread,
    row: MessageRow,
    now: datetime,
    last: int = 0,
    client_message_id: str | None = None,
    *,
    is_seen: bool = False,
) -> list[Statement]:
    """Store a message, and update its thread: list entry, epoch, and the `last` id used.

    `is_seen`: listeners get something of the step besides the message.
    """
    columns: dict[str, Any] = {
        **{name: getattr(row, name) for name in _COLUMNS},
        **tx.words_of(thread.user_id, row.text if row.visible else None),
        "client_message_id": client_message_id,
        "created_at": now,
    }
    is_users = row.visible and row.role == "human"
    follow = {
        "thread": thread.id,
        "last": max(last, row.position),
        "epoch": thread.epoch,
        "visible": row.visible,
        "is_seen": row.visible or is_seen,
        "is_users": is_users,
        "now": now,
        "position": row.position,
        "role": row.role,
        "title": (one_line(row.text, TITLE_LENGTH) or None) if is_users else None,
        "preview": one_line(row.text, PREVIEW_LENGTH) if row.visible else None,
    }
    names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    insert = (
        f"INSERT INTO messages (thread_id, agent_id, {names}) VALUES (:thread, "
        f"(SELECT agent_id FROM threads WHERE id = :thread), {values})"
    )
    return [Statement(_FOLLOW, follow), Statement(insert, {"thread": thread.id, **columns})]


async def settle_batch(tx: Tx, thread: Thread, batch_id: int, ids: RisingIds) -> None:
    """Close a batch that no turn continues. If it has a live turn, that one closes it."""
    place = {"thread": thread.id, "batch": batch_id}
    try:
        sql = f"SELECT * FROM turns {_TURNS_OF} ORDER BY id DESC LIMIT 1"
        turn = Turn.of(await tx.get(sql, f"Batch {batch_id} has no turn.", **place))
        batch = await batch_of(tx, thread.id, batch_id)
    except (BackendError, NotFoundError) as error:
        # A damaged batch stays open, and must not block the user.
        logger.error("Batch %s was not settled: %s", batch_id, error)  # noqa: TRY400 - the row is the fault
        return
    if turn.is_live:
        return
    closing = settle(batch, ids).messages[len(batch.messages) :]
    await append_to_batch(tx, thread, turn, closing, ids)
    await tx.run(f"UPDATE turns SET left_open = false {_TURNS_OF} AND left_open", **place)


def _own_id(message_id: str | None, turn: Turn) -> str:
    return f"{message_id}-{turn.batch}"


def _without_place(message: BaseMessage, batch: int) -> BaseMessage:
    """A message that `settle` stamped for this batch, ready for a new place: only the store knows
    which positions and sequence numbers are free.
    """
    metadata = MessageMetadata.of(message) if has_place(message) else None
    if metadata is None or metadata.position is None or metadata.batch != batch:
        return message
    return replace(metadata, position=None, sequence_num=None).onto(message)
