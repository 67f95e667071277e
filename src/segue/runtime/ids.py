"""Id generators: `SnowflakeGenerator`, and `LeasedIds` with a node number leased by the journal."""

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from segue.core.snowflake import (
    EPOCH,
    check_node,
    check_snowflake,
    latest_id,
    next_snowflake,
    time_of,
)
from segue.errors import BackendError, ConflictError
from segue.journal.journal import Journal
from segue.runtime.clock import Clock

logger = logging.getLogger(__name__)

_EPOCH_UNIX_MILLIS: Final = int(EPOCH.timestamp() * 1000)
# One per fork, counted by each child; os.getpid() for every id would cost more.
_forks: Final[list[None]] = []
if hasattr(os, "register_at_fork"):  # Windows has neither
    os.register_at_fork(after_in_child=lambda: _forks.append(None))


def _wall_clock_millis() -> int:
    return time.time_ns() // 1_000_000


class SnowflakeGenerator:
    """Strictly rising ids of one node; thread-safe.

    `last` seeds the generator above a stored maximum, so that a restart with the clock set
    back repeats no id. `clock` returns Unix milliseconds.
    """

    def __init__(
        self,
        node: int = 0,
        *,
        last: int = 0,
        clock: Callable[[], int] = _wall_clock_millis,
    ) -> None:
        self._node = check_node(node)
        self._last = check_snowflake(last, "last id") if last != 0 else 0
        self._clock = clock
        self._lock = threading.Lock()
        self._forks = len(_forks)

    @property
    def node(self) -> int:
        return self._node

    def next(self, after: int = 0) -> int:
        """A new id above every earlier one and above `after`, the newest id of a thread, which
        may come from a process with a faster clock.
        """
        if after != 0:
            check_snowflake(after, "lower bound")
        if len(_forks) != self._forks:
            raise ConflictError(
                "This process was forked; its copy of the generator would repeat ids. Make a new "
                "generator with a node number of its own."
            )
        with self._lock:
            return self._generate(after, self._clock() - _EPOCH_UNIX_MILLIS)

    def _generate(self, after: int, millis: int) -> int:
        self._last = next_snowflake(max(self._last, after), millis, self._node)
        return self._last


class LeasedIds:
    """Ids that no other process makes: leases a node number, and another one if it is lost."""

    def __init__(self, journal: Journal, clock: Clock, *, owner: str, lease_for: timedelta) -> None:
        self._journal = journal
        self._clock = clock
        self._owner = owner
        self._lease_for = lease_for
        self._generator: SnowflakeGenerator | None = None

    @property
    def node(self) -> int:
        return self._current.node

    def next(self, after: int = 0) -> int:
        return self._current.next(after)

    async def open(self) -> None:
        node = await self._journal.nodes.lease(
            self._owner, now=self._clock.now(), lease_for=self._lease_for
        )
        highest = await self._journal.nodes.last_position()
        last = await self._journal.nodes.last_position(latest=latest_id(self._clock.now()))
        self._generator = _TwoLines(node, last=last, ahead=highest, clock=self._clock)

    async def renew(self) -> datetime | None:
        """Extend the lease; return when to do so again."""
        now = self._clock.now()
        try:
            await self._journal.nodes.extend(
                self.node, self._owner, now=now, lease_for=self._lease_for
            )
        except ConflictError:
            logger.warning("Node number %d was lost; leasing another", self.node)
            await self.open()
        return now + self._lease_for / 3

    async def close(self) -> None:
        try:
            await self._journal.nodes.release(self.node, self._owner)
        except BackendError as error:  # it is free when its lease expires
            logger.warning("Node number %d was not released: %s", self.node, error)

    @property
    def _current(self) -> SnowflakeGenerator:
        if self._generator is None:
            raise ConflictError("The ids are not open yet; call open() first.")
        return self._generator


class _TwoLines(SnowflakeGenerator):
    """Ids in two rising lines: threads with positions of a clock that was far ahead continue above
    those; all others get ids of the present.
    """

    def __init__(self, node: int, *, last: int, ahead: int, clock: Clock) -> None:
        super().__init__(node, last=last, clock=lambda: int(clock.now().timestamp() * 1000))
        self._now = clock.now
        self._ahead = ahead
        # The last id before the clock's newest jump ahead.
        self._before = last

    def _generate(self, after: int, millis: int) -> int:
        latest = latest_id(self._now())
        if self._last > latest:  # this process's clock was ahead, and was corrected
            self._ahead, self._last = max(self._ahead, self._last), self._before
        if self._ahead <= latest:  # the usual case
            after = max(after, self._ahead)
        if after > latest:
            self._ahead = next_snowflake(max(self._ahead, after), millis, self.node)
            return self._ahead
        before = self._last
        new = super()._generate(after, millis)
        if not before or new > latest_id(time_of(before)):
            self._before = before
        return new
