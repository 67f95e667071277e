"""What the requirements demand of turns at the same time, and of their beginning and end."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from segue.core.turn_rules import DoubleTexting
from segue.errors import BackendError
from segue.facade import Segue
from segue.journal.effects import Effect
from segue.journal.feed import FeedPage
from segue.journal.records import EffectState, TurnState
from segue.runtime.clock import SystemClock, Wakeup
from segue.settings import Settings
from segue.simulate.world import START, Stage, plain_agent
from tests.runtime.scenes import Paced, batches_of, calling, echo, lines, tab
from tests.stories.scenes import new_thread

pytestmark = pytest.mark.anyio

QUIET: dict[str, Any] = {"autonomy": {"decider": "none"}}


# Many at once.


async def test_two_threads_keep_their_order_and_do_not_mix(stage: Stage) -> None:
    """Ten messages each, sent in turns and at once: each thread is answered in its own order."""
    async with stage.world(plain_agent(**QUIET), models={"guide": lines(*[echo] * 20)}) as world:
        threads = [await new_thread(world), await new_thread(world)]
        sent = {thread: [f"{name} {n}" for n in range(10)] for name, thread in enumerate(threads)}
        for pair in zip(*sent.values(), strict=True):
            for thread, text in zip(threads, pair, strict=True):
                await world.segue.send(thread, text)
        await world.clock.settle()
        for thread, texts in sent.items():
            replies = [text for text in await world.heard(thread) if text not in texts]
            assert replies == [f"You said: {text}" for text in texts]
            batches = await batches_of(world, thread)
            assert [[m.text for m in batch.messages] for batch in batches] == [
                [text, f"You said: {text}"] for text in texts
            ]


async def test_a_hundred_conversations_run_at_the_same_time(stage: Stage) -> None:
    """All of them are with the model at once, and each gets its own reply."""
    count, everyone = 100, asyncio.Barrier(100)

    async def meet(messages: list[BaseMessage]) -> str:
        await everyone.wait()
        return echo(messages)

    world_of = stage.world(
        plain_agent(**QUIET), models={"guide": lines(*[meet] * count)}, slots=count
    )
    async with world_of as world:
        threads = [await new_thread(world, f"user {n}") for n in range(count)]
        for n, thread in enumerate(threads):
            await world.segue.send(thread, f"I am {n}.")
        await world.clock.settle()
        told = [await world.heard(thread) for thread in threads]
        assert told == [[f"I am {n}.", f"You said: I am {n}."] for n in range(count)]


async def test_two_processes_answer_each_message_once(stage: Stage) -> None:
    """Whoever takes a turn has it alone, and all of it arrives."""
    models = [lines(*[echo] * 40), lines(*[echo] * 40)]
    async with AsyncExitStack() as stack:
        worlds = [
            await stack.enter_async_context(stage.world(plain_agent(**QUIET), models={"guide": m}))
            for m in models
        ]
        threads = [await new_thread(worlds[0]) for _ in range(10)]
        for n in range(20):
            await worlds[n % 2].segue.send(threads[n % 10], f"Message {n}.")
        await worlds[0].clock.settle()
        for n, thread in enumerate(threads):
            texts = [f"Message {n}.", f"Message {n + 10}."]
            told = await worlds[0].heard(thread)
            assert sorted(told) == sorted([*texts, *(f"You said: {text}" for text in texts)])
            turns = await worlds[0].journal.turns.list_of(thread)
            assert [(turn.state, turn.attempts) for turn in turns] == [(TurnState.DONE, 1)] * 2
        assert sum(len(model.seen) for model in models) == 20


# Beginning, end, and word between them.


async def test_nothing_is_done_before_the_start_or_after_the_stop(sqlite_stage: Stage) -> None:
    """A message waits for whoever starts next, and one start is one run."""
    async with sqlite_stage.world(plain_agent(**QUIET), models={"guide": lines()}) as world:
        thread = await new_thread(world)
        await world.system.runtime.turns.close(timedelta(0))
        await world.say(thread, "Is anybody there?")
        await world.pass_time(hours=1)
        assert await world.heard(thread) == ["Is anybody there?"]
    await sqlite_stage.clock.advance(timedelta(hours=1))
    async with sqlite_stage.world(plain_agent(**QUIET), models={"guide": lines()}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Is anybody there?", "Fine."]
    opened = Segue.open(Settings(database=sqlite_stage.database, agents=(plain_agent(),)))
    async with opened:
        with pytest.raises((AttributeError, RuntimeError)):
            await opened.__aenter__()


async def test_a_wake_up_that_comes_before_the_waiting_is_not_lost(sqlite_stage: Stage) -> None:
    """Neither between a worker's look and its sleep, nor of a turn that is over already."""
    wakeup = Wakeup()
    wakeup.clear()
    wakeup.now()
    async with asyncio.timeout(5):
        await SystemClock().wait(wakeup.next_at, wakeup.event)
    assert wakeup.is_due(START)
    async with sqlite_stage.world(plain_agent(**QUIET), models={"guide": lines()}) as world:
        accepted = await world.segue.send(await new_thread(world), "Hello.")
        await world.clock.settle()
        waiting = asyncio.create_task(world.segue.wait_turn(accepted.turn))
        await world.pass_time(seconds=1)
        assert (await waiting).state is TurnState.DONE


