"""The crew: workers that are killed, stopped and frozen at random while there is work to do."""

import asyncio
import logging
import signal
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.ledger import Ledger
from tests.chaos.nursery import Nursery, Worker
from tests.chaos.worker import LEASE, Orders

logger = logging.getLogger(__name__)

# Longer than a lease, so that others take over what a frozen worker thinks is its own.
_FROZEN_SECONDS: Final = LEASE.total_seconds() * 1.5
_STOPPING_SECONDS: Final = 20
# How long a crew may take to start before it is struck all the same; on a machine that is busy.
_OPENING_SECONDS: Final = 5
# The share of strikes that do not wait for that.
_IMPATIENCE: Final = 0.2


@dataclass
class Crew:
    """A number of workers on one database; one that is gone is followed by the next."""

    nursery: Nursery
    database: str
    folder: Path
    size: int
    random: Random
    did: Counter[str] = field(default_factory=Counter)
    # What nobody asked for: workers that ended by themselves, or did not end when they should.
    odd: list[str] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    _lives: "count[int]" = field(default_factory=count)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger")

    def fill(self) -> None:
        """Bring the crew to its size."""
        while len(self.workers) < self.size:
            life = next(self._lives)
            orders = Orders(self.database, str(self.folder), life, self.random.getrandbits(32))
            self.workers.append(self.nursery.start(orders))

    async def suffer(self, over: asyncio.Event, pauses: tuple[float, float]) -> None:
        """Strike, again and again, until it is over."""
        async with asyncio.TaskGroup() as late:
            while not over.is_set():
                await asyncio.sleep(self.random.uniform(*pauses))
                await self._until_at_work()
                self._find_dead()
                if self.workers:
                    await self._strike(self.random.choice(self.workers), late)
                await asyncio.sleep(self.random.uniform(0, pauses[0]))
                self.fill()

    async def stop(self) -> None:
        """Let all of them end in order."""
        self._find_dead()
        leaving, self.workers = self.workers, []
        await asyncio.gather(*map(self._let_go, leaving))

    def disband(self) -> None:
        """Leave nobody behind, whatever came in between."""
        while self.workers:
            self.nursery.kill(self.workers.pop())

    def tail_of_logs(self, lines: int = 60) -> str:
        """The end of what the last workers said."""
        logs = sorted(self.folder.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
        told = []
        for log in logs[-self.size :]:
            told += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(told)

    def surprises(self) -> list[str]:
        """Tracebacks in the logs, whole."""
        found = []
        for log in self.folder.glob("worker-*.log"):
            trace: list[str] = []
            for line in log.read_text(errors="replace").splitlines():
                if line.startswith("Traceback"):
                    trace = [log.name, line]
                elif trace:
                    trace.append(line)
                    if line and not line.startswith((" ", "\t")):
                        found.append("\n".join(trace))
                        trace = []
        return found

    async def _until_at_work(self) -> None:
        """Let the crew open its database, as a rule: one that never works shows nothing."""
        if self.random.random() < _IMPATIENCE:
            return
        for _ in range(_OPENING_SECONDS * 10):
            opened = {life.life for life in self.ledger.lives()}
            if sum(worker.life in opened for worker in self.workers) >= max(1, self.size - 1):
                return
            await asyncio.sleep(0.1)

    async def _strike(self, victim: Worker, late: asyncio.TaskGroup) -> None:
        # Nobody takes over what a frozen worker has if it is the only one.
        share = 0 if self.size == 1 else 1
        ways = (self._kill, self._dismiss, self._freeze)
        await self.random.choices(ways, (8, 1, share))[0](victim, late)

    async def _kill(self, victim: Worker, late: asyncio.TaskGroup) -> None:
        del late
        self.workers.remove(victim)
        end = self.nursery.kill(victim)
        self.did["killed"] += 1
        if end != -signal.SIGKILL:
            self.odd.append(f"Worker {victim.life} had ended by itself: {end}.")

    async def _dismiss(self, victim: Worker, late: asyncio.TaskGroup) -> None:
        self.workers.remove(victim)
        self.did["stopped"] += 1
        late.create_task(self._let_go(victim))

    async def _freeze(self, victim: Worker, late: asyncio.TaskGroup) -> None:
        self.nursery.signal(victim, signal.SIGSTOP)
        self.did["frozen"] += 1
        late.create_task(self._thaw(victim))

    async def _thaw(self, victim: Worker) -> None:
        await asyncio.sleep(_FROZEN_SECONDS)
        self.nursery.signal(victim, signal.SIGCONT)

    async def _let_go(self, worker: Worker) -> None:
        self.nursery.signal(worker, signal.SIGCONT)
        self.nursery.signal(worker, signal.SIGTERM)
        for _ in range(_STOPPING_SECONDS * 10):
            end = self.nursery.find_end(worker)
            if end is not None:
                break
            await asyncio.sleep(0.1)
        else:
            end = self.nursery.kill(worker)
        if end != 0:
            self.odd.append(f"Worker {worker.life} was to stop and ended with {end}.")

    def _find_dead(self) -> None:
        for worker in [*self.workers]:
            end = self.nursery.find_end(worker)
            if end is not None:
                self.workers.remove(worker)
                self.odd.append(f"Worker {worker.life} ended by itself: {end}.")
