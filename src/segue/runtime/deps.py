"""What all workers of one process share."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from segue.core.autonomy.policy import Preferences
from segue.core.snowflake import SnowflakeSource
from segue.errors import SegueError
from segue.journal.effects import Effect
from segue.journal.journal import Journal
from segue.journal.records import Decision, Ending, Thread, Timer, Turn, TurnLease
from segue.runtime.bus import Bus
from segue.runtime.clock import Clock, Wakeup
from segue.runtime.run import AgentEvent, Run
from segue.settings.agents import AgentConfig, Autonomy
from segue.telemetry import log_event


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
    discards: Wakeup = field(default_factory=Wakeup)

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

    def autonomy_of(self, agent_id: str) -> Autonomy:
        return self.agent_of(agent_id).config.autonomy

    def new_decision(
        self, about: Turn | Thread, kind: str, outcome: str, reason: str, /, **facts: Any
    ) -> Decision:
        """A decision that is not about a timer, to be stored with its consequence."""
        thread_id = about.thread_id if isinstance(about, Turn) else about.id
        turn_id = about.id if isinstance(about, Turn) else None
        new_id, now, reasons = self.ids.next(), self.clock.now(), (reason,)
        return Decision(new_id, thread_id, kind, outcome, reasons, facts, None, turn_id, now)


async def finish_turn(
    deps: Deps, lease: TurnLease, messages: Sequence[BaseMessage], ending: Ending
) -> None:
    """Store the last messages of a turn with its ending; wake the workers that are due next."""
    now = deps.clock.now()
    stored = await deps.journal.turns.finish(lease, messages, ids=deps.ids, now=now, ending=ending)
    deps.bus.forget_drafts(lease, stored)
    deps.wakeups.expect(ending, now)


async def read_preferences(journal: Journal, thread: Thread, zone: str | None) -> Preferences:
    """The user's preferences in a thread; `zone` is that of users who have not set theirs."""
    user = await journal.users.get_settings(thread.user_id)
    return Preferences.of(user, thread.settings, zone)


def log_about(
    logger: logging.Logger,
    record: Turn | Timer | Effect,
    kind: str,
    text: str,
    level: int = logging.INFO,
    **fields: Any,
) -> None:
    """Log an event of a turn, timer or effect, with its ids among the fields."""
    own: dict[str, Any] = {"thread_id": record.thread_id}
    match record:
        case Turn():
            own |= {"turn_id": record.id, "turn_kind": record.kind.value}
        case Timer():
            own |= {"timer_id": record.id, "trigger_type": record.trigger_type or record.kind.value}
        case Effect():
            own |= {"effect_id": record.id, "effect_kind": record.kind}
    if not isinstance(record, Effect):  # its agent is on every line of its task
        own["agent_id"] = record.agent_id
    log_event(logger, kind, text, level, **own, **fields)


def log_failure(logger: logging.Logger, what: str, error: Exception) -> None:
    """Log an error at the edge of a loop; only an unexpected one needs its traceback."""
    if isinstance(error, SegueError):
        logger.warning("%s: %s", what, error)
    else:
        logger.error("%s", what, exc_info=error)
