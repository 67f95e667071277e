"""Rows as they are, out of PostgreSQL and into it; and all that is stored of a user, deleted."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, LiteralString

import numpy as np
from psycopg.rows import DictRow
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from segue.core.words import indexed_words
from segue.journal.postgres.database import (
    WAKE_CHANNEL,
    Connection,
    Database,
    fetch_all,
    fetch_one,
)
from segue.journal.postgres.turns import wake_first
from segue.journal.postgres.words import to_vector, words_of
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
from segue.journal.rows import DamagedError, from_json
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

_OF_THREADS: tuple[LiteralString, ...] = (
    "messages",
    "turns",
    "timers",
    "effects",
    "decisions",
    "summaries",
)
_MEMORY_WORDS = ("agent_id", "user_id", "word", "memory_id", "times", "word_count")
_TAKEN: LiteralString = (
    "SELECT batch FROM messages WHERE agent_id = %s AND batch = ANY(%s) AND thread_id <> %s LIMIT 1"
)

# Not deleted: a server without any key lets everybody in.
_BLANK_KEYS: LiteralString = (
    "UPDATE api_keys SET name = 'a deleted user', user_id = '', is_operator = false, digest = '' "
    "WHERE user_id = %s"
)


class TransferSteps:
    _db: Database

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        return await self._db.look(lambda db: _read(db, table, whose, after, limit))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Rows]:
        async with self._db.at_one_moment() as connection:
            yield _Snapshot(connection)

    async def restore(
        self,
        rows: Callable[[], Iterable[tuple[Table, Row]]],
        *,
        now: datetime,
        skip_existing: bool = False,
        dry_run: bool = False,
    ) -> Restored:
        async def step(db: Connection) -> Restored:
            restoring = Restoring(now, skip_existing=skip_existing)
            for table, chunk in chunks(rows()):
                await _restore(db, table, chunk, restoring)
            for thread_id in restoring.live:
                await wake_first(db, thread_id, now)
            restoring.end(dry_run=dry_run)
            await db.execute("SELECT pg_notify(%s, '')", (WAKE_CHANNEL,))
            return restoring.restored

        try:
            return await self._db.write(step)
        except DryRunOver as over:
            return over.restored

    async def delete_user(self, user_id: str) -> Deleted:
        return await self._db.write(lambda db: _delete_user(db, user_id))


class _Snapshot:
    """Pages of one moment, on a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        return await _read(self._connection, table, whose, after, limit)


async def _read(
    db: Connection, table: Table, whose: Whose, after: Key | None, limit: int
) -> list[Row]:
    conditions: list[Composable] = [SQL("true")]
    values: list[Any] = []
    owner = "thread_id" if table.of_thread else "id"
    for column, wanted in ((owner, whose.thread_id), ("user_id", whose.user_id)):
        if wanted is not None:
            conditions.append(SQL("{} = %s").format(Identifier(column)))
            values.append(wanted)
    key = _key(table)
    if after is not None:
        given = SQL(", ").join([Placeholder()] * len(after))
        conditions.append(SQL("({}) > ({})").format(key, given))
        values += after
    query = SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %s").format(
        SQL(", ").join(Identifier(column.name) for column in table.read),
        Identifier(table.name),
        SQL(" AND ").join(conditions),
        key,
    )
    found = await (await db.execute(query, [*values, limit])).fetchall()
    return [_to_row(table, row) for row in found]


def _key(table: Table) -> Composed:
    """By code point, as everywhere else, whatever the database's language is."""
    texts = {column.name for column in table.columns if column.form is Form.TEXT}
    parts = [
        SQL('{} COLLATE "C"').format(Identifier(name)) if name in texts else Identifier(name)
        for name in table.key
    ]
    return SQL(", ").join(parts)


def _to_row(table: Table, row: DictRow) -> Row:
    try:
        return {column.name: _read_value(column, row[column.name]) for column in table.read}
    except (ValueError, TypeError) as error:
        key = "/".join(str(row[name]) for name in table.key)
        raise DamagedError(f"Row {key} of {table.name} cannot be read: {error}.") from error


