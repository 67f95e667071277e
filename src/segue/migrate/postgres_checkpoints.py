"""The tables of LangGraph's PostgreSQL savers, read in transactions that cannot write. Needs the
extra `postgres`.
"""

from typing import Any, Final, LiteralString

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import make_conninfo

from segue.errors import BackendError, UsageError
from segue.journal.postgres.database import check_address
from segue.migrate.checkpoints import (
    CHANNEL,
    CheckpointSource,
    LatestCheckpoint,
    TypedBytes,
    check_encryption,
    unpack,
)
from segue.migrate.sources import ThreadRef

_TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


class PostgresSource(CheckpointSource):
    """A database of `PostgresSaver` or `AsyncPostgresSaver`."""

    def __init__(self, address: str) -> None:
        check_address(address)
        try:
            name = make_conninfo(address, application_name="segue-migrate")
            self._db = psycopg.connect(name, autocommit=True)
            self._db.execute("SET default_transaction_read_only = on")
            self._db.isolation_level = IsolationLevel.REPEATABLE_READ
        except psycopg.Error as error:
            raise BackendError(f"The source in PostgreSQL: {_first_line(error)}.") from error
        try:
            self._check()
        except BaseException:
            self._db.close()
            raise

    def heads(self) -> list[ThreadRef]:
        rows = self._rows(
            "SELECT thread_id, id, (SELECT count(*) FROM checkpoint_writes w "
            "WHERE w.thread_id = newest.thread_id AND w.checkpoint_ns = '' "
            "AND w.checkpoint_id = newest.id AND w.channel = %s) "
            "FROM (SELECT thread_id, max(checkpoint_id) AS id FROM checkpoints "
            "WHERE checkpoint_ns = '' GROUP BY thread_id) AS newest "
            'ORDER BY thread_id COLLATE "C"',
            CHANNEL,
        )
        return [ThreadRef(thread, f"{checkpoint}+{writes}") for thread, checkpoint, writes in rows]

    def _newest(self, thread_id: str) -> LatestCheckpoint:
        with self._db.transaction():
            [(checkpoint_id, checkpoint, metadata)] = self._rows(
                "SELECT checkpoint_id, checkpoint, metadata FROM checkpoints "
                "WHERE thread_id = %s AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1",
                thread_id,
            )
            version = checkpoint["channel_versions"].get(CHANNEL)
            blobs = self._blob(thread_id, version)
            writes = self._rows(
                "SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s "
                "AND checkpoint_ns = '' AND checkpoint_id = %s AND channel = %s "
                "ORDER BY task_id, idx",
                thread_id,
                checkpoint_id,
                CHANNEL,
            )
        messages = unpack(blobs[0]) if blobs else None
        return LatestCheckpoint(checkpoint["ts"], metadata, messages, writes)

    def close(self) -> None:
        self._db.close()

    def _versions(self, thread_id: str) -> list[Any]:
        rows = self._rows(
            # Each version once, dated by the first checkpoint that has it.
            "SELECT DISTINCT ON (b.version) b.version, octet_length(b.blob), c.checkpoint ->> 'ts' "
            "FROM checkpoints c JOIN checkpoint_blobs b ON b.thread_id = c.thread_id "
            "AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = %s "
            "AND b.version = c.checkpoint -> 'channel_versions' ->> %s "
            "WHERE c.thread_id = %s AND c.checkpoint_ns = '' AND b.blob IS NOT NULL "
            "ORDER BY b.version, c.checkpoint_id",
            CHANNEL,
            CHANNEL,
            thread_id,
        )
        return sorted(rows, key=lambda row: row[2])

    def _stored(self, thread_id: str, version: Any) -> tuple[str, Any]:
        [typed] = self._blob(thread_id, version[0])
        return version[2], unpack(typed)

    def _blob(self, thread_id: str, version: str | None) -> list[TypedBytes]:
        return self._rows(
            "SELECT type, blob FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns = '' "
            "AND channel = %s AND version = %s AND type <> 'empty'",
            thread_id,
            CHANNEL,
            version,
        )

    def _check(self) -> None:
        for table in _TABLES:
            if self._rows("SELECT to_regclass(%s)::text", table) == [(None,)]:
                raise UsageError(
                    f"The PostgreSQL database has no table {table!r}: no checkpoints of LangGraph "
                    "are there. It is made by PostgresSaver or AsyncPostgresSaver."
                )
        sql: LiteralString = "SELECT type FROM checkpoint_blobs WHERE channel = %s LIMIT 1"
        for (kind,) in self._rows(sql, CHANNEL):
            check_encryption(kind, "The source in PostgreSQL")

    def _rows(self, sql: LiteralString, *values: str | None) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except psycopg.Error as error:
            raise BackendError(f"The source in PostgreSQL: {_first_line(error)}.") from error


def _first_line(error: psycopg.Error) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
