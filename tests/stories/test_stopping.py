"""Stories of replies that are stopped: what was begun is over, and the talk goes on."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from segue.events import MessageDelta
from segue.runtime import processor
from segue.simulate.world import Stage, plain_agent
from segue.testing.providers import request_problems
from tests.stories.scenes import Halting, listening, model_of, new_thread

pytestmark = pytest.mark.anyio

LATER = AIMessage(
    "",
    tool_calls=[
        {
            "name": "continue_later",
            "args": {"after_seconds": 60, "reason": "see if it is done"},
            "id": "call-1",
            "type": "tool_call",
        }
    ],
)


async def test_a_reply_that_is_stopped_does_not_go_on_later(stage: Stage) -> None:
    """Stopped while it writes that it will look again: what was seen ends the batch."""

    def halting(messages: list[BaseMessage]) -> str:
        del messages
        model.stop_after_a_word()
        return "I will look again."

    model = Halting(script=[LATER, halting, "Good evening."])
    agent = plain_agent(continuations=2, autonomy={"decider": "none"})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.segue.send(thread, "Please send the parcel.")
            await listener.until(MessageDelta)
            await world.segue.cancel(thread)
        [turn] = await world.journal.turns.list_of(thread)
        assert (await world.journal.messages.load_batch(thread, turn.batch)).is_complete
        model.go_on()
        await world.say(thread, "Good evening.")
        await world.pass_time(hours=1)
        assert len(await world.journal.turns.list_of(thread)) == 2
        request = model.seen[-1]
        assert [message.text for message in request][1:] == [
            "Please send the parcel.",
            "",
            "You will continue at 08:01 (UTC), in 1 minute.",
            "I ",
            "Good evening.",
        ]
        assert request_problems(request) == []


async def test_a_message_that_was_just_stored_is_not_kept_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the moment in which a message with a call was stored: the batch is closed."""

    async def store_and_hang(*args: Any, **kwargs: Any) -> Any:
        await append(*args, **kwargs)
        stored.set()
        await stopped.wait()  # the stop comes meanwhile

    stored, stopped = asyncio.Event(), asyncio.Event()
    call = LATER.model_copy(update={"content": "One moment."})
    agent = plain_agent(continuations=2, autonomy={"decider": "none"})
    async with stage.world(agent, models={"guide": model_of(call)}) as world:
        append = world.journal.messages.append
        monkeypatch.setattr(world.journal.messages, "append", store_and_hang)
        thread = await new_thread(world)
        await world.segue.send(thread, "Please send the parcel.")
        await stored.wait()
        await world.segue.cancel(thread)
        stopped.set()
        await world.clock.settle()
        [turn] = await world.journal.turns.list_of(thread)
        assert (await world.journal.messages.load_batch(thread, turn.batch)).is_complete
        assert await world.heard(thread) == ["Please send the parcel.", "One moment."]


async def test_a_stop_that_a_driver_keeps_to_itself_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some answer a cancellation as if nothing were: the reply ends at the agent's next word."""
    monkeypatch.setattr(processor, "_SAVE_EVERY_SECONDS", 0)
    is_keeping = asyncio.Event()

    async def keep(*args: Any) -> None:
        del args
        if not is_keeping.is_set():
            is_keeping.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async with stage.world(models={"guide": model_of("One two three four.")}) as world:
        thread = await new_thread(world)
        monkeypatch.setattr(world.journal.turns, "save_draft", keep)
        await world.segue.send(thread, "Please count.")
        await is_keeping.wait()
        await world.segue.cancel(thread)
        await world.clock.settle()
        assert await world.heard(thread) == ["Please count.", "One "]
