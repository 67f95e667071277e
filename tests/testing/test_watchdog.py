"""The watchdog of the event loop: it sees what holds the loop, and nothing else."""

import asyncio
import gc
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from segue.testing.watchdog import watched_loop

pytestmark = pytest.mark.anyio


def burn(seconds: float) -> None:
    """Compute for so much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def burn_in_one_call(seconds: float) -> None:
    """The same inside of C, which lets no other thread run."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        re.fullmatch("(?:a|b|ab)*c", "ab" * 14)


async def held_while(limit: float, action: Callable[[], Awaitable[None]]) -> str:
    """What the watchdog says of a loop in which something is done; empty if it has no objection."""
    try:
        async with watched_loop(limit) as watchdog:
            await action()
    except AssertionError as error:
        assert len(watchdog.held) == 1
        return str(error)
    return ""


@pytest.mark.parametrize("hold", [burn, burn_in_one_call])
async def test_a_held_loop_is_told_with_its_stack(hold: Callable[[float], None]) -> None:
    """In Python or in C, for more than the limit, once."""

    async def action() -> None:
        await asyncio.sleep(0)
        hold(0.2)

    told = await held_while(0.1, action)
    assert re.match(r"The event loop was held for [2-9]\d\d ms", told), told
    assert f" {hold.__name__}\n" in f"{told}\n"


async def test_callbacks_that_keep_one_waiting_together_count() -> None:
    """A hundred small ones delay the next as much as one big one."""

    async def action() -> None:
        for _ in range(100):
            asyncio.get_running_loop().call_soon(burn, 0.003)
        await asyncio.sleep(0)

    assert "burn" in await held_while(0.1, action)


async def test_work_that_lets_others_run_is_fine() -> None:
    """However long it takes in all."""

    async def action() -> None:
        for _ in range(200):
            burn(0.002)
            await asyncio.sleep(0)

    assert not await held_while(0.1, action)


async def test_waiting_is_not_holding() -> None:
    """A thread that the machine does not let run for a while has used no time of its own."""

    async def action() -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - the loop's thread does not run, as on a busy machine
        await asyncio.to_thread(burn, 0.3)

    assert not await held_while(0.1, action)


async def test_a_collection_holds_the_loop_wherever_it_runs() -> None:
    """Its thread stops all others."""
    gc.disable()  # it would look through the growing list again and again
    many = [[n] for n in range(3_000_000)]
    gc.enable()

    async def in_the_loop() -> None:
        gc.collect()

    async def in_a_thread() -> None:
        await asyncio.to_thread(gc.collect)

    for action in (in_the_loop, in_a_thread):
        assert "The event loop was held" in await held_while(0.02, action)
    assert many
