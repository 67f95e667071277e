"""Ids of this process: a generator whose node number is leased, and renewed while it runs."""

import logging
from datetime import datetime, timedelta

from segue.core.errors import BackendError, ConflictError
from segue.core.snowflake import latest_id, next_snowflake, time_of
from segue.journal.ports import Journal
from segue.runtime.clock import Clock
from segue.runtime.snowflakes import SnowflakeGenerator

logger = logging.getLogger(__name__)


class LeasedIds:
    """A source of ids that no other process has: it changes its number if it lost it."""

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
        node = await self._journal.lease_node(
            self._owner, now=self._clock.now(), lease_for=self._lease_for
        )
        highest = await self._journal.last_position()
        last = await self._journal.last_position(latest=latest_id(self._clock.now()))
        self._generator = _TwoLines(node, last=last, ahead=highest, clock=self._clock)

    async def renew(self) -> datetime | None:
        """Keep the number; when to do so again."""
        now = self._clock.now()
        try:
            await self._journal.extend_node(
                self.node, self._owner, now=now, lease_for=self._lease_for
            )
        except ConflictError:
            logger.warning("Node number %d was lost; taking another", self.node)
            await self.open()
        return now + self._lease_for / 3

    async def close(self) -> None:
        try:
            await self._journal.release_node(self.node, self._owner)
        except BackendError as error:  # it is free again when its lease is over
            logger.warning("Node number %d was not given back: %s", self.node, error)

    @property
    def _current(self) -> SnowflakeGenerator:
        if self._generator is None:
            raise ConflictError("The ids are not open yet; call open() first.")
        return self._generator


class _TwoLines(SnowflakeGenerator):
    """Ids in two lines: threads with positions of a clock that was far ahead go on above those, and
    all others get ids of the present.

    Each line rises, so no id is given out twice.
    """

    def __init__(self, node: int, *, last: int, ahead: int, clock: Clock) -> None:
        super().__init__(node, last=last, clock=lambda: int(clock.now().timestamp() * 1000))
        self._now = clock.now
        self._ahead = ahead
        # The last id before the newest leap of the clock.
        self._before = last

    def _give(self, after: int, millis: int) -> int:
        latest = latest_id(self._now())
        if self._last > latest:  # our own clock was ahead, and was set right
            self._ahead, self._last = max(self._ahead, self._last), self._before
        if self._ahead <= latest:  # as a rule; else once its time has come
            after = max(after, self._ahead)
        if after > latest:
            self._ahead = next_snowflake(max(self._ahead, after), millis, self.node)
            return self._ahead
        before = self._last
        new = super()._give(after, millis)
        if not before or new > latest_id(time_of(before)):
            self._before = before
        return new
