"""Batches and the ids of a thread on PostgreSQL.

Called inside the steps of other modules; those that write hold the thread's lock.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

from langchain_core.messages import BaseMessage
from psycopg.rows import DictRow

from segue.core.batch import Batch
from segue.core.errors import BackendError, NotFoundError
from segue.core.metadata import BatchType
from segue.journal.places import RisingIds, stamp_now, without_place
from segue.journal.postgres.database import Connection, fetch_all
from segue.journal.postgres.words import to_vector, words_of
from segue.journal.records import Turn
from segue.journal.rows import (
    MessageRow,
    decode_batch,
    decode_batches,
    decode_message,
    encode_message,
    preview_of,
    title_of,
)

_COLUMNS = tuple(column.name for column in fields(MessageRow))

_NOTE: LiteralString = (
    "UPDATE threads SET last_position = %(last)s "
    "WHERE id = %(thread_id)s AND last_position < %(last)s"
)
# The members of a batch have a count, that of all of them; messages of the wanted ids have none.
_OPEN: LiteralString = """
    (SELECT batch, sequence_num, message_id, batch_type, parent_batch, archived, body,
        max(sequence_num) OVER () + 1 AS count
    FROM messages WHERE thread_id = %(thread_id)s AND batch = %(batch)s
    ORDER BY sequence_num LIMIT %(limit)s)
    UNION ALL
    SELECT batch, sequence_num, message_id, batch_type, parent_batch, archived, body, NULL
    FROM messages WHERE thread_id = %(thread_id)s AND message_id = ANY(%(wanted)s)
"""
_INSERT: LiteralString = """
    INSERT INTO messages (thread_id, position, message_id, client_message_id, batch, sequence_num,
        batch_type, parent_batch, agent_id, role, synthetic, trigger_type, visible, tokens, text,
        body, words, word_count, created_at)
    VALUES (%(thread_id)s, %(position)s, %(message_id)s, %(client_message_id)s, %(batch)s,
        %(sequence_num)s, %(batch_type)s, %(parent_batch)s,
        (SELECT agent_id FROM threads WHERE id = %(thread_id)s), %(role)s, %(synthetic)s,
        %(trigger_type)s, %(visible)s, %(tokens)s, %(text)s, %(body)s, %(words)s::tsvector,
        %(word_count)s, %(now)s)
"""
# Title, preview, count and time of the thread list, kept by the write that changes them.
_FOLLOW: LiteralString = """
    UPDATE threads SET epoch = epoch + %(spoken)s,
        last_position = greatest(last_position, %(last)s),
        message_count = message_count + %(visible)s::int,
        updated_at = CASE WHEN %(visible)s THEN greatest(updated_at, %(now)s) ELSE updated_at END,
        title = CASE WHEN title IS NULL AND NOT title_is_set THEN %(title)s ELSE title END,
        preview = CASE WHEN %(visible)s AND preview_position < %(position)s
            THEN %(preview)s ELSE preview END,
        preview_role = CASE WHEN %(visible)s AND preview_position < %(position)s
            THEN %(role)s ELSE preview_role END,
        preview_position = CASE WHEN %(visible)s
            THEN greatest(preview_position, %(position)s) ELSE preview_position END
    WHERE id = %(thread_id)s
