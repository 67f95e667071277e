"""One PostgreSQL database: its connections, transactions and schema.

A step runs in one transaction and may be repeated after a conflict. A step that writes to a thread
locks the thread's row first and sees what was committed until then: PostgreSQL takes a new snapshot
for every statement. A read-only step has one snapshot.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.abc import DumperKey
from psycopg.adapt import PyFormat
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import (
    DeadlockDetected,
    ForeignKeyViolation,
    LockNotAvailable,
    SerializationFailure,
    UniqueViolation,
)
from psycopg.rows import DictRow, dict_row
from psycopg.types.datetime import DatetimeDumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from segue.errors import BackendError, ConflictError, NotFoundError, SegueError, UsageError
from segue.journal.postgres.tx import Connection, PostgresTx
from segue.journal.rows import aware
from segue.journal.tx import Step as TxStep
from segue.journal.tx import migrations

T = TypeVar("T")
Step = Callable[[Connection], Awaitable[T]]

WAIT_SECONDS = 10.0
# Shorter than the wait for a connection: a step that waits for a locked thread returns its
# connection before the steps that wait for one give up.
LOCK_SECONDS = 5
# The pool doubles its pauses between two tries to connect; giving up early and starting again with
# the next step keeps them short.
_RECONNECT_SECONDS = 5.0
_RETRIES = 2
# A connection that was used this recently is not checked, unless the server sent something.
_TRUSTED_SECONDS = 0.5
_MIGRATION_LOCK = 0x5E6E
# A second copy for pgvector, which converts an array more slowly than it compares it. Not a
# migration: the extension may be installed later, and dropping it drops the column.
_KEEP_VECTORS: LiteralString = """
    ALTER TABLE memories ADD COLUMN near vector GENERATED ALWAYS AS
        (CASE WHEN cardinality(embedding) BETWEEN 1 AND 16000 THEN embedding::vector END) STORED
