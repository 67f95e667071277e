"""Stop means stop: a user who asks to be left alone is not written to until they want it again."""

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch
from segue.core.triggers import TriggerType
from segue.events import OutsideEvent
from segue.runtime.wishes import PROMISED
from segue.simulate.world import Stage, World
from tests.stories.scenes import TOLD, eager_agent, model_of

pytestmark = pytest.mark.anyio

TABLE = tomllib.loads((Path(__file__).parents[1] / "core/speech/requests.toml").read_text())


def stops(each: int) -> list[str]:
    """Some ways to say stop of each language."""
    return [text for language in TABLE.values() for text in language["stop"][:each]]


async def follow_ups(world: World, thread: str) -> int:
    """How many follow-ups the user has seen in a thread."""
    return sum(turn.shown_at is not None for turn in await world.journal.turns.list_of(thread))


async def test_a_user_who_says_stop_hears_no_agent_again(stage: Stage) -> None:
    """Neither in this thread nor in another, and the record says why."""
    async with stage.world(eager_agent("ada"), eager_agent("bob")) as world:
        segue = world.segue
        await segue.create_thread("sam", agent_id="ada", thread_id="one")
        await segue.create_thread("sam", agent_id="bob", thread_id="two")
        await world.say("two", "I want to learn the guitar.")
        await world.say("one", "Stop writing to me. Please don't follow up.")
        await world.pass_time(days=10)
        assert (await follow_ups(world, "one"), await follow_ups(world, "two")) == (0, 0)
        assert (await segue.get_user_preferences("sam"))["opted_out"] is True
        reasons = [reason.why for reason in await segue.why("one")]
        assert "The user asked not to be written to any more." in reasons


async def test_a_follow_up_that_is_being_written_is_stopped_too(stage: Stage) -> None:
    """The stop is stored with the message that says it, before anything else happens."""
    async with stage.world(eager_agent("ada")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "I want to learn the guitar.")
        accepted = await world.segue.send("one", "Leave me alone")
        assert (await world.segue.get_user_preferences("sam"))["opted_out"] is True
        assert accepted.cancelled_timers or accepted.voided_turns
        await world.pass_time(days=10)
        assert await follow_ups(world, "one") == 0


async def test_in_doubt_the_agent_does_not_follow_up(stage: Stage) -> None:
    """A stop in words that the rules do not know sets no preference, and is not followed up."""
    async with stage.world(eager_agent("ada")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "All this pinging makes me want to unplug you, so less.")
        await world.pass_time(days=10)
        assert await follow_ups(world, "one") == 0
        assert not (await world.segue.get_user_preferences("sam")).get("opted_out")
        reasons = [reason.why for reason in await world.segue.why("one")]
        assert "The user may have asked not to be written to." in reasons
        await world.say("one", "I want to learn the guitar.")
        await world.pass_time(days=2)
        assert await follow_ups(world, "one") > 0


async def test_a_word_undoes_a_stop(stage: Stage) -> None:
    """Other messages do not: who chats on has not asked for follow-ups."""
    async with stage.world(eager_agent("ada")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "Please don't message me again.")
        await world.say("one", "I want to learn the guitar.")
        await world.pass_time(days=2)
        assert await follow_ups(world, "one") == 0
        await world.say("one", "You can write to me again. How do I hold the guitar?")
        await world.pass_time(days=2)
        assert await follow_ups(world, "one") > 0
        assert "opted_out" not in await world.segue.get_user_preferences("sam")


@pytest.mark.parametrize("decider", ["rules", "custom"])
@pytest.mark.parametrize("preference", ["opted_out", "muted"])
async def test_for_a_user_who_wants_none_no_follow_up_is_planned(
    stage: Stage, preference: str, decider: str
) -> None:
    """In a thread that is new since, the record says why, and a decider is not asked; when the user
    wants them again, the next reply is followed up.
    """
    asked = list[str]()

    def decide(batch: Batch, *_: Any, **_facts: Any) -> Plan:
        asked.append(batch.messages[-1].text)
        return Plan(TriggerType.CHECK_IN, timedelta(hours=1), "Why not?")

    chosen: Any = "rules" if decider == "rules" else decide
    async with stage.world(eager_agent("ada", decider=chosen)) as world:
        segue = world.segue
        await segue.set_user_preferences("sam", **{preference: True})
        await segue.create_thread("sam", thread_id="one")
        await world.say("one", "I want to learn the guitar.")
        [planned] = [r for r in await segue.why("one") if r.what == "planning a follow-up"]
        assert planned.outcome == "nothing"
        assert planned.why in ("The user opted out of follow-ups.", "The user muted all threads.")
        assert (await segue.list_follow_ups("one"), asked) == ([], [])
        await segue.set_user_preferences("sam", **{preference: None})
        await world.pass_time(days=2)
        assert await follow_ups(world, "one") == 0
        await world.say("one", "How do I hold the guitar?")
        await world.pass_time(days=2)
        assert await follow_ups(world, "one") > 0


