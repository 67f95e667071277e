"""Turns: each is answered once, however often it has to be tried, and by whomever."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, NotFoundError
from segue.events import MessageRetracted, TurnFailed
from segue.journal.records import Claimed, Turn, TurnLease, TurnState
from segue.journal.sqlite import SqliteJournal
from segue.runtime import runtime
from segue.runtime.turn_failures import StopReason
from segue.simulate.world import START, Stage, World, plain_agent
from segue.stores import JOURNAL_FILE
from segue.testing.providers import request_problems
from tests.journal.stores import steps_of
from tests.runtime.scenes import (
    HELLO,
    PATIENCE,
    Held,
    Paced,
    always,
    batches_of,
    calling,
    echo,
    lines,
    new_thread,
    process,
    stored,
    tab,
)

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
EAGER = plain_agent(
    autonomy={
        "delays": {"check_in": 30, "question_unanswered": 30},
        "policy": {"cooldown": 0, "max_consecutive": 1},
    }
)


def double(number: int) -> str:
    """Twice a number."""
    return str(2 * number)


def patch(world: World, step: str, by: Any) -> None:
    part, name = step.split(".")
    setattr(getattr(world.journal, part), name, by)


async def away(*args: Any, **kwargs: Any) -> Any:
    """A step of a database that cannot be reached."""
    del args, kwargs
    raise BackendError("The database is away. Nothing was written.")


# Many at once.


class Crowd:
    """A script that holds every answer back, and counts how many are written at once."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most = self.most_of_one = 0
        self.go = asyncio.Event()
        self._changed = asyncio.Event()

    async def __call__(self, messages: list[BaseMessage]) -> str:
        thread = messages[-1].text.partition(" ")[0]
        self.now[thread] += 1
        self.most = max(self.most, self.now.total())
        self.most_of_one = max(self.most_of_one, self.now[thread])
        self._changed.set()
        await self.go.wait()
        await asyncio.sleep(0)
        self.now[thread] -= 1
        return echo(messages)

    async def until(self, running: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.now.total() < running:
                self._changed.clear()
                await self._changed.wait()


async def test_a_process_works_on_as_many_turns_as_it_has_slots(stage: Stage) -> None:
    """Of all threads together, and of one thread never on two; all are answered in the end."""
    crowd = Crowd()
    model = ScriptedChatModel(script=crowd)
    async with stage.world(models={"guide": model}, slots=3) as world:
        threads = [await new_thread(world.segue) for _ in range(7)]
        for number in range(2):
            for thread in threads:
                await world.segue.send(thread, f"{thread} {number}")
        await crowd.until(3)
        # There is work left, and nobody takes it.
        assert await world.system.runtime.turns.step() is None
        assert crowd.now.total() == 3
        crowd.go.set()
        await world.clock.settle()
        assert (crowd.most, crowd.most_of_one) == (3, 1)
        for thread in threads:
            replies = [text for text in await world.heard(thread) if text.startswith("You")]
            assert replies == [f"You said: {thread} 0", f"You said: {thread} 1"]


# Models that fail.


def failing(times: int, clock: Callable[[], datetime], asked_at: list[datetime]) -> Any:
    """A script of a model that cannot be reached so many times, and when it was asked."""

    def speak(messages: list[BaseMessage]) -> Any:
        asked_at.append(clock())
        return ConnectionError("no route") if len(asked_at) <= times else echo(messages)

    return speak


def seconds(asked_at: list[datetime]) -> list[float]:
    return [(moment - START).total_seconds() for moment in asked_at]


async def test_a_model_that_fails_for_a_moment_is_asked_again_after_growing_pauses(
    stage: Stage,
) -> None:
    """The user notices nothing but the wait."""
    asked_at: list[datetime] = []
    model = ScriptedChatModel(script=failing(2, stage.clock.now, asked_at))
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await world.pass_time(seconds=4.9)
            assert seconds(asked_at) == [0, 1]
            await world.pass_time(seconds=0.1)
            await seen.until_said("You said: Hi")
            assert stored(seen.events) == ["Hi", "You said: Hi"]
        assert seconds(asked_at) == [0, 1, 5]


async def test_a_turn_in_somebodys_hands_is_looked_at_again_by_real_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another step holds its thread for a moment: a clock that stands still does not hold it up."""
    async with stage.world(models={"guide": ScriptedChatModel(script=echo)}) as world:
        thread = await new_thread(world.segue)
        await world.clock.settle()
        claim, looks = world.journal.turns.claim, 0

        async def held(*args: Any, now: datetime, **kwargs: Any) -> Claimed:
            nonlocal looks
            looks += 1
            return Claimed([], now) if looks < 3 else await claim(*args, now=now, **kwargs)

        monkeypatch.setattr(world.journal.turns, "claim", held)
        await world.say(thread, "Hi")
        assert world.clock.now() == START
        assert await world.heard(thread) == ["Hi", "You said: Hi"]


async def test_a_model_that_keeps_failing_is_given_up_and_the_user_is_told(stage: Stage) -> None:
    """Honestly, and without the provider's words; the next message works."""
    asked_at: list[datetime] = []
    model = ScriptedChatModel(script=failing(3, stage.clock.now, asked_at))
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            accepted = await world.segue.send(thread, "Hi")
            await world.pass_time(hours=1)
            await seen.until_heard(TurnFailed)
            [failed] = [event for event in seen.events if isinstance(event, TurnFailed)]
            assert (failed.code, failed.turn_id) == ("backend", accepted.turn.id)
            assert "cannot be reached" in failed.reason
            assert "no route" not in failed.reason
            await world.say(thread, "Again")
            await seen.until_said("You said: Again")
            assert stored(seen.events) == ["Hi", "TurnFailed", "Again", "You said: Again"]
        assert seconds(asked_at)[:3] == [0, 1, 5]
        assert len(asked_at) == 4
        assert all(batch.is_complete for batch in await batches_of(world, thread))
        assert request_problems(model.seen[-1]) == []


@pytest.mark.parametrize("retries", [0, 1])
async def test_how_often_a_model_is_asked_again_is_a_setting(
    sqlite_stage: Stage, retries: int
) -> None:
    """None means: once, and no more."""
    asked_at: list[datetime] = []
    model = ScriptedChatModel(script=failing(9, sqlite_stage.clock.now, asked_at))
    async with sqlite_stage.world(models={"guide": model}, retries=retries) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hi")
        await world.pass_time(hours=1)
        assert len(asked_at) == 1 + retries


def test_pauses_grow() -> None:
    """From a second to four to sixteen."""
    rules = TurnRules()
    assert [rules.pause_after(attempts).total_seconds() for attempts in (1, 2, 3)] == [1, 4, 16]


@pytest.mark.parametrize("error", [ValueError("a defect"), BackendError("no such thing")])
async def test_what_cannot_succeed_later_fails_at_once(stage: Stage, error: Exception) -> None:
    """Nobody waits for a second try that fails like the first."""
    model = lines(error)
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_heard(TurnFailed)
            assert (len(model.seen), world.clock.now()) == (1, START)
            await world.say(thread, "Again")
            await seen.until_said("Fine.")
        assert all(batch.is_complete for batch in await batches_of(world, thread))


# Processes that die.


async def die_with(world: World, times: int) -> None:
    """Take the next turn and be heard of no more, so many times."""
    for number in range(times):
        lease = await world.journal.turns.claim_one(
            f"dead {number}", now=world.clock.now(), lease_for=LEASE
        )
        assert lease is not None
        await world.pass_time(LEASE)


@pytest.mark.parametrize("deaths", [1, 2, 3])
async def test_a_turn_whose_process_died_is_tried_again_but_not_for_ever(
    stage: Stage, deaths: int
) -> None:
    """It may be what kills them: after so many tries it is closed, and the user is told."""
    async with stage.world(models={"guide": lines()}) as world:
        await world.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(world.segue)
        accepted = await world.segue.send(thread, "Hi")
        await die_with(world, deaths)
    model = ScriptedChatModel(script=echo)
    async with (
        stage.world(models={"guide": model}, max_interruptions=3) as world,
        tab(world.segue, thread) as seen,
    ):
        await world.clock.settle()
        is_hopeless = deaths == 3
        await seen.until(lambda tab: len(stored(tab.events)) == 2)
        assert stored(seen.events)[1] == ("TurnFailed" if is_hopeless else "You said: Hi")
        assert len(model.seen) == (0 if is_hopeless else 1)
        turn = await world.journal.turns.get(accepted.turn.id)
        assert turn.state is (TurnState.FAILED if is_hopeless else TurnState.DONE)
        assert turn.attempts == deaths + 1
        await world.say(thread, "Again")
        assert (await world.heard(thread))[-1] == "You said: Again"
        assert all(batch.is_complete for batch in await batches_of(world, thread))
        assert request_problems(model.seen[-1]) == []


async def test_a_process_that_lost_its_lease_writes_nothing(database: str) -> None:
    """Another one has answered; what the first one says then is refused, and shown to nobody."""
    late, clock = Paced(script=["I am too late"]), Stage(database)
    async with clock.world(models={"guide": late}, patience=0) as slow:
        thread = await new_thread(slow.segue)
        async with tab(slow.segue, thread) as seen:
            await slow.segue.send(thread, "Hi")
            late.let(2)
            await seen.until_draft("I am ")
            # Its clock stands still, so it does not keep its lease; for the other time goes on.
            async with Stage(database).world(models={"guide": always(HELLO)}) as quick:
                await quick.pass_time(LEASE)
                assert await quick.heard(thread) == ["Hi", HELLO]
            late.finish()
            await seen.until_said(HELLO)
            await slow.clock.settle()
            assert (seen.texts, seen.drafts) == (["Hi", HELLO], {})
            assert seen.count(MessageRetracted) == 1
        assert await slow.heard(thread) == ["Hi", HELLO]
        [batch] = await batches_of(slow, thread)
        assert len(batch.messages) == 2


async def test_a_process_that_finds_its_lease_lost_stops_the_model(stage: Stage) -> None:
    """Another one works on the turn: here it would only cost, and its tools would run twice."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Hi")
        await held.asked.wait()
        later = world.clock.now() + LEASE
        assert (
            await world.journal.turns.claim_one("another", now=later, lease_for=LEASE) is not None
        )
        await world.system.runtime.turns.extend_leases()
        async with asyncio.timeout(PATIENCE):
            await world.clock.settle()
        assert held.is_stopped
        assert await world.heard(thread) == ["Hi"]


async def test_a_process_that_takes_its_own_lost_turn_again_answers_once(database: str) -> None:
    """The first try is stopped, and only the second is heard."""
    held = Held("Never said")
    async with process(database, lines(held, HELLO), lease_for=timedelta(seconds=1)) as here:
        journal = here.system.deps.journal
        extend_turn = journal.turns.extend

        async def extend(lease: TurnLease, **kwargs: Any) -> TurnLease:
            return await (away() if lease.token == 1 else extend_turn(lease, **kwargs))

        journal.turns.extend = extend  # type: ignore[method-assign]
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen:
            await here.segue.send(thread, "Hi")
            await seen.until_said(HELLO)
            assert seen.texts == ["Hi", HELLO]
        assert held.is_stopped


async def test_a_lease_is_kept_while_the_agent_works(stage: Stage) -> None:
    """However long it takes, nobody else takes the turn."""

    async def think(messages: list[BaseMessage]) -> str:
        await slow_clock.wait(START + timedelta(minutes=10), asyncio.Event())
        return echo(messages)

    slow_clock = stage.clock
    model = ScriptedChatModel(script=think)
    other = ScriptedChatModel(script=echo)
    async with (
        stage.world(models={"guide": model}, batch_time=timedelta(hours=1)) as world,
        stage.world(models={"guide": other}) as second,
    ):
        await second.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Hi")
        await world.pass_time(minutes=9)
        claimed = await second.journal.turns.claim(
            "another", now=stage.clock.now(), lease_for=LEASE, limit=5
        )
        assert claimed.leases == []
        await world.pass_time(minutes=1)
        assert await world.heard(thread) == ["Hi", "You said: Hi"]
        assert len(model.seen) == 1


# Processes that stop.


async def test_a_process_that_stops_lets_its_turns_finish(stage: Stage) -> None:
    """What is nearly done is not done twice."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Hi")
        await held.asked.wait()
        asyncio.get_running_loop().call_later(0.05, held.go.set)
    model = always("?")
    async with stage.world(models={"guide": model}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Hi", "Here I am."]
        assert model.seen == []


async def test_a_process_that_stops_hands_back_what_takes_too_long(stage: Stage) -> None:
    """The next one goes on at once, without waiting for a lease, and answers once."""
    paced = Paced(script=["I was about to"])
    async with stage.world(models={"guide": paced}, patience=0) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            paced.let(1)
            await seen.until_draft("I ")
            await world.system.runtime.turns.close(timedelta(0))
            await seen.until_heard(MessageRetracted)
            [turn] = await world.journal.turns.list_of(thread)
            assert turn.state is TurnState.QUEUED
        assert paced.stopped == 1
    async with stage.world(models={"guide": always(HELLO)}) as world:
        await world.clock.settle()
        assert world.clock.now() == START
        assert await world.heard(thread) == ["Hi", HELLO]
        [batch] = await batches_of(world, thread)
        assert len(batch.messages) == 2


async def test_a_finished_tool_does_not_run_again_in_the_next_process(stage: Stage) -> None:
    """What was handed back goes on where it was."""
    runs = []

    def pay(amount: int) -> str:
        """Pay once."""
        runs.append(amount)
        return "Paid."

    held = Held()
    agent = plain_agent(tools=[pay])
    async with stage.world(
        agent, models={"guide": lines(calling("pay", amount=3), held)}, patience=0
    ) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Pay three")
        await held.asked.wait()
    async with stage.world(agent, models={"guide": lines("Done.")}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Pay three", "Done."]
    assert runs == [3]


async def test_a_turn_that_is_taken_while_the_process_stops_is_not_left_behind(
    stage: Stage,
) -> None:
    """It is worked on or handed back; the next process need not wait for its lease."""
    async with stage.world(models={"guide": lines(Held())}, patience=0) as world:
        thread = await new_thread(world.segue)
        await world.clock.settle()
        claim, claimed = world.journal.turns.claim, asyncio.Event()

        async def slowly(*args: Any, **kwargs: Any) -> Claimed:
            found = await claim(*args, **kwargs)
            claimed.set()
            for _ in range(50):  # the answer is on its way while the process is told to stop
                await asyncio.sleep(0)
            return found

        patch(world, "turns.claim", slowly)
        await world.segue.send(thread, "Hi")
        await claimed.wait()
    async with stage.world(models={"guide": always(HELLO)}) as world:
        await world.clock.settle()
        assert world.clock.now() == START
        assert await world.heard(thread) == ["Hi", HELLO]


async def test_a_process_stops_although_the_database_is_away(stage: Stage) -> None:
    """What it could not hand back is taken over when its lease is over."""
    held = Held()
    async with stage.world(models={"guide": lines(held)}, patience=0) as world:
        thread = await new_thread(world.segue)
        await world.segue.send(thread, "Hi")
        await held.asked.wait()
        for step in steps_of(world.journal):
            patch(world, step, away)
    async with stage.world(models={"guide": always(HELLO)}) as world:
        await world.clock.settle()
        assert await world.heard(thread) == ["Hi"]
        await world.pass_time(LEASE)
        assert await world.heard(thread) == ["Hi", HELLO]


# A turn that takes too long.


async def test_a_reply_that_takes_too_long_is_stopped(stage: Stage) -> None:
    """The model is stopped, what was seen is taken back, the user is told, and others go on."""
    paced = Paced(script=echo)
    async with stage.world(models={"guide": paced}, batch_time=0.2) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            paced.let(2)
            await seen.until_heard(TurnFailed)
            [failed] = [event for event in seen.events if isinstance(event, TurnFailed)]
            assert "longer than 0.2 s" in failed.reason
            # On a busy machine the time is up before it has begun.
            assert (paced.stopped, seen.drafts) == (paced.begun, {})
            world.system.runtime.turns._rules = TurnRules()
            paced.finish()
            await world.say(thread, "Again")
            await seen.until_said("You said: Again")
        assert all(batch.is_complete for batch in await batches_of(world, thread))


async def test_a_turn_that_is_stopped_while_it_stores_leaves_its_batch_whole(
    sqlite_stage: Stage,
) -> None:
    """SQLite goes on with a write that nobody waits for; who closes the batch waits for it."""
    held = Held()

    async def call(messages: list[BaseMessage]) -> Any:
        await held(messages)
        return calling("double", number=2)

    model = lines(call)
    agent = plain_agent(tools=[double])
    async with sqlite_stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            await held.asked.wait()
            with locked(sqlite_stage) as let_go:
                append, load_batch = (
                    world.journal.messages.append,
                    world.journal.messages.load_batch,
                )

                async def store(*args: Any, **kwargs: Any) -> Any:
                    turns = world.system.runtime.turns
                    turns._jobs[thread].scope.stop(StopReason.TIME_UP)
                    return await append(*args, **kwargs)

                async def load(*args: Any, **kwargs: Any) -> Any:
                    found = await load_batch(*args, **kwargs)
                    let_go()
                    return found

                patch(world, "messages.append", store)
                patch(world, "messages.load_batch", load)
                asyncio.get_running_loop().call_later(1, let_go)
                held.go.set()
                await seen.until_heard(TurnFailed)
        [batch] = await batches_of(world, thread)
        assert len(batch.messages) == 4
        assert batch.is_complete, batch.reasons
        await world.say(thread, "Again")
        assert request_problems(model.seen[-1]) == []


@contextmanager
def locked(stage: Stage) -> Iterator[Callable[[], object]]:
    """Somebody else writes to the database, until the test lets them go."""
    blocker = sqlite3.connect(Path(stage.database) / JOURNAL_FILE, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        yield lambda: blocker.in_transaction and blocker.execute("ROLLBACK")
    finally:
        blocker.close()


# A database that is away for a moment.


class Hiccup:
    """Makes one call of a journal fail: the one of that number to a step, from now on."""

    def __init__(self, world: World) -> None:
        self.calls: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failed: str | None = None
        self._at: tuple[str, int] | None = None
        for name, step in steps_of(world.journal).items():
            patch(world, name, self._faulty(name, step))

    def at(self, place: tuple[str, int] | None) -> None:
        self.failed, self._at = None, place
        self.calls.clear()
        self.done.clear()

    @property
    def places(self) -> list[tuple[str, int]]:
        """Where it can be, by what was called meanwhile."""
        return [(name, number) for name in self.calls for number in range(self.calls[name])]

    def _faulty(self, name: str, step: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if (name, self.calls[name] - 1) == self._at:
                self.failed = name
                return await away()
            result = await step(*args, **kwargs)
            self.done[name] += 1
            return result

        return call


async def test_whichever_step_of_the_journal_fails_the_turn_is_answered_once(
    stage: Stage,
) -> None:
    """A database that is away for a moment, at whatever moment, costs that moment and no more."""
    agent = plain_agent(tools=[double], autonomy={"enabled": False})
    async with stage.world(agent, models={"guide": ScriptedChatModel(script=_doubling)}) as world:
        hiccup = Hiccup(world)
        failed = set()

        async def ask(place: tuple[str, int] | None) -> list[tuple[str, int]]:
            thread = await new_thread(world.segue)
            hiccup.at(None)
            async with tab(world.segue, thread) as seen:
                # A listener whose first read fails has to ask again itself.
                while not hiccup.done["feed.read"]:  # noqa: ASYNC110 - the bus does not report it
                    await asyncio.sleep(0.001)
                hiccup.at(place)
                try:
                    await world.say(thread, "Two times two?", client_message_id="m1")
                except BackendError:  # it was not stored, so it is sent again
                    await world.say(thread, "Two times two?", client_message_id="m1")
                await world.pass_time(minutes=2)
                failed.add(hiccup.failed)
                places = hiccup.places
                hiccup.at(None)
                await seen.until_said("It is 4.")
                everything = ["Two times two?", "It is 4."]
                assert stored(seen.events) == everything, place
                assert await world.heard(thread) == everything
                assert all(batch.is_complete for batch in await batches_of(world, thread))
            return places

        for place in await ask(None):
            await ask(place)
        assert failed >= {
            "inbox.accept",
            "turns.claim",
            "messages.window",
            "messages.append",
            "turns.finish",
        }


def _doubling(messages: list[BaseMessage]) -> Any:
    if messages[-1].type == "tool":
        return f"It is {messages[-1].text}."
    return calling("double", number=2)


async def test_whichever_step_of_the_journal_fails_the_follow_up_is_sent_once(
    sqlite_stage: Stage,
) -> None:
    """Also while its timer is considered, and while the gates are asked."""
    async with sqlite_stage.world(EAGER, models={"guide": always("Well?")}) as world:
        hiccup = Hiccup(world)
        failed = set()

        async def wait(place: tuple[str, int] | None, number: int) -> list[tuple[str, int]]:
            thread = (await world.segue.create_thread(f"user {number}")).id
            await world.say(thread, "Where is Oslo?")
            hiccup.at(place)
            await world.pass_time(minutes=10)
            failed.add(hiccup.failed)
            places = hiccup.places
            hiccup.at(None)
            assert await world.heard(thread) == ["Where is Oslo?", "Well?", "Well?"], place
            return places

        for number, place in enumerate(await wait(None, 0), 1):
            await wait(place, number)
        assert failed >= {"timers.claim_due", "timers.fire", "turns.show", "turns.finish"}


# Agents that are gone.


async def test_the_turn_of_an_agent_that_is_gone_fails_and_holds_up_nobody(stage: Stage) -> None:
    """The user is told; and if the agent comes back, the conversation goes on."""
    guide, atlas = plain_agent("guide"), plain_agent("atlas")
    model = ScriptedChatModel(script=echo)
    models = {"guide": model, "atlas": ScriptedChatModel(script=echo)}
    async with stage.world(guide, atlas, models=models) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "One")
    async with stage.world(atlas, models={"atlas": models["atlas"]}) as world:
        other = (await world.segue.create_thread("ann", "atlas")).id
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Two")
            await world.say(other, "Hi")
            await seen.until_heard(TurnFailed)
            [failed] = [event for event in seen.events if isinstance(event, TurnFailed)]
            assert failed.code == "not_found"
        assert await world.heard(other) == ["Hi", "You said: Hi"]
        with pytest.raises(NotFoundError):
            await world.segue.create_thread("ann", "guide")
    async with stage.world(guide, atlas, models=models) as world:
        await world.say(thread, "Three")
        everything = ["One", "You said: One", "Two", "Three", "You said: Three"]
        assert await world.heard(thread) == everything
        assert all(batch.is_complete for batch in await batches_of(world, thread))
        assert request_problems(model.seen[-1]) == []


# Word of other processes.


async def test_a_watch_that_fails_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was, the process goes on, and hears of others again."""
    watch, times = SqliteJournal.watch, iter([True])

    def faulty(self: SqliteJournal, *, of_others: bool = False) -> Any:
        if next(times, False):
            raise RuntimeError("out of file handles")
        return watch(self, of_others=of_others)

    monkeypatch.setattr(SqliteJournal, "watch", faulty)
    monkeypatch.setattr(runtime, "_WATCH_PAUSE", timedelta(milliseconds=10))
    database = str(tmp_path)
    async with process(database, always("?")) as here, process(database, always(HELLO)) as there:
        await here.only_listen()
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen:
            await there.segue.send(thread, "Hi")
            await seen.until_said(HELLO)
            assert seen.texts == ["Hi", HELLO]
    assert next(times, None) is None  # the first one did fail


async def test_who_waits_for_a_turn_at_work_here_asks_the_journal_once(tmp_path: Path) -> None:
    """Not while it is written, whatever word comes of its thread, but when it is over."""
    held, looks = Held(), 0
    async with process(str(tmp_path), lines(held)) as here:
        journal = here.system.deps.journal
        get_turn = journal.turns.get

        async def looking(turn_id: int) -> Turn:
            nonlocal looks
            looks += asyncio.current_task() is waiting
            return await get_turn(turn_id)

        thread = await new_thread(here.segue)
        accepted = await here.segue.send(thread, "Hi")
        await held.asked.wait()
        journal.turns.get = looking  # type: ignore[method-assign]
        waiting = asyncio.create_task(here.segue.wait_turn(accepted.turn))
        await asyncio.sleep(0)
        await here.system.runtime.turns.recheck(thread)
        assert looks == 0
        held.go.set()
        assert (await waiting).state is TurnState.DONE
    assert looks == 1
