"""Stories of turns that are tried several times: by faults of their own, and by those of others."""

import asyncio
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import BaseMessage

from segue.agent.scripted import Line
from segue.journal.records import TurnState
from segue.runtime.clock import sleep
from segue.simulate.world import START, Stage, VirtualClock
from tests.runtime.scenes import PATIENCE, Held, lines
from tests.stories.scenes import TOLD, model_of, new_thread

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)
ASKED = "Where is Oslo?"


def breaking_off(clock: VirtualClock, span: timedelta, asked_at: list[datetime]) -> Line:
    """A line of a model that works for so long, and then cannot be reached any more."""

    async def think(messages: list[BaseMessage]) -> str:
        del messages
        asked_at.append(clock.now())
        await sleep(clock, span)
        raise ConnectionError("no route")

    return think


async def test_a_reply_outlives_a_day_of_deployments(stage: Stage) -> None:
    """A process that stops hands its turn back, and that is no fault of the turn."""
    for number in range(9):
        held = Held("Lost.")
        async with stage.world(models={"guide": lines(held)}, patience=0) as world:
            if number == 0:
                thread = await new_thread(world)
                await world.segue.send(thread, ASKED)
            async with asyncio.timeout(PATIENCE):
                await held.asked.wait()
    async with stage.world(models={"guide": model_of()}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == [ASKED, TOLD]
        [turn] = await world.journal.turns.list_of(thread)
        assert (turn.state, turn.faults, turn.interruptions) == (TurnState.DONE, 0, 9)


async def test_a_reply_outlives_a_server_that_keeps_crashing(stage: Stage) -> None:
    """Nine workers died while they had it; the tenth answers."""
    async with stage.world(models={"guide": model_of()}) as world:
        await world.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(world)
        await world.segue.send(thread, ASKED)
        for number in range(9):
            claim = world.journal.turns.claim_one(
                f"dead {number}", now=world.clock.now(), lease_for=LEASE
            )
            assert await claim is not None
            await world.pass_time(LEASE)
    async with stage.world(models={"guide": model_of()}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == [ASKED, TOLD]


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_turn_that_fails_by_itself_has_its_number_of_tries(
    stage: Stage, tries: int
) -> None:
    """However often a model may be asked again, and whatever interrupted the turn before."""
    held, asked_at = Held("Lost."), list[datetime]()
    async with stage.world(models={"guide": lines(held)}, patience=0) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, ASKED)
        await held.asked.wait()
    model = lines(*[breaking_off(stage.clock, timedelta(0), asked_at)] * 9)
    async with stage.world(
        models={"guide": model}, retries=9, max_attempts=tries, batch_time=timedelta(days=1)
    ) as world:
        await world.pass_time(hours=12)
        [turn] = await world.journal.turns.list_of(thread)
        assert (turn.state, len(asked_at)) == (TurnState.FAILED, tries)


@pytest.mark.parametrize(("minutes", "tries"), [(4, 1), (8, 2), (30, 3)])
async def test_the_time_of_a_batch_is_that_of_all_its_tries(
    stage: Stage, minutes: int, tries: int
) -> None:
    """A try that could not end in time, pause included, is not begun."""
    asked_at: list[datetime] = []
    model = lines(*[breaking_off(stage.clock, 4 * MINUTE, asked_at)] * 9)
    async with stage.world(models={"guide": model}, batch_time=minutes * MINUTE) as world:
        thread = await new_thread(world)
        await world.segue.send(thread, ASKED)
        await world.pass_time(hours=1)
        [turn] = await world.journal.turns.list_of(thread)
        assert (turn.state, len(asked_at)) == (TurnState.FAILED, tries)
        assert "cannot be reached" in (turn.error or "")


@pytest.mark.parametrize("minutes", [9, 10])
async def test_what_a_dead_worker_did_counts_and_that_none_was_there_does_not(
    stage: Stage, minutes: int
) -> None:
    """Nine minutes of work and a day of silence leave a minute of ten; ten leave nothing."""
    async with stage.world(models={"guide": model_of()}) as world:
        await world.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(world)
        await world.segue.send(thread, ASKED)
        lease = await world.journal.turns.claim_one("dead", now=START, lease_for=LEASE)
        assert lease is not None
        at = START + minutes * MINUTE
        await world.journal.turns.extend(lease, now=at, lease_for=LEASE)
    await stage.clock.advance(timedelta(days=1))
    async with stage.world(models={"guide": model_of()}) as world:
        await world.clock.settle()
        [turn] = await world.journal.turns.list_of(thread)
        if minutes < 10:
            assert await world.heard(thread) == [ASKED, TOLD]
        else:
            assert (turn.state, turn.error) == (
                TurnState.FAILED,
                "The reply took longer than 600 s.",
            )
