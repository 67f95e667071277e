"""The journal on a PostgreSQL database, shared by any number of processes."""

from collections.abc import AsyncGenerator

from segue.journal.journal import Journal
from segue.journal.postgres.database import Database
from segue.journal.postgres.hot import PostgresMessages, PostgresTurns
from segue.journal.postgres.watching import Listeners


class PostgresJournal(Journal):
    def __init__(self, dsn: str, *, pool_size: int = 10) -> None:
        self.db = Database(dsn, pool_size)
        super().__init__(self.db)
        self.messages = PostgresMessages(self.db)
        self.turns = PostgresTurns(self.db)
        self._listeners = Listeners(dsn)

    async def open(self) -> None:
        await self.db.open()
        self._listeners.open()

    async def close(self) -> None:
        await self._listeners.close()
        await self.db.close()

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[str]:
        return self._listeners.watch(self.db.is_own if of_others else None)
