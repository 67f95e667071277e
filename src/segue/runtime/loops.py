"""The loop that every worker of the runtime runs: do what is due, sleep until the next is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from segue.core.errors import SegueError
from segue.runtime.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = timedelta(seconds=0.5)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
# How soon a worker looks again at what is due but in somebody else's hands.
_MOMENT: Final = timedelta(milliseconds=20)

# Does what is due, and says when the next is.
Step = Callable[[], Awaitable[datetime | None]]


class Agenda:
    """When a worker has to look next; others may bring that forward.

    Who knows the time of new work names it, so that the worker need not ask the database before.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._next: datetime | None = None
        self._is_urgent = True

    def at_once(self) -> None:
        """There may be something to do."""
        self._is_urgent = True
        self.wake.set()

    def at(self, moment: datetime) -> None:
        """There will be something to do at a moment."""
        if self._next is None or moment < self._next:
            self._next = moment
            self.wake.set()

    def clear(self) -> None:
        """The worker looks now; what is said from here on counts for its next look."""
        self._is_urgent = False
        self._next = None

    def is_due(self, now: datetime) -> bool:
        return self._is_urgent or (self._next is not None and self._next <= now)

    async def wait(self, clock: Clock) -> None:
        await clock.wait(self._next, self.wake)

    async def wait_a_moment(self) -> None:
        """Let somebody else finish a step: that takes real time, whatever our clock is."""
        real = SystemClock()
        await real.wait(real.now() + _MOMENT, self.wake)


async def keep_going(
    name: str, step: Step, agenda: Agenda, clock: Clock, poll: timedelta | None = None
) -> None:
    """Call `step` whenever its agenda says so; for ever.

    A database that is away stops nobody: it is tried again, with longer and longer pauses. `poll`
    is the longest sleep, in case word of another process got lost.
    """
    pause = _FIRST_PAUSE
    with clock.working():
        while True:
            agenda.clear()
            began_at = clock.now()
            try:
                next_at = await step()
                pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - whatever it is, it goes on
                _log_failure(name, pause, error)
                next_at = clock.now() + pause
                pause = min(pause * 2, _LONGEST_PAUSE)
            _stop_if_cancelled()
            if next_at is not None:
                if next_at <= began_at:  # it was due then, and could not be taken
                    await agenda.wait_a_moment()
                agenda.at(next_at)
            if poll is not None:
                agenda.at(clock.now() + poll)
            while not agenda.is_due(now := clock.now()):
                await agenda.wait(clock)
                if clock.now() < now:  # it was set back: what was planned by it is planned anew
                    break


def _stop_if_cancelled() -> None:
    """End a loop that was told to; a driver's own waiting may have taken that for itself."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _log_failure(name: str, pause: timedelta, error: Exception) -> None:
    if isinstance(error, SegueError):
        logger.warning("The %s worker tries again in %s: %s", name, pause, error)
    else:
        # A defect of ours in one piece of work must not end all others.
        logger.error("The %s worker failed, next try in %s", name, pause, exc_info=error)
