"""What all workers of one process share."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from segue.agent.config import AgentConfig
from segue.agent.run import AgentEvent, Run
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Ending
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock
from segue.runtime.loops import Agenda


class Agent(Protocol):
    """What answers a batch."""

    config: AgentConfig

    def run(self, run: Run) -> AsyncIterator[AgentEvent]: ...

    async def forget(self, batch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Agendas:
    """When each worker has to look for work."""

    turns: Agenda = field(default_factory=Agenda)
    timers: Agenda = field(default_factory=Agenda)
    effects: Agenda = field(default_factory=Agenda)
    # Leases have to be kept while there are turns at work.
    leases: Agenda = field(default_factory=Agenda)

    def expect(self, ending: Ending, now: datetime) -> None:
        """What the end of a turn brought: the next turn of its thread, timers, effects."""
        self.turns.at_once()
        for timer in ending.timers:
            self.timers.at(timer.due_at)
        if ending.effects:
            self.effects.at(now)

    def look(self, moment: datetime) -> None:
        """Another process may have brought work for any of them."""
        self.turns.at(moment)
        self.timers.at(moment)
        self.effects.at(moment)


@dataclass(frozen=True, slots=True)
class Parts:
    """The journal, ids, time, listeners and agents, and under whose name work is claimed.

    `agent_of` raises `NotFoundError` for an agent that is not there (any more).
    """

    journal: Journal
    ids: SnowflakeSource
    clock: Clock
    bus: Bus
    agent_of: Callable[[str], Agent]
    owner: str
    agendas: Agendas = field(default_factory=Agendas)
    lease_for: timedelta = timedelta(seconds=30)
