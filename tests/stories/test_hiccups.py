"""Stories of hiccups: a database that is away for a moment costs a moment, and no reply."""

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from segue.errors import BackendError
from segue.journal.records import TurnKind, TurnState
from segue.runtime.clock import sleep
from segue.simulate.world import Stage, World, plain_agent
from tests.stories.scenes import TOLD, eager_agent, model_of, new_thread, sent_at

pytestmark = pytest.mark.anyio


def away_once(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step of the journal that fails the first time."""
    times = iter([True])

    async def faulty(*args: Any, **kwargs: Any) -> Any:
        if next(times, False):
            raise BackendError("The server closed the connection. Nothing was written.")
        return await step(*args, **kwargs)

    return faulty


def break_once(world: World, patch: pytest.MonkeyPatch, step: str) -> None:
    part, name = step.split(".")
    steps = getattr(world.journal, part)
    patch.setattr(steps, name, away_once(getattr(steps, name)))


@pytest.mark.parametrize("step", ["messages.window", "turns.finish"])
async def test_a_reply_outlives_a_hiccup_of_the_journal(
    stage: Stage, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step fails, the turn is tried again a moment later, and answered once."""
    model = model_of()
    async with stage.world(plain_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        break_once(world, monkeypatch, step)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(seconds=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]


@pytest.mark.parametrize(
    "step", ["threads.get", "timers.count_follow_ups", "turns.show", "turns.finish"]
)
async def test_a_follow_up_outlives_a_hiccup_of_the_journal(
    stage: Stage, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the gates are asked once more, and while the next one is planned."""

    def speak(messages: Any) -> str:
        if len(messages) > 2:  # the follow-up: it is being written, and not yet shown
            break_once(world, monkeypatch, step)
        return TOLD

    agent = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model_of(speak, speak)}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD, TOLD]
        assert len(await sent_at(world, thread)) == 1
        [follow_up, _] = await world.journal.turns.list_of(thread)
        assert (follow_up.kind, follow_up.state) == (TurnKind.FOLLOW_UP, TurnState.DONE)
        assert follow_up.attempts == 2


@pytest.mark.parametrize("error", [sqlite3.OperationalError, psycopg.OperationalError])
async def test_a_reply_outlives_a_hiccup_of_the_checkpoints(
    stage: Stage, error: type[Exception]
) -> None:
    """What LangGraph's savers raise while their database is away fails no turn."""
    async with stage.world(plain_agent(), models={"guide": model_of(error("away"))}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(seconds=1)
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]


async def test_an_outage_that_does_not_end_is_told(stage: Stage) -> None:
    """After as many tries as a turn may have it fails, and says of what."""
    lines = [psycopg.OperationalError("away")] * 3
    world_of = stage.world(plain_agent(), models={"guide": model_of(*lines)}, max_interruptions=3)
    async with world_of as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(minutes=1)
        [turn] = await world.journal.turns.list_of(thread)
        assert (turn.state, turn.attempts) == (TurnState.FAILED, 3)
        assert turn.error == "The reply failed (OperationalError)."


async def test_a_turn_that_was_lost_is_not_worked_on_beside_its_next_try(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that could not keep a lease and takes the turn again drops its first try."""
    stopped: list[str] = []

    async def hang(messages: Any) -> str:
        try:
            await sleep(world.clock, timedelta(hours=1))
        finally:
            stopped.append(messages[-1].text)
        return "Never said."

    async def fail(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise BackendError("The server closed the connection. Nothing was written.")

    async with stage.world(plain_agent(), models={"guide": model_of(hang)}) as world:
        thread = await new_thread(world)
        monkeypatch.setattr(world.journal.turns, "extend", fail)
        await world.segue.send(thread, "Where is Oslo?")
        await world.pass_time(minutes=1)
        assert stopped == ["Where is Oslo?"]
        assert await world.heard(thread) == ["Where is Oslo?", TOLD]
