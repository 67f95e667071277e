"""The inbox: what a user does is stored first, whatever the agent is doing at that moment."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.metadata import is_synthetic
from segue.core.turn_rules import DoubleTexting
from segue.errors import BackendError, ConflictError, NotFoundError, UsageError
from segue.events import MessageRetracted, TurnCancelled
from segue.journal.records import NewTimer, TimerState, TurnKind, TurnState
from segue.runtime.deps import Deps
from segue.simulate.world import Stage, World, plain_agent
from segue.testing.providers import request_problems
from tests.runtime.scenes import (
    EAGER,
    HELLO,
    PATIENCE,
    Held,
    Paced,
    always,
    batches_of,
    echo,
    lines,
    new_thread,
    process,
    stored,
    tab,
)

pytestmark = pytest.mark.anyio


class Tool:
    """A tool that is held up until the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.is_stopped = False

    async def look_up(self, name: str) -> str:
        """Look something up."""
        if name == "quick":
            return "Found it."
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.is_stopped = True
            raise
        return "Found it later."


async def assert_all_is_whole(world: World, thread: str, model: ScriptedChatModel) -> None:
    """Every batch is complete, and the next request is one that every provider takes."""
    await world.say(thread, "And now?")
    batches = await batches_of(world, thread)
    assert [batch.reasons for batch in batches if not batch.is_complete] == []
    assert request_problems(model.seen[-1]) == []


# One after the other.


async def test_messages_are_answered_in_order_and_one_at_a_time(stage: Stage) -> None:
    """Each answer knows those before it, and none begins before the last one has ended."""
    model = Paced(script=echo)
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            for text in ("one", "two", "three"):
                await world.segue.send(thread, text)
            model.let(1)
            await seen.until_draft("You ")
            assert len(model.seen) == 1
            model.finish()
            await seen.until_said("You said: three")
        replies = [text for text in seen.texts if text.startswith("You")]
        assert replies == ["You said: one", "You said: two", "You said: three"]
        assert [[m.text for m in batch.messages] for batch in await batches_of(world, thread)] == [
            [text, f"You said: {text}"] for text in ("one", "two", "three")
        ]
        heard = [m.text for m in model.seen[-1] if m.type != "system"]
        assert heard == ["one", "You said: one", "two", "You said: two", "three"]


# A new message stops the answer.


async def test_an_interrupted_answer_is_kept_as_far_as_it_was_seen(stage: Stage) -> None:
    """The model is stopped, what the user saw is a real message, and the new one is answered."""
    model = Paced(script=[HELLO, "Here you are", "Fine."])
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            first = await world.segue.send(thread, "One")
            model.let(2)
            await seen.until_draft("Hello there ")
            await world.segue.send(thread, "Two", strategy=DoubleTexting.INTERRUPT)
            await seen.until_heard(TurnCancelled)
            assert model.stopped == 1
            model.finish()
            await seen.until_said("Here you are")
            assert stored(seen.events) == [
                "One",
                "Two",
                "Hello there ",
                "TurnCancelled",
                "Here you are",
            ]
            assert seen.drafts == {}
        seen_of_it = (await world.segue.history(thread)).messages[2]
        assert isinstance(seen_of_it, AIMessage)
        assert not is_synthetic(seen_of_it)
        assert (await world.journal.turns.get(first.turn.id)).state is TurnState.DONE
        assert [m.text for m in model.seen[-1][1:]] == ["One", "Hello there ", "Two"]
        await assert_all_is_whole(world, thread, model)


async def test_an_interrupted_answer_of_which_nothing_was_seen_leaves_nothing(stage: Stage) -> None:
    """Nothing is shown for it; the model is told that it was cut off."""
    held = Held()
    model = lines(held)
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "One")
        await held.asked.wait()
        await world.say(thread, "Two", strategy=DoubleTexting.INTERRUPT)
        assert held.is_stopped
        assert await world.heard(thread) == ["One", "Two", "Fine."]
        await assert_all_is_whole(world, thread, model)


async def test_an_interruption_does_not_stop_a_message_that_waits(stage: Stage) -> None:
    """Only the answer that is being written is stopped; the messages in line are answered."""
    held = Held()
    async with stage.world(models={"guide": lines(held, echo, echo)}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "One")
            await held.asked.wait()
            await world.segue.send(thread, "Two")
            await world.say(thread, "Three", strategy=DoubleTexting.INTERRUPT)
            await seen.until_said("You said: Three")
            ends = ["TurnCancelled", "You said: Two", "You said: Three"]
            assert stored(seen.events) == ["One", "Two", "Three", *ends]


