"""Watching a SQLite file for what anybody writes to it.

SQLite does not tell what was written, only that something was: so the hint is always "". It counts
what other connections commit; so a connection that never writes sees everything, and the one that
writes for this journal sees what others did.
"""

import sqlite3
import threading
from collections.abc import AsyncGenerator
from typing import Final

from segue.journal.sqlite.database import Database, changes_by_others

POLL_SECONDS: Final = 0.5


async def watch(database: Database, *, of_others: bool) -> AsyncGenerator[str]:
    """Yield "" at once, for what was written before, and after every change."""
    probe = _Probe(database.path)
    seen: int | None = None
    try:
        while database.is_open:
            if of_others:
                version = await database.changes_by_others()
            else:
                version = await database.run_reading(probe.changes)
            if version != seen:
                seen = version
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
        # A look goes on in its thread when whoever waited for it is cancelled and closes this.
        self._lock = threading.Lock()
        self._is_closed = False

    def changes(self) -> int:
        with self._lock:
            if self._is_closed:
                return 0  # nobody waits for it
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, check_same_thread=False)
            return changes_by_others(self._connection)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
