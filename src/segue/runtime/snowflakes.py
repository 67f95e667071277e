"""Hands out snowflake ids: the clock and the lock around `segue.core.snowflake`.

One generator per process and node number. Two processes with the same node number can hand
out the same id, so a store leases the numbers; this class does not know stores.
"""

import os
import threading
import time
from collections.abc import Callable

from segue.core.errors import ConflictError
from segue.core.snowflake import EPOCH, check_node, check_snowflake, next_snowflake

_EPOCH_UNIX_MILLIS = int(EPOCH.timestamp() * 1000)


# How often this process was forked off; asking for the process's id each time costs more.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # a process has one
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _wall_clock_millis() -> int:
    return time.time_ns() // 1_000_000


class SnowflakeGenerator:
    """Strictly rising ids of one node, from any number of threads.

    `last` seeds the generator above a stored maximum, so that a restart with the clock set
    back repeats nothing. `clock` gives Unix milliseconds.
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
        self._forks = _forks

    @property
    def node(self) -> int:
        return self._node

    def next(self, after: int = 0) -> int:
        """A new id above every earlier one and above `after`.

        A thread whose newest id came from a process with a faster clock passes it as `after`:
        the answer still carries this generator's node, so it is unique beyond that thread.
        """
        if after != 0:
            check_snowflake(after, "lower bound")
        if _forks != self._forks:
            raise ConflictError(
                "This process was forked; its copy of the generator would repeat ids. Make a new "
                "generator with a node number of its own."
            )
        with self._lock:
            return self._give(after, self._clock() - _EPOCH_UNIX_MILLIS)

    def _give(self, after: int, millis: int) -> int:
        self._last = next_snowflake(max(self._last, after), millis, self._node)
        return self._last
