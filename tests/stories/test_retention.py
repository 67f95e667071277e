"""Retention over weeks: what is old goes once a day, and nobody is hurt by it."""

from datetime import timedelta

import pytest

from segue.core.context import build_context
from segue.journal.records import NewMemory
from segue.testing.providers import request_problems
from segue.testing.world import Stage, World
from tests.stories.scenes import eager_agent, model_of

pytestmark = pytest.mark.anyio

WEEK = timedelta(weeks=1)


async def batch_count(world: World, thread: str) -> int:
    return len(await world.journal.tail(thread, max_tokens=1_000_000))


async def test_old_batches_go_once_a_day(stage: Stage) -> None:
    """By age, without anybody asking; what is left is valid, and memories stay."""
    async with stage.world(retention={"older_than": "7d"}) as world:
        thread = (await world.segue.create_thread("ann", settings={"opted_out": True})).id
        ids, now = world.composed.parts.ids, stage.clock.now()
        memory = NewMemory("guide", "ann", "drink", "Likes tea.")
        await world.journal.put_memory(memory, ids=ids, now=now)
        await world.say(thread, "Is the mill open?")
        await world.pass_time(WEEK - timedelta(hours=2))
        await world.say(thread, "And the mine?")
        assert len(await world.heard(thread)) == 4
        await world.pass_time(timedelta(days=1, hours=3))
        assert (await world.heard(thread))[0] == "And the mine?"
        assert await world.journal.search("ann", "mill") == []
        batches = await world.journal.tail(thread, max_tokens=1_000_000)
        messages = [m for batch in reversed(batches) for m in batch.messages]
        assert request_problems(build_context(messages).messages) == []
        assert len(await world.journal.list_memories("guide", "ann")) == 1


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
