"""The runtime's clock: reading it, waiting, and when each worker has to look for work.

The runtime waits by one clock only, so that tests and simulations can replace it with
`segue.simulate.world.VirtualClock` and let weeks pass in seconds.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, in UTC."""

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        """Wait until a time, or until `wake` is set; then clear it."""

    def working(self) -> AbstractContextManager[None]:
        """Around a task that works or waits by this clock; a virtual one advances once all wait."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        left = None if until is None else max((until - self.now()).total_seconds(), 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await wake.wait()
        wake.clear()

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()


async def sleep(clock: Clock, span: timedelta) -> None:
    await clock.wait(clock.now() + span, asyncio.Event())


class Wakeup:
    """When a worker has to look for work next; other tasks may set an earlier time."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.next_at: datetime | None = None
        self._is_now = True

    def now(self) -> None:
        """There may be work now."""
        self._is_now = True
        self.event.set()

    def at(self, moment: datetime) -> None:
        """There will be work at this time."""
        if self.next_at is None or moment < self.next_at:
            self.next_at = moment
            self.event.set()

    def clear(self) -> None:
        """Called before each step: later calls of `now` and `at` count for the next one."""
        self._is_now = False
        self.next_at = None

    def is_due(self, now: datetime) -> bool:
        return self._is_now or (self.next_at is not None and self.next_at <= now)
