"""The tool `set_follow_ups`: the model records what the user wants, in any language."""

from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from segue.agent.scripted import ScriptedChatModel
from segue.simulate.world import Stage, plain_agent
from tests.stories.scenes import TOLD, eager_agent, model_of, new_thread, sent_at, told

pytestmark = pytest.mark.anyio


def call(**args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "set_follow_ups", "args": args, "id": "c1"}])


def results(model: ScriptedChatModel) -> list[str]:
    """What the tool said to the model, in the last request."""
    return [message.text for message in model.seen[-1] if message.type == "tool"]


async def test_the_model_switches_follow_ups_off_and_on_again(stage: Stage) -> None:
    """For all threads of the user, with a reason in `why`."""
    model = model_of(call(mode="off"), TOLD, call(mode="on"), TOLD)
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Ne piši mi više.")
        assert (await world.segue.get_user_preferences("ann"))["opted_out"] is True
        await world.pass_time(days=3)
        assert await sent_at(world, thread) == []
        assert "stop: The user asked not to be written to any more." in await told(
            world, thread, "request"
        )
        await world.say(thread, "Možeš mi opet pisati.")
        assert "opted_out" not in await world.segue.get_user_preferences("ann")
        await world.pass_time(days=3)
        assert await sent_at(world, thread) != []


async def test_until_is_a_time_on_the_users_clock(stage: Stage) -> None:
    """Nothing is sent before it."""
    model = model_of(call(mode="until", until="2027-01-16T09:00"), TOLD)
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        await world.segue.set_user_preferences("ann", time_zone="America/New_York")
        thread = await new_thread(world)
        await world.say(thread, "Javi se u subotu.")
        preferences = await world.segue.get_user_preferences("ann")
        assert preferences["snoozed_until"] == "2027-01-16T14:00:00+00:00"
        await world.pass_time(days=3)
        first, *_ = await sent_at(world, thread)
        assert first.isoformat() == "2027-01-16T14:00:00+00:00"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"mode": "until"}, "Not recorded: until is None; expected the user's local time"),
        ({"mode": "until", "until": "soon"}, "Not recorded: until is 'soon'; expected"),
        ({"mode": "until", "until": "2027-01-15T07:00"}, "is past; expected a later time of UTC"),
        ({"mode": "on"}, "Nothing changed: you may write to the user on your own already."),
    ],
)
async def test_a_call_that_changes_nothing_says_why(
    stage: Stage, args: dict[str, Any], said: str
) -> None:
    """The model reads a sentence that it can act on, and nothing is stored."""
    model = model_of(call(**args), TOLD)
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        await world.say(await new_thread(world), "Ne piši mi više.")
        [result] = results(model)
        assert said in result
        assert await world.segue.get_user_preferences("ann") == {}


async def test_only_agents_that_may_write_first_have_the_tool(stage: Stage) -> None:
    """An agent without autonomy has nothing to switch off."""
    models = {"guide": model_of(), "atlas": model_of()}
    agents = eager_agent(), plain_agent("atlas", autonomy={"enabled": False})
    async with stage.world(*agents, models=models) as world:
        for agent in models:
            await world.say(await new_thread(world, agent=agent), "Hello.")
    names = {agent: [tool.name for tool in model.tools] for agent, model in models.items()}
    assert ("set_follow_ups" in names["guide"], names["atlas"]) == (True, [])


async def test_a_model_that_cannot_call_tools_still_answers(stage: Stage) -> None:
    """A model of one's own without `bind_tools` gets no tool that nobody configured."""
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello, Ann.")]))
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Hello.")
        assert await world.heard(thread) == ["Hello.", "Hello, Ann."]