async def test_an_interruption_of_nothing_is_a_message(sqlite_stage: Stage) -> None:
    """A settings' default of interrupt changes nothing for who waits for the answer."""
    model = ScriptedChatModel(script=echo)
    async with sqlite_stage.world(models={"guide": model}, double_texting="interrupt") as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "One")
        await world.say(thread, "Two")
        assert await world.heard(thread) == ["One", "You said: One", "Two", "You said: Two"]


# A new message is refused.


async def test_a_refused_message_leaves_nothing_and_the_next_one_is_taken(stage: Stage) -> None:
    """Refused with a conflict while an answer is queued or written; later it works again."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}, double_texting="reject") as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "One")
        await held.asked.wait()
        before = await world.journal.threads.get(thread)
        with pytest.raises(ConflictError):
            await world.segue.send(thread, "Two")
        assert await world.journal.threads.get(thread) == before
        assert len(await world.journal.turns.list_of(thread)) == 1
        assert await world.heard(thread) == ["One"]
        held.go.set()
        await world.clock.settle()
        await world.say(thread, "Three")
        assert await world.heard(thread) == ["One", "Here I am.", "Three", "Fine."]


async def test_a_follow_up_is_no_reason_to_refuse(stage: Stage) -> None:
    """The agent speaks on its own account; the user comes first."""
    held = Held()
    async with stage.world(
        EAGER, models={"guide": lines("Oslo.", held)}, double_texting="reject"
    ) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "I am moving.")
        passing = asyncio.create_task(world.pass_time(seconds=30))
        await held.asked.wait()
        await world.say(thread, "Never mind")
        await passing
        assert await world.heard(thread) == ["I am moving.", "Oslo.", "Never mind", "Fine."]


# Messages are collected.


async def test_messages_close_together_are_one_batch_with_one_answer(stage: Stage) -> None:
    """The agent waits a moment for more, and a message that comes later is for the next one."""
    model = ScriptedChatModel(script=echo)
    async with stage.world(models={"guide": model}, double_texting="collect") as world:
        thread = await new_thread(world.segue)
        for text in ("I", "have a", "question"):
            await world.say(thread, text)
            await world.pass_time(seconds=1.5)
        assert model.seen == []
        await world.pass_time(seconds=1)
        assert len(model.seen) == 1
        [batch] = await batches_of(world, thread)
        texts = ["I", "have a", "question", "You said: question"]
        assert [m.text for m in batch.messages] == texts
        await world.say(thread, "Another")
        await world.pass_time(seconds=2)
        assert len(await batches_of(world, thread)) == 2
        assert await world.heard(thread) == [*texts, "Another", "You said: Another"]


async def test_the_wait_for_more_has_an_end(stage: Stage) -> None:
    """Who never stops writing is answered after five times the wait."""
    model = ScriptedChatModel(script=echo)
    async with stage.world(models={"guide": model}, double_texting="collect") as world:
        thread = await new_thread(world.segue)
        for number in range(12):
            await world.say(thread, f"{number}")
            await world.pass_time(seconds=1)
        await world.pass_time(seconds=10)
        assert [len(batch.messages) for batch in await batches_of(world, thread)] == [11, 3]
        assert [request[-1].text for request in model.seen] == ["9", "11"]


async def test_messages_are_collected_while_an_answer_is_written(stage: Stage) -> None:
    """They wait for its end, and are answered together then."""
    held = Held("Done.")
    async with stage.world(models={"guide": lines(held)}, double_texting="collect") as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "One")
        passing = asyncio.create_task(world.pass_time(seconds=2))
        await held.asked.wait()
        await world.segue.send(thread, "Two")
        await world.segue.send(thread, "Three")
        held.go.set()
        await passing
        await world.pass_time(seconds=2)
        assert [[m.text for m in batch.messages] for batch in await batches_of(world, thread)] == [
            ["One", "Done."],
            ["Two", "Three", "Fine."],
        ]


# The same message again.


@pytest.mark.parametrize("strategy", [*DoubleTexting])
async def test_a_message_that_is_sent_again_is_one_message(
    stage: Stage, strategy: DoubleTexting
) -> None:
    """Also at the same time, and while its answer is written: that is not disturbed by it."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}, double_texting=strategy) as world:
        thread = await new_thread(world.segue)

        async def send() -> tuple[int, bool]:
            accepted = await world.segue.send(thread, "Hi", client_message_id="m1")
            return accepted.turn.id, accepted.is_new

        answers = await asyncio.gather(*(send() for _ in range(8)))
        assert len({turn for turn, _ in answers}) == 1
        assert sorted(is_new for _, is_new in answers) == [False] * 7 + [True]
        passing = asyncio.create_task(world.pass_time(seconds=2))
        await held.asked.wait()
        assert await send() == (answers[0][0], False)
        assert not held.is_stopped
        held.go.set()
        await passing
        assert await send() == (answers[0][0], False)
        await world.clock.settle()
        assert await world.heard(thread) == ["Hi", "Here I am."]


