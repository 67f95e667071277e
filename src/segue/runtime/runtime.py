"""`Runtime`: all workers of one process, started and stopped together.

Each worker runs `run_loop`: do what is due, then sleep until the next due time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from segue.runtime.clock import Clock, SystemClock, Wakeup, sleep
from segue.runtime.deps import Deps, log_failure
from segue.runtime.effects import EffectRunner
from segue.runtime.housekeeping import Discarder, Retainer, Sweeper
from segue.runtime.ids import LeasedIds
from segue.runtime.timers import TimerWorker
from segue.runtime.turns import TurnWorker

logger = logging.getLogger(__name__)

# Notifications of other processes come in bursts; one look serves them all.
_BURST: Final = timedelta(milliseconds=20)
_WATCH_PAUSE: Final = timedelta(seconds=5)
_FIRST_PAUSE: Final = timedelta(seconds=0.5)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
# The pause before another look at work that is due but locked by another process.
_LOCKED_PAUSE: Final = timedelta(milliseconds=20)

# Does the due work; returns the next due time.
Step = Callable[[], Awaitable[datetime | None]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Turns, timers and effects, their leases, and notifications of other processes."""

    deps: Deps
    ids: LeasedIds
    turns: TurnWorker
    timers: TimerWorker
    effects: EffectRunner
    sweeper: Sweeper
    discarder: Discarder
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
                    run_loop("discard", self.discarder.step, wakeups.discards, self.deps.clock),
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
                logger.exception("Watching other processes failed, next try in %s", _WATCH_PAUSE)
                await sleep(self.deps.clock, _WATCH_PAUSE)
            else:
                return

    async def _pass_on(self) -> None:
        """Wake workers and listeners for what other processes stored."""
        async with aclosing(self.deps.journal.watch(of_others=True)) as changes:
            async for hint in changes:
                self.deps.wakeups.all_at(self.deps.clock.now() + _BURST)
                try:
                    await self.turns.recheck(hint.thread_id)
                    await self.deps.bus.notify_stored(hint.thread_id, hint.user_id)
                except Exception as error:  # noqa: BLE001 - the edge of a loop
                    log_failure(
                        logger, f"Thread {hint.thread_id}: a notification was not passed on", error
                    )


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """Raise a caller's own error as it is, not in the task group's exception group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def run_loop(
    name: str, step: Step, wakeup: Wakeup, clock: Clock, poll: timedelta | None = None
) -> None:
    """Call `step` whenever it is due, until cancelled; after an error, retry with growing pauses.

    `poll` is the longest sleep, in case a notification of another process got lost.
    """
    pause = _FIRST_PAUSE
    with clock.working():
        while True:
            wakeup.clear()
            try:
                next_at = await step()
                pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - the edge of a worker's loop
                log_failure(logger, f"The {name} worker failed, next try in {pause}", error)
                next_at = clock.now() + pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            _raise_if_cancelled()
            if next_at is not None:
                if next_at <= clock.now():  # it is due, but locked by another process
                    # In real time, whatever the worker's clock: the other process works by it.
                    real = SystemClock()
                    await real.wait(real.now() + _LOCKED_PAUSE, wakeup.event)
                wakeup.at(next_at)
            if poll is not None:
                wakeup.at(clock.now() + poll)
            while not wakeup.is_due(now := clock.now()):
                await clock.wait(wakeup.next_at, wakeup.event)
                if clock.now() < now:  # the clock was set back: ask for the due time again
                    break


def _raise_if_cancelled() -> None:
    """End a cancelled loop: a driver may have swallowed the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
