"""A whole running Segue on a virtual clock, for tests and simulations.

The journal is a real database; only the time and, usually, the models are not real. Time stands
still while a task works. `VirtualClock.advance` moves it to the next moment that a task waits for,
again and again, so that everything happens in order and at its exact time.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from langchain_core.language_models import BaseChatModel

from segue.compose import Overrides, System, compose
from segue.core.autonomy.local_time import as_utc
from segue.errors import UsageError
from segue.facade import Segue
from segue.journal.journal import Journal
from segue.settings import Settings
from segue.settings.agents import AgentConfig

START: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)
# Renewing a short lease would cost a simulated year most of its run time.
_NODE_LEASE: Final = timedelta(days=30)
_REAL_SECONDS: Final = 60.0


class VirtualClock:
    """Time that moves by `advance` alone."""

    def __init__(self, start: datetime, *, patience: float = _REAL_SECONDS) -> None:
        self._now = as_utc(start)
        # Seconds of real time that the work at one moment may take.
        self._patience = patience
        self._awake = 0
        self._waiting: set[asyncio.Event] = set()
        self._sleepers: list[tuple[datetime, int, asyncio.Event]] = []
        self._numbers = count()
        self._rest = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    @property
    def next_at(self) -> datetime | None:
        """The next moment that a task waits for, if there is one."""
        return self._sleepers[0][0] if self._sleepers else None

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        if until is not None and until <= self._now:
            wake.set()
        elif until is not None:
            heapq.heappush(self._sleepers, (until, next(self._numbers), wake))
        self._waiting.add(wake)
        self._stop_work()
        try:
            await wake.wait()
        finally:
            self._awake += 1
            self._waiting.discard(wake)
            self._sleepers = [s for s in self._sleepers if s[2] is not wake]
            heapq.heapify(self._sleepers)
        wake.clear()

    @contextmanager
    def working(self) -> Iterator[None]:
        self._awake += 1
        try:
            yield
        finally:
            self._stop_work()

    async def advance(self, span: timedelta) -> None:
        """Let a span of time pass, and run everything that is due in it."""
        if span < timedelta(0):
            raise UsageError(f"Time cannot go backwards: {span}.")
        await self.advance_to(self._now + span)

    async def advance_to(self, moment: datetime) -> None:
        """Let time pass until a moment, and run everything that is due until then."""
        goal = as_utc(moment)
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= goal:
            until, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, until)
            wake.set()
            await self.settle()
        self._now = max(self._now, goal)

    async def settle(self) -> None:
        """Run everything that can run at this moment."""
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    while not self._is_at_rest():
                        self._rest.clear()
                        await self._rest.wait()
                    await asyncio.sleep(0)  # a task that was just created starts, and counts
                    if self._is_at_rest():
                        return
        except TimeoutError:
            raise UsageError(
                f"{self._awake} tasks still run at {self._now.isoformat()} after "
                f"{self._patience:g} s: does one of them wait for something other than the clock?"
            ) from None

    def _stop_work(self) -> None:
        self._awake -= 1
        if self._is_at_rest():
            self._rest.set()

    def _is_at_rest(self) -> bool:
        return self._awake <= 0 and not any(wake.is_set() for wake in self._waiting)


def plain_agent(id: str = "guide", **config: Any) -> AgentConfig:
    """Scripted, without memories; may write at any hour, three times in a row, unless set."""
    model = {} if "graph" in config else {"model": "scripted"}
    autonomy = dict(config.pop("autonomy", {}))
    free = {"quiet_hours": None, "max_consecutive": 3}
    autonomy["policy"] = {**free, **autonomy.get("policy", {})}
    return AgentConfig.parse(
        {"id": id, **model, "memory": {"enabled": False}, "autonomy": autonomy, **config},
        f"agent {id!r}",
    )


def with_graph(agent: AgentConfig, graph: Any) -> AgentConfig:
    """The same agent with its own graph, which contains the model."""
    own = agent.model_copy(update={"graph": graph})
    own.model_fields_set.discard("model")
    return own


@dataclass
class World:
    """One process: its clock, its Segue, and its parts."""

    clock: VirtualClock
    segue: Segue
    system: System

    @property
    def journal(self) -> Journal:
        return self.system.deps.journal

    async def pass_time(self, span: timedelta | None = None, **parts: float) -> None:
        """Let time pass, given as a timedelta or as `days=3`."""
        await self.clock.advance(span if span is not None else timedelta(**parts))

    async def say(self, thread: str, text: str, **how: Any) -> None:
        """Send a message of the user, and run everything that is due at once."""
        await self.segue.send(thread, text, **how)
        await self.clock.settle()

    async def heard(self, thread: str) -> list[str]:
        """The texts that the user sees in a thread."""
        page = await self.segue.history(thread, limit=10_000)
        return [message.text for message in page.messages]


@asynccontextmanager
async def open_world(
    clock: VirtualClock,
    given: Overrides,
    database: str,
    agents: Sequence[AgentConfig],
    **settings: Any,
) -> AsyncIterator[World]:
    """A process that runs these agents until the block is left."""
    fixed = {"poll": None, "node_lease_for": _NODE_LEASE, "time_zone": "UTC"}
    chosen = Settings(database=database, agents=tuple(agents), **{**fixed, **settings})
    async with compose(chosen, given) as system:
        yield World(clock, Segue(system), system)


@dataclass(frozen=True)
class Stage:
    """Opens worlds on one database, one after the other or at the same time."""

    database: str
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(START))

    def world(
        self,
        *agents: AgentConfig,
        models: Mapping[str, BaseChatModel] | None = None,
        **settings: Any,
    ) -> AbstractAsyncContextManager[World]:
        """A process that runs these agents until the block is left."""
        given = Overrides(clock=self.clock, models=models or {})
        return open_world(self.clock, given, self.database, agents or (plain_agent(),), **settings)
