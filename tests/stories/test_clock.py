"""Stories of the clock: what the model is told about the user's time, and about their silence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, SystemMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.simulate.world import START, Stage, VirtualClock, World, plain_agent
from tests.stories.scenes import PATIENCE, eager_agent, model_of, new_thread

pytestmark = pytest.mark.anyio

MAY_WRITE = (
    "You may write to the user first; such messages reach them without a question of theirs."
)


def clocks(model: ScriptedChatModel) -> list[list[str]]:
    """The lines from the time on, of each request's one system message."""
    found = []
    for request in model.seen:
        [system] = [m for m in request if isinstance(m, SystemMessage)]
        _, _, clock = system.text.rpartition("\n\n")
        found.append(clock.splitlines())
    return found


async def test_a_follow_up_knows_how_long_the_silence_lasted(stage: Stage) -> None:
    """The trigger stays as it is, and the time is behind the prompt; a reply has no such line."""
    hours = {"delays": {t.value: "2h5m" for t in TriggerType}, "policy": {"cooldown": 0}}
    model = model_of("Shall I look?", "Shall I?")
    async with stage.world(plain_agent(autonomy=hours), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin")
        await world.say(thread, "Is it open?")
        await world.pass_time(hours=3)
        await world.say(thread, "Yes.")
    assert clocks(model) == [
        ["Now: Friday, 15 January 2027, 09:00 (Europe/Berlin).", MAY_WRITE],
        [
            "Now: Friday, 15 January 2027, 11:05 (Europe/Berlin).",
            MAY_WRITE,
            "The user has been silent for 2 hours and 5 minutes.",
        ],
        ["Now: Friday, 15 January 2027, 12:00 (Europe/Berlin).", MAY_WRITE],
    ]
    assert model.seen[1][-1].text == TRIGGER_PROMPTS[TriggerType.WAITING_FOR_DECISION]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (datetime(2027, 3, 28, 0, 30, tzinfo=UTC), ["01:30", "03:30"]),
        (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), ["02:30", "02:30"]),
    ],
    ids=["spring", "autumn"],
)
async def test_a_clock_change_does_not_change_the_silence(
    stage: Stage, asked: datetime, shown: list[str]
) -> None:
    """An hour of silence is an hour, though the clock went on by two hours or by none."""
    stage = replace(stage, clock=VirtualClock(asked))
    hour = {"delays": {t.value: "1h" for t in TriggerType}, "policy": {"cooldown": 0}}
    model = model_of("Shall I look?", "Shall I?")
    async with stage.world(plain_agent(autonomy=hour), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin", quiet_hours=False)
        await world.say(thread, "Is it open?")
        await world.pass_time(hours=1)
    day = f"{asked:%A, %d %B %Y}"
    reply, follow_up = clocks(model)
    times = [f"Now: {day}, {time} (Europe/Berlin)." for time in shown]
    assert [reply[0], follow_up[0]] == times
    assert follow_up[-1] == "The user has been silent for 1 hour."


async def test_the_silence_is_dated_from_the_last_visible_message(stage: Stage) -> None:
    """The second follow-up counts from the first, which nobody answered."""
    model = model_of("Shall I look?", "Shall I?", "Well?")
    agent = eager_agent(policy={"min_delay": "90m", "cooldown": 0})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Is it open?")
        await world.pass_time(hours=4)
    spoken = [lines[-1] for lines in clocks(model)[1:]]
    assert spoken == ["The user has been silent for 1 hour and 30 minutes."] * 2


async def test_a_zone_of_the_thread_comes_before_the_users(stage: Stage) -> None:
    """Whoever travels sets it for one thread; without any zone it is the server's."""
    model = model_of()
    async with stage.world(plain_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin")
        await world.say(thread, "Hello.")
        await world.segue.set_thread_preferences(thread, time_zone="Asia/Tokyo")
        await world.say(thread, "Hello.")
        zone = world.system.deps.zone
    zones = [lines[0].rpartition(" ")[2] for lines in clocks(model)]
    assert zones == [f"({zone}).", "(Europe/Berlin).", "(Asia/Tokyo)."]


@pytest.mark.parametrize("autonomy", [{"enabled": False}, {"policy": {"enabled": False}}])
async def test_an_agent_that_does_not_write_first_is_not_told_so(
    stage: Stage, autonomy: dict[str, Any]
) -> None:
    """It would promise what nothing keeps."""
    model = model_of()
    agent = plain_agent(autonomy=autonomy)
    async with stage.world(agent, models={"guide": model}) as world:
        await world.say(await new_thread(world), "Hello.")
    assert [len(lines) for lines in clocks(model)] == [1]


@pytest.mark.parametrize("preference", ["opted_out", "muted"])
async def test_nobody_is_promised_messages_that_they_do_not_want(
    stage: Stage, preference: str
) -> None:
    """The line goes when the user opts out, and is back when they change their mind."""
    model = model_of()
    async with stage.world(plain_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        for wish in (True, False):
            await world.segue.set_user_preferences("ann", **{preference: wish})
            await world.say(thread, "Hello.")
    assert [MAY_WRITE in lines for lines in clocks(model)] == [False, True]


async def test_an_agent_that_another_one_asks_does_not_write_to_the_user(stage: Stage) -> None:
    """It has the time, and nobody to write to."""
    calls = [{"name": "ask_agent", "args": {"name": "atlas", "text": "Where?"}, "id": "c"}]
    guide, atlas = model_of(AIMessage("", tool_calls=calls)), model_of()
    agents = plain_agent(may_ask=["atlas"]), plain_agent("atlas")
    async with stage.world(*agents, models={"guide": guide, "atlas": atlas}) as world:
        await world.say(await new_thread(world), "Where is Oslo?")
    assert [MAY_WRITE in lines for lines in clocks(guide)] == [True, True]
    assert [len(lines) for lines in clocks(atlas)] == [1]


async def test_an_operator_sees_the_clock_in_the_preview(stage: Stage) -> None:
    """`segue context` shows what the next request would end its system message with."""

    async def last_lines(world: World, thread: str) -> list[str]:
        row = await world.segue.get_thread(thread)
        found = await world.segue.inspector.get_context(row, plain_agent())
        [system] = [m["data"]["content"] for m in found["messages"] if m["type"] == "system"]
        return str(system).rpartition("\n\n")[2].splitlines()

    async with stage.world(plain_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.segue.set_user_preferences("ann", time_zone="Asia/Tokyo")
        await world.say(thread, "Hello.")
        await world.pass_time(PATIENCE * 4)
        assert world.clock.now() == START + timedelta(minutes=2)
        assert await last_lines(world, thread) == [
            "Now: Friday, 15 January 2027, 17:02 (Asia/Tokyo).",
            MAY_WRITE,
        ]
