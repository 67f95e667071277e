"""A whole running Segue on a virtual clock, for tests and simulations.

The journal is a real database; only the time and, usually, the models are not real.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langchain_core.language_models import BaseChatModel

from segue.compose import Overrides, System, compose
from segue.facade import Segue
from segue.journal.journal import Journal
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.simulate.clock import VirtualClock

START: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)
# Renewing a short lease would cost a simulated year most of its run time.
_NODE_LEASE: Final = timedelta(days=30)


def plain_agent(id: str = "guide", **config: Any) -> AgentConfig:
    """An agent with a scripted model and without memories. Unless set, it may write at any hour,
    three times in a row.
    """
    model = {} if "graph" in config else {"model": "scripted"}
    autonomy = dict(config.pop("autonomy", {}))
    free = {"quiet_hours": None, "max_consecutive": 3}
    autonomy["policy"] = {**free, **autonomy.get("policy", {})}
    return AgentConfig.parse(
        {"id": id, **model, "memory": {"enabled": False}, "autonomy": autonomy, **config},
        f"agent {id!r}",
    )


def with_graph(agent: AgentConfig, graph: Any) -> AgentConfig:
    """The same agent with a graph of its own, which brings its model."""
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
        """Send a message of the user, and run what follows at once."""
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
