"""The loop of a worker: it ends when it is told to, whatever its step makes of that."""

import asyncio
from contextlib import suppress
from datetime import datetime

import pytest

from segue.runtime.clock import SystemClock
from segue.runtime.loops import Agenda, keep_going

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [None, ConnectionError("cancelled")])
async def test_a_loop_ends_although_its_step_took_the_cancellation_for_itself(
    error: Exception | None,
) -> None:
    """Drivers lose a cancellation, or answer it with an error of theirs; a process that stops must
    not wait for ever because of that.
    """
    began = asyncio.Event()

    async def step() -> datetime | None:
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if error is not None:
            raise error
        return None

    task = asyncio.create_task(keep_going("deaf", step, Agenda(), SystemClock()))
    await began.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done == {task}
    assert task.cancelled()
