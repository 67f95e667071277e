"""Stories of going on: an agent that asked to continue later does so, in the same batch."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from segue.core.batch import NOT_CONTINUED, Batch, BatchState
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.metadata import BatchType, MessageMetadata
from segue.journal.records import TimerKind, TimerState, TurnKind, TurnState
from segue.runtime.clock import sleep
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent
from segue.testing.providers import request_problems
from tests.stories.scenes import (
    PATIENCE,
    eager_agent,
    listening,
    model_of,
    new_thread,
    sent_at,
    slowly,
)

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
NOTE = "see if it is done"
TOLD = "You will continue at 08:01 (UTC), in 1 minute."


def patient_agent(**config: Any) -> AgentConfig:
    return plain_agent(continuations=2, autonomy={"decider": "none"}, **config)


def later(seconds: float | str = 60, text: str = "", **more: Any) -> AIMessage:
    """What a model says that wants to look again."""
    calls = [("continue_later", {"after_seconds": seconds, "reason": NOTE})]
    calls += more.items()
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": args, "id": f"call-{n}", "type": "tool_call"}
            for n, (name, args) in enumerate(calls)
        ],
    )


async def batch_of(world: World, thread: str, number: int = 0) -> Batch:
    """The batch of a thread's first turn, or of a later one."""
    turns = await world.journal.turns.list_of(thread)
    return await world.journal.messages.load_batch(thread, turns[-1 - number].batch)


def places(batch: Batch) -> list[tuple[str, BatchType | None, int | None]]:
    read = [(message.type, MessageMetadata.of(message)) for message in batch.messages]
    return [(kind, metadata.batch_type, metadata.sequence_num) for kind, metadata in read]