async def test_a_message_that_is_sent_to_two_processes_is_one_message(stage: Stage) -> None:
    """A client whose connection broke comes back wherever it is led to."""
    model = ScriptedChatModel(script=echo)
    models = {"guide": model}
    async with stage.world(models=models) as one, stage.world(models=models) as two:
        thread = await new_thread(one.segue)
        accepted = await asyncio.gather(
            *(
                world.segue.send(thread, "Hi", client_message_id="m1")
                for world in (one, two, one, two)
            )
        )
        assert sum(each.is_new for each in accepted) == 1
        await stage.clock.settle()
        assert await one.heard(thread) == await two.heard(thread) == ["Hi", "You said: Hi"]
        assert len(model.seen) == 1


# The user and follow-ups.


@pytest.mark.parametrize("slots", [1, 8])
async def test_a_message_does_not_wait_for_a_follow_up_that_nobody_has_seen(
    stage: Stage, slots: int
) -> None:
    """It is stopped at once, void, and nothing of it is left to be seen."""
    held = Held("Still there?")
    async with stage.world(EAGER, models={"guide": lines("Oslo.", held)}, slots=slots) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "I am moving.")
            passing = asyncio.create_task(world.pass_time(seconds=30))
            await held.asked.wait()
            await world.segue.send(thread, "Never mind")
            await seen.until_said("Fine.")
            await passing
            assert held.is_stopped
            everything = ["I am moving.", "Oslo.", "Never mind", "Fine."]
            assert (stored(seen.events), seen.count(MessageRetracted)) == (everything, 0)
        _, follow_up, _ = await world.journal.turns.list_of(thread)
        assert (follow_up.kind, follow_up.state) == (TurnKind.FOLLOW_UP, TurnState.VOID)


async def test_a_follow_up_of_another_process_is_stopped_by_a_message_here(database: str) -> None:
    """It hears of the user's words, and its model is not asked any further."""
    held = Held("Still there?")
    async with (
        process(database, lines(held), EAGER) as there,
        process(database, always("Fine."), EAGER) as here,
    ):
        thread = await new_thread(here.segue)
        await arm_now(there.system.deps, thread)
        await here.system.runtime.turns.close(timedelta(0))
        await asyncio.wait_for(held.asked.wait(), PATIENCE)
        async with tab(here.segue, thread) as seen:
            await here.segue.send(thread, "Hi")
            await until(lambda: held.is_stopped)
            await seen.until_said("Fine.")
            assert seen.texts == ["Hi", "Fine."]


async def arm_now(deps: Deps, thread: str) -> None:
    """A follow-up that is due."""
    now = deps.clock.now()
    await deps.journal.timers.arm(NewTimer(thread, now, "check_in"), ids=deps.ids, now=now)
    deps.wakeups.timers.now()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


# What is no message.