"""
_INSERT_AND_FOLLOW: LiteralString = f"WITH followed AS ({_FOLLOW}) {_INSERT}"
# Parts of a statement, to stand after its WITH. They all see the thread as it was before.
NOTE_IDS: LiteralString = f"noted AS ({_NOTE})"
STORE_MESSAGE: LiteralString = f"followed AS ({_FOLLOW}), message AS ({_INSERT})"


async def next_id(db: Connection, thread_id: str, ids: RisingIds) -> int:
    """A new id, noted in the thread."""
    new = ids.next()
    await note_ids(db, thread_id, ids)
    return new


async def note_ids(db: Connection, thread_id: str, ids: RisingIds) -> None:
    """Note the ids that a step has taken: later ones are higher, whoever makes them."""
    await db.execute(_NOTE, {"last": ids.last, "thread_id": thread_id})


async def batch_of(db: Connection, thread_id: str, batch: int, *, keep: bool = True) -> Batch:
    rows = await fetch_all(
        db,
        "SELECT body FROM messages WHERE thread_id = %s AND batch = %s ORDER BY sequence_num",
        (thread_id, batch),
    )
    if not rows:
        raise NotFoundError(f"There is no batch {batch} in thread {thread_id!r}.")
    return decode_batch(batch, (row["body"] for row in rows), keep=keep)


async def batches_among(db: Connection, thread_id: str, batches: Collection[int]) -> list[Batch]:
    sql = (
        "SELECT batch, body FROM messages WHERE thread_id = %s AND batch = ANY(%s) "
        "ORDER BY batch, sequence_num"
    )
    rows = await fetch_all(db, sql, (thread_id, [*batches]))
    if not rows:
        raise NotFoundError(f"There is none of these batches in thread {thread_id!r}.")
    return decode_batches(rows)


@dataclass(frozen=True, slots=True)
class Placed:
    """Messages as they are in their batch now, and the rows of those that were not there yet."""

    stored: list[BaseMessage]
    new: list[MessageRow]


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that a turn goes on with: its messages, or the first one, and known messages by id.

    Known are those that the turn is about to store, wherever in the thread they are.
    """

    turn: Turn
    members: list[DictRow]
    known: dict[str, DictRow]

    def place(
        self, messages: Sequence[BaseMessage], ids: RisingIds, batch_type: BatchType | None = None
    ) -> Placed:
        """Give messages a place at the end; one whose id is there already is not new."""
        batch, first = self.turn.batch, self.members[0]
        placed = Placed([], [])
        made: dict[str | None, BaseMessage] = {}
        for given in messages:
            message = self._named(given)
            if (twin := made.get(message.id)) is not None:
                placed.stored.append(twin)
                continue
            if (row := self.known.get(message.id or "")) is not None:
                placed.stored.append(decode_message(row["body"]))
                continue
            # Type and parent are those of the first message: a continuation does not relabel it.
            [stamped] = stamp_now(
                [without_place(message, batch)],
                ids,
                batch,
                batch_type or first["batch_type"],
                start=first["count"] + len(placed.new),
                parent_batch=first["parent_batch"],
            )
            made[stamped.id] = stamped
            placed.stored.append(stamped)
            placed.new.append(encode_message(stamped))
        return placed

    def is_complete_with(self, new: Sequence[MessageRow]) -> bool:
        """Whether the batch, of which all members were read, is complete once these are stored."""
        bodies = [row["body"] for row in self.members] + [row.body for row in new]
        try:
            return decode_batch(self.turn.batch, bodies).is_complete
        except BackendError:  # a damaged row must not keep the turn from ending
            return False

    def _named(self, message: BaseMessage) -> BaseMessage:
        """The message under an id that no other batch has.

        Some providers use an id again. In another batch that is another message, and gets an id
        that is the same whenever the step is repeated.
        """
        known = self.known.get(message.id or "")
        if known is None or known["batch"] == self.turn.batch:
            return message
        return message.model_copy(update={"id": _own_id(message.id, self.turn)})


async def open_batch(
    db: Connection, turn: Turn, messages: Sequence[BaseMessage], *, whole: bool = False
) -> OpenBatch:
    """The batch of a turn, to store messages at its end; with all members only if it is `whole`."""
    wanted = [message.id for message in messages if message.id is not None]
    rows = await fetch_all(
        db,
        _OPEN,
        {
            "thread_id": turn.thread_id,
            "batch": turn.batch,
            "limit": None if whole else 1,
            "wanted": wanted + [_own_id(message_id, turn) for message_id in wanted],
        },
    )
    members = [row for row in rows if row["count"] is not None]
    members.sort(key=lambda row: row["sequence_num"])  # a union promises no order
    if not members:
        raise NotFoundError(
            f"There is no batch {turn.batch} in thread {turn.thread_id!r}. Nothing was written."
        )
    if messages and members[0]["archived"]:
        await bring_back(db, turn.thread_id, turn.batch)
    return OpenBatch(turn, members, {r["message_id"]: r for r in rows if r["count"] is None})


async def append_to_batch(
    db: Connection,
    turn: Turn,
    messages: Sequence[BaseMessage],
    ids: RisingIds,
    now: datetime,
    batch_type: BatchType | None = None,
) -> list[BaseMessage]:
    """Store messages at the end of a turn's batch; one whose id is there already is not new."""
    if not messages:
        return []
    placed = (await open_batch(db, turn, messages)).place(messages, ids, batch_type)
    for row in placed.new:
        await insert_message(db, message_values(turn.thread_id, row, now))
    return placed.stored


async def bring_back(db: Connection, thread_id: str, batch: int) -> None:
    """Take a batch that goes on out of the archive: the tail shows all of it or nothing."""
    await db.execute(
        "UPDATE messages SET archived = false WHERE thread_id = %s AND batch = %s AND archived",
        (thread_id, batch),
    )


async def insert_message(db: Connection, values: Mapping[str, Any]) -> None:
    await db.execute(_INSERT_AND_FOLLOW, values)


def message_values(thread_id: str, row: MessageRow, now: datetime) -> dict[str, Any]:
    """The values of `STORE_MESSAGE`; steps replace the last three as they need."""
    words = words_of(row.text) if row.visible else None
    is_named = row.visible and row.role == "human"
    return {
        **{name: getattr(row, name) for name in _COLUMNS},
        "thread_id": thread_id,
        "words": None if words is None else to_vector(words),
        "word_count": None if words is None else len(words),
        "title": (title_of(row.text) or None) if is_named else None,
        "preview": preview_of(row.text) if row.visible else None,
        "now": now,
        "client_message_id": None,
        # The highest id that the step takes, and by how much the epoch rises.
        "last": row.position,
        "spoken": 0,
    }


def _own_id(message_id: str | None, turn: Turn) -> str:
    return f"{message_id}-{turn.batch}"
