"""What the requirements demand of limits beyond the stories told in the other tests."""

from datetime import timedelta

import pytest

from segue.journal.records import TimerState, TurnState
from segue.runtime.planning import Reply, plan_by_rules, record_plan
from segue.simulate.world import START, Stage
from tests.runtime.scenes import batches_of
from tests.stories.scenes import (
    PATIENCE,
    arm,
    eager_agent,
    model_of,
    new_thread,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio


async def test_follow_ups_are_counted_until_the_user_writes(stage: Stage) -> None:
    """Below the limit each raises the count by one and plans the next; at the limit nothing is
    planned; the user's word, and nothing else, sets the count back.
    """
    policy = {"max_consecutive": 5, "max_per_day": 100, "backoff": 1}
    model = model_of()
    async with stage.world(eager_agent(policy=policy), models={"guide": model}) as world:
        thread = await new_thread(world)

        async def plans() -> list[tuple[int, str]]:
            decisions = await world.journal.decisions.list_of(thread, limit=100)
            found = [d for d in reversed(decisions) if d.kind == "plan"]
            return [(d.facts["consecutive"], d.outcome) for d in found]

        await world.say(thread, "Hello.")
        await world.pass_time(days=1)
        row = [(count, "follow_up") for count in range(5)] + [(5, "nothing")]
        assert await plans() == row
        await world.say(thread, "Here I am.")
        assert (await plans())[len(row) :] == [(0, "follow_up")]
    lower = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(lower, models={"guide": model}) as world:
        await world.pass_time(PATIENCE)
        assert (await plans())[-1] == (1, "nothing")


@pytest.mark.parametrize(
    ("count", "limit", "plans"),
    [(3, 3, False), (6, 5, False), (10, None, False), (3, 10, True), (0, 3, True)],
)
async def test_a_count_at_or_above_its_limit_plans_nothing(
    sqlite_stage: Stage, count: int, limit: int | None, plans: bool
) -> None:
    """Also where the limit was lowered below what was sent already; one below it is no limit."""
    agent = eager_agent(policy={} if limit is None else {"max_consecutive": limit})
    async with sqlite_stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        [turn] = await world.journal.turns.list_of(thread)
        [batch] = await batches_of(world, thread)
        reply = Reply(turn, batch, [], False, count, START)
        result = plan_by_rules(reply, agent.autonomy)
        planned = record_plan(reply, result, agent.autonomy, world.system.deps.ids, START)
        assert bool(planned.timers) is plans
        assert planned.decisions[0].outcome == ("follow_up" if plans else "nothing")


async def test_a_second_follow_up_within_the_cooldown_is_held_back(stage: Stage) -> None:
    """Due ten seconds after the first, it waits until fifteen have passed."""
    agent = eager_agent(decider="none", policy={"cooldown": 15})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        for seconds in (10, 20):
            await arm(world, thread, START + timedelta(seconds=seconds))
            await world.pass_time(seconds=10)
        assert await sent_at(world, thread) == [START + timedelta(seconds=10)]
        await world.pass_time(hours=1)
        assert await sent_at(world, thread) == [START + timedelta(seconds=s) for s in (10, 25)]
        assert "postpone" in (await told(world, thread, "the gates of"))[1]


async def test_threads_do_not_influence_each_other(stage: Stage) -> None:
    """A word in one ends neither the plan nor the count of another."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        talks, silent = await new_thread(world, "ann"), await new_thread(world, "bob")
        for thread in (talks, silent):
            await world.say(thread, "Where is Oslo?")
        await world.pass_time(seconds=10)
        await world.say(talks, "Thanks. And Bergen?")
        await world.pass_time(seconds=20)
        assert await sent_at(world, talks) == []
        assert await sent_at(world, silent) == [START + PATIENCE]
        await world.pass_time(days=1)
        assert len(await sent_at(world, talks)) == len(await sent_at(world, silent)) == 3


async def test_a_timer_that_nobody_can_answer_is_closed_and_others_fire(stage: Stage) -> None:
    """Its agent is gone: it is closed once with the reason, and its neighbours come in time."""
    pair = [eager_agent("guide"), eager_agent("gone")]
    models = {"guide": model_of(), "gone": model_of()}
    async with stage.world(*pair, models=models) as world:
        lost = await new_thread(world, agent="gone")
        kept = await new_thread(world, agent="guide")
        for thread in (lost, kept):
            await world.say(thread, "Where is Oslo?")
    async with stage.world(pair[0], models={"guide": models["guide"]}) as world:
        await world.pass_time(PATIENCE)
        [timer] = await world.segue.list_follow_ups(lost)
        assert timer.state is TimerState.SUPPRESSED
        assert "Unknown agent 'gone'" in (timer.state_reason or "")
        assert await sent_at(world, kept) == [START + PATIENCE]
        await world.pass_time(days=1)
        assert await world.segue.list_follow_ups(lost) == [timer]
        states = {turn.state for turn in await world.journal.turns.list_of(kept)}
        assert states == {TurnState.DONE}
