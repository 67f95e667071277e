"""The journal on one SQLite file."""

from collections.abc import AsyncGenerator
from pathlib import Path

from segue.journal.journal import Journal
from segue.journal.sqlite.database import Database, watch


class SqliteJournal(Journal):
    def __init__(self, path: str | Path) -> None:
        self.db = Database(path)
        super().__init__(self.db)

    async def open(self) -> None:
        await self.db.open()

    async def close(self) -> None:
        await self.db.close()

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[str]:
        return watch(self.db, of_others=of_others)
