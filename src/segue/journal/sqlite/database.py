"""One SQLite file: its connections, transactions and schema.

A step runs whole in the writer's thread, so a transaction never waits for the event loop. Steps
that wait for the writer at the same time share a transaction. Readers have threads of their own and
see the last commit. Several processes may share the file: a writer takes SQLite's lock before it
reads.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from segue.errors import BackendError, ConflictError, NotFoundError, SegueError, UsageError
from segue.journal.search import joined_words, owner_mark
from segue.journal.sqlite.tx import SqliteTx, VectorCache
from segue.journal.tx import Step as TxStep
from segue.journal.tx import migrations

T = TypeVar("T")
Step = Callable[[sqlite3.Connection], T]

logger = logging.getLogger(__name__)

BUSY_SECONDS = 30.0
_READERS = 2
# Most steps that share a transaction: other processes wait for its end.
_TOGETHER = 64
# Emptying the log needs a moment without readers: how long to wait for it, and when to try again.
_FOLD_MILLISECONDS = 200
_FOLD_AGAIN_SECONDS = 5.0
# Pages of the full-text index that are merged in one transaction: other writers wait for its end.
_MERGED_PAGES = 100
# A merge rewrites the whole index, for any deletion: most merges in this many seconds.
_MERGES = 5
_MERGE_SECONDS = 60.0
# Errors of SQLite, or of values that it does not take.
_DATABASE_ERRORS = (sqlite3.Error, UnicodeEncodeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result or the error of a step."""

    result: Any = None
    error: Exception | None = None

    def onto(self, future: asyncio.Future[Any]) -> None:
        if future.done():  # cancelled meanwhile
            return
        if self.error is None:
            future.set_result(self.result)
        else:
            future.set_exception(self.error)


def _run_whole(step: TxStep[T], tx: SqliteTx) -> T:
    """Run a step that never suspends, since a `SqliteTx` does not."""
    running = step(tx)
    try:
        running.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    running.close()
    raise RuntimeError("A step waited for something other than its database.")


