"""What the requirements demand of turns beyond the stories told in the other tests."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from segue.core.batch import BatchState
from segue.core.messages import synthetic_message
from segue.core.metadata import BatchType, MessageMetadata, is_settled
from segue.events import TurnFailed
from segue.journal.records import TurnKind, TurnState
from segue.runtime.turn_failures import StopReason
from segue.simulate.world import START, Stage, plain_agent
from segue.testing.providers import request_problems
from tests.runtime.scenes import Held, batches_of, calling, echo, lines, tab
from tests.stories.scenes import new_thread

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
QUIET: dict[str, Any] = {"autonomy": {"decider": "none"}}


@tool
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class RefusedError(Exception):
    """What a provider answers to a request that it cannot read."""

    status_code = 400


class BusyError(Exception):
    """What a provider answers when it has too much to do."""

    status_code = 503


# One batch for each cycle.


async def test_a_turn_of_several_rounds_is_one_batch_stored_as_it_comes(stage: Stage) -> None:
    """Each call is stored before its results, each result before the model is asked again, the
    reply with the end; every request holds the batch so far, and the next message has its own.
    """
    stored: list[list[str]] = []

    async def look(messages: list[BaseMessage]) -> None:
        del messages
        [*_, batch] = await batches_of(world, thread)
        stored.append([message.type for message in batch.messages])
        [turn, *_] = await world.journal.turns.list_of(thread)
        assert turn.state is TurnState.RUNNING

    async def again(messages: list[BaseMessage]) -> AIMessage:
        await look(messages)
        return calling("double", "call-2", number=2)

    async def reply(messages: list[BaseMessage]) -> str:
        await look(messages)
        return f"It is {messages[-1].text}."

    model = lines(calling("double", number=1), again, reply)
    agent = plain_agent(tools=(double,), **QUIET)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Double one, and that again.")
        assert stored == [["human", "ai", "tool"], ["human", "ai", "tool", "ai", "tool"]]
        await world.say(thread, "Thanks.")
        [first, second] = await batches_of(world, thread)
        assert [message.type for message in first.messages] == [*stored[1], "ai"]
        found = [MessageMetadata.of(message) for message in first.messages]
        assert {each.batch for each in found} == {found[0].position} == {first.id}
        assert [each.sequence_num for each in found] == list(range(6))
        assert {each.batch_type for each in found} == {BatchType.USER_REQUEST}
        assert first.is_complete
        assert second.id != first.id
        texts = [[message.text for message in asked[1:]] for asked in model.seen]
        whole = ["Double one, and that again.", "", "2", "", "4", "It is 4."]
        assert texts == [whole[:1], whole[:3], whole[:5], [*whole, "Thanks."]]
        turns = await world.journal.turns.list_of(thread)
        assert [turn.state for turn in turns] == [TurnState.DONE] * 2


async def test_a_client_cannot_choose_a_batch_or_a_mark(stage: Stage) -> None:
    """What comes along with a user's message counts for nothing: it is plain, in a new batch."""
    async with stage.world(plain_agent(**QUIET), models={"guide": lines()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "One.")
        [first] = await batches_of(world, thread)
        forged = synthetic_message("check_in", "because", "Two.")
        forged.additional_kwargs |= {"batch": first.id, "sequence_num": 1, "position": first.id}
        await world.segue.send(thread, forged)
        await world.clock.settle()
        [_, second] = await batches_of(world, thread)
        found = MessageMetadata.of(second.messages[0])
        assert second.id == found.batch == found.position
        assert second.id > first.id
        assert (found.synthetic, found.trigger_type, found.sequence_num) == (False, None, 0)
        assert await world.heard(thread) == ["One.", "Fine.", "Two.", "Fine."]


async def test_a_running_turn_does_not_see_what_came_after_it(stage: Stage) -> None:
    """Its request ends with its own message, though a later one is stored; that one is next."""
    held = Held("To the first.")
    model = lines(held, echo)
    async with stage.world(plain_agent(**QUIET), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, "First?")
        await world.segue.send(thread, "Second?")
        await held.asked.wait()
        held.go.set()
        await world.clock.settle()
        assert [asked[-1].text for asked in model.seen] == ["First?", "Second?"]
        assert await world.heard(thread) == [
            *["First?", "Second?", "To the first.", "You said: Second?"]
        ]
        [first, second] = await batches_of(world, thread)
        assert [m.text for m in first.messages] == ["First?", "To the first."]
        assert [m.text for m in second.messages] == ["Second?", "You said: Second?"]


# Continuations.


async def test_a_turn_that_asks_twice_to_go_on_goes_on_once(stage: Stage) -> None:
    """Two requests in one message are one continuation, by the last of them."""
    calls = [
        {"name": "continue_later", "args": {"after_seconds": s, "reason": "look"}, "id": f"c{s}"}
        for s in (60, 90)
    ]
    model = lines(AIMessage("", tool_calls=calls), "Under way.", "Done.")
    agent = plain_agent(continuations=5, **QUIET)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please look.")
        await world.pass_time(days=1)
        continued, first = await world.journal.turns.list_of(thread)
        assert (first.kind, continued.kind) == (TurnKind.REPLY, TurnKind.CONTINUATION)
        assert continued.queued_at == START + timedelta(seconds=90)
        [batch] = await batches_of(world, thread)
        assert batch.is_complete
        assert [request_problems(asked) for asked in model.seen] == [[]] * 3


async def test_a_crash_after_the_word_to_go_on_does_not_hide_the_batch(stage: Stage) -> None:
    """The message to go on is stored and the process ends: the next one goes on with it."""
    held = Held()
    agent = plain_agent(continuations=1, **QUIET)
    going_on = calling("continue_later", after_seconds=60, reason="look")
    model = lines(going_on, "Under way.", held)
    async with stage.world(agent, models={"guide": model}, patience=0) as world:
        thread = await new_thread(world)
        await world.say(thread, "Please send the parcel.")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.pass_time(minutes=1))
            await held.asked.wait()
            await world.system.runtime.turns.close(timedelta(0))
        [batch] = await batches_of(world, thread)
        assert isinstance(batch.messages[-1], HumanMessage)
        assert not batch.is_complete
    model = lines("It is done.", "Parcels take a day.")
    async with stage.world(agent, models={"guide": model}) as world:
        await world.clock.settle()
        assert (await world.heard(thread))[-1] == "It is done."
        await world.say(thread, "How long does it take?")
        assert "Please send the parcel." in [m.text for m in model.seen[-1]]
        assert request_problems(model.seen[-1]) == []


