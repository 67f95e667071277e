"""Stories of users who write again before they are answered, with a follow-up on the screen."""

from datetime import timedelta

import pytest

from segue.core.turn_rules import DoubleTexting
from segue.events import MessageRetracted
from segue.journal.records import CUT_SHORT, OVERTAKEN, STOPPED, TurnKind
from segue.simulate.world import Stage, World
from tests.stories.scenes import PATIENCE, Unhurried, eager_agent, listening, new_thread, told

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("unguarded")]

SECOND = timedelta(seconds=1)
LONG = " ".join(["word"] * 20)


async def begin(world: World, words: float) -> str:
    """A thread with a follow-up on the screen, a few seconds old, of which more is to come."""
    thread = await new_thread(world)
    await world.say(thread, "I am moving to Oslo.")
    await world.pass_time(SECOND + PATIENCE + SECOND * words)
    return thread


async def cancelled(world: World, thread: str) -> list[tuple[TurnKind, str]]:
    """The turns that were stopped, oldest first, and why."""
    turns = reversed(await world.journal.turns.list_of(thread))
    ends = [(turn.kind, turn.ending) for turn in turns if turn.ending is not None]
    return [(kind, end["reason"]) for kind, end in ends if end["kind"] == "cancelled"]


async def test_a_follow_up_that_the_user_has_seen_is_finished_and_kept(stage: Stage) -> None:
    """Then the user's message is answered, with it in mind."""
    model = Unhurried(script=["Norway.", "Still there my friend?", "Fine."])
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        model.follow(world)
        thread = await begin(world, 2.5)
        async with listening(world, thread) as listener:
            await world.say(thread, "Yes")
            await world.pass_time(seconds=5)
        everything = ["I am moving to Oslo.", "Norway.", "Yes", "Still there my friend?", "Fine."]
        assert await world.heard(thread) == everything
        assert [m.text for m in model.seen[-1]][-2:] == ["Still there my friend?", "Yes"]
        assert not any(isinstance(event, MessageRetracted) for event in listener.events)
        assert await cancelled(world, thread) == []


async def test_a_follow_up_that_goes_on_and_on_is_not_waited_for(stage: Stage) -> None:
    """What was seen of it is kept, before the answer to the user's message."""
    model = Unhurried(script=["Norway.", LONG, "Fine."])
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        model.follow(world)
        thread = await begin(world, 1.5)
        await world.say(thread, "Yes")
        await world.pass_time(seconds=5)
        everything = ["I am moving to Oslo.", "Norway.", "Yes", "word word word word ", "Fine."]
        assert await world.heard(thread) == everything


@pytest.mark.parametrize("pause", [0.0, 0.5, 1.9, 2.1])
async def test_two_messages_during_a_follow_up_are_both_answered(
    stage: Stage, pause: float
) -> None:
    """The follow-up is cut short for them; the answer to the first takes as long as it takes."""
    model = Unhurried(script=["Norway.", LONG, "The first answer to you.", "The second."])
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        model.follow(world)
        thread = await begin(world, 4.5)
        await world.say(thread, "First.")
        await world.pass_time(seconds=pause)
        await world.say(thread, "Second.")
        await world.pass_time(seconds=20)
        heard = await world.heard(thread)
        assert [text for text in heard if "word" not in text] == [
            "I am moving to Oslo.",
            "Norway.",
            "First.",
            "Second.",
            "The first answer to you.",
            "The second.",
        ]
        assert await cancelled(world, thread) == [(TurnKind.FOLLOW_UP, CUT_SHORT)]


async def test_each_turn_that_was_stopped_says_why(stage: Stage) -> None:
    """Stopped by the user, and by the user's next message; `why` tells both."""
    model = Unhurried(script=["Norway.", *[LONG] * 2])
    agent = eager_agent(decider="none")
    async with stage.world(agent, models={"guide": model}) as world:
        model.follow(world)
        thread = await begin(world, 0)
        for text in ("First.", "Second."):
            await world.segue.send(thread, text, strategy=DoubleTexting.INTERRUPT)
            await world.pass_time(seconds=2.5)
        for turn in await world.segue.cancel(thread):
            await world.segue.wait_turn(turn)
        reasons = [(TurnKind.REPLY, OVERTAKEN), (TurnKind.REPLY, STOPPED)]
        assert await cancelled(world, thread) == reasons
        assert await told(world, thread, "a reply") == [f"cancelled: {why}" for _, why in reasons]
