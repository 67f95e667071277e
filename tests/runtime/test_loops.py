"""The loop of a worker: it ends when it is told to, whatever its step makes of that."""

import asyncio
import queue
import threading
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from segue.runtime.clock import SystemClock, Wakeup
from segue.runtime.runtime import run_loop
from segue.simulate.world import START, Stage

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

    task = asyncio.create_task(run_loop("deaf", step, Wakeup(), SystemClock()))
    await began.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done == {task}
    assert task.cancelled()


class SteppedBack(SystemClock):
    """A clock that is set back by an hour during the first wait."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        return self._now

    async def wait(self, until: datetime | None, wake: asyncio.Event) -> None:
        del until
        if self._now < START:
            await wake.wait()
        wake.clear()
        self._now = START - timedelta(hours=1)


async def test_a_loop_looks_again_after_the_clock_was_set_back() -> None:
    """What was planned by the wrong time would else wait until that time comes again."""
    looked: list[datetime] = []
    clock, second = SteppedBack(), asyncio.Event()

    async def step() -> datetime | None:
        looked.append(clock.now())
        if len(looked) == 2:
            second.set()
        return clock.now() + timedelta(seconds=10)

    task = asyncio.create_task(run_loop("stepped back", step, Wakeup(), clock))
    try:
        async with asyncio.timeout(10):
            await second.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert looked == [START, START - timedelta(hours=1)]


async def test_a_loop_rests_while_another_process_has_what_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock went on during the step; without a rest the database is asked again and again."""
    monkeypatch.setattr("segue.runtime.runtime._LOCKED_PAUSE", timedelta(hours=1))
    clock, wakeup, steps = SystemClock(), Wakeup(), asyncio.Queue[datetime]()

    async def step() -> datetime | None:
        seen_at = clock.now()
        await asyncio.sleep(0)
        steps.put_nowait(seen_at)
        return seen_at

    task = asyncio.create_task(run_loop("locked out", step, wakeup, clock))
    try:
        await steps.get()
        for _ in range(100):
            await asyncio.sleep(0)
        assert steps.empty()
        wakeup.now()
        async with asyncio.timeout(10):
            await steps.get()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_rules_are_compiled_beside_the_event_loop(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the better part of a second, for which the first message would stop everybody."""
    compiled_in: queue.Queue[threading.Thread] = queue.Queue()
    monkeypatch.setattr(
        "segue.compose.read_request", lambda _: compiled_in.put(threading.current_thread())
    )
    async with sqlite_stage.world():
        found = await asyncio.to_thread(compiled_in.get, timeout=60)
    assert found is not threading.main_thread()
