"""Batches and the ids of a thread on PostgreSQL.

Called inside the steps of other modules; those that write hold the thread's lock.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.errors import NotFoundError
from segue.core.metadata import BatchType
from segue.core.snowflake import SnowflakeSource
from segue.core.stamp import stamp
from segue.journal.places import RisingIds, is_of_batch, without_place
from segue.journal.postgres.database import Connection, fetch_all, fetch_one
from segue.journal.postgres.words import to_vector, words_of
from segue.journal.records import Thread, Turn
from segue.journal.rows import (
    MessageRow,
    decode_batch,
    decode_message,
    encode_message,
    preview_of,
    title_of,
)


def ids_above(thread: Thread, ids: SnowflakeSource) -> RisingIds:
    """The ids of one step. The thread is locked, so nobody else takes any before the commit."""
    return RisingIds(ids, thread.last_position)


async def next_id(db: Connection, thread_id: str, ids: RisingIds) -> int:
    """A new id, noted in the thread."""
    new = ids.next()
    await note_ids(db, thread_id, ids)
    return new


async def note_ids(db: Connection, thread_id: str, ids: RisingIds) -> None:
    """Note the ids that a step has taken: later ones are higher, whoever makes them."""
    await db.execute("UPDATE threads SET last_position = %s WHERE id = %s", (ids.last, thread_id))


async def batch_of(db: Connection, thread_id: str, batch: int) -> Batch:
    rows = await fetch_all(
        db,
        "SELECT body FROM messages WHERE thread_id = %s AND batch = %s ORDER BY sequence_num",
        (thread_id, batch),
    )
    if not rows:
        raise NotFoundError(f"There is no batch {batch} in thread {thread_id!r}.")
    return decode_batch(batch, (row["body"] for row in rows))


async def begin_batch(
    db: Connection,
    thread_id: str,
    message: BaseMessage,
    ids: RisingIds,
    now: datetime,
) -> BaseMessage:
    [stamped] = stamp([message], ids)
    await insert_message(db, thread_id, stamped, now)
    return stamped


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
    # Type and parent are those of the first message: a continuation does not relabel its batch.
    first = await fetch_one(
        db,
        "SELECT batch_type, parent_batch, archived, max(sequence_num) OVER () + 1 AS count "
        "FROM messages "
        "WHERE thread_id = %s AND batch = %s ORDER BY sequence_num LIMIT 1",
        (turn.thread_id, turn.batch),
    )
    if first is None:
        raise NotFoundError(
            f"There is no batch {turn.batch} in thread {turn.thread_id!r}. Nothing was written."
        )
    if first["archived"]:
        await bring_back(db, turn.thread_id, turn.batch)
    count: int = first["count"]
    stored = []
    for given in messages:
        message, known = await _unless_known(db, turn, given)
        if known is not None:
            stored.append(known)
            continue
        [stamped] = stamp(
            [without_place(message, turn.batch)],
            ids,
            turn.batch,
            batch_type or first["batch_type"],
            start=count,
            parent_batch=first["parent_batch"],
        )
        await insert_message(db, turn.thread_id, stamped, now)
        stored.append(stamped)
        count += 1
    return stored


async def bring_back(db: Connection, thread_id: str, batch: int) -> None:
    """Take a batch that goes on out of the archive: the tail shows all of it or nothing."""
    await db.execute(
        "UPDATE messages SET archived = false WHERE thread_id = %s AND batch = %s AND archived",
        (thread_id, batch),
    )


async def insert_message(
    db: Connection,
    thread_id: str,
    message: BaseMessage,
    now: datetime,
    client_message_id: str | None = None,
) -> None:
    row = encode_message(message)
    words = words_of(row.text) if row.visible else None
    await db.execute(
        "INSERT INTO messages (thread_id, position, message_id, client_message_id, batch, "
        "sequence_num, batch_type, parent_batch, agent_id, role, synthetic, trigger_type, visible, "
        "tokens, text, body, words, word_count, created_at) VALUES (%(thread_id)s, %(position)s, "
        "%(message_id)s, %(client_message_id)s, %(batch)s, %(sequence_num)s, %(batch_type)s, "
        "%(parent_batch)s, (SELECT agent_id FROM threads WHERE id = %(thread_id)s), %(role)s, "
        "%(synthetic)s, %(trigger_type)s, %(visible)s, %(tokens)s, %(text)s, %(body)s, "
        "%(words)s::tsvector, %(word_count)s, %(now)s)",
        {
            **asdict(row),
            "thread_id": thread_id,
            "client_message_id": client_message_id,
            "words": None if words is None else to_vector(words),
            "word_count": None if words is None else len(words),
            "now": now,
        },
    )
    await _follow_in_thread(db, thread_id, row, now)


async def _follow_in_thread(db: Connection, thread_id: str, row: MessageRow, now: datetime) -> None:
    """Title, preview, count and time of the thread list, kept by the write that changes them."""
    if not row.visible:
        await db.execute(
            "UPDATE threads SET last_position = greatest(last_position, %s) WHERE id = %s",
            (row.position, thread_id),
        )
        return
    title = (title_of(row.text) or None) if row.role == "human" else None
    await db.execute(
        "UPDATE threads SET last_position = greatest(last_position, %(position)s), "
        "message_count = message_count + 1, updated_at = greatest(updated_at, %(now)s), "
        "title = CASE WHEN title IS NULL AND NOT title_is_set THEN %(title)s ELSE title END, "
        "preview = CASE WHEN newer THEN %(preview)s ELSE preview END, "
        "preview_role = CASE WHEN newer THEN %(role)s ELSE preview_role END, "
        "preview_position = greatest(preview_position, %(position)s) "
        "FROM (SELECT preview_position < %(position)s AS newer FROM threads WHERE id = %(id)s) "
        "AS shown WHERE id = %(id)s",
        {
            "position": row.position,
            "now": now,
            "title": title,
            "preview": preview_of(row.text),
            "role": row.role,
            "id": thread_id,
        },
    )


async def _unless_known(
    db: Connection, turn: Turn, message: BaseMessage
) -> tuple[BaseMessage, BaseMessage | None]:
    """The message, and the stored one if it is there already.

    Some providers use an id again. In another batch that is another message, and gets an id that
    is the same whenever the step is repeated.
    """
    known = await _find_message(db, turn.thread_id, message.id)
    if known is not None and not is_of_batch(known, turn.batch):
        message = message.model_copy(update={"id": f"{message.id}-{turn.batch}"})
        known = await _find_message(db, turn.thread_id, message.id)
    return message, known


async def _find_message(
    db: Connection, thread_id: str, message_id: str | None
) -> BaseMessage | None:
    if message_id is None:
        return None
    row = await fetch_one(
        db,
        "SELECT body FROM messages WHERE thread_id = %s AND message_id = %s",
        (thread_id, message_id),
    )
    return None if row is None else decode_message(row["body"])
