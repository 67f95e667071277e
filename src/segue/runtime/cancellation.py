"""`CancelScope`: lets other tasks stop a turn, with a reason, and enforces its time limit."""

import asyncio
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self


class StopReason(StrEnum):
    """Why a turn was stopped before its end."""

    CANCELLED = "cancelled"  # by the user
    VOID = "void"  # the user wrote, or another process claimed the turn
    SHUTDOWN = "shutdown"
    TIME_UP = "time_up"


class TurnStopped(Exception):
    """Raised inside a `CancelScope` that was stopped; `text` is the user's reason."""

    def __init__(self, reason: StopReason, text: str | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.text = text


class CancelScope:
    """An async context that `stop` or the time limit ends with `TurnStopped`."""

    def __init__(self, limit: timedelta | None = None) -> None:
        self._limit = limit
        self._reason: StopReason | None = None
        self._text: str | None = None
        self._timeout: asyncio.Timeout | None = None

    def stop(self, reason: StopReason, text: str | None = None) -> None:
        """Stop the block at its next await; the first reason counts."""
        if self._reason is None:
            self._reason, self._text = reason, text
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    @property
    def is_stopped(self) -> bool:
        return self._reason is not None

    def check(self) -> None:
        """Raise if stopped: a driver may have swallowed the cancellation."""
        if self._reason is not None or (self._timeout is not None and self._timeout.expired()):
            raise self._error()

    async def __aenter__(self) -> Self:
        self.check()
        limit = None if self._limit is None else self._limit.total_seconds()
        self._timeout = asyncio.timeout(limit)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timeout, self._timeout = self._timeout, None
        assert timeout is not None  # noqa: S101 - entered
        try:
            await timeout.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            raise self._error() from expired
        if (
            timeout.expired()
            and isinstance(error, Exception)
            and not isinstance(error, TurnStopped)
        ):
            # Some drivers turn a cancellation into an error of their own.
            raise self._error() from error

    def _error(self) -> TurnStopped:
        return TurnStopped(self._reason or StopReason.TIME_UP, self._text)
