"""The event loop of `segue serve`."""

import asyncio
import gc
import weakref
from contextvars import ContextVar

from segue.server.serving import EventLoop


class Picture:
    """Something large."""


SHOWN: ContextVar[Picture | None] = ContextVar("SHOWN", default=None)


def test_a_timeout_that_is_over_keeps_nothing_of_its_caller() -> None:
    """Otherwise each model call keeps its conversation, pictures included, for minutes."""

    async def call() -> "weakref.ref[Picture]":
        picture = Picture()
        SHOWN.set(picture)
        async with asyncio.timeout(600):
            await asyncio.sleep(0)
        return weakref.ref(picture)

    async def called() -> bool:
        # asyncio forgets only a cancelled timer that is next.
        next_timer = asyncio.get_running_loop().call_later(300, gc.collect)
        held = await asyncio.create_task(call())
        await asyncio.sleep(0)  # the loop itself forgets the task
        gc.collect()
        next_timer.cancel()
        return held() is not None

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert not runner.run(called())


def test_a_timer_runs_in_the_context_in_which_it_was_set() -> None:
    """Log lines of a callback have the fields of their request."""

    async def ring() -> bool:
        picture = Picture()
        SHOWN.set(picture)
        rung: asyncio.Future[Picture | None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0, lambda: rung.set_result(SHOWN.get()))
        SHOWN.set(None)
        return await rung is picture

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        assert runner.run(ring())
