"""Stories of outages: nobody is there when a timer is due, and somebody comes back."""

from datetime import timedelta

import pytest

from segue.errors import NotFoundError
from segue.journal.records import TimerState, TurnKind, TurnState
from segue.simulate.world import START, Stage
from tests.runtime.scenes import Held
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    asked_by,
    eager_agent,
    model_of,
    new_thread,
    passing,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

THREE_DAYS = timedelta(days=3)


@pytest.mark.parametrize(
    ("missed", "away", "state", "reason"),
    [
        ("run", THREE_DAYS, TimerState.FIRED, "allow: All gates are open."),
        ("run_if_within:3600", timedelta(hours=1), TimerState.FIRED, "allow: All gates are open."),
        (
            "run_if_within:3600",
            THREE_DAYS,
            TimerState.MISSED,
            "suppress: Found 2d 23h 59m 30s late, after it was missed; it may be 1h late.",
        ),
        (
            "skip",
            THREE_DAYS,
            TimerState.MISSED,
            "suppress: Found 2d 23h 59m 30s late, after it was missed; it may be 5m late.",
        ),
    ],
)
async def test_an_outage_ends_with_one_follow_up_or_none(
    stage: Stage, missed: str, away: timedelta, state: TimerState, reason: str
) -> None:
    """Who comes back after days finds what its policy says, and never a burst."""
    agent = eager_agent(missed=missed, expires_after=None)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
    await stage.clock.advance(away)
    model = model_of()
    async with stage.world(agent, models={"guide": model}) as world:
        await world.clock.settle()
        is_sent = state is TimerState.FIRED
        assert await sent_at(world, thread) == [START + away] * is_sent
        assert len(model.seen) == is_sent
        timer = (await world.segue.list_follow_ups(thread))[-1]
        assert (timer.state, timer.missed) == (state, missed)
        assert await told(world, thread, "the gates") == [reason]


async def test_after_an_outage_the_next_follow_up_takes_its_time(stage: Stage) -> None:
    """The delays that were missed are not made up for: silence is dated from the last reply."""
    agent = eager_agent(expires_after=None)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
    await stage.clock.advance(THREE_DAYS)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.pass_time(days=1)
        back = START + THREE_DAYS
        assert await sent_at(world, thread) == [back, back + 2 * PATIENCE, back + 6 * PATIENCE]


async def test_an_outage_longer_than_the_expiry_ends_in_silence(stage: Stage) -> None:
    """Two days after its time a follow-up is stale, unless its owner says otherwise."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
    await stage.clock.advance(THREE_DAYS)
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        await world.pass_time(days=1)
        assert model.seen == []
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.EXPIRED
        [reason] = await told(world, thread, "the gates")
        assert reason.startswith("suppress: It expired at 2027-01-17 08:00")


async def test_a_user_who_comes_back_first_is_answered_and_not_nudged(stage: Stage) -> None:
    """What was planned before the outage is gone with the user's first word after it."""
    agent = eager_agent(expires_after=None)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(seconds=10)
    model = model_of()
    async with stage.world(agent, models={"guide": model}) as world:
        await world.say(thread, "And Bergen?")
        await world.pass_time(PATIENCE - timedelta(seconds=1))
        assert [asked_by(request) for request in model.seen] == [None]
        assert await sent_at(world, thread) == []


async def test_a_process_that_ends_while_the_model_thinks_leaves_it_to_the_next(
    stage: Stage,
) -> None:
    """A follow-up that was fired but not seen is said once, by whoever comes after."""
    held = Held("Lost?")
    async with stage.world(
        eager_agent(), models={"guide": model_of(TOLD, held)}, patience=0
    ) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        async with passing(world, PATIENCE):
            await held.asked.wait()
            await world.system.runtime.turns.close(timedelta(0))
    async with stage.world(eager_agent(), models={"guide": model_of("Found!")}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Found!"]
        [follow_up, _] = await world.journal.turns.list_of(thread)
        assert (follow_up.kind, follow_up.state) == (TurnKind.FOLLOW_UP, TurnState.DONE)
        assert follow_up.attempts == 2


async def test_many_threads_of_one_user_are_no_burst_after_an_outage(stage: Stage) -> None:
    """Four threads are due at once: the cooldown spreads them and the daily cap ends it."""
    agent = eager_agent(
        expires_after=None, policy={"max_per_day": 2, "cooldown": 3600, "max_consecutive": 1}
    )
    async with stage.world(agent, models={"guide": model_of()}) as world:
        threads = [await new_thread(world) for _ in range(4)]
        for thread in threads:
            await world.say(thread, "Where is Oslo?")
    await stage.clock.advance(THREE_DAYS)
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.pass_time(days=3)
        times = sorted([moment for t in threads for moment in await sent_at(world, t)])
        back = START + THREE_DAYS
        tomorrow = back.replace(hour=0) + timedelta(days=1)
        hour = timedelta(hours=1)
        assert times == [back, back + hour, tomorrow, tomorrow + hour]


async def test_an_error_of_the_caller_comes_out_as_it_is(stage: Stage) -> None:
    """Whoever runs a Segue catches own errors, not groups of them."""
    with pytest.raises(NotFoundError):
        async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
            await world.segue.history("nowhere")