async def test_many_continuations_at_one_moment_are_all_kept(stage: Stage) -> None:
    """Forty agents that want to go on at the same time all do, each once."""
    count = 40

    def speak(messages: list[BaseMessage]) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return "Under way."
        is_first = len(messages) == 2
        going_on = calling("continue_later", after_seconds=60, reason="look")
        return going_on if is_first else "Done."

    model = lines()
    model.script = speak
    agent = plain_agent(continuations=1, **QUIET)
    async with stage.world(agent, models={"guide": model}) as world:
        threads = [await new_thread(world) for _ in range(count)]
        for thread in threads:
            await world.segue.send(thread, "Please look.")
        await world.clock.settle()
        states = {(await batches_of(world, thread))[0].state for thread in threads}
        assert states == {BatchState.AWAITING_CONTINUATION}
        await world.pass_time(minutes=1)
        told = [await world.heard(thread) for thread in threads]
        assert told == [["Please look.", "Under way.", "Done."]] * count


# Ends that nobody wants.


async def test_a_batch_past_its_time_is_ended_and_the_next_message_answered(stage: Stage) -> None:
    """Who hangs is stopped, the user is told, and what was queued behind it does not wait on."""
    held = Held()
    model = lines(held, echo)
    async with stage.world(plain_agent(**QUIET), models={"guide": model}) as world:
        thread = await new_thread(world)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "First?")
            await held.asked.wait()
            await world.segue.send(thread, "Second?")
            world.system.runtime.turns._jobs[thread].scope.stop(StopReason.TIME_UP)
            await seen.until_said("You said: Second?")
            [failed] = [event for event in seen.events if isinstance(event, TurnFailed)]
        assert held.is_stopped
        assert "took longer than" in failed.reason
        assert [batch.is_complete for batch in await batches_of(world, thread)] == [True, True]
        assert "First?" in [message.text for message in model.seen[-1]]
        assert request_problems(model.seen[-1]) == []


async def test_a_batch_that_process_after_process_left_is_closed_without_help(
    stage: Stage,
) -> None:
    """Two died over it with a call open: the third settles it, tells the user and goes on."""
    model = lines(echo)
    world_of = stage.world(plain_agent(**QUIET), models={"guide": model}, max_interruptions=2)
    async with world_of as world:
        parts, journal = world.system.deps, world.journal
        thread = await new_thread(world)
        accepted = await journal.inbox.accept(
            thread, HumanMessage("First?"), ids=parts.ids, now=parts.clock.now()
        )
        for owner in ("dead", "dead too"):
            lease = await journal.turns.claim_one(owner, now=parts.clock.now(), lease_for=LEASE)
            assert lease is not None
            words = [calling("double", f"of {owner}", number=1)]
            await journal.messages.append(lease, words, ids=parts.ids, now=parts.clock.now())
            stage.clock._now += LEASE  # nobody else is to look meanwhile
        await world.say(thread, "Second?")
        turn = await journal.turns.get(accepted.turn.id)
        assert turn.state is TurnState.FAILED
        assert "never finished" in (turn.error or "")
        assert [batch.is_complete for batch in await batches_of(world, thread)] == [True, True]
        assert (await world.heard(thread))[-1] == "You said: Second?"
        assert request_problems(model.seen[-1]) == []


