"""A decider of the owner's own: whatever shape it has and whatever it does, there is a verdict."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch, group_batches
from segue.core.messages import user_message
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.errors import UsageError
from segue.runtime.ids import SnowflakeGenerator
from segue.runtime.planning import CustomDecider, DeciderResult
from segue.simulate.world import Stage, plain_agent
from tests.runtime import deciders

pytestmark = pytest.mark.anyio

WHOSE = "agent 'guide': decider"
NO = "The agent's own decider wants no follow-up."
YES = "The agent's own decider chose task_incomplete."


@pytest.fixture
def batch() -> Batch:
    [batch] = group_batches(stamp([user_message("Hello.")], SnowflakeGenerator()))
    return batch


@pytest.mark.parametrize(
    "given",
    [
        deciders.plain,
        deciders.waiting,
        deciders.plan_only,
        deciders.thoughtful,
        deciders.callable_object,
    ],
)
async def test_any_shape_of_decider_is_asked(given: Any, batch: Batch) -> None:
    """A function, an object, async or not: its plan counts, and its words are kept apart."""
    verdict = await CustomDecider(given, WHOSE).decide(batch)
    plan = Plan(TriggerType.TASK_INCOMPLETE, deciders.DELAY, YES)
    assert verdict == DeciderResult(plan, YES, deciders.WORDS)


@pytest.mark.parametrize(
    ("given", "reason", "words"),
    [
        (deciders.nothing, NO, None),
        (deciders.verdict_against, NO, deciders.WORDS),
        (deciders.raising, "The agent's own decider failed: ValueError.", None),
        (deciders.raising_later, "The agent's own decider failed: ValueError.", None),
        (deciders.nonsense, "The agent's own decider failed: UsageError.", None),
        (deciders.odd_trigger, "The agent's own decider failed: UnknownTrigger.", None),
        (deciders.odd_delay, "The agent's own decider failed: UsageError.", None),
        (deciders.no_arguments, "The agent's own decider failed: TypeError.", None),
    ],
)
async def test_whatever_fails_is_a_verdict_against_a_follow_up(
    given: Any, reason: str, words: str | None, batch: Batch, caplog: pytest.LogCaptureFixture
) -> None:
    """None, an error or nonsense means silence, and above DEBUG no text of anybody's is logged."""
    caplog.set_level(logging.INFO)
    assert await CustomDecider(given, WHOSE).decide(batch) == DeciderResult(None, reason, words)
    assert deciders.WORDS not in caplog.text


async def test_a_decider_that_never_answers_holds_up_nobody(batch: Batch) -> None:
    """After its time it counts as one that failed."""
    decider = CustomDecider(deciders.for_ever, WHOSE, time_limit=timedelta(milliseconds=10))
    async with asyncio.timeout(10):
        verdict = await decider.decide(batch)
    assert verdict == DeciderResult(None, "The agent's own decider failed: TimeoutError.")


async def test_a_plain_function_does_not_stop_the_others(batch: Batch) -> None:
    """A decider that waits for a database blocks a thread of its own, not the whole process."""
    threads = []

    def slow(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> None:
        del batch, earlier, facts
        threads.append(threading.current_thread())

    await CustomDecider(slow, WHOSE).decide(batch)
    assert threads
    assert threads != [threading.current_thread()]


async def test_a_decider_gets_what_was_said_and_what_is_known(batch: Batch) -> None:
    """The batch, those before it, whether a person is waited for, and the follow-ups so far."""
    deciders.asked.clear()
    decider = CustomDecider(deciders.plain, WHOSE)
    await decider.decide(batch, [batch], interrupted=True, consecutive=2)
    facts = {"interrupted": True, "consecutive": 2}
    assert deciders.asked == [{"batch": batch, "earlier": [batch], **facts}]


@pytest.mark.parametrize("given", [deciders.Thoughtful, deciders.NO_DECIDER, "rules", None])
def test_what_is_no_decider_is_refused_at_the_start(given: Any) -> None:
    """A class or a number would fail after each reply; the error names the agent instead."""
    with pytest.raises(UsageError, match=r"agent 'guide': decider is .* expected a function"):
        CustomDecider(given, WHOSE)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (deciders.plain, "tests.runtime.deciders:plain"),
        (deciders.thoughtful, "tests.runtime.deciders:Thoughtful"),
        ("tests.runtime.deciders:plain", "tests.runtime.deciders:plain"),
    ],
)
async def test_a_decider_may_be_given_as_it_is_or_by_its_path(
    sqlite_stage: Stage, given: Any, name: str
) -> None:
    """A program need not put its function into a module of its own; the record names it."""
    agent = plain_agent(autonomy={"decider": given})
    async with sqlite_stage.world(agent) as world:
        thread = await world.segue.create_thread("ann")
        await world.say(thread.id, "Hello.")
        [planned] = await world.segue.list_follow_ups(thread)
        assert planned.trigger_type == TriggerType.TASK_INCOMPLETE
        [decision] = await world.journal.decisions.list_of(thread.id)
        assert decision.facts["decider"] == name


async def test_words_are_kept_within_bounds(batch: Batch) -> None:
    """However much a decider has to say, a record stays a record."""

    def talkative(batch: Batch, earlier: Sequence[Batch], **facts: Any) -> DeciderResult:
        del batch, earlier, facts
        return DeciderResult(Plan(TriggerType.CHECK_IN, deciders.DELAY, "b"), "a", "c\0" * 1_000)

    words = (await CustomDecider(talkative, WHOSE).decide(batch)).words
    assert words is not None
    assert words.startswith("a b c")
    assert len(words) == 500
    assert "\0" not in words


async def test_silence_counts_from_the_answer_however_late_somebody_decides(stage: Stage) -> None:
    """An outage or a slow decider between the two makes nobody wait longer."""
    agent = plain_agent(autonomy={"decider": deciders.plain})
    async with stage.world(agent) as world:
        thread = (await world.segue.create_thread("ann")).id
        await world.say(thread, "Hello.")
        [effect] = await world.journal.effects.list_of(thread)
        answered_at = stage.clock.now() - timedelta(minutes=10)
        decide = world.system.runtime.effects._handlers[effect.kind]
        await decide(replace(effect, created_at=answered_at))
        [timer, *_] = await world.journal.timers.list_of(thread)
        assert timer.due_at == answered_at + deciders.DELAY
