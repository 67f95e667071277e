"""The tables of LangGraph's SQLite savers, opened read-only."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from segue.errors import BackendError, NotFoundError, UsageError
from segue.migrate.checkpoints import (
    CHANNEL,
    LatestCheckpoint,
    encryption_error,
    messages_in,
    sample,
    unpack,
)
from segue.migrate.sources import ThreadRef, UnreadableError

_BUSY_SECONDS: Final = 30.0


class SqliteTables:
    """A file of `SqliteSaver` or `AsyncSqliteSaver`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"There is no file {str(path)!r}.")
        self._path = path
        # A log that exists already belongs to an app that runs or was killed: keep it.
        self._log = Path(f"{path.absolute()}-wal")
        self._is_log_ours = not self._log.exists()
        self._db = self._connect("ro")
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def heads(self) -> list[ThreadRef]:
        rows = self._rows(
            "SELECT thread_id, id, (SELECT count(*) FROM writes WHERE writes.thread_id = "
            "newest.thread_id AND checkpoint_ns = '' AND checkpoint_id = id AND channel = ?) "
            "FROM (SELECT thread_id, max(checkpoint_id) AS id FROM checkpoints "
            "WHERE checkpoint_ns = '' GROUP BY thread_id) AS newest ORDER BY thread_id",
            CHANNEL,
        )
        return [ThreadRef(thread, f"{checkpoint}+{writes}") for thread, checkpoint, writes in rows]

    def newest(self, thread_id: str) -> LatestCheckpoint:
        [(checkpoint_id, kind, data, metadata)] = self._rows(
            "SELECT checkpoint_id, type, checkpoint, metadata FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1",
            thread_id,
        )
        writes = self._rows(
            "SELECT type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = '' "
            "AND checkpoint_id = ? AND channel = ? ORDER BY task_id, idx",
            thread_id,
            checkpoint_id,
            CHANNEL,
        )
        checkpoint = unpack((kind, data))
        facts = json.loads(metadata) if metadata else {}
        return LatestCheckpoint(checkpoint["ts"], facts, messages_in(checkpoint), writes)

    def past(self, thread_id: str) -> Iterator[tuple[str, Any]]:
        sizes = self._rows(
            "SELECT checkpoint_id, length(checkpoint) FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id",
            thread_id,
        )
        for checkpoint_id in sample(sizes):
            for row in self._rows(
                "SELECT type, checkpoint FROM checkpoints "
                "WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?",
                thread_id,
                checkpoint_id,
            ):
                try:
                    checkpoint = unpack(row)
                    yield checkpoint["ts"], messages_in(checkpoint)
                except (UnreadableError, ValueError, LookupError, TypeError):
                    continue  # it only dates messages

    def close(self) -> None:
        """Also removes the log that SQLite creates for reading, if there was none before."""
        self._db.close()
        if not self._is_log_ours or not self._log.exists():
            return
        # A read-only connection leaves the log. One that may write removes it if no other is open;
        # SQLite's own locks decide, so an app that started meanwhile loses nothing.
        with suppress(sqlite3.Error), closing(self._connect("rw")) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            check_same_thread=False,
        )

    def _check(self) -> None:
        try:
            tables = self._db.execute(
                "SELECT count(*) FROM sqlite_master "
                "WHERE type = 'table' AND name IN ('checkpoints', 'writes')"
            ).fetchone()[0]
            columns = {row[1] for row in self._db.execute("PRAGMA table_info(checkpoints)")}
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{str(self._path)!r} cannot be read as SQLite: {error}.") from error
        if tables < 2 or not {"thread_id", "checkpoint_ns", "checkpoint"} <= columns:
            raise UsageError(
                f"{str(self._path)!r} is a SQLite file, but has no checkpoints of LangGraph: it "
                "was not made by SqliteSaver or AsyncSqliteSaver."
            )
        for (kind,) in self._rows("SELECT type FROM checkpoints LIMIT 1"):
            if "+" in kind:
                raise UsageError(f"{str(self._path)!r}: {encryption_error(kind)}")

    def _rows(self, sql: str, *values: str) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise BackendError(f"SQLite file {str(self._path)!r}: {error}.") from error