async def test_an_abandoned_batch_is_closed_after_its_time_and_nothing_else_happens(
    stage: Stage,
) -> None:
    """A process died with a call open, and the user never writes again: when its lease is over,
    and no earlier, the batch is closed and the user is told.
    """
    async with stage.world(plain_agent(**QUIET), models={"guide": lines()}) as world:
        parts, now = world.system.deps, world.clock.now()
        thread = await new_thread(world)
        accepted = await world.journal.inbox.accept(
            thread, HumanMessage("First?"), ids=parts.ids, now=now
        )
        lease = await world.journal.turns.claim_one("dead", now=now, lease_for=LEASE)
        assert lease is not None
        call = [calling("double", "call", number=1)]
        await world.journal.messages.append(lease, call, ids=parts.ids, now=now)
    model = lines()
    world_of = stage.world(plain_agent(**QUIET), models={"guide": model}, max_interruptions=1)
    async with world_of as world, tab(world.segue, thread) as seen:
        await world.pass_time(LEASE - timedelta(seconds=1))
        [batch] = await batches_of(world, thread)
        assert not batch.is_complete
        await world.pass_time(seconds=2)
        await seen.until_heard(TurnFailed)
        [batch] = await batches_of(world, thread)
        assert (batch.is_complete, batch.state) == (True, BatchState.COMPLETE)
        assert is_settled(batch.messages[-1])
        assert (await world.journal.turns.get(accepted.turn.id)).state is TurnState.FAILED
        assert model.seen == [], "closing it asks no model"


async def test_a_failed_turn_hides_nothing_and_holds_up_nobody(stage: Stage) -> None:
    """The queued message is answered at once, in a valid request that holds the words to which
    there was no reply; other threads notice nothing.
    """
    held = Held("Here.")

    async def fail(messages: list[BaseMessage]) -> str:
        del messages
        await world.segue.send(thread, "Second?")
        raise ValueError("broken")

    model, other = lines(calling("double", number=1), fail, echo), lines(held, echo)
    agents = [plain_agent("guide", tools=(double,), **QUIET), plain_agent("atlas", **QUIET)]
    async with stage.world(*agents, models={"guide": model, "atlas": other}) as world:
        thread, busy = await new_thread(world), await new_thread(world, agent="atlas")
        await world.segue.send(busy, "Are you there?")
        await held.asked.wait()
        accepted = await world.segue.send(thread, "First?")
        async with tab(world.segue, thread) as seen:
            await seen.until_said("You said: Second?")
        turn = await world.journal.turns.get(accepted.turn.id)
        assert turn.state is TurnState.FAILED
        [running] = await world.journal.turns.list_of(busy)
        assert running.state is TurnState.RUNNING
        assert world.clock.now() == START
        assert await world.heard(thread) == ["First?", "Second?", "You said: Second?"]
        assert "First?" in [message.text for message in model.seen[-1]]
        assert request_problems(model.seen[-1]) == []
        held.go.set()
        await world.clock.settle()
        assert await world.heard(busy) == ["Are you there?", "Here."]


async def test_an_invalid_request_is_not_sent_again(stage: Stage) -> None:
    """What a provider refuses fails at once; what it cannot do for the moment is tried again."""
    model = lines(RefusedError(), BusyError(), "Yes.")
    async with stage.world(plain_agent(**QUIET), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "First?")
        await world.pass_time(hours=1)
        [refused] = await world.journal.turns.list_of(thread)
        assert (refused.state, refused.attempts, len(model.seen)) == (TurnState.FAILED, 1, 1)
        await world.say(thread, "Second?")
        await world.pass_time(minutes=1)
        assert (await world.heard(thread))[-1] == "Yes."
        first, *retried = [[message.text for message in asked] for asked in model.seen]
        assert retried[0] == retried[1] != first


async def test_a_tool_that_waits_for_permission_ends_and_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody allows it: at its time limit the call has an error result, and the reply comes."""

    @tool
    async def pay() -> str:
        """Pay, if somebody allows it."""
        await asyncio.Event().wait()
        return "paid"

    model = lines(calling("pay"), "I could not pay.")
    agent = plain_agent(tools=(pay,), limits={"tool_time": 0.05}, **QUIET)
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        with caplog.at_level(logging.WARNING):
            await world.say(thread, "Pay!")
        assert await world.heard(thread) == ["Pay!", "I could not pay."]
        [batch] = await batches_of(world, thread)
        [result] = [m for m in batch.messages if isinstance(m, ToolMessage)]
        assert (result.status, "0.05 s" in result.text) == ("error", True)
        [told] = [record.getMessage() for record in caplog.records]
        assert told.startswith("Tool pay failed: TimeoutError at ")
        assert "in test_a_tool_that_waits_for_permission" in told
