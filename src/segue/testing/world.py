"""A whole running Segue on a virtual clock: the stage for tests and simulations.

The journal is a real database; only the time and, as a rule, the models are not.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langchain_core.language_models import BaseChatModel

from segue.agent.config import AgentConfig
from segue.compose import Composed, Replacements, compose
from segue.facade import Segue
from segue.journal.ports import Journal
from segue.settings import Settings
from segue.testing.clock import VirtualClock

START: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)
# Far longer than anything takes at one moment, so that leases cost a simulated year nothing.
_NODE_LEASE: Final = timedelta(days=30)


def plain_agent(id: str = "guide", **config: Any) -> AgentConfig:
    """An agent with a scripted model and without memories, as most stories want it."""
    model = {} if "graph" in config else {"model": "scripted"}
    return AgentConfig.parse(
        {"id": id, **model, "memory": {"enabled": False}, **config}, f"agent {id!r}"
    )


def with_graph(agent: AgentConfig, graph: Any) -> AgentConfig:
    """The same agent with a graph of its own, which brings its model."""
    own = agent.model_copy(update={"graph": graph})
    own.model_fields_set.discard("model")
    return own


@dataclass
class World:
    """One process: its clock, its Segue, and the parts of it."""

    clock: VirtualClock
    segue: Segue
    composed: Composed

    @property
    def journal(self) -> Journal:
        return self.composed.parts.journal

    async def pass_time(self, span: timedelta | None = None, **parts: float) -> None:
        """Let time pass, given as a timedelta or as `days=3`."""
        await self.clock.advance(span if span is not None else timedelta(**parts))

    async def say(self, thread: str, text: str, **how: Any) -> None:
        """The user writes, and everything happens that follows at once."""
        await self.segue.send(thread, text, **how)
        await self.clock.settle()

    async def heard(self, thread: str) -> list[str]:
        """What the user sees of a thread."""
        page = await self.segue.history(thread, limit=10_000)
        return [message.text for message in page.messages]


@dataclass(frozen=True)
class Stage:
    """Opens worlds on one database, one after the other or at the same time."""

    database: str
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(START))

    @asynccontextmanager
    async def world(
        self,
        *agents: AgentConfig,
        models: Mapping[str, BaseChatModel] | None = None,
        **settings: Any,
    ) -> AsyncIterator[World]:
        """A process that runs these agents until the block is left."""
        chosen = Settings(
            database=self.database,
            agents=agents or (plain_agent(),),
            poll=None,
            node_lease_for=_NODE_LEASE,
            **settings,
        )
        given = Replacements(clock=self.clock, models=models or {})
        async with compose(chosen, given) as composed:
            yield World(self.clock, Segue(composed), composed)
