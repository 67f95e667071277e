"""A clock that a test or a simulation moves: weeks pass in the time that their work takes.

Time stands still while a task works. `advance` moves it to the next moment that a task waits for,
again and again, so that everything happens in order and at its exact time.
"""

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

from segue.core.autonomy.local_time import as_utc
from segue.errors import UsageError

_REAL_SECONDS = 60.0


class VirtualClock:
    """Time that moves by `advance` alone."""

    def __init__(self, start: datetime, *, patience: float = _REAL_SECONDS) -> None:
        self._now = as_utc(start)
        # Seconds of real time that the work at one moment may take.
        self._patience = patience
        self._awake = 0
        self._waiting: set[asyncio.Event] = set()
        self._sleepers: list[tuple[datetime, int, asyncio.Event]] = []
        self._numbers = count()
        self._rest = asyncio.Event()

    def now(self) -> datetime:
        return self._now

    @property
    def next_at(self) -> datetime | None:
        """The next moment that a task waits for, if there is one."""
        return self._sleepers[0][0] if self._sleepers else None

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        if until is not None and until <= self._now:
            wake.set()
        elif until is not None:
            heapq.heappush(self._sleepers, (until, next(self._numbers), wake))
        self._waiting.add(wake)
        self._stop_work()
        try:
            await wake.wait()
        finally:
            self._awake += 1
            self._waiting.discard(wake)
            self._sleepers = [s for s in self._sleepers if s[2] is not wake]
            heapq.heapify(self._sleepers)
        wake.clear()

    @contextmanager
    def working(self) -> Iterator[None]:
        self._awake += 1
        try:
            yield
        finally:
            self._stop_work()

    async def advance(self, span: timedelta) -> None:
        """Let a span of time pass, and run everything that is due in it."""
        if span < timedelta(0):
            raise UsageError(f"Time cannot run back: {span}.")
        await self.advance_to(self._now + span)

    async def advance_to(self, moment: datetime) -> None:
        """Let time pass until a moment, and run everything that is due until then."""
        goal = as_utc(moment)
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= goal:
            until, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, until)
            wake.set()
            await self.settle()
        self._now = max(self._now, goal)

    async def settle(self) -> None:
        """Run everything that can run at this moment."""
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    while not self._is_at_rest():
                        self._rest.clear()
                        await self._rest.wait()
                    await asyncio.sleep(0)  # a task that was just created starts, and counts
                    if self._is_at_rest():
                        return
        except TimeoutError:
            raise UsageError(
                f"{self._awake} tasks still work at {self._now.isoformat()} after "
                f"{self._patience:g} s: does one of them wait for something other than the clock?"
            ) from None

    def _stop_work(self) -> None:
        self._awake -= 1
        if self._is_at_rest():
            self._rest.set()

    def _is_at_rest(self) -> bool:
        return self._awake <= 0 and not any(wake.is_set() for wake in self._waiting)
