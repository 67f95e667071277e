"""What became of follow-ups, as `stats` counts it after whole conversations."""

from datetime import timedelta
from typing import Any

import pytest

from segue.agent.memory import MemoryBook
from segue.core.triggers import TRIGGER_PROMPTS, choose_prompt
from segue.errors import UnknownTrigger, UsageError
from segue.insight.stats import Outcomes, Stats
from segue.journal.stats import FollowUpOutcome
from segue.settings.agents import AgentConfig, MemoryConfig
from segue.simulate.world import Stage, World
from tests.runtime.scenes import Held
from tests.stories.scenes import (
    PATIENCE,
    TOLD,
    arm,
    eager_agent,
    model_of,
    new_thread,
    passing,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CANARY = "kumquat"
WARM = {"name": "warm", "text": f"Ask about the {CANARY}."}
BRIEF = {"name": "brief", "text": f"Say {CANARY}."}
VARIANTS = {"check_in": [WARM, BRIEF]}


def once(**autonomy: Any) -> AgentConfig:
    """An agent that follows up once."""
    return eager_agent(policy={"max_consecutive": 1}, **autonomy)


def remembering() -> AgentConfig:
    """The same, with memories."""
    return once().model_copy(update={"memory": MemoryConfig(embedder="local")})


def said(stats: Stats) -> list[tuple[str | None, str | None, dict[str, int]]]:
    """Trigger, variant and counts of each row."""
    return [
        (row.trigger, row.variant, {o.value: n for o, n in row.counts.items()})
        for row in stats.outcomes
    ]


def the_only(stats: Stats) -> Outcomes:
    [row] = stats.outcomes
    return row


async def ask(world: World, user: str = "ann") -> str:
    """A new conversation with one answer in it."""
    thread = await new_thread(world, user)
    await world.say(thread, "Where is Oslo?")
    return thread


async def test_a_follow_up_that_is_answered_is_replied_to(stage: Stage) -> None:
    """With how long it took, counted from when it was seen."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        thread = await ask(world)
        await world.pass_time(PATIENCE)
        await world.pass_time(HOUR)
        await world.say(thread, "And Bergen?")
        row = the_only(await world.segue.stats())
        assert (row.agent, row.trigger, row.variant) == ("guide", "check_in", "default")
        assert row.counts[FollowUpOutcome.REPLIED] == 1
        # Who answers at once must not count before those who keep silent.
        assert (row.latency, row.replied) == (None, None)
        await world.pass_time(DAY)
        [rate] = [r.replied for r in (await world.segue.stats()).outcomes if r.replied]
        assert (rate.value, rate.cases) == (1, 1)
        assert HOUR in [r.latency for r in (await world.segue.stats()).outcomes]


async def test_a_follow_up_that_makes_the_user_stop_them_has_no_reply(stage: Stage) -> None:
    """The user wrote back, but not as the agent hoped: the reply rate is 0."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        thread = await ask(world)
        await world.pass_time(PATIENCE + HOUR)
        await world.say(thread, "Stop writing to me.")
        await world.pass_time(2 * DAY)
        row = the_only(await world.segue.stats())
        assert row.counts == {FollowUpOutcome.STOPPED: 1}
        assert row.replied is not None
        assert (row.replied.value, row.replied.cases) == (0, 1)


async def test_a_follow_up_is_pending_and_then_ignored(stage: Stage) -> None:
    """It is too early to say for a day, or for as long as one wants."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        await ask(world)
        await world.pass_time(PATIENCE + HOUR)
        assert the_only(await world.segue.stats()).counts == {FollowUpOutcome.PENDING: 1}
        soon = await world.segue.stats(window=HOUR / 2)
        assert the_only(soon).counts == {FollowUpOutcome.IGNORED: 1}
        await world.pass_time(DAY)
        assert the_only(await world.segue.stats()).counts == {FollowUpOutcome.IGNORED: 1}


async def test_in_a_row_only_the_last_one_is_answered(stage: Stage) -> None:
    """The next follow-up ends the wait for an answer to the one before."""
    agent = eager_agent(policy={"max_consecutive": 2, "backoff": 1})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await ask(world)
        await world.pass_time(2 * PATIENCE + HOUR)
        await world.say(thread, "And Bergen?")
        counts = the_only(await world.segue.stats()).counts
        assert counts[FollowUpOutcome.IGNORED] == 1
        assert counts[FollowUpOutcome.REPLIED] == 1


async def test_a_user_who_is_faster_stops_it(stage: Stage) -> None:
    """While it waits for its time, and while the model looks for words."""
    held = Held("Still there?")
    async with stage.world(once(), models={"guide": model_of(TOLD, TOLD, held)}) as world:
        thread = await ask(world)
        await world.say(thread, "And Bergen?")
        assert said(await world.segue.stats()) == [("check_in", None, {"stopped": 1})]
        async with passing(world, PATIENCE):
            await held.asked.wait()
            await world.segue.send(thread, "Never mind.")
            held.go.set()
        assert said(await world.segue.stats()) == [
            ("check_in", "default", {"stopped": 1}),
            ("check_in", None, {"stopped": 1}),
        ]


async def test_a_gate_that_says_no_is_named(stage: Stage) -> None:
    """One that the user muted was suppressed, by that gate."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        thread = await ask(world)
        await world.segue.set_thread_preferences(thread, muted=True)
        await world.pass_time(PATIENCE)
        row = the_only(await world.segue.stats())
        assert (dict(row.counts), dict(row.suppressed_by)) == (
            {FollowUpOutcome.SUPPRESSED: 1},
            {"muted": 1},
        )
        assert row.replied is None


async def test_a_follow_up_without_an_agent_was_suppressed_by_no_gate(stage: Stage) -> None:
    """Nobody was there to ask one."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        await ask(world)
    async with stage.world(eager_agent("other"), models={"other": model_of()}) as world:
        await world.pass_time(PATIENCE)
        assert dict(the_only(await world.segue.stats()).suppressed_by) == {"none": 1}


async def test_a_model_that_fails_leaves_a_failed_follow_up(stage: Stage) -> None:
    """It is neither ignored nor replied to."""

    def fail(messages: Any) -> str:
        del messages
        raise ValueError(CANARY)

    async with stage.world(once(), models={"guide": model_of(TOLD, fail)}) as world:
        await ask(world)
        await world.pass_time(DAY)
        row = the_only(await world.segue.stats())
        assert (row.variant, row.counts) == ("default", {FollowUpOutcome.FAILED: 1})


async def test_of_those_held_out_some_write_on_their_own(stage: Stage) -> None:
    """That is what following up has to be better than."""
    async with stage.world(once(holdout=1.0), models={"guide": model_of()}) as world:
        threads = [await ask(world, f"user {number}") for number in range(3)]
        await world.pass_time(PATIENCE + HOUR)
        await world.say(threads[0], "And Bergen?")
        await world.pass_time(2 * DAY)
        stats = await world.segue.stats(until=world.clock.now() - 2 * DAY)
        assert the_only(stats).counts == {FollowUpOutcome.HELD_OUT: 3}
        [silent] = stats.arms
        assert (silent.variant, silent.difference) == (None, None)
        assert (round(silent.wrote.value, 3), silent.wrote.cases) == (0.333, 3)


async def test_a_thread_stays_in_its_arm(stage: Stage) -> None:
    """Each follow-up of a thread has the same words or is held out, also after a restart, and what
    is counted names the arm.
    """
    agent = once(prompts=VARIANTS, holdout=0.3)
    arms: dict[str, list[str | None]] = {}
    threads: list[str] = []
    for _ in range(3):
        async with stage.world(agent, models={"guide": model_of()}) as world:
            if not threads:
                threads = [await new_thread(world, f"user {n}") for n in range(12)]
            for thread in threads:
                await world.say(thread, "Where is Oslo?")
                await arm(world, thread, world.clock.now())
            await world.pass_time(2 * DAY)
            stats = await world.segue.stats()
    async with stage.world(agent, models={"guide": model_of()}) as world:
        for thread in threads:
            gates = [r for r in await world.segue.why(thread) if "the gates" in r.what]
            arms[thread] = [r.details.get("variant") for r in gates]
    autonomy = agent.autonomy
    for thread, chosen in arms.items():
        expected = choose_prompt(autonomy.prompts, autonomy.holdout, "check_in", thread)
        assert chosen == [expected.name if expected else None] * 3
    names = {chosen[0] for chosen in arms.values()}
    assert names == {"warm", "brief", None}
    sizes = {name: sum(chosen[0] == name for chosen in arms.values()) for name in names}
    counted = {row.variant: row.total for row in stats.outcomes}
    assert counted == {name: 3 * size for name, size in sizes.items()}
    assert {arm.variant: arm.wrote.cases for arm in stats.arms} == sizes


async def test_arms_are_compared_by_what_users_did(stage: Stage) -> None:
    """A variant after which all users write differs from silence, one after which none do not."""
    agent = once(prompts=VARIANTS, holdout=0.3, decider="none")
    async with stage.world(agent, models={"guide": model_of()}) as world:
        users: dict[str | None, list[str]] = {"warm": [], "brief": [], None: []}
        for number in range(60):
            thread = await new_thread(world, f"user {number}")
            chosen = choose_prompt(agent.autonomy.prompts, 0.3, "check_in", thread)
            users[chosen.name if chosen else None].append(thread)
            await arm(world, thread, world.clock.now())
        await world.pass_time(HOUR)
        for thread in users["warm"]:
            await world.segue.send(thread, "Hello!")
        await world.pass_time(2 * DAY)
        stats = await world.segue.stats(until=world.clock.now() - DAY - DAY / 2)
        assert [each.variant for each in stats.arms] == ["brief", "warm", None]
        brief, warm, silent = stats.arms
        assert (brief.wrote.value, warm.wrote.value, silent.wrote.value) == (0, 1, 0)
        assert warm.difference is not None
        assert warm.difference.low > 0
        assert brief.difference is not None
        assert brief.difference.low < 0 < brief.difference.high


async def test_without_a_hold_out_there_is_nothing_to_compare_with(stage: Stage) -> None:
    """Variants then differ by their reply rates alone."""
    async with stage.world(once(prompts=VARIANTS), models={"guide": model_of()}) as world:
        await arm(world, await new_thread(world), world.clock.now())
        await world.pass_time(2 * DAY)
        stats = await world.segue.stats()
        assert stats.arms == ()
        assert the_only(stats).replied is not None


@pytest.mark.usefixtures("foreseen_meanings")
async def test_whose_words_searched_memories_is_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's last words, none at all in a thread without any, and what failed."""
    async with stage.world(remembering(), models={"guide": model_of()}) as world:
        await ask(world)
        await world.pass_time(PATIENCE)
        empty = await new_thread(world)
        await arm(world, empty, world.clock.now())
        await world.pass_time(HOUR)
        searches = (await world.segue.stats()).searches
        assert searches.by_source == {"last_real_user_message": 1, "none": 1}
        assert searches.fallback_rate is not None
        assert (searches.fallback_rate.value, searches.fallback_rate.cases) == (0.5, 2)
        assert searches.failed == 0

        async def fail(*_: Any, **__: Any) -> list[Any]:
            raise OSError(CANARY)

        monkeypatch.setattr(MemoryBook, "search", fail)
        thread = await ask(world, "bo")
        await world.pass_time(PATIENCE)
        assert (await world.segue.stats()).searches.failed == 1
        [told] = [r for r in await world.segue.why(thread) if "memories" in r.what]
        assert told.why == "Memories were searched with the user's last message."


@pytest.mark.usefixtures("foreseen_meanings")
async def test_answers_do_not_record_their_search(stage: Stage) -> None:
    """A message is its own query; only what the agent says unasked is counted."""
    async with stage.world(remembering(), models={"guide": model_of()}) as world:
        thread = await ask(world)
        assert [d.kind for d in await world.journal.decisions.list_of(thread)] == ["plan"]
        assert (await world.segue.stats()).searches.by_source == {}


async def test_agents_triggers_and_times_can_be_asked_for(stage: Stage) -> None:
    """One agent, one trigger, or some days; what cannot be meant is refused."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        began = world.clock.now()
        await arm(world, thread, began, "task_incomplete")
        await world.pass_time(HOUR)
        segue = world.segue
        assert said(await segue.stats(trigger="task_incomplete", agent="guide"))
        assert said(await segue.stats(trigger="check_in")) == []
        assert said(await segue.stats(agent="nobody")) == []
        assert said(await segue.stats(since=began, until=began + HOUR))
        assert said(await segue.stats(since=began + HOUR)) == []
        assert said(await segue.stats(until=began)) == []
        with pytest.raises(UnknownTrigger):
            await segue.stats(trigger="Birthday!")
        for wrong in ({"since": began, "until": began}, {"window": timedelta(0)}):
            with pytest.raises(UsageError):
                await segue.stats(**wrong)
        with pytest.raises(UsageError, match="time zone"):
            await segue.stats(since=began.replace(tzinfo=None))


async def test_a_trigger_of_ones_own_can_be_asked_for(stage: Stage) -> None:
    """By the name under which the table has it, also if the settings do not have it any more."""
    async with stage.world(once(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await arm(world, thread, world.clock.now(), "birthday")
        await world.pass_time(HOUR)
        [row] = (await world.segue.stats(trigger="birthday")).outcomes
        assert (row.trigger, row.total) == ("birthday", 1)


async def test_no_word_of_a_trigger_is_counted(stage: Stage) -> None:
    """Variants are named; their words, the triggers' words and what anybody said are nowhere."""
    agent = once(prompts=VARIANTS, holdout=0.3)
    async with stage.world(agent, models={"guide": model_of(then=f"A {CANARY}!")}) as world:
        for number in range(8):
            thread = await new_thread(world, f"user {number}")
            await world.say(thread, f"What is a {CANARY}?")
            await arm(world, thread, world.clock.now() + PATIENCE, reason=CANARY)
            await arm(world, thread, world.clock.now() + PATIENCE, reason=CANARY)
        await world.pass_time(2 * DAY)
        stats = await world.segue.stats()
        shown = f"{stats!r} {stats.as_json()}"
        assert "warm" in shown
        assert CANARY not in shown
        assert not any(words in shown for words in TRIGGER_PROMPTS.values())
