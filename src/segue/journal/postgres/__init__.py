"""The journal on a PostgreSQL database, shared by any number of processes."""

from collections.abc import AsyncGenerator

from segue.journal.postgres.arrivals import ArrivalSteps
from segue.journal.postgres.database import Database
from segue.journal.postgres.endings import EndingSteps
from segue.journal.postgres.events import EventSteps
from segue.journal.postgres.keys import KeySteps
from segue.journal.postgres.memories import MemorySteps
from segue.journal.postgres.messages import MessageSteps
from segue.journal.postgres.nodes import NodeSteps
from segue.journal.postgres.outbox import OutboxSteps
from segue.journal.postgres.outcomes import OutcomeSteps
from segue.journal.postgres.retention import RetentionSteps
from segue.journal.postgres.summaries import SummarySteps
from segue.journal.postgres.threads import ThreadSteps
from segue.journal.postgres.timers import TimerSteps
from segue.journal.postgres.transfer import TransferSteps
from segue.journal.postgres.turns import TurnSteps
from segue.journal.postgres.users import UserSteps
from segue.journal.postgres.watching import Listeners


class PostgresJournal(
    ThreadSteps,
    UserSteps,
    ArrivalSteps,
    EventSteps,
    MessageSteps,
    TurnSteps,
    EndingSteps,
    TimerSteps,
    OutboxSteps,
    OutcomeSteps,
    SummarySteps,
    RetentionSteps,
    MemorySteps,
    KeySteps,
    NodeSteps,
    TransferSteps,
):
    """See `segue.journal.ports.Journal` for what each step promises."""

    def __init__(self, dsn: str, *, pool_size: int = 10) -> None:
        self._db = Database(dsn, pool_size)
        self._listeners = Listeners(dsn)

    async def open(self) -> None:
        await self._db.open()
        self._listeners.open()

    async def close(self) -> None:
        await self._listeners.close()
        await self._db.close()

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[str]:
        return self._listeners.watch(self._db.is_own if of_others else None)
