"""The journal on one SQLite file."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from segue.journal.journal import Journal
from segue.journal.records import Hint
from segue.journal.sqlite.database import Database

# How often a watcher looks for new commits.
_POLL_SECONDS: Final = 0.5


class SqliteJournal(Journal):
    def __init__(self, path: str | Path) -> None:
        self.db = Database(path)
        super().__init__(self.db)

    async def open(self) -> None:
        await self.db.open()

    async def close(self) -> None:
        await self.db.close()

    async def watch(self, *, of_others: bool = False) -> AsyncGenerator[Hint]:
        """Yields an empty hint at once, for what was written before, and after every change."""
        seen: tuple[int, int] | None = None
        while self.db.is_open:
            version = await self.db.changes_by_others(), 0 if of_others else self.db.commits
            if version != seen:
                seen = version
                yield Hint()
            if await self.db.closes_within(_POLL_SECONDS):
                return
