"""Processes that race for the same rows of a journal, one round at a time."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from segue import SnowflakeGenerator, synthetic_message, user_message
from segue.journal.journal import Journal
from segue.journal.records import NewTimer, TimerKind
from tests.journal.stores import journal_at
from tests.processes import PROCESSES

__all__ = ["LEASE", "SECOND", "START", "Racer", "all_at_once", "journal_at", "racers"]
T = TypeVar("T")

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def reply(journal: Journal, ids: SnowflakeGenerator, turn: int) -> None:
    """Write in the thread of this round."""
    step = journal.inbox.accept(
        f"thread-{turn}", user_message("I am back."), ids=ids, now=START + turn * SECOND
    )
    _run(step)


def nudge(journal: Journal, ids: SnowflakeGenerator, turn: int) -> None:
    """Fire the timer of this round, if it is still to be had."""
    _run(_fire(journal, ids, START + turn * SECOND))


async def _fire(journal: Journal, ids: SnowflakeGenerator, now: datetime) -> None:
    for lease in await journal.timers.claim_due("nudger", now=now, lease_for=LEASE):
        await journal.timers.fire(lease, synthetic_message("check_in"), ids=ids, now=now)


def claim_all(journal: Journal, ids: SnowflakeGenerator, turn: int) -> list[int]:
    """Claim whatever timers are due, in small bites, until there are none."""
    del ids
    taken: list[int] = []
    now = START + turn * SECOND
    while leases := _run(journal.timers.claim_due("claimer", now=now, lease_for=LEASE, limit=7)):
        taken += [lease.timer.id for lease in leases]
    return taken


def remind(journal: Journal, ids: SnowflakeGenerator, turn: int) -> int:
    """Set the reminder of this round, as every other racer does."""
    at = START + (turn + 1) * SECOND
    schedule = {"first": at.isoformat(), "zone": "UTC", "every": None, "until": None}
    timer = NewTimer(
        "busy",
        at,
        "reminder",
        kind=TimerKind.REMINDER,
        payload={"text": "call mum", "schedule": schedule},
        key=f"reminder:{ids.node}:{turn}",
    )
    return _run(journal.timers.arm(timer, ids=ids, now=START)).id


def write_many(journal: Journal, ids: SnowflakeGenerator, turn: int) -> None:
    """Write a few messages into one thread that everybody writes into."""
    for n in range(turn):
        text = f"{ids.node}-{n}"
        _run(journal.inbox.accept("busy", user_message(text), ids=ids, now=START))


def open_and_close(journal: Journal, ids: SnowflakeGenerator, address: str) -> None:
    """Open another journal than the one that is at hand."""
    del journal, ids
    other = journal_at(address)
    _run(other.open())
    _run(other.close())


_loop: asyncio.AbstractEventLoop | None = None


def _run(step: Coroutine[Any, Any, T]) -> T:
    assert _loop is not None
    return _loop.run_until_complete(step)


def _race(address: str, node: int, name: str, orders: Connection) -> None:
    global _loop  # noqa: PLW0603  # one loop for the life of the process
    _loop = asyncio.new_event_loop()
    journal = journal_at(address)
    _run(journal.open())
    # Clocks differ by an hour, as they do between careless machines.
    clock_error = node * 3_600_000
    base = int(START.timestamp() * 1000) - clock_error
    ticks = iter(range(base, base + 10**9))
    ids = SnowflakeGenerator(node, clock=lambda: next(ticks))
    move = globals()[name]
    orders.send("ready")
    while (turn := orders.recv()) is not None:
        orders.send(move(journal, ids, turn))
    _run(journal.close())
    _loop.close()


class Racer:
    """A process that makes one move each time it is told to."""

    def __init__(self, address: str, node: int, move: str) -> None:
        self._orders, theirs = PROCESSES.Pipe()
        arguments = (address, node, move, theirs)
        self._process = PROCESSES.Process(target=_race, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def orders(self) -> Connection:
        return self._orders

    def stop(self) -> None:
        self._orders.send(None)
        self._process.join(30)


@contextmanager
def racers(address: str, *moves: str) -> Iterator[list[Racer]]:
    started = [Racer(address, node, move) for node, move in enumerate(moves, 1)]
    for racer in started:
        assert racer.orders.recv() == "ready"
    try:
        yield started
    finally:
        for racer in started:
            racer.stop()


def all_at_once(started: list[Racer], turn: int | str) -> list[object]:
    """Tell all of them to move, in the order given, and wait for all answers."""
    for racer in started:
        racer.orders.send(turn)
    waiting = {racer.orders: index for index, racer in enumerate(started)}
    answers: list[object] = [None] * len(started)
    while waiting:
        for ready in wait(list(waiting)):
            assert isinstance(ready, Connection)
            answers[waiting.pop(ready)] = ready.recv()
    return answers
