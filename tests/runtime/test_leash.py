"""The leash: work is stopped from outside, once, and for the first reason."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from segue.runtime.leash import Leash, Stopped, Why

pytestmark = pytest.mark.anyio

A_MOMENT = timedelta(milliseconds=1)
LONG = timedelta(seconds=60)


async def end_of(leash: Leash, work: Callable[[], Awaitable[object]]) -> Why | None:
    """Why work on a leash was stopped; None if it came to its end."""
    try:
        async with leash:
            await work()
    except Stopped as stopped:
        return stopped.why
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_work_is_stopped_for_the_first_reason() -> None:
    """Whoever pulls later changes nothing."""
    leash = Leash()

    async def work() -> None:
        leash.stop(Why.VOID)
        leash.stop(Why.CANCELLED)
        await for_ever()

    assert await end_of(leash, work) is Why.VOID


async def test_work_that_was_stopped_before_it_began_does_not_begin() -> None:
    """As a turn that was cancelled while it waited."""
    leash = Leash()
    leash.stop(Why.CANCELLED)

    async def work() -> None:
        pytest.fail("it began")

    assert await end_of(leash, work) is Why.CANCELLED


async def test_work_that_is_done_is_not_stopped() -> None:
    """Who pulls too late changes nothing."""
    leash = Leash(LONG)
    assert await end_of(leash, lambda: asyncio.sleep(0)) is None
    leash.stop(Why.SHUTDOWN)
    await asyncio.sleep(0)


async def test_a_leash_has_an_end() -> None:
    """Work that takes longer is stopped, and the reason is the time."""
    assert await end_of(Leash(A_MOMENT), for_ever) is Why.TIME_UP


async def test_an_error_in_answer_to_a_stop_is_a_stop() -> None:
    """Some drivers answer a cancellation with an error of theirs."""
    leash = Leash()

    async def work() -> None:
        leash.stop(Why.SHUTDOWN)
        try:
            await for_ever()
        except asyncio.CancelledError:
            raise ConnectionError("torn down") from None

    assert await end_of(leash, work) is Why.SHUTDOWN


async def test_an_error_of_the_work_is_not_taken_for_a_stop() -> None:
    """It comes out as it is."""

    async def work() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        await end_of(Leash(LONG), work)


@pytest.mark.parametrize("why", [Why.CANCELLED, Why.TIME_UP])
async def test_a_stop_that_a_driver_took_for_itself_is_noticed(why: Why) -> None:
    """At the next point where the work looks."""
    leash = Leash(A_MOMENT if why is Why.TIME_UP else None)

    async def work() -> None:
        leash.check()
        if why is not Why.TIME_UP:
            leash.stop(why)
        with suppress(asyncio.CancelledError):
            await for_ever()
        leash.check()
        pytest.fail("it went on")

    assert await end_of(leash, work) is why


async def test_a_task_that_is_cancelled_from_outside_is_cancelled() -> None:
    """A leash stops its own work, and takes nobody else's cancellation for it."""
    task = asyncio.create_task(end_of(Leash(LONG), for_ever))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
