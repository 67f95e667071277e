"""Exports and imports: rows as they are, out of a database and into one."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

from segue.errors import ConflictError
from segue.journal.batches import check_past
from segue.journal.memories import MEMORY_WORDS, memory_words
from segue.journal.queue import wake_first
from segue.journal.records import TurnState
from segue.journal.rows import to_json
from segue.journal.tables import (
    MEMORIES,
    MESSAGES,
    THREADS,
    TURNS,
    USERS,
    Column,
    Form,
    Restored,
    Row,
    Rows,
    Table,
    whole,
)
from segue.journal.tx import Database, Tx, writes

# Most rows that are inserted at once.
_CHUNK: Final = 512
Encode = Callable[[Any], Any]


class BatchTaken(ConflictError):
    """An id of the export is in use here."""

    code = "id_taken"


class _DryRunOver(Exception):
    """Rolls back a dry run that succeeded."""

    def __init__(self, restored: Restored) -> None:
        super().__init__("dry run")
        self.restored = restored


class Transfer(Rows):
    """Exports and imports. `read_rows` reads a page as of now."""

    db: Database

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Rows]:
        """Pages of one snapshot, whatever is written meanwhile."""
        async with self.db.at_one_moment() as frozen:
            yield Rows(frozen)

    async def restore(
        self,
        rows: Callable[[], Iterable[tuple[Table, Row]]],
        *,
        now: datetime,
        skip_existing: bool = False,
        dry_run: bool = False,
    ) -> Restored:
        """Store rows as they are, all of them or, if anything is wrong, none.

        They come by thread: the thread, then its rows, with its `thread_id`; `rows` may be called
        more than once. Queued turns and pending timers can be claimed afterwards, by their time.
        `ConflictError` for a thread, a memory or preferences that exist already, unless
        `skip_existing`; `BatchTaken` if another thread has the batch; `UsageError` for an id later
        than a day from now. With `dry_run` all is tried and nothing is stored.
        """
        try:
            return await self._restore(rows, now, skip_existing=skip_existing, dry_run=dry_run)
        except _DryRunOver as over:
            return over.restored

    @writes
    async def _restore(
        self,
        tx: Tx,
        rows: Callable[[], Iterable[tuple[Table, Row]]],
        now: datetime,
        *,
        skip_existing: bool,
        dry_run: bool,
    ) -> Restored:
        restore = _Restore(tx, now, skip_existing=skip_existing)
        for table, chunk in _chunks(rows()):
            await restore.write(table, chunk)
        for thread_id in restore.queued:
            await wake_first(tx, thread_id, now)
        if dry_run:
            raise _DryRunOver(restore.restored)
        await tx.all("SELECT name, NOTIFY(name) FROM (SELECT '' AS name) AS every_thread")
        return restore.restored


class _Restore:
    """One restore under way: the thread being written, and what was written and skipped so far."""

    def __init__(self, tx: Tx, now: datetime, *, skip_existing: bool) -> None:
        self._tx = tx
        self._now = now
        self._skip_existing = skip_existing
        # Threads with a queued turn, in order.
        self.queued: dict[str, None] = {}
        # The threads that were written.
        self._names: set[str] = set()
        self._thread: Row | None = None
        self._rows: Counter[str] = Counter()
        self._skipped: list[str] = []

    @property
    def restored(self) -> Restored:
        rows = {name: count for name, count in self._rows.items() if count}
        return Restored(rows, tuple(self._skipped))

    async def write(self, table: Table, chunk: Sequence[Row]) -> None:
        if not table.of_thread:
            chunk = [row for row in chunk if await self._is_new(table, row)]
        if table is THREADS:
            self._thread = chunk[0] if chunk else None
            self._names.update(row["id"] for row in chunk)
        if not chunk or (table.of_thread and self._thread is None):
            return
        self._rows[table.name] += len(chunk)
        self._check_ids(table, chunk)
        rows = [whole(table, row, self._thread) for row in chunk]
        encoders = _encoders(table, self._tx.vector)
        names = [name for name, _ in encoders]
        values = [
            [row[name] if encode is None else encode(row[name]) for name, encode in encoders]
            for row in rows
        ]
        if table is MESSAGES:
            await self._check_batches(rows)
            words = [
                self._tx.words_of(row["user_id"], row["text"] if row["visible"] else None)
                for row in rows
            ]
            names += words[0]
            values = [[*given, *each.values()] for given, each in zip(values, words, strict=True)]
        await self._tx.insert(table.name, names, values)
        if table is MEMORIES:
            entries = [each for row in rows for each in memory_words(row)]
            await self._tx.insert("memory_words", MEMORY_WORDS, entries)

    async def _is_new(self, table: Table, row: Row) -> bool:
        """Whether a row does not exist yet; `ConflictError` unless existing ones are skipped."""
        names = ("agent_id", "user_id", "key") if table is MEMORIES else table.key
        where = " AND ".join(f"{name} = :{name}" for name in names)
        sql = f"SELECT 1 AS yes FROM {table.name} WHERE {where}"
        if await self._tx.find(sql, **{name: row[name] for name in names}) is None:
            return True
        if not self._skip_existing:
            user = f"user {row.get('user_id')!r:.60}"
            what = {
                THREADS.name: f"Thread {row.get('id')!r:.60} exists",
                USERS.name: f"Preferences of {user} exist",
                MEMORIES.name: f"Memory {row.get('key')!r:.60} of {user} exists",
            }
            raise ConflictError(
                f"{what[table.name]} already; skip existing data, or import under new ids. "
                "Nothing was imported."
            )
        if table is THREADS:
            self._skipped.append(row["id"])
        return False

    def _check_ids(self, table: Table, chunk: Sequence[Row]) -> None:
        ids = [column.name for column in table.columns if column.form is Form.ID]
        for row in chunk:
            highest = max((row[name] or 0 for name in ids if name in row), default=0)
            check_past(highest, self._now, f"A row of {table.name}")
            if table is TURNS and row["state"] == TurnState.QUEUED:
                self.queued[row["thread_id"]] = None

    async def _check_batches(self, rows: Sequence[Row]) -> None:
        """Refuse a batch that a thread of the same agent has here. Two threads of one file may have
        the same: old conversations got their ids from their times.
        """
        sql = (
            "SELECT thread_id, batch FROM messages "
            "WHERE agent_id = :agent AND batch = ANY(:batches)"
        )
        batches = sorted({row["batch"] for row in rows})
        for row in await self._tx.all(sql, agent=rows[0]["agent_id"], batches=batches):
            if row["thread_id"] not in self._names:
                raise BatchTaken(
                    f"Batch {row['batch']} already exists in another thread; import under new "
                    "ids. Nothing was imported."
                )


def _chunks(rows: Iterable[tuple[Table, Row]]) -> Iterator[tuple[Table, list[Row]]]:
    """Rows that are written at once: of one table, and threads one by one."""
    for _, group in groupby(rows, key=lambda pair: (pair[0].name, pair[1].get("thread_id"))):
        pairs = iter(group)
        for table, first in pairs:
            more = 0 if table is THREADS else _CHUNK - 1
            yield table, [first, *(row for _, row in islice(pairs, more))]


def _encoders(table: Table, vector: Encode) -> list[tuple[str, Encode | None]]:
    """The columns that are written, with the functions that encode their values."""
    known: Mapping[Form, Encode] = {
        Form.JSON: to_json,
        Form.IDS: to_json,
        Form.BODY: lambda body: body if isinstance(body, str) else to_json(body),
        Form.VECTOR: vector,
    }
    owner = [("thread_id", None)] if table.of_thread else []
    return owner + [(c.name, _or_none(c, known.get(c.form))) for c in table.columns]


def _or_none(column: Column, encode: Encode | None) -> Encode | None:
    # In a JSON column, None may be JSON's own null.
    if encode is None or (column.form is Form.JSON and not column.nullable):
        return encode
    return lambda value: None if value is None else encode(value)