async def test_a_continuation_goes_on_in_the_same_batch(stage: Stage) -> None:
    """It has the batch's id and the next number; the user sees the agent's words and no more."""
    model = model_of(later(), "It is under way.", "It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "Please send the parcel.")
            open_batch = await batch_of(world, thread)
            assert open_batch.state is BatchState.AWAITING_CONTINUATION
            await world.pass_time(MINUTE)
        seen = ["Please send the parcel.", "It is under way.", "It is done."]
        assert await world.heard(thread) == seen
        assert CONTINUATION_PROMPT not in repr(listener.events)
        [continued, first] = await world.journal.turns.list_of(thread)
        assert continued.batch == first.batch
        assert (continued.kind, continued.queued_at) == (TurnKind.CONTINUATION, START + MINUTE)
        batch = await batch_of(world, thread)
        request, going_on = BatchType.USER_REQUEST, BatchType.CONTINUATION
        assert [number for _, _, number in places(batch)] == [0, 1, 2, 3, 4, 5]
        assert places(batch)[:4] == [
            (kind, request, n) for n, kind in enumerate(["human", "ai", "tool", "ai"])
        ]
        assert places(batch)[4] == ("human", going_on, 4)
        assert batch.is_complete
        assert [request_problems(asked) for asked in model.seen] == [[]] * 3


async def test_a_delay_that_is_written_as_text_counts(stage: Stage) -> None:
    """Some models put numbers into quotes; it goes on when the tool's result says."""
    model = model_of(later("60"), "It is under way.", "It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        [said] = [m.text for m in (await batch_of(world, thread)).messages if m.type == "tool"]
        [planned] = await world.segue.list_follow_ups(thread)
        assert (said, planned.due_at) == (TOLD, START + MINUTE)


async def test_a_continuation_is_listed_without_the_agents_note_to_itself(stage: Stage) -> None:
    """The user sees when it goes on and whose wish that was; operators read the note."""
    model = model_of(later(), "It is under way.", "It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        [planned] = await world.segue.list_follow_ups(thread)
        assert (planned.kind, planned.due_at) == (TimerKind.CONTINUATION, START + MINUTE)
        assert planned.state_reason == "The agent itself wanted to continue later."
        [told] = await world.segue.why(thread)
        assert (told.what, told.outcome) == ("planning a continuation", "planned")
        assert told.why == "The agent itself wanted to continue at 2027-01-15 08:01:00 UTC."
        [timer] = await world.segue.inspector.list_timers(thread, limit=1)
        assert timer["why"] == NOTE
        await world.pass_time(MINUTE)
        [fired] = await world.segue.list_follow_ups(thread)
        assert fired.state is TimerState.FIRED
        shown = [planned, told, fired, await world.segue.why(thread)]
        assert NOTE not in repr(shown)


async def test_a_cancelled_continuation_is_returned_with_the_follow_ups(stage: Stage) -> None:
    """Whoever cancels learns what it was, still without the agent's note."""
    model = model_of(later(), "It is under way.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        [ended] = await world.segue.cancel_follow_ups(thread)
        assert (ended.kind, ended.state) == (TimerKind.CONTINUATION, TimerState.CANCELLED)
        assert (ended.state_reason, ended.reason) == ("The user did not want it.", None)


@pytest.mark.parametrize(
    ("seconds", "told", "due"),
    [
        (1_200, "at 09:20 (Europe/Berlin), in 20 minutes", START + 20 * MINUTE),
        (0, "at 09:00 (Europe/Berlin), right after this reply", START + MINUTE),
        (
            86_400,
            "at 09:00 on Saturday, 16 January 2027 (Europe/Berlin), in 1 day",
            START + timedelta(days=1),
        ),
    ],
)
async def test_the_agent_is_told_when_it_will_go_on(
    stage: Stage, seconds: float, told: str, due: datetime
) -> None:
    """On the user's clock, so that the reply can say so; and the timer is due at that very time,
    though the reply took a minute more.
    """
    reply = slowly(stage.clock, MINUTE, "It is under way.")
    model = model_of(later(seconds), reply, "It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin")
        await world.say(thread, "Please send the parcel.")
        await world.pass_time(MINUTE)
        [result] = [m for m in model.seen[1] if isinstance(m, ToolMessage)]
        assert result.text == f"You will continue {told}."
        [timer] = await world.journal.timers.list_of(thread)
        assert timer.due_at == due


async def test_a_continuation_waits_until_all_results_are_stored(stage: Stage) -> None:
    """A sibling tool takes five minutes, and the wish to go on at once has to wait for it."""

    @tool
    async def pack() -> str:
        """Pack the parcel."""
        await sleep(stage.clock, 5 * MINUTE)
        return "packed"

    stored: list[list[BaseMessage]] = []

    def look(messages: list[BaseMessage]) -> str:
        stored.append(messages)
        return "Done."

    model = model_of(later(0, pack={}), "Packed.", look)
    async with stage.world(patient_agent(tools=[pack]), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please pack the parcel.")
        await world.pass_time(hours=1)
        [continued, _] = await world.journal.turns.list_of(thread)
        assert continued.queued_at == START + 5 * MINUTE
        [asked] = stored
        kinds = [type(message) for message in asked if message.type != "system"]
        called = [HumanMessage, AIMessage, ToolMessage, ToolMessage, AIMessage, HumanMessage]
        assert kinds == called
        assert asked[-1].text == CONTINUATION_PROMPT


async def test_an_agent_goes_on_only_so_often(stage: Stage) -> None:
    """Whoever always wants to look again is told to come to an end, and the batch is whole."""

    def never_done(messages: list[BaseMessage]) -> AIMessage:
        is_answered = isinstance(messages[-1], ToolMessage)
        return AIMessage("Not yet.") if is_answered else later(60 + len(messages))

    model = model_of()
    model.script = never_done
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        await world.pass_time(days=1)
        turns = await world.journal.turns.list_of(thread)
        assert [turn.kind for turn in turns] == [
            TurnKind.CONTINUATION,
            TurnKind.CONTINUATION,
            TurnKind.REPLY,
        ]
        batch = await batch_of(world, thread)
        assert batch.is_complete
        [*_, refusal] = [m for m in batch.messages if isinstance(m, ToolMessage)]
        assert (refusal.status, "2 times already" in refusal.text) == ("error", True)


async def test_a_continuation_survives_the_end_of_the_process(stage: Stage) -> None:
    """The process that goes on is another one than that which was asked."""
    models = {"guide": model_of(later(), "It is under way.")}
    async with stage.world(patient_agent(), models=models) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
    await stage.clock.advance(timedelta(hours=5))
    model = model_of("It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "It is done."
        batch = await batch_of(world, thread)
        assert (batch.is_complete, len(batch.messages)) == (True, 6)
        [asked] = model.seen
        assert request_problems(asked) == []
        assert [m.text for m in asked if isinstance(m, ToolMessage)] == [TOLD]


async def test_a_user_who_writes_meanwhile_is_answered_and_the_work_goes_on(stage: Stage) -> None:
    """The user's words do not end what the agent does for the user, and both know of the wait."""
    model = model_of(later(), "It is under way.", "Oslo is in Norway.", "It is done.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(MINUTE)
        assert (await world.heard(thread))[2:] == [
            "Where is Oslo?",
            "Oslo is in Norway.",
            "It is done.",
        ]
        turns = await world.journal.turns.list_of(thread)
        assert {turn.state for turn in turns} == {TurnState.DONE}
        # The user's turn knows what the agent does; the continuation not what came after it began.
        assert [m.text for m in model.seen[2][1:]] == [
            "Please send the parcel.",
            "",
            TOLD,
            "It is under way.",
            "Where is Oslo?",
        ]
        assert "Oslo" not in repr(model.seen[3])
        assert [request_problems(asked) for asked in model.seen] == [[]] * 4


async def test_silence_is_dated_from_the_end_of_the_work(stage: Stage) -> None:
    """While the agent goes on by itself, nothing is planned; its last word begins the silence."""
    agent = eager_agent().model_copy(update={"continuations": 2})
    model = model_of(later(300), "It is under way.", "It is done.")
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        await world.pass_time(5 * MINUTE)
        assert await sent_at(world, thread) == []
        await world.pass_time(PATIENCE)
        assert await sent_at(world, thread) == [START + 5 * MINUTE + PATIENCE]


async def test_whoever_goes_on_may_look_at_the_same_thing_again(stage: Stage) -> None:
    """The guard against circles counts from the last time somebody spoke, not the whole batch."""
    looks: list[int] = []

    @tool
    async def parcel() -> str:
        """Say where the parcel is."""
        looks.append(1)
        return "still under way" if len(looks) < 4 else "delivered"

    lines: list[Any] = []
    for _ in range(3):
        lines += [later(parcel={}), "Not yet."]
    look = AIMessage("", tool_calls=[{"name": "parcel", "args": {}, "id": "last"}])
    model = model_of(*lines, look, "It is there.")
    agent = plain_agent(continuations=3, autonomy={"decider": "none"}, tools=[parcel])
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Tell me when the parcel is there.")
        await world.pass_time(4 * MINUTE)
        assert len(looks) == 4
        assert (await world.heard(thread))[-1] == "It is there."


async def test_a_follow_up_cannot_go_on_by_itself(stage: Stage) -> None:
    """It would speak unasked once more, past all gates."""
    model = model_of("Shall I look?", later(), "I had a look.")
    agent = eager_agent().model_copy(update={"continuations": 2})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Is it open?")
        await world.pass_time(PATIENCE)
        [turn, _] = await world.journal.turns.list_of(thread)
        batch = await world.journal.messages.load_batch(thread, turn.batch)
        assert batch.type is BatchType.SYSTEM_TRIGGER
        assert batch.is_complete
        [result] = [m for m in batch.messages if isinstance(m, ToolMessage)]
        assert result.status == "error"
        assert (await world.heard(thread))[-1] == "I had a look."


async def stop(world: World, thread: str) -> None:
    assert await world.segue.cancel(thread) == []


async def drop(world: World, thread: str) -> None:
    assert len(await world.segue.cancel_follow_ups(thread)) == 1


async def opt_out(world: World, thread: str) -> None:
    del thread
    await world.segue.set_user_preferences("ann", opted_out=True)


async def mute(world: World, thread: str) -> None:
    await world.segue.set_thread_preferences(thread, muted=True)


async def mute_all(world: World, thread: str) -> None:
    del thread
    await world.segue.set_user_preferences("ann", muted=True)


@pytest.mark.parametrize(
    ("wish", "outcome", "reason"),
    [
        (stop, "cancelled", "The user stopped it."),
        (drop, "cancelled", "The user did not want it."),
        (opt_out, "suppressed", "The user opted out of follow-ups."),
        (mute, "suppressed", "The thread is muted."),
        (mute_all, "suppressed", "The user muted all threads."),
    ],
)
async def test_a_user_who_wants_no_more_of_it_hears_no_more(
    stage: Stage, wish: Callable[[World, str], Awaitable[None]], outcome: str, reason: str
) -> None:
    """The work ends with a reason, and the agent knows of it when the user writes again."""
    model = model_of(later(), "It is under way.", "Good evening.")
    async with stage.world(patient_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        await wish(world, thread)
        await world.pass_time(hours=1)
        assert await world.heard(thread) == ["Please send the parcel.", "It is under way."]
        [ended] = [
            r for r in await world.segue.why(thread) if r.what.startswith("the continuation")
        ]
        assert ended.what == f"the continuation planned for {START + MINUTE:%Y-%m-%d %H:%M:%S} UTC"
        assert (ended.outcome, ended.why) == (outcome, reason)
        assert (await batch_of(world, thread)).is_complete
        await world.say(thread, "Good evening.")
        request = model.seen[-1]
        assert [message.text for message in request][1:] == [
            "Please send the parcel.",
            "",
            TOLD,
            "It is under way.",
            NOT_CONTINUED,
            "Good evening.",
        ]
        assert request_problems(request) == []
        assert (await world.heard(thread))[-1] == "Good evening."


async def test_what_only_follow_ups_wait_for_does_not_hold_up_the_work(stage: Stage) -> None:
    """The user asked for it: quiet hours, a snooze and caps are about speaking unasked."""
    policy = {"max_per_day": 0, "max_consecutive": 0}
    agent = plain_agent(continuations=2, autonomy={"decider": "none", "policy": policy})
    model = model_of(later(), "It is under way.", "It is done.")
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        hours = {"start": "00:00", "end": "23:59"}
        await world.segue.set_user_preferences(
            "ann", quiet_hours=hours, snoozed_until=START + 60 * MINUTE
        )
        await world.say(thread, "Please send the parcel.")
        await world.pass_time(MINUTE)
        assert (await world.heard(thread))[-1] == "It is done."
