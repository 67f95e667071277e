"""What all workers of one process share."""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from segue.core.snowflake import SnowflakeSource
from segue.errors import SegueError
from segue.journal.journal import Journal
from segue.journal.records import Ending
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock, Wakeup
from segue.runtime.run import AgentEvent, Run
from segue.settings.agents import AgentConfig


class Agent(Protocol):
    """Answers a batch."""

    config: AgentConfig

    def run(self, run: Run) -> AsyncIterator[AgentEvent]: ...

    async def forget(self, batch: int) -> None:
        """Drop the checkpoints of a batch."""


@dataclass(frozen=True, slots=True)
class Wakeups:
    turns: Wakeup = field(default_factory=Wakeup)
    timers: Wakeup = field(default_factory=Wakeup)
    effects: Wakeup = field(default_factory=Wakeup)
    leases: Wakeup = field(default_factory=Wakeup)

    def expect(self, ending: Ending, now: datetime) -> None:
        """A turn ended: its thread's next turn, and the ending's timers and effects are due."""
        self.turns.now()
        for timer in ending.timers:
            self.timers.at(timer.due_at)
        if ending.postponed_until is not None:
            self.timers.at(ending.postponed_until)
        if ending.effects:
            self.effects.at(now)

    def all_at(self, moment: datetime) -> None:
        """Another process may have added turns, timers or effects."""
        self.turns.at(moment)
        self.timers.at(moment)
        self.effects.at(moment)


@dataclass(frozen=True, slots=True)
class Deps:
    """The journal, ids, clock, bus and agents; `owner` is this process's name on its leases.

    `agent_of` raises `NotFoundError` for an agent that is not in the settings.
    """

    journal: Journal
    ids: SnowflakeSource
    clock: Clock
    bus: Bus
    agent_of: Callable[[str], Agent]
    owner: str
    wakeups: Wakeups = field(default_factory=Wakeups)
    lease_for: timedelta = timedelta(seconds=30)
    # The time zone of users who have not set theirs.
    zone: str = "UTC"


def log_failure(logger: logging.Logger, what: str, error: Exception) -> None:
    """Log an error at the edge of a loop; only an unexpected one needs its traceback."""
    if isinstance(error, SegueError):
        logger.warning("%s: %s", what, error)
    else:
        logger.error("%s", what, exc_info=error)
