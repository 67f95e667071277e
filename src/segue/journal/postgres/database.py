"""One PostgreSQL database: its connections, transactions and schema.

A step is a coroutine that runs whole in one transaction and may be run again, so it changes nothing
but the database. A step that writes to a thread locks the thread's row before all else and sees
what was committed until then: PostgreSQL takes a new snapshot for every statement. A step that only
reads has one snapshot.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib import resources
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
from psycopg_pool import PoolTimeout

from segue.core.errors import BackendError, ConflictError, NotFoundError, SegueError, UsageError
from segue.journal.postgres.pool import Pool
from segue.journal.rows import aware

T = TypeVar("T")
Connection = AsyncConnection[DictRow]
Step = Callable[[Connection], Awaitable[T]]
Values = Sequence[Any] | Mapping[str, Any]

WAKE_CHANNEL: LiteralString = "segue_wake"
WAIT_SECONDS = 10.0
# Shorter than the wait for a connection: steps that wait for a thread that somebody holds give
# theirs back in time for those that wait for one.
LOCK_SECONDS = 5


def tell_of(column: LiteralString) -> LiteralString:
    """What a statement selects or returns to tell, at the commit, of the thread in that column.

    A name that is too long for a notification is told as "", which stands for any.
    """
    name = f"CASE WHEN octet_length({column}) < 8000 THEN {column} ELSE '' END"
    return f"pg_notify('{WAKE_CHANNEL}', {name}) AS told"


TELL = tell_of("thread_id")

# The pool doubles its pauses between two tries to connect; giving up soon and starting anew with
# the next step keeps them short, so that a server that comes back is soon found.
_RECONNECT_SECONDS = 5.0
_RETRIES = 2
# A connection that worked a moment ago is not asked again whether it does, unless it has news.
_TRUSTED_SECONDS = 0.5
_MIGRATION_LOCK = 0x5E6E
# To read an array as a vector takes pgvector longer than to compare it, so where the extension is
# there is a second copy. Not a migration: the extension may come later, and takes its column along.
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
# A process that hangs must not hold a thread's row for ever, nor may those that wait for it hold
# all connections. An address that names its own lock_timeout keeps it.
_SETUP: LiteralString = (
    "SELECT set_config('TimeZone', 'UTC', false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('default_transaction_read_only', 'off', false), "
    "set_config('idle_in_transaction_session_timeout', '60s', false), "
    "CASE current_setting('lock_timeout') WHEN '0' THEN set_config('lock_timeout', %s, false) END"
)

# Who reads at one moment holds no locks that others wait for.
_UNHURRIED: LiteralString = "SELECT set_config('idle_in_transaction_session_timeout', '1h', false)"


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
        # When each connection last worked.
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

    async def has_tables(self) -> bool:
        """Whether it was ever opened; looks without opening it, which would make them."""
        check_address(self._dsn)
        try:
            async with await AsyncConnection.connect(self._dsn, row_factory=dict_row) as connection:
                return (await fetch_row(connection, _SCHEMA_TABLE))["name"] is not None
        except psycopg.Error as error:
            raise self._translated(error) from error

    async def close(self) -> None:
        await self._pool.close()

    def is_own(self, pid: int) -> bool:
        """Whether a process of the server works for one of our connections."""
        return any(c.info.backend_pid == pid for c in self._used_at if not c.closed)

    async def write(self, step: Step[T]) -> T:
        """Run a step in a transaction of its own; nothing is written if it raises."""
        return await self._run(lambda: self._in_transaction(step, read_only=False))

    async def act(self, step: Step[T]) -> T:
        """Run a step that writes with a single statement, which is a transaction by itself."""
        return await self._run(lambda: self._alone(step, read_only=False))

    async def read(self, step: Step[T]) -> T:
        """Run a step that only reads, on one snapshot."""
        return await self._run(lambda: self._in_transaction(step, read_only=True))

    async def look(self, step: Step[T]) -> T:
        """Run a step that reads with a single statement, which is a snapshot by itself."""
        return await self._run(lambda: self._alone(step, read_only=True))

    @asynccontextmanager
    async def at_one_moment(self) -> AsyncIterator[Connection]:
        """A connection of its own with one snapshot, for who reads a lot and takes their time."""
        try:
            async with await AsyncConnection.connect(self._dsn, row_factory=dict_row) as connection:
                await _configure(connection)
                await connection.execute(_UNHURRIED)
                await connection.commit()
                await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
                await connection.set_read_only(True)
                yield connection
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

    async def _alone(self, step: Step[T], *, read_only: bool) -> T:
        async with self._pool.connection() as connection:
            await connection.set_autocommit(True)
            try:
                return await step(connection)
            except psycopg.OperationalError as error:
                _doubt_if_lost(connection, error, read_only=read_only)
            finally:
                await self._give_back(connection)

    async def _give_back(self, connection: Connection) -> None:
        """As every step finds it, and known to have worked a moment ago."""
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
            # A restart breaks all of them, and the pool pauses longer after each one it tries.
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
                f"PostgreSQL: no connection within {WAIT_SECONDS:g} s: the server is away, or all "
                f"{self._pool_size} connections are in use. Nothing was written."
            )
        if isinstance(error, LockNotAvailable):
            return BackendError(
                "PostgreSQL: another session holds what this step needs, most likely its thread, "
                "and did not let go within the lock_timeout. Nothing was written."
            )
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return BackendError(f"PostgreSQL: {reason.rstrip('.')}. Nothing was written.")


def check_address(dsn: str) -> None:
    """Refuse an address that is not what it seems, in words that hold nothing of it.

    libpq's own words quote what it could not read, and that may be the password.
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


