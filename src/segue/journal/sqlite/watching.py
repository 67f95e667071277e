"""Watching a SQLite file for what anybody writes to it.

SQLite does not tell what was written, only that something was: so the hint is always "".
"""

import sqlite3
import threading
from collections.abc import AsyncGenerator
from typing import Final

from segue.journal.sqlite.database import Database

POLL_SECONDS: Final = 0.5


async def watch(database: Database) -> AsyncGenerator[str]:
    """Yield "" at once, for what was written before, and after every change."""
    probe = _Probe(database.path)
    try:
        while database.is_open:
            if await database.run_reading(probe.has_changed):
                yield ""
            if await database.closes_within(POLL_SECONDS):
                return
    finally:
        probe.close()


class _Probe:
    """A connection that sees whether others have committed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        # A look goes on in its thread when whoever waited for it is cancelled and closes this.
        self._lock = threading.Lock()
        self._is_closed = False

    def has_changed(self) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, check_same_thread=False)
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            before, self._seen = self._seen, version
            return before != self._seen

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