async def test_a_new_message_stops_the_stream_and_nothing_is_left_of_it(stage: Stage) -> None:
    """By the strategy `interrupt` the model writes no further word; what was seen is kept, and
    neither a draft nor a running turn remains.
    """
    model = Paced(script=["One two three four.", "Fine."])
    async with stage.world(plain_agent(**QUIET), models={"guide": model}) as world:
        thread = await new_thread(world)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Count!")
            model.let(2)
            await seen.until_draft("One two ")
            await world.segue.send(thread, "Stop!", strategy=DoubleTexting.INTERRUPT)
            await seen.until_said("One two ")
            assert model.stopped == 1
            model.finish()
            await seen.until_said("Fine.")
        assert await world.heard(thread) == ["Count!", "Stop!", "One two ", "Fine."]
        assert (await world.journal.feed.read(thread)).drafts == {}
        turns = await world.journal.turns.list_of(thread)
        assert [turn.state for turn in turns] == [TurnState.DONE] * 2


async def test_a_failed_broadcast_does_not_fail_a_stored_memory(stage: Stage) -> None:
    """No listener can be told: the fact is kept, and the turn that kept it is done."""
    fact = "Sam likes mushrooms."
    agent = plain_agent(memory={"enabled": True}, **QUIET)
    model = lines(calling("remember", content=fact, key="food"), "Noted.")
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)

        async def read(*_: Any, **__: Any) -> FeedPage:
            raise BackendError("The database is away.")

        async with tab(world.segue, thread) as seen:
            await world.clock.settle()
            world.journal.feed.read = read  # type: ignore[method-assign]
            await world.say(thread, "I like mushrooms.")
            assert "Noted." not in seen.texts
        [memory] = await world.journal.memories.list_of("guide", "ann")
        assert (memory.key, memory.content) == ("food", fact)
        [turn] = await world.journal.turns.list_of(thread)
        assert turn.state is TurnState.DONE


async def test_an_effect_that_fails_does_not_keep_the_next_from_being_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that are due at once, the first raises and waits for its next try; both are tried."""
    hook = {"url": "http://127.0.0.1:9/", "secret": "a secret for one test", "all_replies": True}
    agent = plain_agent(webhook=hook, **QUIET)
    async with stage.world(agent, models={"guide": lines()}) as world:
        threads = [await new_thread(world), await new_thread(world)]
        failing, working = threads

        async def deliver(effect: Effect) -> str:
            if effect.thread_id == failing:
                raise RuntimeError("broken")
            return "taken"

        monkeypatch.setattr(world.system.runtime.effects, "_handlers", {"webhook": deliver})
        for thread in threads:
            await world.say(thread, "Hello.")
        [failed] = await world.journal.effects.list_of(failing)
        [done] = await world.journal.effects.list_of(working)
        assert (failed.state, failed.attempts, failed.error) == (
            EffectState.PENDING,
            1,
            "RuntimeError",
        )
        assert (done.state, done.evidence) == (EffectState.DONE, "taken")
