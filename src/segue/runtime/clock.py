"""The runtime's time: reading it, and waiting for it.

The runtime waits by one clock only, so that tests and simulations can replace it with
`segue.simulate.clock.VirtualClock` and let weeks pass in seconds.
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
        """Wait until a time, or until `wake` is set; then clear it."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Around a task that works or waits by this clock.

        A virtual clock advances only when all such tasks wait.
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
    """Wait for a duration."""
    await clock.wait(clock.now() + span, asyncio.Event())
