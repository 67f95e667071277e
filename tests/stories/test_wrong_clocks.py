"""Stories of clocks that were wrong for a while: nothing waits for the time that they showed."""

from datetime import timedelta

import pytest

from segue.core.metadata import MessageMetadata
from segue.server.responses import MessageOut
from segue.simulate.world import START, Stage, VirtualClock
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


async def test_a_start_in_a_wrong_year_dates_no_later_message(database: str) -> None:
    """Each message shows when it was stored, in the thread of the wrong year and in all others."""
    years = timedelta(days=16 * 365)
    wrong = Stage(database, VirtualClock(START + years))
    async with wrong.world(models={"guide": model_of()}) as world:
        first = await new_thread(world, "ann")
        await world.say(first, "Where is Oslo?")
    async with Stage(database).world(models={"guide": model_of()}) as world:
        await world.say(first, "And Bergen?")
        second = await new_thread(world, "bob")
        await world.say(second, "Where is Oslo?")
        shown = [MessageOut.of(m) for m in (await world.segue.history(first)).messages]
        assert [each.created_at.year for each in shown] == [2043, 2043, 2027, 2027]
        assert [each.created_at for each in shown[2:]] == [START, START]
        positions = [each.position for each in shown]
        assert positions == sorted({*positions})
        others = (await world.segue.history(second)).messages
        assert [MessageOut.of(m).created_at.date() for m in others] == [START.date()] * 2
        assert [MessageMetadata.of(m).stored_at for m in others] == [None] * 2
