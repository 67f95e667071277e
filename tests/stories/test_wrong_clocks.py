"""Stories of clocks that were wrong for a while: nothing waits for the time that they showed."""

from datetime import timedelta

import pytest

from segue.testing.clock import VirtualClock
from segue.testing.world import START, Stage
from tests.runtime.scenes import Held, lines
from tests.stories.scenes import TOLD, model_of, new_thread

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)


async def test_a_worker_that_died_with_its_clock_an_hour_ahead_costs_one_lease(
    database: str,
) -> None:
    """The user waits for the reply as long as after any crash, and gets it once."""
    held = Held("Too late.")
    ahead = Stage(database, VirtualClock(START + HOUR))
    async with ahead.world(models={"guide": lines(held)}, patience=0) as dead:
        thread = await new_thread(dead)
        await dead.segue.send(thread, "Where is Oslo?")
        await held.asked.wait()
        # Its clock stands still from here on, so it never extends its lease.
        async with Stage(database).world(models={"guide": model_of()}) as world:
            await world.pass_time(LEASE - timedelta(seconds=1))
            assert await world.heard(thread) == ["Where is Oslo?"]
            await world.pass_time(seconds=1)
            assert await world.heard(thread) == ["Where is Oslo?", TOLD]
        held.go.set()
        await dead.clock.settle()
        assert await dead.heard(thread) == ["Where is Oslo?", TOLD]
