"""Why the agent wrote, and why it did not: one story of a thread, fit for whoever may see it."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.triggers import TriggerType
from segue.errors import NotFoundError
from segue.insight.why import Reason
from segue.journal.effects import Effect
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent
from tests.runtime import deciders
from tests.runtime.receiver import SECRET
from tests.runtime.scenes import Held, lines, new_thread

pytestmark = pytest.mark.anyio

SILENCE = timedelta(seconds=30)
TOLD = "I've added Oslo to your list."
WEBHOOK = {"url": "http://127.0.0.1:9/", "secret": SECRET}


def eager(**config: Any) -> AgentConfig:
    """An agent that speaks first after half a minute, once."""
    delays = {trigger.value: SILENCE.total_seconds() for trigger in TriggerType}
    policy = {"cooldown": 0, "max_consecutive": 1}
    autonomy = {"delays": delays, "policy": policy, **config.pop("autonomy", {})}
    return plain_agent(autonomy=autonomy, **config)


async def outcomes(world: World, thread: str, **how: Any) -> list[tuple[str, str]]:
    return [(reason.what, reason.outcome) for reason in await world.segue.why(thread, **how)]


async def test_what_happened_at_one_moment_is_told_in_its_order(stage: Stage) -> None:
    """The gates, the word and the next plan are one instant; the story still makes sense."""
    async with stage.world(eager(), models={"guide": lines(TOLD, "Well?")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(SILENCE)
        story = [
            ("planning a follow-up", "follow_up"),
            ("the gates of a due follow-up", "allow"),
            ("a follow-up", "sent"),
            ("planning a follow-up", "nothing"),
        ]
        assert await outcomes(world, thread) == story
        times = [reason.at for reason in await world.segue.why(thread)]
        assert times == [START, *[START + SILENCE] * 3]


async def test_the_newest_part_of_the_story_is_told_if_it_is_long(stage: Stage) -> None:
    """A limit leaves out what is oldest, and none of the rest."""
    async with stage.world(eager(), models={"guide": lines(TOLD, "Well?")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(SILENCE)
        whole = await outcomes(world, thread)
        for limit in range(len(whole) + 1):
            assert await outcomes(world, thread, limit=limit) == whole[len(whole) - limit :]


async def test_a_follow_up_that_the_user_forestalled_is_told_as_void(stage: Stage) -> None:
    """Planned and cancelled, or begun and never shown: each ends with its reason."""
    held = Held("Never seen.")
    model = lines(TOLD, TOLD, held, TOLD)
    async with stage.world(eager(), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.say(thread, "And Bergen?")
        passing = asyncio.create_task(world.pass_time(SILENCE))
        await held.asked.wait()
        await world.segue.send(thread, "I am here.")
        held.go.set()
        await passing
        told = [str(reason) for reason in await world.segue.why(thread)]
        planned = f"the follow-up planned for {START + SILENCE:%Y-%m-%d %H:%M:%S} UTC"
        assert f"{START:%Y-%m-%d %H:%M:%S} {planned}: cancelled. The user wrote." in told
        assert any(each.endswith("a follow-up: void. The user wrote.") for each in told)


async def test_a_failure_is_told_with_its_reason_and_without_anybodys_words(
    sqlite_stage: Stage,
) -> None:
    """A model that fails, for the user or on its own, is told in words of ours."""
    quoting = ValueError("cannot answer 'My name is Ann.'")
    async with sqlite_stage.world(eager(), models={"guide": lines(TOLD, quoting)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "My name is Ann.")
        await world.pass_time(SILENCE)
        last = (await world.segue.why(thread))[-1]
        assert (last.what, last.outcome) == ("a follow-up", "failed")
        assert last.why == "The reply failed (ValueError)."
        assert "My name" not in repr(await world.segue.why(thread))


async def test_what_ended_a_follow_up_is_told_before_its_end(stage: Stage) -> None:
    """First the gates, then what became of the follow-up."""
    async with stage.world(eager(), models={"guide": lines(TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.segue.set_user_preferences("ann", muted=True)
        await world.pass_time(SILENCE)
        planned = f"the follow-up planned for {START + SILENCE:%Y-%m-%d %H:%M:%S} UTC"
        assert await outcomes(world, thread) == [
            ("planning a follow-up", "follow_up"),
            ("the gates of a due follow-up", "suppress"),
            (planned, "suppressed"),
        ]
        assert (await world.segue.why(thread))[-1].why == "The user muted all threads."


@pytest.mark.parametrize("whose", ["this thread", "all the user's threads"])
async def test_whose_snooze_it_was_is_told(stage: Stage, whose: str) -> None:
    """The longer one counts, of the thread or of the user."""
    near, far = START + timedelta(hours=1), START + timedelta(hours=2)
    is_thread = whose == "this thread"
    async with stage.world(eager(), models={"guide": lines(TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.segue.set_thread_preferences(thread, snoozed_until=far if is_thread else near)
        await world.segue.set_user_preferences("ann", snoozed_until=near if is_thread else far)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(SILENCE)
        last = (await world.segue.why(thread))[-1]
        assert last.why.startswith(f"Follow-ups in {whose} are snoozed until 2027-01-15 10:00")


async def test_a_delivery_that_failed_says_when_it_is_tried_again(stage: Stage) -> None:
    """And after the last attempt, that it was given up, at which one."""
    async with stage.world(eager(webhook=WEBHOOK), models={"guide": lines(TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(SILENCE)

        async def delivery() -> Reason:
            story = await world.segue.why(thread)
            return next(reason for reason in story if reason.what.startswith("the webhook"))

        waiting = await delivery()
        again = START + SILENCE + timedelta(seconds=5)
        assert waiting.outcome == "waiting"
        assert waiting.why.endswith(f"(ConnectError). Next attempt at {again:%Y-%m-%d %H:%M:%S}.")
        await world.pass_time(hours=2)
        given_up = await delivery()
        assert given_up.outcome == "not delivered"
        assert given_up.why.endswith("(ConnectError). Gave up after attempt 8.")


async def test_a_deciders_words_are_not_told(stage: Stage) -> None:
    """What was decided is told in words of ours; the decider's own are for operators."""
    agent = eager(autonomy={"decider": "tests.runtime.deciders:plain"})
    async with stage.world(agent, models={"guide": lines(TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        [plan] = await world.segue.why(thread)
        assert plan.why == "The agent's own decider chose task_incomplete."
        assert plan.details["trigger"] == "task_incomplete"
        [decision] = await world.journal.decisions.list_of(thread)
        assert decision.facts["words"] == deciders.WORDS
        shown = [await world.segue.why(thread), await world.segue.list_follow_ups(thread)]
        assert deciders.WORDS not in repr(shown)


async def test_what_an_agent_says_to_itself_is_not_told(stage: Stage) -> None:
    """The reason for which it goes on later is its own."""
    args = {"after_seconds": 60, "reason": "ask the oracle"}
    going_on = AIMessage("", tool_calls=[{"name": "continue_later", "args": args, "id": "c1"}])
    model = lines(going_on, "A moment.", "Here it is.")
    async with stage.world(eager(continuations=1), models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        [timer] = await world.journal.timers.list_of(thread)
        assert timer.reason == "ask the oracle"
        shown = [await world.segue.why(thread), await world.segue.list_follow_ups(thread)]
        assert "oracle" not in repr(shown)


@pytest.mark.parametrize("evidence", ["", None])
async def test_delivered_is_never_said_without_evidence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, evidence: Any
) -> None:
    """Whatever sent it, without the receiver's answer nobody can say that it arrived."""

    async def send(effect: Effect) -> Any:
        del effect
        return evidence

    async with stage.world(eager(webhook=WEBHOOK), models={"guide": lines(TOLD)}) as world:
        monkeypatch.setattr(world.system.runtime.effects, "_handlers", {"webhook": send})
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(SILENCE)
        story = await outcomes(world, thread)
        assert ("the webhook of a follow-up", "sent, without evidence") in story
        assert "delivered" not in repr(story)


async def test_a_thread_that_is_not_there_has_no_story(sqlite_stage: Stage) -> None:
    """Nothing is made up."""
    async with sqlite_stage.world() as world:
        with pytest.raises(NotFoundError, match="There is no thread 'nowhere'"):
            await world.segue.why("nowhere")


def test_a_reason_reads_as_a_sentence() -> None:
    """When, what, how it went, and why; without a why it just ends."""
    reason = Reason(START, "a follow-up", "sent", "All gates were open.")
    assert str(reason) == "2027-01-15 08:00:00 a follow-up: sent. All gates were open."
    assert str(Reason(START, "a follow-up", "sent", "")) == "2027-01-15 08:00:00 a follow-up: sent."


async def test_a_plan_says_the_delay_that_counts(stage: Stage) -> None:
    """Each follow-up that was ignored doubles it; what was chosen before that is told beside it."""
    agent = eager(autonomy={"policy": {"cooldown": 0, "max_consecutive": 3}})
    async with stage.world(agent, models={"guide": lines(TOLD, then=TOLD)}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(10 * SILENCE)
        plans = [r for r in await world.segue.why(thread) if r.outcome == "follow_up"]
        assert [plan.details["delay"] for plan in plans] == [30, 60, 120]
        assert [plan.details["chosen_delay"] for plan in plans] == [30] * 3
        timers = await world.segue.list_follow_ups(thread)
        due = [datetime.fromisoformat(plan.details["due_at"]) for plan in plans]
        assert sorted(timer.due_at for timer in timers) == due
        delays = [timedelta(seconds=plan.details["delay"]) for plan in plans]
        assert due == [plan.at + delay for plan, delay in zip(plans, delays, strict=True)]
