"""`Runtime`: all workers of one process, started and stopped together."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from segue.errors import SegueError
from segue.runtime.clock import sleep
from segue.runtime.deps import Deps
from segue.runtime.effects import EffectRunner
from segue.runtime.housekeeping import Retainer, Sweeper
from segue.runtime.ids import LeasedIds
from segue.runtime.timers import TimerWorker
from segue.runtime.turns import TurnWorker
from segue.runtime.worker import Step, Wakeup, run_loop

logger = logging.getLogger(__name__)

# Notifications of other processes come in bursts; one look serves them all.
_BURST: Final = timedelta(milliseconds=20)
_PAUSE: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Turns, timers and effects, their leases, and notifications of other processes."""

    deps: Deps
    ids: LeasedIds
    turns: TurnWorker
    timers: TimerWorker
    effects: EffectRunner
    sweeper: Sweeper
    retainer: Retainer
    # The longest sleep of a worker; None if no other process shares the database.
    poll: timedelta | None = None
    patience: timedelta = timedelta(seconds=5)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work until the block is left; then finish or release running turns."""
        wakeups = self.deps.wakeups
        async with _unwrapped(), asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(work)
                for work in (
                    self._loop("turn", self.turns.step, wakeups.turns),
                    self._loop("lease", self.turns.extend_leases, wakeups.leases),
                    self._loop("timer", self.timers.step, wakeups.timers),
                    self._loop("effect", self.effects.step, wakeups.effects),
                    run_loop("sweep", self.sweeper.step, Wakeup(), self.deps.clock),
                    run_loop("retention", self.retainer.step, Wakeup(), self.deps.clock),
                    self._loop("node", self.ids.renew, Wakeup()),
                    self._loop("listener", self.deps.bus.step, self.deps.bus.wakeup),
                )
            ]
            if self.poll is not None:
                loops.append(tasks.create_task(self._watch()))
            try:
                yield
            finally:
                await self.turns.close(self.patience)
                await self.effects.close()
                self.deps.bus.close()
                for task in loops:
                    task.cancel()

    async def _loop(self, name: str, step: Step, wakeup: Wakeup) -> None:
        await run_loop(name, step, wakeup, self.deps.clock, self.poll)

    async def _watch(self) -> None:
        """Follow other processes until the journal is closed; retry after any error."""
        while True:
            try:
                await self._pass_on()
            except Exception:
                logger.exception("Watching other processes failed, next try in %s", _PAUSE)
                await sleep(self.deps.clock, _PAUSE)
            else:
                return

    async def _pass_on(self) -> None:
        """Wake workers and listeners for what other processes stored."""
        async with aclosing(self.deps.journal.watch(of_others=True)) as changes:
            async for thread_id in changes:
                self.deps.wakeups.all_at(self.deps.clock.now() + _BURST)
                try:
                    await self.turns.recheck(thread_id)
                    await self.deps.bus.stored(thread_id)
                except SegueError as error:
                    logger.warning(
                        "A notification of thread %s was not passed on: %s", thread_id, error
                    )
                except Exception:
                    logger.exception("A notification of thread %s was not passed on", thread_id)


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """Raise a caller's own error as it is, not in the task group's exception group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None