"""
_KEEPS_VECTORS: LiteralString = (
    "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = 'memories'::regclass "
    "AND attname = 'near' AND NOT attisdropped) AS kept"
)
_SCHEMA_TABLE: LiteralString = "SELECT to_regclass('segue_schema')::text AS name"
_SCHEMA_VERSION: LiteralString = "SELECT coalesce(max(version), 0) AS version FROM segue_schema"
# A process that hangs must not lock a thread's row for ever, nor may the steps that wait for it
# occupy all connections. An address with its own lock_timeout keeps it.
_SETUP: LiteralString = (
    "SELECT set_config('TimeZone', 'UTC', false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('default_transaction_read_only', 'off', false), "
    "set_config('idle_in_transaction_session_timeout', '60s', false), "
    # Compiling a statement takes longer than running it.
    "set_config('jit', 'off', false), "
    "CASE current_setting('lock_timeout') WHEN '0' THEN set_config('lock_timeout', %s, false) END"
)

# A snapshot holds no locks that others wait for.
_LONG_IDLE: LiteralString = "SELECT set_config('idle_in_transaction_session_timeout', '1h', false)"


ConnectionT = TypeVar("ConnectionT", bound=AsyncConnection[Any])


class Database:
    def __init__(self, dsn: str, pool_size: int) -> None:
        self._dsn = dsn
        self._pool_size = pool_size
        self._pool = Pool(
            dsn,
            connection_class=AsyncConnection[DictRow],
            kwargs={"row_factory": dict_row},
            min_size=1,
            max_size=pool_size,
            open=False,
            configure=_configure,
            check=self._check,
            name="segue",
            timeout=WAIT_SECONDS,
            reconnect_timeout=_RECONNECT_SECONDS,
        )
        self.has_pgvector = False
        # The loop time at which each connection was last used.
        self._used_at: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    async def open(self) -> None:
        check_address(self._dsn)
        try:
            # Not from the pool, which keeps the reason of a failure to itself.
            connection = await AsyncConnection.connect(self._dsn, row_factory=dict_row)
            async with connection:
                await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
                await _migrate(connection)
                self.has_pgvector = await _find_pgvector(connection)
            await self._pool.open()
        except psycopg.Error as error:
            raise self._translated(error) from error

    async def close(self) -> None:
        await self._pool.close()

    def is_own(self, pid: int) -> bool:
        """Whether a server process belongs to one of our connections."""
        return any(c.info.backend_pid == pid for c in self._used_at if not c.closed)

    async def transact(
        self, step: TxStep[T], *, read_only: bool = False, single: bool = False
    ) -> T:
        """See `segue.journal.tx.Transactor`."""
        run = self._single if single else self._in_transaction
        return await self._run(
            lambda: run(
                lambda connection: step(PostgresTx(connection, has_pgvector=self.has_pgvector)),
                read_only=read_only,
            )
        )

    async def wipe(self) -> None:
        """Nothing: VACUUM is the server's to run."""

    async def wipe_log(self) -> None:
        """Nothing, as above."""

    @asynccontextmanager
    async def at_one_moment(self) -> AsyncIterator["_Frozen"]:
        try:
            async with await AsyncConnection.connect(self._dsn, row_factory=dict_row) as connection:
                await _configure(connection)
                await connection.execute(_LONG_IDLE)
                await connection.commit()
                await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
                await connection.set_read_only(True)
                yield _Frozen(connection)
        except psycopg.Error as error:
            raise self._translated(error) from error

    async def _run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            for _ in range(_RETRIES):
                with suppress(SerializationFailure, DeadlockDetected):
                    return await attempt()
            return await attempt()
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise self._translated(error) from error
        except (OverflowError, RecursionError) as error:
            raise UsageError(
                "A number or time is beyond what a database holds, or a value is nested too "
                "deeply. Nothing was written."
            ) from error

    async def _in_transaction(self, step: Step[T], *, read_only: bool) -> T:
        level = IsolationLevel.REPEATABLE_READ if read_only else IsolationLevel.READ_COMMITTED
        async with self._pool.connection() as connection:
            await connection.set_isolation_level(level)
            await connection.set_read_only(read_only)
            result = await step(connection)
            try:
                await connection.commit()
            except psycopg.OperationalError as error:
                _doubt_if_lost(connection, error, read_only=read_only)
            await self._give_back(connection)
            return result

    async def _single(self, step: Step[T], *, read_only: bool) -> T:
        async with self._pool.connection() as connection:
            await connection.set_autocommit(True)
            try:
                return await step(connection)
            except psycopg.OperationalError as error:
                _doubt_if_lost(connection, error, read_only=read_only)
            finally:
                await self._give_back(connection)

    async def _give_back(self, connection: Connection) -> None:
        """Reset the connection, and note that it works."""
        if connection.autocommit and not connection.closed:
            await connection.set_autocommit(False)
        self._used_at[connection] = asyncio.get_running_loop().time()

    async def _check(self, connection: Connection) -> None:
        used_at = self._used_at.get(connection, -_TRUSTED_SECONDS)
        is_fresh = asyncio.get_running_loop().time() - used_at < _TRUSTED_SECONDS
        if is_fresh and not _has_news(connection):
            return
        try:
            await Pool.check_connection(connection)
        except psycopg.OperationalError:
            # A server restart breaks all connections, and the pool pauses longer after each one.
            await self._pool.drain()
            raise

    def _translated(self, error: psycopg.Error | UnicodeEncodeError) -> SegueError:
        if isinstance(error, UniqueViolation):
            return ConflictError(f"{error.diag.message_detail} Nothing was written.")
        if isinstance(error, ForeignKeyViolation):
            return NotFoundError(f"{error.diag.message_detail} Nothing was written.")
        if isinstance(error, UnicodeEncodeError) or "NUL (0x00)" in str(error):
            return UsageError(
                "PostgreSQL cannot store a NUL or half a character in an id, a key or a name. "
                "Nothing was written."
            )
        if isinstance(error, PoolTimeout):
            return BackendError(
                f"PostgreSQL: no connection within {WAIT_SECONDS:g} s: the server does not answer, "
                f"or all {self._pool_size} connections are in use. Nothing was written."
            )
        if isinstance(error, LockNotAvailable):
            return BackendError(
                "PostgreSQL: another session holds a lock that this step needs, probably on its "
                "thread, and did not release it within lock_timeout. Nothing was written."
            )
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return BackendError(f"PostgreSQL: {reason.rstrip('.')}. Nothing was written.")


