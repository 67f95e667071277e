"""A leash on a piece of work: whoever holds it can stop the work, and say why."""

import asyncio
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self


class Why(StrEnum):
    """Why a turn was stopped before its end."""

    CANCELLED = "cancelled"  # the user wished so
    VOID = "void"  # the user wrote, or somebody else has the turn
    SHUTDOWN = "shutdown"  # this process ends
    TIME_UP = "time_up"


class Stopped(Exception):
    """The work was stopped by its leash."""

    def __init__(self, why: Why, reason: str | None = None) -> None:
        super().__init__(why.value)
        self.why = why
        self.reason = reason


class Leash:
    """Around work that may be stopped from outside, and by its time limit."""

    def __init__(self, limit: timedelta | None = None) -> None:
        self._limit = limit
        self._why: Why | None = None
        self._reason: str | None = None
        self._scope: asyncio.Timeout | None = None

    def stop(self, why: Why, reason: str | None = None) -> None:
        """Stop the work as soon as it waits for anything; the first reason counts."""
        if self._why is None:
            self._why, self._reason = why, reason
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    @property
    def is_stopped(self) -> bool:
        return self._why is not None

    def check(self) -> None:
        """Stop here if told to: a driver's own waiting may have taken that for itself."""
        if self._why is not None or (self._scope is not None and self._scope.expired()):
            raise self._stopped()

    async def __aenter__(self) -> Self:
        if self._why is not None:
            raise self._stopped()
        self._scope = asyncio.timeout(None if self._limit is None else self._limit.total_seconds())
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scope, self._scope = self._scope, None
        assert scope is not None  # noqa: S101 - entered
        try:
            await scope.__aexit__(kind, error, trace)
        except TimeoutError as timeout:
            raise self._stopped() from timeout
        if scope.expired() and isinstance(error, Exception) and not isinstance(error, Stopped):
            # Some drivers answer a cancellation with an error of theirs.
            raise self._stopped() from error

    def _stopped(self) -> Stopped:
        return Stopped(self._why or Why.TIME_UP, self._reason)
