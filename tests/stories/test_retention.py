"""Retention over weeks: what is old goes once a day, and nobody is hurt by it."""

from datetime import timedelta

import pytest

from segue.core.context import build_context
from segue.journal.memories import NewMemory
from segue.journal.records import TimerState
from segue.simulate.world import Stage, World
from segue.testing.providers import request_problems
from tests.stories.scenes import eager_agent, model_of
from tests.stories.test_asking_agents import agents, asking, told_back
from tests.transfer.test_forgetting import files_with

pytestmark = pytest.mark.anyio

WEEK = timedelta(weeks=1)


async def batch_count(world: World, thread: str) -> int:
    return len(await world.journal.messages.tail(thread, max_tokens=1_000_000))


async def test_old_batches_go_once_a_day(stage: Stage) -> None:
    """By age, without anybody asking; what is left is valid, and memories stay."""
    async with stage.world(retention={"older_than": "7d"}) as world:
        thread = (await world.segue.create_thread("ann", settings={"opted_out": True})).id
        ids, now = world.system.deps.ids, stage.clock.now()
        memory = NewMemory("guide", "ann", "drink", "Likes tea.")
        await world.journal.memories.put(memory, ids=ids, now=now)
        await world.say(thread, "Is the mill open?")
        await world.pass_time(WEEK - timedelta(hours=2))
        await world.say(thread, "And the mine?")
        assert len(await world.heard(thread)) == 4
        await world.pass_time(timedelta(days=1, hours=3))
        assert (await world.heard(thread))[0] == "And the mine?"
        assert await world.journal.search.find("ann", "mill") == []
        assert files_with(stage.database, "mill") == []  # also while the server runs
        batches = await world.journal.messages.tail(thread, max_tokens=1_000_000)
        messages = [m for batch in reversed(batches) for m in batch.messages]
        assert request_problems(build_context(messages).messages) == []
        assert len(await world.journal.memories.list_of("guide", "ann")) == 1


async def test_requests_and_reminders_outlive_the_batches_of_their_thread(stage: Stage) -> None:
    """A key is used once however long ago, reminders still come, and no file keeps the old data."""
    models = {"guide": model_of(then="It is about the mill.")}
    agent = eager_agent(decider="none", policy={"max_consecutive": 9})
    async with stage.world(agent, models=models, retention={"older_than": "7d"}) as world:
        segue = world.segue
        thread = (await segue.create_thread("ann")).id
        request = {"after": timedelta(minutes=1), "prompt": "Ask about the wheel.", "key": "one"}
        first = await segue.follow_up(thread, **request)
        await segue.remind(thread, "the mill", after="20d")
        await segue.remind(thread, "the mill again", every="FREQ=WEEKLY;BYHOUR=9")
        await world.pass_time(timedelta(days=19))
        again = await segue.follow_up(thread, **request)
        assert (again.id, again.state) == (first.id, TimerState.FIRED)
        assert files_with(stage.database, "wheel") == []
        assert sorted(r.text for r in await segue.list_reminders("ann")) == [
            "the mill",
            "the mill again",
        ]
        await world.pass_time(timedelta(days=3))
        assert [r.text for r in await segue.list_reminders("ann")] == ["the mill again"]


async def test_nothing_goes_unless_it_is_set(stage: Stage) -> None:
    """Retention is off: a year later everything is there."""
    async with stage.world() as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Is the mill open?")
        await world.say(thread, "And the mine?")
        await world.pass_time(timedelta(days=400))
        assert (await world.heard(thread))[0] == "Is the mill open?"


async def test_the_last_batches_can_be_kept_at_any_age(stage: Stage) -> None:
    """A quiet thread does not lose its end."""
    async with stage.world(retention={"older_than": "7d", "keep_last": 2}) as world:
        thread = (await world.segue.create_thread("ann", settings={"opted_out": True})).id
        for words in ("One.", "Two.", "Three."):
            await world.say(thread, words)
        await world.pass_time(timedelta(days=30))
        assert await batch_count(world, thread) == 2
        assert (await world.heard(thread))[0] == "Two."


async def test_old_triggers_can_go_alone(stage: Stage) -> None:
    """With what the agent said to them; what the user asked for stays."""
    rule = {"older_than": "1d", "types": ["system_trigger"]}
    models = {"guide": model_of("Hi!", "Still there?", "Good.")}
    async with stage.world(eager_agent(), models=models, retention=rule) as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Hello!")
        await world.pass_time(timedelta(hours=3))
        assert "Still there?" in await world.heard(thread)
        await world.say(thread, "I am.")
        await world.pass_time(timedelta(days=3))
        heard = await world.heard(thread)
        assert [heard[0], heard[1]] == ["Hello!", "Hi!"]
        assert "Still there?" not in heard


async def test_a_type_may_be_kept_for_its_own_time(stage: Stage) -> None:
    """Follow-ups for a day, all else for a month: each goes at its own age, and not before."""
    policy = {"older_than": "30d", "by_type": {"system_trigger": {"older_than": "1d"}}}
    agent = eager_agent(policy={"max_consecutive": 1})
    models = {"guide": model_of("Hi!", "Still there?", "Good.", "Yes?")}
    async with stage.world(agent, models=models, retention=policy) as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Hello!")
        await world.pass_time(timedelta(hours=3))
        await world.segue.set_thread_preferences(thread, opted_out=True)
        await world.say(thread, "I am.")
        assert "Still there?" in await world.heard(thread)
        await world.pass_time(timedelta(days=3))
        assert await world.heard(thread) == ["Hello!", "Hi!", "I am.", "Good."]
        await world.pass_time(timedelta(days=30))
        assert await world.heard(thread) == ["I am.", "Good."]


async def test_the_last_batches_of_a_type_can_be_kept(stage: Stage) -> None:
    """At any age, while what is set for the others says nothing about them."""
    policy = {"older_than": "1d", "by_type": {"user_request": {"keep_last": 2}}}
    async with stage.world(retention=policy) as world:
        thread = (await world.segue.create_thread("ann", settings={"opted_out": True})).id
        for words in ("One.", "Two.", "Three."):
            await world.say(thread, words)
        await world.pass_time(timedelta(days=30))
        assert (await world.heard(thread))[0] == "Two."


@pytest.mark.parametrize("days", [7, None], ids=["own", "with the batch that asked"])
async def test_what_agents_asked_each_other_may_go_before_the_rest(
    stage: Stage, days: int | None
) -> None:
    """At its own age, but for the newest; without one, it stays as long as the batch that asked."""
    by_type = {"agent_to_agent": {"older_than": f"{days}d"}} if days else {}
    policy = {"older_than": "30d", "by_type": by_type}
    models = {
        "guide": model_of(asking("atlas"), told_back, asking("atlas"), told_back),
        "atlas": model_of("Five kilometres.", "Ten."),
    }
    async with stage.world(*agents(("guide", "atlas")), models=models, retention=policy) as world:
        thread = (await world.segue.create_thread("ann", agent_id="guide")).id
        await world.say(thread, "How far is the fjord?")
        await world.say(thread, "And the mill?")
        heard = await world.heard(thread)
        await world.pass_time(timedelta(days=9))
        assert await world.heard(thread) == heard
        assert await batch_count(world, f"{thread}/atlas") == (1 if days else 2)
