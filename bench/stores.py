"""A journal on a database of its own, with a way past the journal: to fill a table with more rows
than the steps of the journal could write in the time, and to run a peer in the same place.
"""

import itertools
import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from segue.journal.journal import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.postgres.tx import to_tsvector
from segue.journal.rows import to_micros
from segue.journal.search import owner_mark, words_of
from segue.journal.sqlite import SqliteJournal
from segue.testing.postgres import PostgresServer

# As many letters as the ids that most callers use.
THREAD = "5f2c1a34-9d1e-4b7a-8f55-{:012d}"
AGENT = "assistant"


def now() -> datetime:
    return datetime.now(UTC)


class Writer:
    """Texts of words that are as common as words are: a few all the time, most of them rarely."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)  # noqa: S311 - texts, not secrets
        self._words = [
            "".join(self._random.choices("aeioubdfglmnrst", k=k % 7 + 3)) for k in range(8_000)
        ]
        self._shares = list(itertools.accumulate(1 / (rank + 3) for rank in range(8_000)))

    def text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._shares, k=words))

    def question(self) -> str:
        return self.text(25) + "?"

    def answer(self) -> str:
        return self.text(60) + "."


class Store(ABC):
    """SQL is the same for both databases, with `%s` for a value."""

    saver_name: str
    journal: Journal
    # What a claim on a plain table ends with.
    claim_lock: str

    async def open(self) -> None:
        await self.journal.open()

    async def close(self) -> None:
        await self.journal.close()

    @abstractmethod
    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement in a transaction of its own."""

    @abstractmethod
    async def insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None: ...

    @abstractmethod
    async def columns(self, table: str) -> set[str]: ...

    @abstractmethod
    async def rest(self) -> None:
        """Bring the database into the state that it has after a while in production."""

    @abstractmethod
    async def size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    async def written(self) -> int:
        """Bytes written so far, those included that were written over since."""

    @abstractmethod
    def indexing_later(self) -> AbstractAsyncContextManager[None]:
        """Index the text of many messages at the end: several times faster than one by one."""

    @abstractmethod
    def moment(self, at: datetime) -> Any:
        """A time as the journal stores it."""

    @abstractmethod
    def indexed(self, text: str) -> dict[str, Any]:
        """The columns of a message that full text needs."""

    @abstractmethod
    def saver(self) -> AbstractAsyncContextManager[Any]:
        """LangGraph's own saver in the same place."""

    async def fill(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows of the journal; keys that this database has no column for are left out."""
        rows = iter(rows)
        first = next(rows)
        columns = sorted(await self.columns(table) & first.keys())
        every = itertools.chain([first], rows)
        await self.insert(table, columns, ([row[c] for c in columns] for row in every))


class SqliteStore(Store):
    saver_name = "AsyncSqliteSaver"
    claim_lock = ""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.journal = SqliteJournal(folder / "data.db")

    async def open(self) -> None:
        await super().open()
        self._raw = sqlite3.connect(self._folder / "data.db", isolation_level=None, timeout=30)
        self._raw.execute("PRAGMA synchronous = FULL")  # as the journal

    async def close(self) -> None:
        self._raw.close()
        await super().close()

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._raw.execute(sql.replace("%s", "?"), values).fetchall()

    async def insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        marks = ", ".join("?" * len(columns))
        self._raw.execute("BEGIN")
        self._raw.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - our own names
            rows,
        )
        self._raw.execute("COMMIT")

    async def columns(self, table: str) -> set[str]:
        return {row[1] for row in self._raw.execute(f"PRAGMA table_info({table})")}

    async def rest(self) -> None:
        # Nobody runs ANALYZE in production, so it does not run here.
        self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def size(self) -> int:
        # With the log folded in, so that it does not count twice.
        self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(file.stat().st_size for file in self._folder.iterdir())

    async def written(self) -> int:
        # SQLite writes in this process; the log is counted and what is folded in as well.
        return _written_by_this_process()

    @asynccontextmanager
    async def indexing_later(self) -> AsyncIterator[None]:
        trigger = "SELECT sql FROM sqlite_master WHERE name = 'messages_added'"
        [create] = self._raw.execute(trigger).fetchone()
        self._raw.execute("DROP TRIGGER messages_added")
        yield
        self._raw.create_function("words", 1, lambda text: " ".join(words_of(text)))
        self._raw.create_function("word_count", 1, lambda text: len(words_of(text)))
        self._raw.create_function("mark", 1, owner_mark)
        self._raw.execute(
            "INSERT INTO indexed_messages (message, thread_id, owner, word_count, words) "
            "SELECT messages.rowid, thread_id, mark(user_id), word_count(text), words(text) "
            "FROM messages JOIN threads ON threads.id = thread_id WHERE visible = 1 ORDER BY 1"
        )
        self._raw.execute(create)

    def moment(self, at: datetime) -> int:
        return to_micros(at)

    def indexed(self, text: str) -> dict[str, Any]:  # noqa: ARG002 - done later
        return {}

    def saver(self) -> AbstractAsyncContextManager[Any]:
        return AsyncSqliteSaver.from_conn_string(str(self._folder / "data.db"))


class PostgresStore(Store):
    saver_name = "AsyncPostgresSaver"
    claim_lock = "FOR UPDATE SKIP LOCKED"

    def __init__(self, server: PostgresServer) -> None:
        self.address = server.create_database()
        self.journal = PostgresJournal(self.address)

    async def open(self) -> None:
        await super().open()
        self._raw = await psycopg.AsyncConnection.connect(self.address, autocommit=True)

    async def close(self) -> None:
        await self._raw.close()
        await super().close()

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor = await self._raw.execute(sql, values)
        return await cursor.fetchall() if cursor.description else []

    async def insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        sql = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        async with self._raw.cursor() as cursor, cursor.copy(sql) as copy:
            for row in rows:
                await copy.write_row(row)

    async def columns(self, table: str) -> set[str]:
        sql = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
        return {row[0] for row in await self.execute(sql, (table,))}

    async def rest(self) -> None:
        # What autovacuum does after many rows came; the first change of a page after a checkpoint
        # puts all of it into the log, so that everybody starts with one.
        await self.execute("VACUUM ANALYZE")
        await self.execute("CHECKPOINT")

    async def size(self) -> int:
        [[size]] = await self.execute("SELECT pg_database_size(current_database())")
        return int(size)

    async def written(self) -> int:
        [[size]] = await self.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        return int(size)

    @asynccontextmanager
    async def indexing_later(self) -> AsyncIterator[None]:
        [[index]] = await self.execute(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'messages_words'"
        )
        await self.execute("DROP INDEX messages_words")
        yield
        await self.execute("SET maintenance_work_mem = '512MB'")
        await self.execute(index)

    def moment(self, at: datetime) -> datetime:
        return at

    def indexed(self, text: str) -> dict[str, Any]:
        words = words_of(text)
        return {"words": to_tsvector(words, "~"), "word_count": len(words)}

    @asynccontextmanager
    async def saver(self) -> AsyncIterator[Any]:
        async with AsyncPostgresSaver.from_conn_string(self.address) as saver:
            await saver.setup()
            yield saver


def _written_by_this_process() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


NewStore = Callable[[], Store]
