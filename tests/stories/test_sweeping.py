"""Stories of checkpoints: they last as long as somebody may go on from them, and no longer."""

import pytest

from segue.testing.world import Stage
from tests.stories.scenes import listening, new_thread
from tests.stories.test_questions import ask_for_a_table, waiter

pytestmark = pytest.mark.anyio


async def test_a_question_keeps_its_checkpoints_until_it_is_answered(stage: Stage) -> None:
    """The sweep leaves it alone, so that the answer finds the graph where it stopped."""
    async with stage.world(waiter()) as world:
        sweeper = world.composed.runtime.sweeper
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            turn = await ask_for_a_table(world, listener, thread)
            await sweeper.step()
            assert len(await sweeper.attempts()) == 1
            await world.segue.answer(turn, "yes")
            await sweeper.step()
            await world.clock.settle()
        assert await world.heard(thread) == ["A table for two, please.", "Booked: yes"]
        assert await sweeper.attempts() == set()


async def test_a_question_that_nobody_answers_leaves_nothing(stage: Stage) -> None:
    """The user spoke of something else, and nobody goes on from there."""
    async with stage.world(waiter()) as world:
        sweeper = world.composed.runtime.sweeper
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await ask_for_a_table(world, listener, thread)
            await world.say(thread, "Hello?")
        assert len(await sweeper.attempts()) == 1
        await sweeper.step()
        assert await sweeper.attempts() == set()


async def test_nothing_is_left_of_a_deleted_thread(stage: Stage) -> None:
    """Not in the checkpoints either, where the user's words are as well."""
    async with stage.world(waiter()) as world:
        sweeper = world.composed.runtime.sweeper
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await ask_for_a_table(world, listener, thread)
        await world.segue.delete_thread(thread)
        assert await sweeper.attempts() == set()
