"""The loop that every worker runs: do what is due, then sleep until the next due time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from segue.errors import SegueError
from segue.runtime.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = timedelta(seconds=0.5)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
# The pause before another look at work that is due but locked by another process.
_LOCKED_PAUSE: Final = timedelta(milliseconds=20)

# Does what is due; returns the next due time.
Step = Callable[[], Awaitable[datetime | None]]


class Wakeup:
    """When a worker has to look for work next; other tasks may bring that time forward."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._next_at: datetime | None = None
        self._is_now = True

    def now(self) -> None:
        """There may be work now."""
        self._is_now = True
        self.event.set()

    def at(self, moment: datetime) -> None:
        """There will be work at this time."""
        if self._next_at is None or moment < self._next_at:
            self._next_at = moment
            self.event.set()

    def clear(self) -> None:
        """Called before each step: later calls of `now` and `at` count for the next one."""
        self._is_now = False
        self._next_at = None

    def is_due(self, now: datetime) -> bool:
        return self._is_now or (self._next_at is not None and self._next_at <= now)

    async def wait(self, clock: Clock) -> None:
        await clock.wait(self._next_at, self.event)

    async def wait_for_lock(self) -> None:
        """Let another process finish a step; in real time, whatever the worker's clock."""
        real = SystemClock()
        await real.wait(real.now() + _LOCKED_PAUSE, self.event)


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
            started_at = clock.now()
            try:
                next_at = await step()
                pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - the edge of a worker's loop
                _log_failure(name, pause, error)
                next_at = clock.now() + pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            _raise_if_cancelled()
            if next_at is not None:
                if next_at <= started_at:  # it was due, but locked by another process
                    await wakeup.wait_for_lock()
                wakeup.at(next_at)
            if poll is not None:
                wakeup.at(clock.now() + poll)
            while not wakeup.is_due(now := clock.now()):
                await wakeup.wait(clock)
                if clock.now() < now:  # the clock was set back: ask for the due time again
                    break


def _raise_if_cancelled() -> None:
    """End a cancelled loop: a driver may have swallowed the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _log_failure(name: str, pause: timedelta, error: Exception) -> None:
    if isinstance(error, SegueError):
        logger.warning("The %s worker tries again in %s: %s", name, pause, error)
    else:
        logger.error("The %s worker failed, next try in %s", name, pause, exc_info=error)