@dataclass(frozen=True, slots=True)
class _Frozen:
    """A snapshot on its own connection."""

    connection: Connection

    async def transact(self, step: TxStep[T], *, read_only: bool = True, single: bool = False) -> T:
        del read_only, single
        return await step(PostgresTx(self.connection))


def check_address(dsn: str) -> None:
    """Refuse an address that libpq would misread, without quoting it: libpq's own message quotes
    what it could not read, which may be the password.
    """
    try:
        host = str(conninfo_to_dict(dsn).get("host", ""))
    except psycopg.ProgrammingError:
        host = "@"
    if "@" in host:
        raise BackendError(
            "PostgreSQL: the address cannot be read. In a postgresql:// address the special "
            "characters of a password are written as %40 and the like, elsewhere in quotes."
        ) from None


async def schema_version(connection: Connection) -> int | None:
    """The number of the last migration; None without a schema."""
    if (await fetch_row(connection, _SCHEMA_TABLE))["name"] is None:
        return None
    return int((await fetch_row(connection, _SCHEMA_VERSION))["version"])


async def fetch_row(db: Connection, query: LiteralString) -> DictRow:
    """The row of a query that must return one."""
    row = await (await db.execute(query)).fetchone()
    if row is None:
        raise NotFoundError("A required row is missing. Nothing was written.")
    return row


def _has_news(connection: Connection) -> bool:
    """Whether the server sent an unsolicited message, as when it shuts down."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _doubt_if_lost(
    connection: Connection, error: psycopg.OperationalError, *, read_only: bool
) -> NoReturn:
    """Raise; after a lost connection it is unknown whether the transaction was committed."""
    if read_only or not connection.closed:
        raise error
    raise BackendError(
        "PostgreSQL: the connection was lost during the commit, so it is not known "
        "whether the step was written. Look before you repeat it."
    ) from error


class _AwareDumper(DatetimeDumper):
    def get_key(self, obj: datetime, format: PyFormat) -> DumperKey:
        return super().get_key(aware(obj), format)


async def _configure(connection: Connection) -> None:
    connection.adapters.register_dumper(datetime, _AwareDumper)
    await connection.execute(_SETUP, (f"{LOCK_SECONDS}s",))
    await connection.commit()


async def _migrate(connection: Connection) -> None:
    scripts = migrations("postgres")
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    # A role that may not create tables can still open a database that is up to date.
    if (version := await schema_version(connection)) is None:
        await connection.execute("CREATE TABLE segue_schema (version integer PRIMARY KEY)")
        version = 0
    if version > len(scripts):
        raise BackendError(
            f"PostgreSQL database {connection.info.dbname!r} has schema {version}, this version of "
            f"Segue knows {len(scripts)}. Install the newer version; nothing was changed."
        )
    for number, script in enumerate(scripts[version:], version + 1):
        await connection.execute(script)
        await connection.execute("INSERT INTO segue_schema VALUES (%s)", (number,))


async def _find_pgvector(connection: Connection) -> bool:
    """Whether the server compares vectors; installs pgvector if that is allowed."""
    if (await fetch_row(connection, _KEEPS_VECTORS))["kept"]:
        return True
    with suppress(psycopg.Error):
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            await connection.execute(_KEEP_VECTORS)
    return bool((await fetch_row(connection, _KEEPS_VECTORS))["kept"])


class Pool(AsyncConnectionPool[ConnectionT]):
    """Raises `CancelledError` where the pool or the driver would go on, or raise another error.

    The pool waits with `asyncio.wait_for`, which before Python 3.12 returns normally if the
    connection arrives in the same tick as the cancellation. And a query that fails while it is
    being cancelled raises its own error.
    """

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[ConnectionT]:  # noqa: ASYNC109 - as the pool declares it
        # Only cancellations from here on count: cleanup after an earlier one needs a connection.
        before = _cancellations()
        try:
            async with super().connection(timeout) as connection:
                _raise_if_cancelled(before)
                yield connection
        except Exception as error:
            _raise_if_cancelled(before, error)
            raise

    async def _putconn(self, conn: ConnectionT, from_getconn: bool) -> None:
        # In its own task: the pool never gets back a connection whose return is cancelled.
        await asyncio.shield(super()._putconn(conn, from_getconn))


def _raise_if_cancelled(before: int, error: Exception | None = None) -> None:
    if _cancellations() > before:
        raise asyncio.CancelledError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
