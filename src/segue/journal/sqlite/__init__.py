"""The journal on one SQLite file."""

from collections.abc import AsyncGenerator
from pathlib import Path

from segue.journal.sqlite.arrivals import ArrivalSteps
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.events import EventSteps
from segue.journal.sqlite.keys import KeySteps
from segue.journal.sqlite.memories import MemorySteps
from segue.journal.sqlite.messages import MessageSteps
from segue.journal.sqlite.nodes import NodeSteps
from segue.journal.sqlite.outbox import OutboxSteps
from segue.journal.sqlite.outcomes import OutcomeSteps
from segue.journal.sqlite.retention import RetentionSteps
from segue.journal.sqlite.summaries import SummarySteps
from segue.journal.sqlite.threads import ThreadSteps
from segue.journal.sqlite.timers import TimerSteps
from segue.journal.sqlite.transfer import TransferSteps
from segue.journal.sqlite.turns import TurnSteps
from segue.journal.sqlite.users import UserSteps
from segue.journal.sqlite.watching import watch


class SqliteJournal(
    ThreadSteps,
    UserSteps,
    ArrivalSteps,
    EventSteps,
    MessageSteps,
    TurnSteps,
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

    def __init__(self, path: str | Path) -> None:
        self._db = Database(path)

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        await self._db.close()

    def watch(self, *, of_others: bool = False) -> AsyncGenerator[str]:
        return watch(self._db, of_others=of_others)
