"""The journal on a PostgreSQL database, shared by any number of processes."""

from segue.journal.postgres.database import Database
from segue.journal.postgres.memories import MemorySteps
from segue.journal.postgres.messages import MessageSteps
from segue.journal.postgres.nodes import NodeSteps
from segue.journal.postgres.outbox import OutboxSteps
from segue.journal.postgres.summaries import SummarySteps
from segue.journal.postgres.threads import ThreadSteps
from segue.journal.postgres.timers import TimerSteps
from segue.journal.postgres.turns import TurnSteps


class PostgresJournal(
    ThreadSteps,
    MessageSteps,
    TurnSteps,
    TimerSteps,
    OutboxSteps,
    SummarySteps,
    MemorySteps,
    NodeSteps,
):
    """See `segue.journal.ports.Journal` for what each step promises."""

    def __init__(self, dsn: str, *, pool_size: int = 10) -> None:
        self._db = Database(dsn, pool_size)

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        await self._db.close()
