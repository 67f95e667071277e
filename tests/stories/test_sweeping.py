"""Stories of checkpoints: they last as long as somebody may go on from them, and no longer."""

import asyncio
from datetime import timedelta

import pytest

from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import user_message
from segue.errors import NotFoundError
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import Held, calling, lines
from tests.stories.scenes import listening, new_thread
from tests.stories.test_questions import ask_for_a_table, waiter

pytestmark = pytest.mark.anyio


async def attempts(world: World) -> set[tuple[str, int]]:
    """What there is of checkpoints: batches, each with the turn that stored them."""
    return await world.system.runtime.sweeper.checkpoints.attempts()


async def test_a_question_keeps_its_checkpoints_until_it_is_answered(stage: Stage) -> None:
    """The sweep leaves it alone, so that the answer finds the graph where it stopped."""
    async with stage.world(waiter()) as world:
        sweeper = world.system.runtime.sweeper
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await sweeper.step()
            assert len(await attempts(world)) == 1
            await world.segue.answer(turn, "yes")
            await sweeper.step()
            await world.clock.settle()
        assert await world.heard(thread) == ["A table for two, please.", "Booked: yes"]
        assert await attempts(world) == set()


async def test_a_question_that_nobody_answers_leaves_nothing(stage: Stage) -> None:
    """The user spoke of something else, and nobody goes on from there."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await ask_for_a_table(world, listener, thread)
            await world.say(thread, "Hello?")
        assert len(await attempts(world)) == 1
        await world.pass_time(days=1)
        assert await attempts(world) == set()


async def test_nothing_is_left_of_a_deleted_thread(stage: Stage) -> None:
    """Not in the checkpoints either, where the user's words are as well."""
    async with stage.world(waiter()) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await ask_for_a_table(world, listener, thread)
        assert len(await attempts(world)) == 1
        await world.segue.delete_thread(thread)
        assert await attempts(world) == set()


async def test_a_turn_whose_thread_is_deleted_under_it_leaves_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deletes the thread in the database while a tool runs: no error, no leftover."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def look() -> str:
        """Look around."""
        begun.set()
        await go_on.wait()
        return "Nothing."

    model = ScriptedChatModel(script=[calling("look"), "There is nothing."])
    async with stage.world(plain_agent(tools=[look]), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, "What is there?")
        await begun.wait()
        await world.journal.threads.delete(thread)
        go_on.set()
        await world.clock.settle()
        assert await attempts(world) == set()
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == []


async def test_a_temporary_thread_goes_a_minute_after_its_turn(stage: Stage) -> None:
    """Not before, however long the turn took: its client reads the reply after its end."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world:
        journal, discarder = world.journal, world.system.runtime.discarder
        deps, minute = world.system.deps, timedelta(minutes=1)
        before = deps.clock.now() - 5 * minute
        await world.clock.settle()  # the look at what an earlier process left
        await journal.threads.create(
            "chat", agent_id="guide", user_id="ada", now=before, settings={"temporary": True}
        )
        await journal.inbox.accept("chat", user_message("Where?"), ids=deps.ids, now=before)
        deps.wakeups.turns.now()
        await held.asked.wait()
        assert await discarder.step() == world.clock.now() + minute
        held.go.set()
        await world.clock.settle()
        assert await discarder.step() == world.clock.now() + minute
        assert await world.heard("chat") == ["Where?", "Here I am."]
        await world.pass_time(minutes=1)
        assert await discarder.step() == world.clock.now() + timedelta(days=1)
        with pytest.raises(NotFoundError):
            await world.segue.get_thread("chat")
        assert await attempts(world) == set()
