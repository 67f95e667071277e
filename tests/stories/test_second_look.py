"""Stories of the second look: the world changes while the model thinks, and the gates are asked
once more before the user sees the first word.
"""

from datetime import timedelta
from typing import Any

import pytest

from segue.journal.records import TimerState, TurnKind, TurnState
from segue.simulate.world import START, Stage, World
from tests.runtime.scenes import Held
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    eager_agent,
    listening,
    model_of,
    new_thread,
    passing,
    sent_at,
    slowly,
    told,
)

pytestmark = pytest.mark.anyio

MORNING = {"start": "08:01", "end": "09:00"}
QUIET = "Quiet hours are 08:01 to 09:00; 2027-01-15 08:02 in UTC is quiet."
LONG = timedelta(minutes=2)


async def test_quiet_hours_that_begin_while_the_model_thinks_hold_it_back(stage: Stage) -> None:
    """What it thought of is never seen; after the quiet hours it is asked anew."""
    model = model_of(TOLD, slowly(stage.clock, LONG, "Still up?"), "Good morning!")
    agent = eager_agent(policy={"max_consecutive": 1, "max_per_day": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world, time_zone="UTC", quiet_hours=MORNING)
        await world.say(thread, "Where is Oslo?")
        async with listening(world, thread) as listener:
            await world.pass_time(hours=2)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Good morning!"]
        assert "Still" not in repr(listener.events)
        assert await sent_at(world, thread) == [START.replace(hour=9)]
        assert await told(world, thread, "the gates before") == [f"postpone: {QUIET}"]
        assert f"void: {QUIET}" in await told(world, thread, "a follow-up")


async def test_a_follow_up_does_not_stand_in_its_own_way(stage: Stage) -> None:
    """At the second look the follow-up itself is not counted, so that one of one is sent."""
    agent = eager_agent(policy={"max_consecutive": 1, "max_per_day": 1, "cooldown": 3600})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        assert await sent_at(world, thread) == [START + PATIENCE]


async def change_of_mind(world: World, held: Held, **wish: Any) -> str:
    """A user makes a wish while the model thinks of a follow-up."""
    thread = await new_thread(world)
    await world.say(thread, "Where is Oslo?")
    async with passing(world, PATIENCE):
        await held.asked.wait()
        await world.segue.set_thread_preferences(thread, **wish)
        held.go.set()
    return thread


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ("muted", "The thread is muted."),
        ("opted_out", "The user opted out of follow-ups."),
    ],
)
async def test_who_wants_no_follow_ups_while_the_model_thinks_gets_none(
    stage: Stage, wish: str, reason: str
) -> None:
    """The wish comes in time as long as nothing was seen, and the follow-up is not tried again."""
    held = Held("Still there?")
    model = model_of(TOLD, held)
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await change_of_mind(world, held, **{wish: True})
        await world.pass_time(days=7)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]
        assert len(model.seen) == 2
        [withdrawn, _] = await world.journal.turns.list_of(thread)
        assert (withdrawn.kind, withdrawn.state) == (TurnKind.FOLLOW_UP, TurnState.VOID)
        assert await told(world, thread, "the gates before") == [f"suppress: {reason}"]


async def test_a_snooze_while_the_model_thinks_is_waited_out(stage: Stage) -> None:
    """A follow-up that only has to wait comes later, with other words."""
    held = Held("Still there?")
    agent = eager_agent(policy={"max_consecutive": 1})
    model = model_of(TOLD, held, "Back again?")
    async with stage.world(agent, models={"guide": model}) as world:
        ends = START + timedelta(hours=3)
        thread = await change_of_mind(world, held, snoozed_until=ends)
        await world.pass_time(days=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Back again?"]
        assert await sent_at(world, thread) == [ends]
        [timer] = await world.segue.inspector.list_timers(thread, limit=5)
        assert timer["became"] == "sent"


async def test_a_user_who_begins_to_type_is_not_interrupted(stage: Stage) -> None:
    """Typing while the model thinks puts the follow-up off like typing before."""
    model = model_of(TOLD, slowly(stage.clock, LONG, "Still there?"), "Well?")
    agent = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE + LONG - timedelta(seconds=10))
        await world.segue.report_typing(thread)
        await world.pass_time(hours=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, "Well?"]
        assert await sent_at(world, thread) == [START + LONG + timedelta(seconds=50)]
        assert await told(world, thread, "the gates before") == ["postpone: The user is typing."]


async def test_what_is_put_off_at_the_second_look_keeps_its_rules(stage: Stage) -> None:
    """Put off and then missed, a follow-up that is not to be late is skipped like any other."""
    agent = eager_agent(missed="skip", expires_after=timedelta(hours=12))
    model = model_of(TOLD, slowly(stage.clock, LONG, "Still up?"))
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world, time_zone="UTC", quiet_hours=MORNING)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(minutes=10)
        [waiting] = await world.segue.list_follow_ups(thread)
        assert (waiting.due_at, waiting.missed) == (START.replace(hour=9), "skip")
        assert waiting.expires_at is not None
    await stage.clock.advance(timedelta(hours=2))
    async with stage.world(agent, models={"guide": model}) as world:
        await world.pass_time(hours=1)
        assert await sent_at(world, thread) == []
        [missed] = await world.segue.list_follow_ups(thread)
        assert missed.state is TimerState.MISSED


async def test_who_drops_follow_ups_while_the_model_thinks_gets_none(stage: Stage) -> None:
    """The model is stopped before its first word, and the record says that nobody wanted it."""
    held = Held("Still there?")
    async with stage.world(eager_agent(), models={"guide": model_of(TOLD, held)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        async with listening(world, thread) as listener:
            async with passing(world, PATIENCE):
                await held.asked.wait()
                assert await world.segue.cancel_follow_ups(thread) == []
            await world.pass_time(days=7)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]
        assert "Still" not in repr(listener.events)
        [dropped, _] = await world.journal.turns.list_of(thread)
        assert (dropped.kind, dropped.state) == (TurnKind.FOLLOW_UP, TurnState.VOID)
        assert "void: The user did not want it." in await told(world, thread, "a follow-up")