@pytest.mark.parametrize(
    "content",
    [
        "",
        "  \n",
        [],
        [{"type": "text", "text": ""}],
        [{"type": "tool_use", "id": "x", "name": "pay", "input": {}}],
        [{"type": "image"}],
        HumanMessage(""),
        AIMessage("I am the agent"),
        None,
        7,
        b"bytes",
        {"text": "Hi"},
    ],
)
async def test_what_is_no_message_is_refused(sqlite_stage: Stage, content: Any) -> None:
    """Nothing is stored, and nothing that was planned is dropped."""
    async with sqlite_stage.world(EAGER, models={"guide": lines()}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hi")
        with pytest.raises(UsageError):
            await world.segue.send(thread, content)
        await world.clock.settle()
        assert await world.heard(thread) == ["Hi", "Fine."]
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.PENDING


@pytest.mark.parametrize("how", ["never", "ENQUEUE", "", 3, True])
async def test_an_unknown_strategy_is_refused(sqlite_stage: Stage, how: Any) -> None:
    """It is not taken for another one, and nothing is stored."""
    async with sqlite_stage.world() as world:
        thread = await new_thread(world.segue)
        with pytest.raises(UsageError):
            await world.segue.send(thread, "Hi", strategy=how)
        assert await world.heard(thread) == []


async def test_a_thread_that_is_not_there_takes_no_message(stage: Stage) -> None:
    """Nor a wish to stop."""
    async with stage.world() as world:
        for step in (world.segue.send("nowhere", "Hi"), world.segue.cancel("nowhere")):
            with pytest.raises(NotFoundError):
                await step


async def test_a_stored_message_is_accepted_although_the_answer_could_not_be_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gets an error sends again; so there is none once the message is stored."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "One")
        await held.asked.wait()

        async def away(*args: Any, **kwargs: Any) -> Any:
            del args, kwargs
            raise BackendError("The database is away.")

        with monkeypatch.context() as patched:
            patched.setattr(world.journal.turns, "get", away)
            await world.segue.send(thread, "Two", strategy=DoubleTexting.INTERRUPT)
        held.go.set()
        await world.clock.settle()
        assert (await world.heard(thread))[0:2] == ["One", "Two"]
        assert (await world.heard(thread))[-1] == "Fine."


# Cancelling.


async def test_cancelling_stops_the_model_and_keeps_what_was_seen(stage: Stage) -> None:
    """Those who listen are told, those who come later too, and the next message works."""
    model = Paced(script=[HELLO, "Fine.", "Fine."])
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            accepted = await world.segue.send(thread, "One")
            model.let(2)
            await seen.until_draft("Hello there ")
            [stopped] = await world.segue.cancel(thread)
            assert stopped.id == accepted.turn.id
            await seen.until_heard(TurnCancelled)
            assert model.stopped == 1
            assert seen.events[-1] == TurnCancelled(accepted.turn.id)
            assert (seen.texts, seen.drafts) == (["One", "Hello there "], {})
            assert seen.count(MessageRetracted) == 0  # it stays on the screen
        async with tab(world.segue, thread) as late:
            await late.until_heard(TurnCancelled)
            assert stored(late.events) == ["One", "Hello there ", "TurnCancelled"]
        model.finish()
        await assert_all_is_whole(world, thread, model)
        assert await world.heard(thread) == ["One", "Hello there ", "And now?", "Fine."]


async def test_cancelling_nothing_changes_nothing(stage: Stage) -> None:
    """Nothing is said, nothing is stored, and the next message is answered."""
    async with stage.world(models={"guide": always("Fine.")}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            assert await world.segue.cancel(thread) == []
            await world.say(thread, "Hi")
            await seen.until_said("Fine.")
            assert await world.segue.cancel(thread) == []
            await world.say(thread, "Hi again")
            await seen.until(lambda tab: len(tab.said) == 4)
            assert seen.count(TurnCancelled) == 0


async def test_a_queued_turn_is_cancelled_without_asking_the_model(stage: Stage) -> None:
    """It ends when it comes to its turn, and what runs is not touched."""
    held = Held()
    model = lines(held)
    async with stage.world(models={"guide": model}, slots=1) as world:
        busy, waiting = await new_thread(world.segue), await new_thread(world.segue)
        await world.segue.send(busy, "One")
        await held.asked.wait()
        accepted = await world.segue.send(waiting, "Two")
        [cancelled] = await world.segue.cancel(waiting)
        assert (cancelled.id, cancelled.state) == (accepted.turn.id, TurnState.QUEUED)
        held.go.set()
        async with tab(world.segue, waiting) as seen:
            await seen.until_heard(TurnCancelled)
            assert stored(seen.events) == ["Two", "TurnCancelled"]
        await world.clock.settle()
        assert await world.heard(busy) == ["One", "Here I am."]
        assert len(model.seen) == 1
        await assert_all_is_whole(world, waiting, model)


async def test_all_turns_of_a_thread_are_cancelled(stage: Stage) -> None:
    """The one that runs and those that wait behind it."""
    held = Held()
    model = lines(held)
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        for text in ("One", "Two", "Three"):
            await world.segue.send(thread, text)
        await held.asked.wait()
        assert len(await world.segue.cancel(thread)) == 3
        async with tab(world.segue, thread) as seen:
            await seen.until(lambda tab: tab.count(TurnCancelled) == 3)
            assert seen.texts == ["One", "Two", "Three"]
        assert (held.is_stopped, len(model.seen)) == (True, 1)
        await assert_all_is_whole(world, thread, model)


async def test_a_collected_turn_is_cancelled_at_once(stage: Stage) -> None:
    """It does not wait for more; what comes then is answered by itself."""
    model = ScriptedChatModel(script=echo)
    async with stage.world(models={"guide": model}, double_texting="collect") as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "One")
            await world.say(thread, "Two")
            assert len(await world.segue.cancel(thread)) == 1
            await world.clock.settle()
            await seen.until_heard(TurnCancelled)
            await world.say(thread, "Three")
            await world.pass_time(seconds=2)
            await seen.until_said("You said: Three")
            everything = ["One", "Two", "TurnCancelled", "Three", "You said: Three"]
            assert stored(seen.events) == everything
        assert len(model.seen) == 1


async def test_a_turn_of_another_process_is_cancelled(database: str) -> None:
    """It hears of the wish, keeps what was seen there, and says so to all."""
    model = Paced(script=[HELLO])
    async with process(database, model) as there, process(database, always("?")) as here:
        await here.only_listen()
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen, tab(there.segue, thread) as direct:
            await here.segue.send(thread, "Hi")
            model.let(2)
            await direct.until_draft("Hello there ")
            await here.segue.cancel(thread)
            for each in (seen, direct):
                await each.until_heard(TurnCancelled)
                assert each.texts == ["Hi", "Hello there "]
        assert model.stopped == 1


async def test_a_wish_to_stop_is_heard_later_if_the_database_was_away(database: str) -> None:
    """It is stored; who keeps the turn's lease finds it."""
    held = Held()
    async with process(database, lines(held), lease_for=timedelta(seconds=0.9)) as here:
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen:
            await here.segue.send(thread, "Hi")
            await held.asked.wait()

            async def away(turn_id: int) -> Any:
                raise BackendError(f"Where is turn {turn_id}? The database is away.")

            here.system.deps.journal.turns.get = away  # type: ignore[method-assign]
            assert len(await here.segue.cancel(thread)) == 1
            await seen.until_heard(TurnCancelled)


async def test_cancelling_a_tool_leaves_the_batch_whole(stage: Stage) -> None:
    """The tool is stopped, and its call gets a result that says so."""
    tool = Tool()
    calls = [{"name": "look_up", "args": {"name": name}, "id": name} for name in ("quick", "slow")]
    model = lines(AIMessage("Let me see.", tool_calls=calls))
    agent = plain_agent(tools=[tool.look_up])
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "One")
            await asyncio.wait_for(tool.asked.wait(), PATIENCE)
            await seen.until_said("Let me see.")
            await world.segue.cancel(thread)
            await seen.until_heard(TurnCancelled)
            assert tool.is_stopped
            assert stored(seen.events) == ["One", "Let me see.", "TurnCancelled"]
        [batch] = await batches_of(world, thread)
        results = {m.tool_call_id: m.text for m in batch.messages if isinstance(m, ToolMessage)}
        assert results["slow"].startswith("Interrupted")
        assert results.keys() == {"quick", "slow"}
        await assert_all_is_whole(world, thread, model)


async def test_a_driver_that_answers_a_cancellation_with_its_own_error_is_stopped_all_the_same(
    stage: Stage,
) -> None:
    """The user wished to stop, and is not told that something failed."""

    async def stubborn(messages: Any) -> str:
        del messages
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("the request was torn down") from None
        return ""

    asked = asyncio.Event()
    async with stage.world(models={"guide": lines(stubborn)}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "One")
            await asked.wait()
            await world.segue.cancel(thread)
            await seen.until_heard(TurnCancelled)
            await world.say(thread, "Two")
            await seen.until_said("Fine.")
            assert stored(seen.events) == ["One", "TurnCancelled", "Two", "Fine."]