async def fetch_one(db: Connection, query: LiteralString, values: Values = ()) -> DictRow | None:
    return await (await db.execute(query, values)).fetchone()


async def fetch_all(db: Connection, query: LiteralString, values: Values = ()) -> list[DictRow]:
    return await (await db.execute(query, values)).fetchall()


async def fetch_row(db: Connection, query: LiteralString, values: Values = ()) -> DictRow:
    """The row of a query that must give one."""
    row = await fetch_one(db, query, values)
    if row is None:
        raise NotFoundError("A row that must be there is not there. Nothing was written.")
    return row


def _has_news(connection: Connection) -> bool:
    """Whether the server said something that nobody asked for, as when it goes down."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _doubt_if_lost(
    connection: Connection, error: psycopg.OperationalError, *, read_only: bool
) -> NoReturn:
    """Raise what is known of a transaction that may have been committed, or may not."""
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
    scripts = _scripts()
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    # A role that may not create tables can still open a database that is up to date.
    if (await fetch_row(connection, _SCHEMA_TABLE))["name"] is None:
        await connection.execute("CREATE TABLE segue_schema (version integer PRIMARY KEY)")
    version: int = (await fetch_row(connection, _SCHEMA_VERSION))["version"]
    if version > len(scripts):
        raise BackendError(
            f"PostgreSQL database {connection.info.dbname!r} has schema {version}, this version of "
            f"Segue knows {len(scripts)}. Install the newer version; nothing was changed."
        )
    for number, script in enumerate(scripts[version:], version + 1):
        await connection.execute(script)
        await connection.execute("INSERT INTO segue_schema VALUES (%s)", (number,))


async def _find_pgvector(connection: Connection) -> bool:
    """Whether the server compares vectors; makes it ready for that if this is allowed."""
    if (await fetch_row(connection, _KEEPS_VECTORS))["kept"]:
        return True
    with suppress(psycopg.Error):
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            await connection.execute(_KEEP_VECTORS)
    return bool((await fetch_row(connection, _KEEPS_VECTORS))["kept"])


def _scripts() -> list[str]:
    folder = resources.files("segue.journal.migrations") / "postgres"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [f.read_text(encoding="utf-8") for f in files]
