"""Writing messages into batches on SQLite. Called inside the steps of other modules."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from langchain_core.messages import BaseMessage

from segue.core.metadata import BatchType
from segue.core.snowflake import SnowflakeSource
from segue.core.stamp import stamp
from segue.journal.records import Turn
from segue.journal.rows import (
    MessageRow,
    decode_message,
    encode_message,
    preview_of,
    title_of,
    to_micros,
)


class RisingIds:
    """Ids of one thread: each above all that the thread has, whatever this process's clock says."""

    def __init__(self, ids: SnowflakeSource, last: int) -> None:
        self._ids = ids
        self.last = last

    @property
    def node(self) -> int:
        return self._ids.node

    def next(self, after: int = 0) -> int:
        self.last = self._ids.next(after=max(after, self.last))
        return self.last


def rising_ids(db: sqlite3.Connection, thread_id: str, ids: SnowflakeSource) -> RisingIds:
    (last,) = db.execute("SELECT last_position FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return RisingIds(ids, last)


def begin_batch(
    db: sqlite3.Connection,
    thread_id: str,
    message: BaseMessage,
    ids: SnowflakeSource,
    now: datetime,
    client_message_id: str | None = None,
) -> BaseMessage:
    [stamped] = stamp([message], rising_ids(db, thread_id, ids))
    insert_message(db, thread_id, stamped, now, client_message_id)
    return stamped


def append_to_batch(
    db: sqlite3.Connection,
    turn: Turn,
    messages: Sequence[BaseMessage],
    ids: SnowflakeSource,
    now: datetime,
    batch_type: BatchType | None = None,
) -> list[BaseMessage]:
    """Store messages at the end of a turn's batch; one whose id is there already is not new."""
    (count, kind, parent) = db.execute(
        "SELECT max(sequence_num) + 1, min(batch_type), min(parent_batch) FROM messages "
        "WHERE thread_id = ? AND batch = ?",
        (turn.thread_id, turn.batch),
    ).fetchone()
    rising = rising_ids(db, turn.thread_id, ids)
    stored = []
    for message in messages:
        if known := _find_message(db, turn.thread_id, message.id):
            stored.append(known)
            continue
        [stamped] = stamp(
            [message],
            rising,
            turn.batch,
            batch_type or kind,
            start=count,
            parent_batch=parent,
        )
        insert_message(db, turn.thread_id, stamped, now)
        stored.append(stamped)
        count += 1
    return stored


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
    db.execute(
        "UPDATE threads SET last_position = max(last_position, ?) WHERE id = ?",
        (row.position, thread_id),
    )
    if not row.visible:
        return
    title = title_of(row.text) if row.role == "human" else None
    db.execute(
        "UPDATE threads SET message_count = message_count + 1, preview = ?, preview_role = ?, "
        "updated_at = max(updated_at, ?), "
        "title = CASE WHEN title IS NULL AND NOT title_is_set THEN ? ELSE title END WHERE id = ?",
        (preview_of(row.text), row.role, to_micros(now), title, thread_id),
    )


def _find_message(
    db: sqlite3.Connection, thread_id: str, message_id: str | None
) -> BaseMessage | None:
    if message_id is None:
        return None
    row = db.execute(
        "SELECT body FROM messages WHERE thread_id = ? AND message_id = ?", (thread_id, message_id)
    ).fetchone()
    return None if row is None else decode_message(row["body"])