def _read_value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.form:
        case Form.JSON | Form.IDS | Form.BODY:
            return from_json(value)
        case Form.VECTOR:
            return np.asarray(value, dtype=np.float32)
    return value


def _to_list(vector: Any) -> list[float]:
    numbers: list[float] = np.asarray(vector, dtype=np.float32).tolist()
    return numbers


async def _restore(
    db: Connection, table: Table, chunk: Sequence[Row], restoring: Restoring
) -> None:
    if not table.of_thread:
        chunk = [row for row in chunk if await _is_new(db, table, row, restoring)]
    rows = restoring.taken(table, chunk)
    if not rows:
        return
    if table is MESSAGES:
        await _check_batches(db, rows)
    encoders = encoders_of(table, {Form.VECTOR: _to_list})
    names = [name for name, _ in encoders]
    if table is MESSAGES:
        found = ([*encoded(encoders, row), *_found_by(row)] for row in rows)
        await _copy(db, table.name, [*names, "words", "word_count"], found)
    else:
        await _copy(db, table.name, names, (encoded(encoders, row) for row in rows))
    if table is MEMORIES:
        words = (each for row in rows for each in _words(row))
        await _copy(db, "memory_words", _MEMORY_WORDS, words)


async def _copy(
    db: Connection, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    query = SQL("COPY {} ({}) FROM STDIN").format(
        Identifier(table), SQL(", ").join(map(Identifier, names))
    )
    async with db.cursor().copy(query) as copy:
        for row in rows:
            await copy.write_row(row)


def _found_by(message: Row) -> tuple[str | None, int | None]:
    """The words of a message for the search, and how many; none of what nobody sees."""
    if not message["visible"]:
        return None, None
    words = words_of(message["text"])
    return to_vector(words), len(words)


async def _is_new(db: Connection, table: Table, row: Row, restoring: Restoring) -> bool:
    names = ("agent_id", "user_id", "key") if table is MEMORIES else table.key
    query = SQL("SELECT 1 AS found FROM {} WHERE {}").format(
        Identifier(table.name),
        SQL(" AND ").join(SQL("{} = %s").format(Identifier(name)) for name in names),
    )
    found = await (await db.execute(query, [row[name] for name in names])).fetchone()
    return found is None or not is_there(table, row, restoring)


async def _check_batches(db: Connection, rows: Sequence[Row]) -> None:
    """A batch is looked for by its agent and its id, so no two threads may have the same."""
    first = rows[0]
    batches = sorted({row["batch"] for row in rows})
    taken = await fetch_one(db, _TAKEN, (first["agent_id"], batches, first["thread_id"]))
    if taken is not None:
        raise batch_taken(taken["batch"])


def _words(memory: Row) -> list[tuple[Any, ...]]:
    counted = Counter(indexed_words(memory["content"]))
    names = (memory["agent_id"], memory["user_id"])
    count = memory["word_count"]
    return [(*names, word, memory["id"], times, count) for word, times in counted.items()]


async def _delete_user(db: Connection, user_id: str) -> Deleted:
    rows: dict[str, int] = {}
    locked = await fetch_all(
        db, "SELECT id FROM threads WHERE user_id = %s ORDER BY id FOR UPDATE", (user_id,)
    )
    threads = [row["id"] for row in locked]
    for table in _OF_THREADS:
        sql: LiteralString = f"DELETE FROM {table} WHERE thread_id = ANY(%s)"  # noqa: S608 - our own names
        rows[table] = (await db.execute(sql, (threads,))).rowcount
    rows["threads"] = (
        await db.execute("DELETE FROM threads WHERE id = ANY(%s)", (threads,))
    ).rowcount
    deletions: tuple[tuple[str, LiteralString], ...] = (
        ("memories", "DELETE FROM memories WHERE user_id = %s"),
        ("users", "DELETE FROM users WHERE user_id = %s"),
        ("api_keys", _BLANK_KEYS),
    )
    for name, sql in deletions:
        rows[name] = (await db.execute(sql, (user_id,))).rowcount
    await db.execute("SELECT pg_notify(%s, '')", (WAKE_CHANNEL,))
    return Deleted(rows)
