"""Rows as they are, out of SQLite and into it; and all that is stored of a user, deleted."""

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import chain, groupby
from typing import Any

import numpy as np

from segue.core.words import indexed_words
from segue.journal.records import Deleted
from segue.journal.restoring import (
    DryRunOver,
    Restoring,
    batch_taken,
    chunks,
    encoded,
    encoders_of,
    is_there,
)
from segue.journal.rows import DamagedError, from_json, from_micros, to_micros
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.turns import wake_first
from segue.journal.sqlite.wiping import wipe
from segue.journal.tables import (
    ALL,
    MEMORIES,
    MESSAGES,
    Column,
    Form,
    Key,
    Restored,
    Row,
    Rows,
    Table,
    Whose,
)

_OF_THREADS = ("messages", "turns", "timers", "effects", "decisions", "summaries")
_OF_USER = ("threads", "memories", "users")
_MEMORY_WORDS = (
    "INSERT INTO memory_words (agent_id, user_id, word, memory_id, times, word_count) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)


# So many rows are one statement; few sizes, since SQLite keeps what it makes of each.
_AT_ONCE = (64, 8, 1)


class TransferSteps:
    _db: Database

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        return await self._db.read(lambda db: _read(db, table, whose, after, limit))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Rows]:
        connection = await self._db.run_reading(lambda: _begun(self._db.path))
        try:
            yield _Snapshot(self._db, connection)
        finally:
            connection.close()

    async def restore(
        self,
        rows: Callable[[], Iterable[tuple[Table, Row]]],
        *,
        now: datetime,
        skip_existing: bool = False,
        dry_run: bool = False,
    ) -> Restored:
        def step(db: sqlite3.Connection) -> Restored:
            restoring = Restoring(now, skip_existing=skip_existing)
            for table, chunk in chunks(rows()):
                _restore(db, table, chunk, restoring)
            for thread_id in restoring.live:
                wake_first(db, thread_id, now)
            restoring.end(dry_run=dry_run)
            return restoring.restored

        try:
            return await self._db.write(step)
        except DryRunOver as over:
            return over.restored

    async def delete_user(self, user_id: str) -> Deleted:
        deleted = await self._db.write(lambda db: _delete_user(db, user_id))
        await wipe(self._db)
        return deleted


class _Snapshot:
    """Pages of one moment, on a connection of its own: writers do not wait for it."""

    def __init__(self, db: Database, connection: sqlite3.Connection) -> None:
        self._db = db
        self._connection = connection

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        return await self._db.run_reading(
            lambda: _read(self._connection, table, whose, after, limit)
        )


def _begun(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM threads LIMIT 1")  # from here on it sees nothing new
    return connection


def _read(
    db: sqlite3.Connection, table: Table, whose: Whose, after: Key | None, limit: int
) -> list[Row]:
    names = ", ".join(column.name for column in table.read)
    key = ", ".join(table.key)
    sql, values = f"SELECT {names} FROM {table.name} WHERE 1", []  # noqa: S608 - our own names
    for column, wanted in (
        ("thread_id" if table.of_thread else "id", whose.thread_id),
        ("user_id", whose.user_id),
    ):
        if wanted is not None:
            sql += f" AND {column} = ?"
            values.append(wanted)
    if after is not None:
        sql += f" AND ({key}) > ({', '.join('?' for _ in after)})"
        values += after
    sql += f" ORDER BY {key} LIMIT ?"
    return [_to_row(table, row) for row in db.execute(sql, [*values, limit])]


def _to_row(table: Table, row: sqlite3.Row) -> Row:
    try:
        return {column.name: _read_value(column, row[column.name]) for column in table.read}
    except (ValueError, TypeError, OverflowError) as error:
        key = "/".join(str(row[name]) for name in table.key)
        raise DamagedError(f"Row {key} of {table.name} cannot be read: {error}.") from error


def _read_value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.form:
        case Form.TIME:
            return from_micros(value)
        case Form.FLAG:
            return bool(value)
        case Form.JSON | Form.IDS | Form.BODY:
            return from_json(value)
        case Form.VECTOR:
            return np.frombuffer(value, dtype=np.float32)
    return value


def _to_bytes(vector: Any) -> bytes:
    return np.asarray(vector, dtype=np.float32).tobytes()


def _restore(
    db: sqlite3.Connection, table: Table, chunk: Sequence[Row], restoring: Restoring
) -> None:
    if not table.of_thread:
        chunk = [row for row in chunk if _is_new(db, table, row, restoring)]
    rows = restoring.taken(table, chunk)
    if table is MESSAGES:
        _check_batches(db, rows)
    _insert(db, table, rows)
    if table is MEMORIES:
        db.executemany(_MEMORY_WORDS, [each for row in rows for each in _words(row)])


def _insert(db: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> None:
    """Many rows to a statement: at the end of each, the index of words is written out."""
    encoders = encoders_of(table, {Form.TIME: to_micros, Form.VECTOR: _to_bytes})
    names = [name for name, _ in encoders]
    place = f"({', '.join('?' for _ in names)})"
    start = 0
    for size in _AT_ONCE:
        end = start + (len(rows) - start) // size * size
        values = [encoded(encoders, row) for row in rows[start:end]]
        places = ", ".join([place] * size)
        sql = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {places}"  # noqa: S608 - same
        db.executemany(
            sql, [[*chain(*values[at : at + size])] for at in range(0, len(values), size)]
        )
        start = end


def _is_new(db: sqlite3.Connection, table: Table, row: Row, restoring: Restoring) -> bool:
    names = ("agent_id", "user_id", "key") if table is MEMORIES else table.key
    where = " AND ".join(f"{name} = ?" for name in names)
    sql = f"SELECT 1 FROM {table.name} WHERE {where}"  # noqa: S608 - our own names
    found = db.execute(sql, [row[name] for name in names]).fetchone()
    return found is None or not is_there(table, row, restoring)


def _check_batches(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """A batch is looked for by its agent and its id, so no two threads may have the same."""
    sql = "SELECT 1 FROM messages WHERE agent_id = ? AND batch = ? AND thread_id <> ?"
    for place, _ in groupby(
        rows, key=lambda row: (row["agent_id"], row["batch"], row["thread_id"])
    ):
        if db.execute(sql, place).fetchone() is not None:
            raise batch_taken(place[1])


def _words(memory: Row) -> list[tuple[Any, ...]]:
    counted = Counter(indexed_words(memory["content"]))
    names = (memory["agent_id"], memory["user_id"])
    count = memory["word_count"]
    return [(*names, word, memory["id"], times, count) for word, times in counted.items()]


def _delete_user(db: sqlite3.Connection, user_id: str) -> Deleted:
    rows: dict[str, int] = {}
    threads = "SELECT id FROM threads WHERE user_id = ?"
    for table in _OF_THREADS:
        sql = f"DELETE FROM {table} WHERE thread_id IN ({threads})"  # noqa: S608 - our own names
        rows[table] = db.execute(sql, (user_id,)).rowcount
    for table in _OF_USER:
        sql = f"DELETE FROM {table} WHERE user_id = ?"  # noqa: S608 - same
        rows[table] = db.execute(sql, (user_id,)).rowcount
    db.execute("DELETE FROM memory_changes WHERE user_id = ?", (user_id,))
    # Not deleted: a server without any key lets everybody in.
    rows["api_keys"] = db.execute(
        "UPDATE api_keys SET name = 'a deleted user', user_id = '', is_operator = 0, digest = x'' "
        "WHERE user_id = ?",
        (user_id,),
    ).rowcount
    return Deleted(rows)
