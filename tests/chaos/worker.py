"""A worker: a whole Segue in a process of its own, until it is killed or asked to stop.

Its clock, its database and its kill are real; only its models are scripted.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from segue.agent.langgraph_agent import LangGraphAgent
from segue.compose import Overrides, System, compose
from segue.errors import BackendError
from segue.runtime.clock import Clock, SystemClock
from segue.runtime.run import AgentEvent, Run
from segue.settings import Settings
from tests.chaos import cast
from tests.chaos.ledger import Ledger, Life

LEASE: Final = timedelta(seconds=2)
CLOCK: Final = SystemClock()
Begin = Callable[[Run], AsyncIterator[AgentEvent]]


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker is told when it starts."""

    database: str
    folder: str
    life: int
    seed: int

    @property
    def ledger(self) -> Ledger:
        return Ledger(Path(self.folder) / "ledger")

    @property
    def log(self) -> Path:
        return Path(self.folder) / f"worker-{self.life}.log"


def live(orders: Orders) -> None:
    """Work until SIGTERM, then end in order; or as far as one gets."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    asyncio.run(_work(orders))


async def _work(orders: Orders) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    # Held back until here, so that no order comes too early to be understood.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    watching = asyncio.create_task(_end_with(os.getppid()))
    async with AsyncExitStack() as stack:
        system = await _open(orders, stack)
        node = system.runtime.ids.node
        orders.ledger.note_life(Life(orders.life, node, "took", CLOCK.now()))
        await stopped.wait()
        # Before it is given back: from then on another may take it.
        orders.ledger.note_life(Life(orders.life, node, "gives back", CLOCK.now()))
    watching.cancel()


async def _open(orders: Orders, stack: AsyncExitStack) -> System:
    """Like whatever keeps a service running: tries again while the database is away."""
    random = Random(orders.seed)  # noqa: S311 - no secret
    settings = Settings(
        database=orders.database,
        agents=cast.agents(orders.ledger, random, CLOCK.now),
        lease_for=LEASE,
        poll=timedelta(seconds=1),
        patience=timedelta(seconds=1),
    )
    given = Overrides(clock=CLOCK, models=cast.models(orders.life, random))
    while True:
        # The checkpoints fail in their driver's words.
        with suppress(BackendError, psycopg.OperationalError):
            system = await stack.enter_async_context(compose(settings, given))
            break
        await asyncio.sleep(0.2)
    date_runs(system)
    return system


def date_runs(system: System) -> None:
    """Let tools know when the run began that they are part of: after its batch was read."""
    for name in cast.PLANS:
        agent = system.deps.agent_of(name)
        assert isinstance(agent, LangGraphAgent)
        agent.run = _dated(agent.run, system.deps.clock)  # type: ignore[method-assign, assignment]  # where else to look from


def _dated(begin: Begin, clock: Clock) -> Begin:
    def dated(run: Run) -> AsyncIterator[AgentEvent]:
        run.notes[cast.BEGAN_AT] = clock.now()
        return begin(run)

    return dated


async def _end_with(parent: int) -> None:
    """Leave no worker behind when whoever started it dies."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody tells a process of it
        await asyncio.sleep(1)
    os._exit(1)
