"""Ids of this process: a generator whose node number is leased, and renewed while it runs."""

import logging
from datetime import datetime, timedelta

from segue.core.errors import BackendError, ConflictError
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
        last = await self._journal.last_position()
        self._generator = SnowflakeGenerator(node, last=last, clock=self._millis)

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

    def _millis(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
