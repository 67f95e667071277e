"""The clocks: the machine's, and the one that tests and simulations move."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from segue.errors import UsageError
from segue.runtime.clock import SystemClock, sleep
from segue.simulate.world import VirtualClock

pytestmark = pytest.mark.anyio

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START, patience=20)


def seconds(clock: VirtualClock) -> float:
    return (clock.now() - START).total_seconds()


async def run(clock: VirtualClock, work: Coroutine[Any, Any, object]) -> None:
    """Work that the clock waits for."""
    with clock.working():
        await work


# The virtual clock.


async def test_sleepers_wake_at_their_time_and_in_order(clock: VirtualClock) -> None:
    """Those of one moment in the order in which they lay down; each at its exact time."""
    woken: list[tuple[str, float]] = []

    async def nap(name: str, span: int) -> None:
        await sleep(clock, timedelta(seconds=span))
        woken.append((name, seconds(clock)))

    naps = [("late", 9), ("first", 3), ("second", 3), ("early", 1), ("never", 60)]
    tasks = [asyncio.create_task(run(clock, nap(*each))) for each in naps]
    await clock.advance(timedelta(seconds=10))
    assert woken == [("early", 1), ("first", 3), ("second", 3), ("late", 9)]
    assert seconds(clock) == 10
    assert clock.next_at == START + MINUTE
    await clock.advance(MINUTE)
    await asyncio.gather(*tasks)
    assert clock.next_at is None


async def test_time_stands_still_while_somebody_works(clock: VirtualClock) -> None:
    """What follows at one moment, follows at that moment, however long it takes."""
    seen: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await sleep(clock, MINUTE)
            for _ in range(20):
                await asyncio.sleep(0)
            await asyncio.to_thread(lambda: None)
            seen.append(seconds(clock))

    task = asyncio.create_task(run(clock, work()))
    await clock.advance(timedelta(hours=1))
    assert seen == [60, 120, 180]
    await task


async def test_who_lies_down_on_the_way_is_woken_on_the_way(clock: VirtualClock) -> None:
    """An hour of naps passes in one advance."""
    naps: list[float] = []

    async def work() -> None:
        while True:
            await sleep(clock, 10 * MINUTE)
            naps.append(seconds(clock) / 60)

    task = asyncio.create_task(run(clock, work()))
    await clock.advance(timedelta(hours=1))
    assert naps == [10, 20, 30, 40, 50, 60]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_settling_waits_for_all_that_can_happen_now(clock: VirtualClock) -> None:
    """Also for a task that was made by the last one that worked, and has not begun yet."""
    done: list[str] = []
    go, tasks = asyncio.Event(), []

    async def second() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await go.wait()
        tasks.append(asyncio.create_task(run(clock, second())))
        await sleep(clock, MINUTE)
        done.append("later")

    tasks.append(asyncio.create_task(run(clock, first())))
    await asyncio.sleep(0)
    go.set()
    await clock.settle()
    assert done == ["second"]
    await clock.advance(MINUTE)
    assert done == ["second", "later"]
    await asyncio.gather(*tasks)


async def test_a_wake_up_call_comes_before_the_time(clock: VirtualClock) -> None:
    """Then nobody waits for that time any more, and the call does not count twice."""
    wake = asyncio.Event()
    woken: list[float] = []

    async def work() -> None:
        for moment in (START + MINUTE, None):
            await clock.wait(moment, wake)
            woken.append(seconds(clock))
            assert not wake.is_set()

    task = asyncio.create_task(run(clock, work()))
    await clock.advance(timedelta(seconds=20))
    wake.set()
    await clock.settle()
    assert (woken, clock.next_at) == ([20], None)
    await clock.advance(timedelta(days=365))
    assert woken == [20]
    wake.set()
    await clock.settle()
    assert len(woken) == 2
    await task


async def test_a_moment_that_is_past_is_not_waited_for(clock: VirtualClock) -> None:
    """Nor one that is now."""
    with clock.working():
        for span in (-MINUTE, timedelta(0)):
            await asyncio.wait_for(sleep(clock, span), 20)
    assert seconds(clock) == 0


async def test_who_is_cancelled_while_asleep_holds_up_nobody(clock: VirtualClock) -> None:
    """Neither the time nor those who wait for all to rest."""
    task = asyncio.create_task(run(clock, sleep(clock, MINUTE)))
    await clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.next_at is None
    await clock.advance(timedelta(hours=1))
    assert seconds(clock) == 3600


async def test_time_does_not_run_back(clock: VirtualClock) -> None:
    """A negative span is a mistake; a moment that is past has come already."""
    await clock.advance(MINUTE)
    with pytest.raises(UsageError, match="cannot go backwards"):
        await clock.advance(-MINUTE)
    await clock.advance_to(START)
    assert seconds(clock) == 60
    with pytest.raises(UsageError, match="time zone"):
        await clock.advance_to(START.replace(tzinfo=None))


async def test_a_time_of_any_zone_is_the_same_moment(clock: VirtualClock) -> None:
    """The clock itself tells UTC."""
    await clock.advance_to(datetime.fromisoformat("2027-01-15T10:30:00+02:00"))
    assert (seconds(clock), clock.now().tzinfo) == (1800, UTC)


async def test_who_never_rests_is_an_error_that_says_so() -> None:
    """A task that waits without the clock would stop time for ever."""
    clock = VirtualClock(START, patience=0.01)
    with clock.working(), pytest.raises(UsageError, match="1 tasks still run at 2027-01-15T08"):
        await clock.advance(MINUTE)
    await clock.advance(MINUTE)
    assert seconds(clock) == 60


# The machine's clock.


async def test_the_system_clock_tells_utc() -> None:
    """Aware, and going on."""
    clock = SystemClock()
    before = clock.now()
    assert before.tzinfo is UTC
    assert clock.now() >= before


async def test_the_system_clock_waits_for_a_moment() -> None:
    """And not less."""
    clock = SystemClock()
    until = clock.now() + timedelta(milliseconds=20)
    await clock.wait(until, asyncio.Event())
    # A timer may ring within the resolution of the loop's clock.
    assert clock.now() >= until - timedelta(milliseconds=2)


@pytest.mark.parametrize("until", [None, datetime.max.replace(tzinfo=UTC)])
async def test_the_system_clock_hears_a_wake_up_call(until: datetime | None) -> None:
    """However long it was to wait; the call is used up then."""
    clock, wake = SystemClock(), asyncio.Event()
    task = asyncio.create_task(clock.wait(until, wake))
    await asyncio.sleep(0)
    assert not task.done()
    wake.set()
    await asyncio.wait_for(task, 20)
    assert not wake.is_set()


async def test_a_call_that_came_before_the_waiting_is_not_lost() -> None:
    """Whoever waits then goes on at once."""
    wake = asyncio.Event()
    wake.set()
    await asyncio.wait_for(SystemClock().wait(None, wake), 20)
    assert not wake.is_set()


async def test_the_system_clock_does_not_wait_for_the_past() -> None:
    """What is overdue is due."""
    overdue = SystemClock().wait(START.replace(year=2000), asyncio.Event())
    done, _ = await asyncio.wait([asyncio.create_task(overdue)], timeout=20)
    assert [task.exception() for task in done] == [None]


async def test_waiting_by_the_system_clock_can_be_cancelled() -> None:
    """And the wake-up call stays for the next one."""
    wake = asyncio.Event()
    task = asyncio.create_task(SystemClock().wait(None, wake))
    await asyncio.sleep(0)
    task.cancel()
    wake.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wake.is_set()


async def test_the_system_clock_waits_for_nobody() -> None:
    """Work takes the time it takes: others sleep and wake while it is not done."""
    clock = SystemClock()
    with clock.working():
        nap = asyncio.create_task(sleep(clock, timedelta(0)))
        await asyncio.wait([nap], timeout=20)
        assert nap.done()
