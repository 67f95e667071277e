"""Writing messages into batches on SQLite. Called inside the steps of other modules."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.errors import NotFoundError
from segue.core.metadata import BatchType
from segue.journal.places import RisingIds, is_of_batch, stamp_now, without_place
from segue.journal.records import Turn
from segue.journal.rows import (
    MessageRow,
    decode_batch,
    decode_batches,
    decode_message,
    encode_message,
    preview_of,
    title_of,
    to_json,
    to_micros,
)


def next_id(db: sqlite3.Connection, thread_id: str, ids: RisingIds) -> int:
    """A new id, noted in the thread: later ones are higher, whoever makes them."""
    new = ids.next()
    db.execute("UPDATE threads SET last_position = ? WHERE id = ?", (new, thread_id))
    return new


def batch_of(db: sqlite3.Connection, thread_id: str, batch: int, *, keep: bool = True) -> Batch:
    sql = "SELECT body FROM messages WHERE thread_id = ? AND batch = ? ORDER BY sequence_num"
    bodies = [row["body"] for row in db.execute(sql, (thread_id, batch))]
    if not bodies:
        raise NotFoundError(f"There is no batch {batch} in thread {thread_id!r}.")
    return decode_batch(batch, bodies, keep=keep)


def batches_among(db: sqlite3.Connection, thread_id: str, batches: Collection[int]) -> list[Batch]:
    sql = (
        "SELECT batch, body FROM messages WHERE thread_id = ? "
        "AND batch IN (SELECT value FROM json_each(?)) ORDER BY batch, sequence_num"
    )
    rows = db.execute(sql, (thread_id, to_json([*batches]))).fetchall()
    if not rows:
        raise NotFoundError(f"There is none of these batches in thread {thread_id!r}.")
    return decode_batches(rows)


def begin_batch(
    db: sqlite3.Connection,
    thread_id: str,
    message: BaseMessage,
    ids: RisingIds,
    now: datetime,
) -> BaseMessage:
    [stamped] = stamp_now([message], ids)
    insert_message(db, thread_id, stamped, now)
    return stamped


def append_to_batch(
    db: sqlite3.Connection,
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
    first = db.execute(
        "SELECT batch_type, parent_batch, archived, max(sequence_num) OVER () + 1 AS count "
        "FROM messages "
        "WHERE thread_id = ? AND batch = ? ORDER BY sequence_num LIMIT 1",
        (turn.thread_id, turn.batch),
    ).fetchone()
    if first is None:
        raise NotFoundError(
            f"There is no batch {turn.batch} in thread {turn.thread_id!r}. Nothing was written."
        )
    if first["archived"]:
        bring_back(db, turn.thread_id, turn.batch)
    count = first["count"]
    stored = []
    for given in messages:
        message, known = _unless_known(db, turn, given)
        if known is not None:
            stored.append(known)
            continue
        [stamped] = stamp_now(
            [without_place(message, turn.batch)],
            ids,
            turn.batch,
            batch_type or first["batch_type"],
            start=count,
            parent_batch=first["parent_batch"],
        )
        insert_message(db, turn.thread_id, stamped, now)
        stored.append(stamped)
        count += 1
    return stored


def bring_back(db: sqlite3.Connection, thread_id: str, batch: int) -> None:
    """Take a batch that goes on out of the archive: the tail shows all of it or nothing."""
    db.execute(
        "UPDATE messages SET archived = 0 WHERE thread_id = ? AND batch = ? AND archived = 1",
        (thread_id, batch),
    )


def insert_message(
    db: sqlite3.Connection,
    thread_id: str,
    message: BaseMessage,
    now: datetime,
    client_message_id: str | None = None,
) -> None:
    row = encode_message(message)
    db.execute(
        "INSERT INTO messages (thread_id, position, message_id, client_message_id, batch, "
        "sequence_num, batch_type, parent_batch, agent_id, role, synthetic, trigger_type, visible, "
        "tokens, text, body, created_at) "
        "SELECT id, ?, ?, ?, ?, ?, ?, ?, agent_id, ?, ?, ?, ?, ?, ?, ?, ? "
        "FROM threads WHERE id = ?",
        (
            row.position,
            row.message_id,
            client_message_id,
            row.batch,
            row.sequence_num,
            row.batch_type,
            row.parent_batch,
            row.role,
            row.synthetic,
            row.trigger_type,
            row.visible,
            row.tokens,
            row.text,
            row.body,
            to_micros(now),
            thread_id,
        ),
    )
    _follow_in_thread(db, thread_id, row, now)


def _follow_in_thread(
    db: sqlite3.Connection, thread_id: str, row: MessageRow, now: datetime
) -> None:
    """Title, preview, count and time of the thread list, kept by the write that changes them."""
    if not row.visible:
        db.execute(
            "UPDATE threads SET last_position = max(last_position, ?) WHERE id = ?",
            (row.position, thread_id),
        )
        return
    title = (title_of(row.text) or None) if row.role == "human" else None
    db.execute(
        "UPDATE threads SET last_position = max(last_position, :position), "
        "message_count = message_count + 1, "
        "updated_at = max(updated_at, :now), "
        "title = CASE WHEN title IS NULL AND NOT title_is_set THEN :title ELSE title END, "
        "preview = CASE WHEN preview_position < :position THEN :preview ELSE preview END, "
        "preview_role = CASE WHEN preview_position < :position THEN :role ELSE preview_role END, "
        "preview_position = max(preview_position, :position) WHERE id = :id",
        {
            "now": to_micros(now),
            "title": title,
            "position": row.position,
            "preview": preview_of(row.text),
            "role": row.role,
            "id": thread_id,
        },
    )


def _unless_known(
    db: sqlite3.Connection, turn: Turn, message: BaseMessage
) -> tuple[BaseMessage, BaseMessage | None]:
    """The message, and the stored one if it is there already.

    Some providers use an id again. In another batch that is another message, and gets an id that
    is the same whenever the step is repeated.
    """
    known = find_message(db, turn.thread_id, message.id)
    if known is not None and not is_of_batch(known, turn.batch):
        message = message.model_copy(update={"id": f"{message.id}-{turn.batch}"})
        known = find_message(db, turn.thread_id, message.id)
    return message, known


def find_message(
    db: sqlite3.Connection, thread_id: str, message_id: str | None
) -> BaseMessage | None:
    if message_id is None:
        return None
    row = db.execute(
        "SELECT body FROM messages WHERE thread_id = ? AND message_id = ?", (thread_id, message_id)
    ).fetchone()
    return None if row is None else decode_message(row["body"])