async def test_a_user_who_wants_to_talk_tomorrow_is_not_written_to_today(stage: Stage) -> None:
    """The snooze ends on the morning of their own clock."""
    async with stage.world(eager_agent("ada")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.segue.set_user_preferences("sam", time_zone="America/New_York")
        await world.say("one", "Ask me again tomorrow.")
        preferences = await world.segue.get_user_preferences("sam")
        assert preferences["snoozed_until"] == "2027-01-16T14:00:00+00:00"
        await world.pass_time(hours=20)
        assert await follow_ups(world, "one") == 0


@pytest.mark.parametrize("text", ["Not now.", "Talk to you tomorrow!"])
async def test_a_goodbye_does_not_shorten_a_snooze(stage: Stage, text: str) -> None:
    """Who is away for two weeks is not written to tomorrow; a later day counts."""
    async with stage.world(eager_agent("ada")) as world:
        segue, until = world.segue, "2027-01-29T00:00:00+00:00"
        await segue.create_thread("sam", thread_id="one")
        await segue.set_user_preferences("sam", snoozed_until=until)
        await world.say("one", text)
        assert (await segue.get_user_preferences("sam"))["snoozed_until"] == until
        await world.say("one", "Ask me again in three weeks.")
        longer = (await segue.get_user_preferences("sam"))["snoozed_until"]
        assert longer == "2027-02-05T08:00:00+00:00"


async def test_what_a_snooze_put_off_comes_when_the_user_wants_it_again(stage: Stage) -> None:
    """Not at the end of a snooze that is over."""
    async with stage.world(eager_agent("ada", decider="none")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "Ask me again tomorrow.")
        await world.segue.wake(OutsideEvent(id="1"), thread="one")
        await world.pass_time(hours=1)
        assert await follow_ups(world, "one") == 0
        await world.say("one", "You can write to me again")
        await world.pass_time(minutes=5)
        assert await follow_ups(world, "one") == 1


async def test_a_message_that_is_sent_twice_is_read_once(stage: Stage) -> None:
    """A client that repeats an old stop does not undo what the user said since."""
    async with stage.world(eager_agent("ada")) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "Stop writing to me", client_message_id="a")
        await world.say("one", "You can write to me again")
        await world.say("one", "Stop writing to me", client_message_id="a")
        assert "opted_out" not in await world.segue.get_user_preferences("sam")


async def test_the_agents_promise_counts_where_the_users_words_were_not_understood(
    stage: Stage,
) -> None:
    """It opts the user out for all agents, says so in the record, and is undone by a word."""
    model = model_of("Okay, I will not write to you any more.", then=TOLD)
    models = {"ada": model, "bob": model_of()}
    async with stage.world(eager_agent("ada"), eager_agent("bob"), models=models) as world:
        segue = world.segue
        await segue.create_thread("sam", agent_id="ada", thread_id="one")
        await segue.create_thread("sam", agent_id="bob", thread_id="two")
        await world.say("two", "I want to learn the guitar.")
        await world.say("one", "Hm, all this buzzing of yours.")
        assert (await segue.get_user_preferences("sam"))["opted_out"] is True
        await world.pass_time(days=10)
        assert (await follow_ups(world, "one"), await follow_ups(world, "two")) == (0, 0)
        assert await segue.list_follow_ups("one") == []
        requests = [d for d in await world.journal.decisions.list_of("one") if d.kind == "request"]
        assert [(d.outcome, d.reasons) for d in requests] == [("stop", (PROMISED,))]
        await world.say("one", "You can write to me again.")
        assert "opted_out" not in await segue.get_user_preferences("sam")


async def test_a_promise_in_a_follow_up_sets_no_preference(stage: Stage) -> None:
    """Only a reply to the user's own message says what the user wanted."""
    model = model_of(TOLD, then="I won't message you again.")
    async with stage.world(eager_agent("ada"), models={"ada": model}) as world:
        await world.segue.create_thread("sam", thread_id="one")
        await world.say("one", "I want to learn the guitar.")
        await world.pass_time(days=10)
        assert await follow_ups(world, "one") == 1
        assert "opted_out" not in await world.segue.get_user_preferences("sam")


async def check_nothing_is_sent(stage: Stage, texts: list[str]) -> None:
    async with stage.world(eager_agent("ada")) as world:
        for number, text in enumerate(texts):
            await world.segue.create_thread(f"user {number}", thread_id=f"talk {number}")
            await world.say(f"talk {number}", "I want to learn the guitar.")
            await world.say(f"talk {number}", text)
        await world.pass_time(days=10)
        sent = [text for n, text in enumerate(texts) if await follow_ups(world, f"talk {n}")]
    assert sent == []


async def test_nothing_is_sent_after_a_stop_in_any_language(stage: Stage) -> None:
    """Of those that the rules know."""
    texts = stops(each=6)
    assert len(texts) >= 7 * 6
    await check_nothing_is_sent(stage, texts)


@pytest.mark.long
async def test_nothing_is_sent_after_any_way_to_say_stop(sqlite_stage: Stage) -> None:
    """In all languages that the rules know."""
    texts = stops(each=40)
    assert len(texts) >= 7 * 40
    await check_nothing_is_sent(sqlite_stage, texts)
