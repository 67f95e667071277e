"""`CancelScope`: work is stopped from outside, once, and for the first reason."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from segue.runtime.turn_failures import CancelScope, StopReason, TurnStopped

pytestmark = pytest.mark.anyio

A_MOMENT = timedelta(milliseconds=1)
LONG = timedelta(seconds=60)


async def end_of(scope: CancelScope, work: Callable[[], Awaitable[object]]) -> StopReason | None:
    """Why a scope was stopped; None if its work ended by itself."""
    try:
        async with scope:
            await work()
    except TurnStopped as stopped:
        return stopped.reason
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_work_is_stopped_for_the_first_reason() -> None:
    """A later stop changes nothing."""
    scope = CancelScope()

    async def work() -> None:
        scope.stop(StopReason.VOID)
        scope.stop(StopReason.CANCELLED)
        await for_ever()

    assert await end_of(scope, work) is StopReason.VOID


async def test_work_that_was_stopped_before_it_began_does_not_begin() -> None:
    """As a turn that was cancelled while it waited."""
    scope = CancelScope()
    scope.stop(StopReason.CANCELLED)

    async def work() -> None:
        pytest.fail("it began")

    assert await end_of(scope, work) is StopReason.CANCELLED


async def test_work_that_is_done_is_not_stopped() -> None:
    """A stop after the end changes nothing."""
    scope = CancelScope(LONG)
    assert await end_of(scope, lambda: asyncio.sleep(0)) is None
    scope.stop(StopReason.SHUTDOWN)
    await asyncio.sleep(0)


async def test_a_scope_has_a_time_limit() -> None:
    """Work that takes longer is stopped, and the reason is the time."""
    assert await end_of(CancelScope(A_MOMENT), for_ever) is StopReason.TIME_UP


async def test_an_error_in_answer_to_a_stop_is_a_stop() -> None:
    """Some drivers answer a cancellation with an error of theirs."""
    scope = CancelScope()

    async def work() -> None:
        scope.stop(StopReason.SHUTDOWN)
        try:
            await for_ever()
        except asyncio.CancelledError:
            raise ConnectionError("torn down") from None

    assert await end_of(scope, work) is StopReason.SHUTDOWN


async def test_an_error_of_the_work_is_not_taken_for_a_stop() -> None:
    """It comes out as it is."""

    async def work() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        await end_of(CancelScope(LONG), work)


@pytest.mark.parametrize("why", [StopReason.CANCELLED, StopReason.TIME_UP])
async def test_a_stop_that_a_driver_took_for_itself_is_noticed(why: StopReason) -> None:
    """At the next point where the work looks."""
    scope = CancelScope(A_MOMENT if why is StopReason.TIME_UP else None)

    async def work() -> None:
        scope.check()
        if why is not StopReason.TIME_UP:
            scope.stop(why)
        with suppress(asyncio.CancelledError):
            await for_ever()
        scope.check()
        pytest.fail("it went on")

    assert await end_of(scope, work) is why


async def test_a_task_that_is_cancelled_from_outside_is_cancelled() -> None:
    """A scope reports only its own stop; a cancellation from outside stays one."""
    task = asyncio.create_task(end_of(CancelScope(LONG), for_ever))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