class Database:
    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self.is_open = False
        self.commits = 0
        # The loop of the queue's futures.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, "segue-writer")
        self._readers = ThreadPoolExecutor(_READERS, "segue-reader")
        # For single statements: looking up a caller does not wait for pages of 10 MB.
        self._lookers = ThreadPoolExecutor(_READERS, "segue-looker")
        # Steps that wait for the writer, and the task that takes them there.
        self._queue: deque[tuple[Step[Any], asyncio.Future[Any]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._folding: asyncio.Task[None] | None = None
        # When the index was merged last, and the task that waits until it may be merged again.
        self._merged_at: deque[float] = deque(maxlen=_MERGES)
        self._merging: asyncio.Task[None] | None = None
        self._vectors = VectorCache()

    async def open(self) -> None:
        self.is_open = True
        await self._run(self._writer, self._migrate)

    async def close(self) -> None:
        self._refuse_elsewhere()
        if self._merging is not None and self.is_open:
            self._merging.cancel()
            await asyncio.gather(self._merging, return_exceptions=True)
            await self._tidy(self._merge_index)
        self.is_open = False
        self._closed.set()
        if at_work := [task for task in (self._writing, self._folding) if task is not None]:
            await asyncio.wait(at_work)
        # Connections are closed by the threads' end; SQLite folds the log back into the file.
        for pool in (self._readers, self._lookers, self._writer):
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)
        for connection in self._opened:
            connection.close()

    async def transact(
        self, step: TxStep[T], *, read_only: bool = False, single: bool = False
    ) -> T:
        """See `segue.journal.tx.Transactor`."""

        def whole(connection: sqlite3.Connection) -> T:
            return _run_whole(step, SqliteTx(connection, self._vectors))

        return await (self.read(whole, single=single) if read_only else self.write(whole))

    @asynccontextmanager
    async def at_one_moment(self) -> AsyncIterator["_Frozen"]:
        with closing(await self.run_reading(lambda: _begun(self.path))) as connection:
            yield _Frozen(self, connection)

    async def write(self, step: Step[T]) -> T:
        """Run a step in a transaction; nothing of it is written if it raises."""
        self._refuse_closed()
        self._refuse_elsewhere()
        result = asyncio.get_running_loop().create_future()
        # In the caller's context, for the log's context variables.
        run = copy_context().run
        self._queue.append((lambda db: run(step, db), result))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_queue())
        try:
            written: T = await result
        except _DATABASE_ERRORS as error:
            raise self._translated(error) from error
        return written

    async def read(self, step: Step[T], *, single: bool = False) -> T:
        """Run a step that only reads, on one snapshot, which a `single` statement has by itself."""
        if single:
            return await self._run(self._lookers, lambda: step(self._connection()))
        return await self._run(self._readers, lambda: self._in_transaction("DEFERRED", step))

    async def wipe(self) -> None:
        """Remove what earlier transactions deleted from the full-text index and from the log.

        From the index at once, or within a minute if it was merged often in the last minute: each
        merge costs time and writes for all that is stored. What the file refuses is tried again:
        the deletion itself is committed.
        """
        self._refuse_closed()
        if self._merging is None:
            is_often = len(self._merged_at) == _MERGES
            now = asyncio.get_running_loop().time()
            wait = self._merged_at[0] + _MERGE_SECONDS - now if is_often else 0.0
            if wait <= 0 and not await self._tidy(self._merge_index):
                wait = _MERGE_SECONDS
            if wait > 0 and self._merging is None:
                self._merging = asyncio.create_task(self._merge_later(wait))
        await self.wipe_log()

    async def _merge_later(self, wait: float) -> None:
        await asyncio.sleep(wait)
        self._merging = None  # what is deleted from now on needs the next merge
        with suppress(BackendError):  # closed in the meantime
            await self.wipe()

    async def _tidy(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Whether work on what was deleted is over: done, or the journal is closed."""
        try:
            return await work()
        except BackendError as error:
            if self.is_open:
                logger.warning("What was deleted is wiped later: %s", error)
            return not self.is_open

    async def _merge_index(self) -> bool:
        """A merge that is under way ends first, then all parts are merged. New parts that others
        add meanwhile do not prolong it.
        """
        self._merged_at.append(asyncio.get_running_loop().time())
        most = 2 * await self.read(_count_index_pages) // _MERGED_PAGES + 2
        for _ in range(most):
            if not await self.write(_merge_index):
                break
        return True

    async def wipe_log(self) -> None:
        """Write the log back into the file and empty it, so that neither holds what was deleted.

        If a reader needs the log for long, such as an export, that is done as soon as it ends.
        """
        self._refuse_closed()
        if not await self._tidy(self._empty_log) and self._folding is None:
            logger.warning("The log of %s is in use; it is emptied later.", self.path)
            self._folding = asyncio.create_task(self._fold_later())

    async def _fold_later(self) -> None:
        while not await self.closes_within(_FOLD_AGAIN_SECONDS):
            if await self._tidy(self._empty_log):
                break
        self._folding = None

    async def _empty_log(self) -> bool:
        return await self._run(self._writer, self._fold_log)

    async def run_reading(self, work: Callable[[], T]) -> T:
        """Run work that brings its own connection in a reader's thread."""
        return await self._run(self._readers, work)

    async def changes_by_others(self) -> int:
        """A number that changes when another connection, of any process, has committed."""
        sql = "PRAGMA data_version"
        query = self._run(self._writer, lambda: self._connection().execute(sql).fetchone())
        return int((await query)[0])

    async def closes_within(self, seconds: float) -> bool:
        """Wait; True as soon as the database is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    async def _write_queue(self) -> None:
        """Hand the queued steps to the writer, `_TOGETHER` at a time, until none is left."""
        loop = asyncio.get_running_loop()
        taken: list[tuple[Step[Any], asyncio.Future[Any]]] = []
        try:
            while self._queue:
                taken = [self._queue.popleft() for _ in range(min(len(self._queue), _TOGETHER))]
                taken = [each for each in taken if not each[1].cancelled()]
                steps = [step for step, _ in taken]
                outcomes = await loop.run_in_executor(self._writer, self._write_together, steps)
                for (_, result), outcome in zip(taken, outcomes, strict=True):
                    outcome.onto(result)
        finally:
            self._writing = None
            for _, result in (*taken, *self._queue):  # no writer comes for them any more
                result.cancel()

    def _write_together(self, steps: Sequence[Step[Any]]) -> list[_Outcome]:
        """Write several steps in one transaction; if one fails, each in its own."""
        try:
            results = self._in_transaction("IMMEDIATE", lambda db: [step(db) for step in steps])
            self.commits += 1
            return [_Outcome(result) for result in results]
        except sqlite3.OperationalError as error:  # the file fails, and not one of the steps
            return [_Outcome(error=error) for _ in steps]
        except BaseException as error:  # noqa: BLE001 - raised where the step was asked for
            if len(steps) == 1:
                return [_Outcome(error=_carried(error))]
        outcomes: list[_Outcome] = []
        for step in steps:
            if outcomes and isinstance(outcomes[-1].error, sqlite3.OperationalError):
                outcomes.append(outcomes[-1])  # do not wait for the file again
            else:
                outcomes += self._write_together([step])
        return outcomes

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self._refuse_closed()
        self._refuse_elsewhere()
        run = copy_context().run  # as above
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, run, work)
        except _DATABASE_ERRORS as error:
            raise self._translated(error) from error

    def _refuse_closed(self) -> None:
        if not self.is_open:
            raise BackendError(
                f"SQLite file {self.path!r} is not open; call open() first. Nothing was written."
            )

    def _refuse_elsewhere(self) -> None:
        """A future that is set from another loop's thread may never wake its waiter."""
        here = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = here
        if self._loop is not here:
            raise UsageError(
                f"This journal on SQLite file {self.path!r} belongs to another event loop; open "
                "one for each. Nothing was written."
            )

    def _translated(self, error: Exception) -> SegueError:
        if isinstance(error, UnicodeEncodeError):
            return UsageError(
                "An id or key contains half a character, which no database stores. Nothing was "
                "written."
            )
        if isinstance(error, OverflowError | RecursionError):
            return UsageError(
                "A number or time is beyond what a database holds, or a value is nested too "
                "deeply. Nothing was written."
            )
        if not isinstance(error, sqlite3.IntegrityError):
            return BackendError(f"SQLite file {self.path!r}: {error}. Nothing was written.")
        if "FOREIGN KEY" in str(error):
            return NotFoundError(f"There is no such thread: {error}. Nothing was written.")
        return ConflictError(f"Such a row exists already: {error}. Nothing was written.")

    def _in_transaction(self, mode: str, step: Step[T]) -> T:
        connection = self._connection()
        connection.execute(f"BEGIN {mode}")
        try:
            result = step(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _fold_log(self) -> bool:
        """Whether the log is empty now. Writers wait meanwhile, so the timeout is short."""
        connection = self._connection()
        connection.execute(f"PRAGMA busy_timeout = {_FOLD_MILLISECONDS}")
        try:
            (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1_000)}")
        return not is_busy

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            # Committed data survives a power cut; steps that share a transaction share the sync.
            connection.execute("PRAGMA synchronous = FULL")
            # Deleted content is overwritten with zeros.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA foreign_keys = ON")
            # A trigger indexes the words of a message.
            connection.create_function("segue_words", 1, joined_words)
            connection.create_function("segue_mark", 1, owner_mark)
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    def _migrate(self) -> None:
        connection = self._connection()
        self._missing_scripts(connection)
        self._use_log(connection)
        self._in_transaction("IMMEDIATE", self._run_missing)

    def _run_missing(self, connection: sqlite3.Connection) -> None:
        for number, script in self._missing_scripts(connection):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")

    def _missing_scripts(self, connection: sqlite3.Connection) -> list[tuple[int, str]]:
        """The migrations to run, with their numbers; refuses a newer schema."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        scripts = migrations("sqlite")
        if version > len(scripts):
            raise BackendError(
                f"SQLite file {self.path!r} has schema {version}, this version of Segue knows "
                f"{len(scripts)}. Install the newer version; nothing was changed."
            )
        return [*enumerate(scripts[version:], version + 1)]

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log; SQLite does not wait for its lock here, so we do."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return


@dataclass(frozen=True, slots=True)
class _Frozen:
    """A snapshot on a connection of its own: writers do not wait for it."""

    database: Database
    connection: sqlite3.Connection

    async def transact(self, step: TxStep[T], *, read_only: bool = True, single: bool = False) -> T:
        del read_only, single
        tx = SqliteTx(self.connection, VectorCache())
        return await self.database.run_reading(lambda: _run_whole(step, tx))


def _begun(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM threads LIMIT 1")  # the snapshot begins here
    return connection


def _carried(error: BaseException) -> Exception:
    """An error that a future can carry to its waiter, without stopping the loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    carried = BackendError(f"A step broke off: {type(error).__name__}. Nothing was written.")
    carried.__cause__ = error
    return carried


def _count_index_pages(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM messages_words_data").fetchone()
    return int(count)


def _merge_index(connection: sqlite3.Connection) -> bool:
    """Continue merging all parts of the index into one; False if there is one already."""
    before = connection.total_changes
    sql = "INSERT INTO messages_words (messages_words, rank) VALUES ('merge', ?)"
    connection.execute(sql, (-_MERGED_PAGES,))
    return connection.total_changes - before > 1


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit in the middle of a migration."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
