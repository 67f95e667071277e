"""The runtime's time: reading it, and waiting for it.

All of the runtime waits through one clock, so that a test or a simulation can replace it by
`segue.testing.clock.VirtualClock` and let weeks pass in seconds.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and lets tasks wait for it."""

    def now(self) -> datetime:
        """The present moment, in UTC."""
        ...

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        """Wait for a moment, or until somebody sets `wake`, which is cleared again."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Around the life of a task that works, or waits by this clock.

        A virtual clock moves on only when all such tasks wait.
        """
        ...


class SystemClock:
    """The time of this machine."""

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
    """Wait for so long, whatever happens."""
    await clock.wait(clock.now() + span, asyncio.Event())
