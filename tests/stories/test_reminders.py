"""Reminders: on time on the user's clock, whatever the model, the process or the night does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import PrivateAttr

from segue.agent.scripted import Line, ScriptedChatModel
from segue.core.metadata import is_synthetic
from segue.core.triggers import REMINDER_ASK_PROMPT, REMINDER_PROMPT
from segue.core.turn_rules import DoubleTexting
from segue.errors import ConflictError, NotFoundError, OptedOut, UsageError
from segue.events import MessageStored
from segue.journal.records import TimerKind, TimerState, TurnKind, TurnState
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, VirtualClock, World
from segue.testing.watchdog import watched_loop
from tests.runtime.scenes import Held
from tests.stories.canaries import calling, failing
from tests.stories.scenes import eager_agent, listening, model_of, passing, slowly, told

pytestmark = pytest.mark.anyio

BERLIN = "Europe/Berlin"


def agent(**autonomy: Any) -> AgentConfig:
    """An agent that speaks first only where it was asked to."""
    return eager_agent("ada", decider="none", **autonomy)


def world(
    stage: Stage, *lines: Line, then: str = "Call mum.", **autonomy: Any
) -> AbstractAsyncContextManager[World]:
    return stage.world(agent(**autonomy), models={"ada": model_of(*lines, then=then)})


async def start(world: World, **preferences: Any) -> None:
    await world.segue.set_user_preferences("sam", time_zone=BERLIN, **preferences)
    await world.segue.create_thread("sam", thread_id="one")


async def sent(world: World) -> list[str]:
    """When reminders were shown, in the zone of the user, with their texts."""
    turns = await world.journal.turns.list_of("one", limit=1_000)
    shown = sorted(t.shown_at for t in turns if t.kind is TurnKind.REMINDER and t.shown_at)
    return [f"{moment:%d %b %H:%M}" for moment in shown]


async def results(world: World) -> list[str]:
    """What the tools told the model, oldest first."""
    batches = await world.journal.messages.tail("one", max_tokens=100_000)
    every = [m for batch in sorted(batches, key=lambda b: b.id) for m in batch.messages]
    return [m.text for m in every if isinstance(m, ToolMessage)]


async def prompts(world: World) -> list[str]:
    batches = await world.journal.messages.tail("one", max_tokens=100_000)
    every = [m for batch in sorted(batches, key=lambda b: b.id) for m in batch.messages]
    return [message.text for message in every if is_synthetic(message)]


async def test_in_two_minutes_is_two_minutes(stage: Stage) -> None:
    """The runtime does the arithmetic; the tool says back the time on the user's clock."""
    asks = calling("remind", {"text": "call mum", "after": "2m"})
    async with world(stage, asks, "I will, at 09:02.") as w:
        await start(w)
        await w.say("one", "Remind me in two minutes to call mum.")
        assert (await results(w))[0].startswith(
            "Set: Friday 15 January 2027, 09:02 (Europe/Berlin)"
        )
        await w.pass_time(seconds=119)
        assert await sent(w) == []
        await w.pass_time(seconds=1)
        assert await sent(w) == ["15 Jan 08:02"]
        assert (await w.heard("one"))[-1] == "Call mum."
        [prompt] = await prompts(w)
        assert prompt.startswith(REMINDER_PROMPT)
        assert '"reminder": "call mum"' in prompt
        await w.pass_time(days=3)
        assert len(await sent(w)) == 1


async def test_half_past_two_on_the_night_of_a_clock_change_comes_once(database: str) -> None:
    """In autumn at the first of two; in spring an hour later."""
    stage = Stage(database, VirtualClock(datetime(2026, 10, 24, 12, tzinfo=UTC)))
    rule = "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"
    async with world(stage, reminders={"quiet_hours": False}) as w:
        await start(w)
        await w.segue.remind("one", "look at the clock", every=rule)
        await w.pass_time(days=2)
        assert await sent(w) == ["25 Oct 00:30", "26 Oct 01:30"]


async def test_a_reply_and_the_caps_leave_reminders_alone(stage: Stage) -> None:
    """They come at the minute that the user named, also at night and after other messages."""
    policy = {"max_per_day": 1, "max_consecutive": 1, "cooldown": 86_400}
    async with world(stage, policy=policy) as w:
        await start(w, quiet_hours={"start": "00:00", "end": "23:59"})
        for hour in (1, 2, 3):
            await w.segue.remind("one", f"task {hour}", after=f"{hour}h")
        await w.say("one", "Something else.")
        await w.pass_time(hours=4)
        assert await sent(w) == ["15 Jan 09:00", "15 Jan 10:00", "15 Jan 11:00"]


async def test_a_reply_does_not_wait_for_a_slow_reminder(stage: Stage) -> None:
    """Two seconds after the user wrote, the reminder comes as it was stored, and then the reply."""
    slow = slowly(stage.clock, timedelta(minutes=8), "Never heard.")
    async with world(stage, slow, then="The exit is there.") as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="1m")
        await w.pass_time(seconds=70)
        await w.segue.send("one", "Where is the fire exit?")
        await w.pass_time(seconds=5)
        heard = await w.heard("one")
        assert heard[0] == "Where is the fire exit?"
        assert "call mum" in heard[1]
        assert heard[2:] == ["The exit is there."]
        assert await sent(w) == ["15 Jan 08:01"]


@pytest.mark.parametrize("way", ["stop button", "interruption"])
async def test_stopping_a_reply_stops_no_reminder(stage: Stage, way: str) -> None:
    """The user has not seen the one that came due meanwhile, so they did not mean it."""
    slow = slowly(stage.clock, timedelta(minutes=2), "Once upon a time.")
    async with world(stage, slow, then="Call mum now.") as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="1m")
        await w.say("one", "Tell me a story.")
        await w.pass_time(seconds=90)
        if way == "stop button":
            await w.segue.cancel("one")
        else:
            await w.segue.send("one", "No story, please.", strategy=DoubleTexting.INTERRUPT)
        await w.clock.settle()
        assert await sent(w) == ["15 Jan 08:01"]
        assert "Once upon a time." not in await w.heard("one")


@pytest.mark.parametrize("when", [{"after": "1m"}, {"every": "FREQ=DAILY;BYHOUR=9;BYMINUTE=1"}])
@pytest.mark.parametrize("way", ["cancelled", "asked"])
async def test_a_reminder_that_is_not_wanted_any_more_is_not_sent(
    stage: Stage, when: dict[str, str], way: str
) -> None:
    """Also if it came due before: it waits behind a reply, and the user has not seen it."""
    slow = slowly(stage.clock, timedelta(minutes=2), "Once upon a time.")
    async with world(stage, slow, then="Call mum now.") as w:
        await start(w)
        made = await w.segue.remind("one", "call mum", **when)
        await w.say("one", "Tell me a story.")
        await w.pass_time(seconds=90)
        if way == "cancelled":
            await w.segue.cancel_reminder(made.id)
        else:
            await w.segue.send("one", "Stop reminding me to call mum.")
        await w.pass_time(days=2)
        assert await sent(w) == []
        assert "Once upon a time." in await w.heard("one")
        with pytest.raises(NotFoundError):
            await w.segue.cancel_reminder(made.id)


async def test_a_recurring_reminder_waits_for_the_morning(stage: Stage) -> None:
    """Unless the setting says otherwise."""
    for quiet_hours, hour in ((True, "07"), (False, "05")):
        async with world(stage, reminders={"quiet_hours": quiet_hours}) as w:
            await start(w, quiet_hours={"start": "22:00", "end": "08:00"})
            made = await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=6")
            await w.pass_time(days=1)
            assert (await sent(w))[-1].endswith(f"{hour}:00")
            await w.segue.cancel_reminder(made.id)


async def test_a_daily_reminder_follows_a_user_who_moves(stage: Stage) -> None:
    """9 o'clock is 9 where the user is, in the east and in the west; a single moment stays."""
    async with world(stage) as w:
        await start(w)
        await w.segue.remind("one", "stretch", every="FREQ=DAILY;BYHOUR=9")
        await w.segue.remind("one", "call mum", at="2027-01-17T10:00")
        await w.segue.set_user_preferences("sam", time_zone="Asia/Tokyo")
        [stretch, _] = await w.segue.list_reminders("sam")
        assert stretch.description.startswith("Saturday 16 January 2027, 09:00 (Asia/Tokyo), then")
        await w.pass_time(days=1)
        assert await sent(w) == ["16 Jan 00:00"]
        await w.segue.set_thread_preferences("one", time_zone="America/New_York")
        await w.pass_time(days=1, hours=2)
        assert await sent(w) == ["16 Jan 00:00", "16 Jan 14:00", "17 Jan 09:00"]


async def test_a_move_that_was_missed_is_noticed_at_the_next_time(stage: Stage) -> None:
    """Such as one at the moment of a crash: the series goes on on the new clock."""
    async with world(stage) as w:
        await start(w)
        await w.segue.remind("one", "stretch", every="FREQ=DAILY;BYHOUR=9")
        moved = {"time_zone": "America/New_York"}
        await w.journal.users.update_settings("sam", moved, now=w.clock.now())
        await w.pass_time(days=2)
        assert await sent(w) == ["16 Jan 08:00", "16 Jan 14:00"]


async def test_a_reminder_survives_a_restart_and_says_that_it_is_late(stage: Stage) -> None:
    """A missed one comes late within 12 hours; a recurring one waits for its next time."""
    async with world(stage) as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="1h")
        await w.segue.remind("one", "too late", after="10m")
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10;BYMINUTE=30")
    await stage.clock.advance(timedelta(hours=12, minutes=30))
    async with world(stage) as w:
        await w.pass_time(minutes=1)
        assert await sent(w) == ["15 Jan 20:30"]
        assert '"meant_for": "Friday 15 January 2027, 10:00"' in (await prompts(w))[0]
        timers = {t.payload["text"]: t for t in await w.journal.timers.list_of("one")}
        assert timers["too late"].state is TimerState.MISSED
        assert timers["breathe"].state is TimerState.PENDING
        assert timers["breathe"].due_at == datetime(2027, 1, 16, 9, 30, tzinfo=UTC)
        await w.segue.set_user_preferences("sam", quiet_hours={"start": "01:00", "end": "02:00"})
        await w.pass_time(minutes=1)
        assert await sent(w) == ["15 Jan 20:30"]
        assert any("suppress" in line for line in await told(w, "one", "gates"))


async def test_after_a_long_outage_only_the_newest_time_counts(stage: Stage) -> None:
    """Two mornings were missed, the second by ten minutes: it still comes."""
    async with world(stage) as w:
        await start(w)
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10")
    await stage.clock.advance(timedelta(days=1, hours=1, minutes=10))
    async with world(stage) as w:
        await w.pass_time(minutes=1)
        assert await sent(w) == ["16 Jan 09:10"]
        assert '"meant_for": "Saturday 16 January 2027, 10:00"' in (await prompts(w))[0]


async def test_a_recurring_reminder_that_was_not_sent_in_time_waits_for_its_next_time(
    stage: Stage,
) -> None:
    """Also if its process ended between its time and its first word."""
    held, models = Held("Breathe in."), {"ada": model_of(then="Breathe out.")}
    async with stage.world(agent(), models={"ada": model_of(held)}, patience=0) as w:
        await start(w)
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10")
        async with passing(w, timedelta(hours=1)):
            await held.asked.wait()
            await w.system.runtime.turns.close(timedelta(0))
    await stage.clock.advance(timedelta(hours=8))
    async with stage.world(agent(), models=models) as w:
        await w.pass_time(hours=1)
        assert await w.heard("one") == []
        assert (await told(w, "one", "a reminder"))[-1].startswith("void: Found 8h late")
        await w.pass_time(days=1)
        assert await sent(w) == ["16 Jan 09:00"]


async def test_a_reminder_that_comes_again_takes_the_place_of_the_one_before(stage: Stage) -> None:
    """Nothing of that was seen; it neither stops the thread nor is it sent behind the new one."""
    slow = slowly(stage.clock, timedelta(minutes=20), "Breathe in.")
    async with world(stage, slow, then="Breathe out.") as w:
        await start(w)
        await w.segue.remind("one", "breathe", every="FREQ=HOURLY;BYMINUTE=15,30,45")
        await w.pass_time(minutes=36)
        assert await sent(w) == ["15 Jan 08:35"]
        assert await w.heard("one") == ["Breathe out."]
        assert "due again" in (await told(w, "one", "a reminder"))[0]
        await w.say("one", "Thanks!")
        assert (await w.heard("one"))[1:] == ["Thanks!", "Breathe out."]


async def test_a_recurring_reminder_that_the_night_overtakes_comes_in_the_morning(
    stage: Stage,
) -> None:
    """As it does if it is due at night."""
    slow = slowly(stage.clock, timedelta(minutes=5), "Breathe in.")
    async with world(stage, slow, then="Breathe out.") as w:
        await start(w, quiet_hours={"start": "22:00", "end": "08:00"})
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=21;BYMINUTE=59")
        await w.pass_time(days=1, hours=13)
        assert await sent(w) == ["16 Jan 07:00", "16 Jan 20:59"]


async def test_a_move_in_the_night_loses_no_reminder(stage: Stage) -> None:
    """One that waits for the morning comes in that of the new zone."""
    async with world(stage) as w:
        await start(w, quiet_hours={"start": "22:00", "end": "08:00"})
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=6")
        await w.pass_time(hours=21, minutes=30)
        await w.segue.set_user_preferences("sam", time_zone="Europe/Athens")
        await w.pass_time(days=1, hours=1)
        assert await sent(w) == ["16 Jan 06:00", "17 Jan 06:00"]
        [breathe] = await w.segue.list_reminders("sam")
        assert breathe.description.startswith("Monday 18 January 2027, 06:00 (Europe/Athens)")


async def test_how_late_a_missed_reminder_comes_is_a_setting(sqlite_stage: Stage) -> None:
    """Beyond it, a reminder is recorded as missed, and a recurring one skipped."""
    short: dict[str, Any] = {"reminders": {"late": "10m", "late_again": "20m"}}
    async with world(sqlite_stage, **short) as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="1h")
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10")
    await sqlite_stage.clock.advance(timedelta(hours=1, minutes=15))
    async with world(sqlite_stage, **short) as w:
        await w.pass_time(minutes=1)
        timers = {t.payload["text"]: t.state for t in await w.journal.timers.list_of("one")}
        assert timers["call mum"] is TimerState.MISSED
        assert await sent(w) == ["15 Jan 09:15"]


async def test_two_workers_send_one_reminder(stage: Stage) -> None:
    """Each firing is claimed by one of them."""
    async with world(stage) as one, world(stage):
        await start(one)
        await one.segue.remind("one", "call mum", every="FREQ=HOURLY", until="2027-01-15T12:00")
        await one.pass_time(hours=6)
        assert await sent(one) == ["15 Jan 09:00", "15 Jan 10:00", "15 Jan 11:00"]
        assert await one.segue.list_reminders("sam") == []


async def test_an_unanswered_series_asks_once_and_stops(stage: Stage) -> None:
    """A word of the user starts its shelf life anew."""
    async with world(stage, reminders={"shelf_life": 2, "quiet_hours": False}) as w:
        await start(w)
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10")
        await w.pass_time(days=2)
        await w.say("one", "Done.")
        await w.pass_time(days=10)
        asked = [prompt.startswith(REMINDER_ASK_PROMPT) for prompt in await prompts(w)]
        assert asked == [False, False, False, False, True]
        assert len(await sent(w)) == 5
        reasons = await told(w, "one", "reminder")
        assert reasons[-1].startswith("expired: The user answered neither")
        assert await w.segue.list_reminders("sam") == []


async def test_a_user_who_opted_out_is_not_reminded(stage: Stage) -> None:
    """What was set before is suppressed and recorded; the tool says what to do."""
    asks = calling("remind", {"text": "call mum", "after": "2m"})
    async with world(stage, asks, then="Shall I write to you again?") as w:
        await start(w)
        await w.segue.remind("one", "buy milk", after="1h")
        await w.segue.set_user_preferences("sam", opted_out=True)
        await w.say("one", "Can you remind me of mum in two minutes?")
        assert 'call set_follow_ups("on")' in (await results(w))[0]
        with pytest.raises(OptedOut, match="Allow it there") as refused:
            await w.segue.remind("one", "call mum", after="2m")
        assert "the user" not in str(refused.value), "this is what the user reads"
        await w.pass_time(hours=2)
        assert await sent(w) == []
        [timer] = await w.journal.timers.list_of("one")
        assert timer.state is TimerState.SUPPRESSED
        assert "opted out" in (timer.state_reason or "")


async def test_the_same_reminder_is_one(stage: Stage) -> None:
    """Asked for twice, it comes once; cancelled, it can be set again."""
    async with world(stage) as w:
        await start(w)
        first = await w.segue.remind("one", "call mum", at="2027-01-15T18:00")
        again = await w.segue.remind("one", "call mum", at="2027-01-15T18:00")
        assert again == first
        weekly = [await w.segue.remind("one", "rent", every="0 9 * * 1") for _ in range(2)]
        assert weekly[0] == weekly[1]
        cancelled = await w.segue.cancel_reminder(first.id)
        assert cancelled.id == first.id
        with pytest.raises(NotFoundError):
            await w.segue.cancel_reminder(first.id)
        anew = await w.segue.remind("one", "call mum", at="2027-01-15T18:00")
        assert [r.id for r in await w.segue.list_reminders(thread="one")] == [anew.id, weekly[0].id]


async def test_a_reminder_that_is_sent_again_is_one(stage: Stage) -> None:
    """As by a client whose first try went unanswered; but "in a while" said later is another."""
    async with world(stage) as w:
        await start(w)
        asked = [w.segue.remind("one", "call mum", after="20m") for _ in range(20)]
        assert len({reminder.id for reminder in await asyncio.gather(*asked)}) == 1
        await w.pass_time(seconds=30)
        await w.segue.remind("one", "call mum", after="20m")
        assert len(await w.segue.list_reminders("sam")) == 1
        await w.segue.remind("one", "call mum", after="20m 10s")
        await w.pass_time(minutes=2)
        await w.segue.remind("one", "call mum", after="20m")
        assert len(await w.segue.list_reminders("sam")) == 3


async def test_the_same_key_is_one_reminder(stage: Stage) -> None:
    """At any time, also after it was sent."""
    async with world(stage, "Call your mum!") as w:
        await start(w)
        first = await w.segue.remind("one", "call mum", after="20m", key="mum")
        await w.pass_time(hours=1)
        again = await w.segue.remind("one", "call mum", after="20m", key="mum")
        assert (again.id, await w.segue.list_reminders("sam")) == (first.id, [])
        for key in ("", "half \ud83d"):
            with pytest.raises(UsageError, match="key is"):
                await w.segue.remind("one", "call mum", after="20m", key=key)
        with pytest.raises(UsageError, match="surrogate"):
            await w.segue.remind("one", "call \ud83d", after="20m")


async def test_tools_list_and_cancel_the_reminders_of_their_thread_only(stage: Stage) -> None:
    """Another thread's reminder is as if it were not there."""
    stranger: list[str] = []

    def cancel(_: list[BaseMessage]) -> AIMessage:
        return calling("cancel_reminder", {"id": stranger[0]})

    script: list[Line] = [calling("list_reminders", {}), cancel, "Nothing to cancel."]
    async with world(stage, *script) as w:
        await start(w)
        await w.segue.create_thread("eve", thread_id="two")
        stranger.append(str((await w.segue.remind("two", "secret", after="1h")).id))
        await w.say("one", "Cancel my reminders.")
        listed, refused = await results(w)
        assert listed == "There is no reminder."
        assert "There is no reminder" in refused
        assert len(await w.segue.list_reminders("eve")) == 1


async def test_a_call_that_runs_twice_makes_one_reminder(stage: Stage) -> None:
    """After a crash between the call and its result, a duration is not counted twice."""
    asks = calling("remind", {"text": "call mum", "after": "2h"})
    async with world(stage, asks, then="Done.") as w:
        await start(w)
        await w.say("one", "Remind me in two hours.")
        [timer] = await w.journal.timers.list_of("one")
        await w.pass_time(minutes=1)
        reminders = w.system.reminders
        thread = await w.segue.get_thread("one")
        again = await reminders.remind(thread, "call mum", key=timer.key, after="2h")
        assert again.id == timer.id
        assert again.due_at == timer.due_at
        assert len(await w.segue.list_reminders("sam")) == 1


async def test_a_promise_without_the_tool_is_kept(stage: Stage) -> None:
    """The time that the user named counts, from their message on."""
    async with world(stage, "Sure, I'll remind you in 20 minutes.") as w:
        await start(w)
        await w.say("one", "Remind me in 20 minutes to call mum.")
        [reminder] = await w.segue.list_reminders("sam")
        assert reminder.text == "call mum"
        assert (await told(w, "one", "promise"))[0].startswith("kept:")
        await w.pass_time(minutes=20)
        assert await sent(w) == ["15 Jan 08:20"]


async def test_a_request_that_the_reply_agrees_to_is_kept(stage: Stage) -> None:
    """A model without tools says only that it will; the user is reminded all the same."""
    async with world(stage, "I'll make sure to do that.", "Sure, enjoy your tea!") as w:
        await start(w)
        await w.say("one", "remind me tomorrow at 9 to call mum")
        [reminder] = await w.segue.list_reminders("sam")
        assert reminder.text == "call mum"
        assert (await told(w, "one", "promise"))[0].startswith("kept:")
        await w.pass_time(days=1)
        assert await sent(w) == ["16 Jan 08:00"]  # 9 in Berlin
        await w.say("one", "I had tea tomorrow at 9.")
        assert await w.segue.list_reminders("sam") == []


async def test_a_request_that_the_reply_ignores_is_kept_and_one_that_it_refuses_is_recorded(
    stage: Stage,
) -> None:
    """A user who asked is reminded, or can read that no reminder was set and why."""
    async with world(stage, "Mums love calls.", "Reminders are not what I do.") as w:
        await start(w)
        await w.say("one", "remind me tomorrow at 9 to call mum")
        await w.say("one", "remind me tomorrow at 10 to call dad")
        assert [reminder.text for reminder in await w.segue.list_reminders("sam")] == ["call mum"]
        outcomes = [text.split(":")[0] for text in await told(w, "one", "promise")]
        assert outcomes == ["kept", "not_set"]
        assert "The user asked for a reminder" in str((await w.segue.why("one"))[-1])


async def test_a_reply_that_asks_what_else_there_is_takes_the_request_on(stage: Stage) -> None:
    """The user named the time; only a question about it is a reason to wait."""
    async with world(stage, "Got it, what else?", "At 10 in the morning?") as w:
        await start(w)
        await w.say("one", "remind me tomorrow at 9 to call mum")
        await w.say("one", "remind me tomorrow at 10 to call dad")
        assert [reminder.text for reminder in await w.segue.list_reminders("sam")] == ["call mum"]


async def test_no_reminder_is_set_that_the_user_does_not_want(stage: Stage) -> None:
    """A negated or withdrawn request stays without one, however the reply sounds."""
    async with world(stage, "Sure!", "Okay!", "Klar!") as w:
        await start(w)
        await w.say("one", "You don't have to remind me tomorrow at 9 to call mum.")
        await w.say("one", "Remind me tomorrow at 9 to call mum. Actually, forget it.")
        await w.say("one", "Erinnere mich morgen um 9 nicht an Mama.")
        assert await w.segue.list_reminders("sam") == []
        assert await told(w, "one", "promise") == []


async def test_an_agreement_after_another_tool_is_left_alone(stage: Stage) -> None:
    """The tool may be the user's own calendar."""
    other = calling("list_reminders", {})
    async with world(stage, other, "Sure, it is in your list.") as w:
        await start(w)
        await w.say("one", "remind me tomorrow at 9 to call mum")
        assert await told(w, "one", "promise") == []


async def test_a_promise_to_a_user_who_opted_out_is_recorded(stage: Stage) -> None:
    """It is neither kept nor asked about, since agents may not write first."""
    lines = ("Sure, I'll remind you in 20 minutes.", "Of course, I'll remind you.")
    async with world(stage, *lines) as w:
        await start(w, opted_out=True)
        await w.say("one", "Remind me in 20 minutes to call mum.")
        await w.say("one", "Remind me to call mum.")
        assert [text.split(":")[0] for text in await told(w, "one", "promise")] == ["unwanted"] * 2
        assert await w.journal.timers.list_of("one") == []


async def test_a_promise_without_a_time_is_corrected(stage: Stage) -> None:
    """A follow-up asks the user when, soon after."""
    lines = ["Of course, I'll remind you.", "When shall I remind you?"]
    async with world(stage, *lines) as w:
        await start(w)
        await w.say("one", "Remind me to call mum.")
        assert await w.segue.list_reminders("sam") == []
        await w.pass_time(minutes=1)
        assert (await w.heard("one"))[-1] == "When shall I remind you?"
        assert (await told(w, "one", "promise"))[0].startswith("corrected:")


async def test_a_promise_that_was_kept_by_the_tool_is_left_alone(stage: Stage) -> None:
    """One reminder, and no question."""
    asks = calling("remind", {"text": "call mum", "after": "20m"})
    async with world(stage, asks, "I'll remind you in 20 minutes.") as w:
        await start(w)
        await w.say("one", "Remind me in 20 minutes to call mum.")
        await w.say("one", "Really?")
        await w.pass_time(hours=1)
        assert len(await sent(w)) == 1
        assert await told(w, "one", "promise") == []


@pytest.mark.parametrize("bad", ["NO_REPLY", failing("ValueError")])
async def test_a_reminder_is_not_lost_because_of_the_model(stage: Stage, bad: Line) -> None:
    """The user gets their own words instead, and the record says so."""
    async with world(stage, bad, bad, bad, bad) as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="2m")
        await w.pass_time(hours=1)
        assert await w.heard("one") == ["Reminder: call mum"]
        assert (await told(w, "one", "a reminder"))[-1].startswith("sent_plainly:")
        await w.say("one", "Thanks!")
        assert (await w.heard("one"))[-1] != "Reminder: call mum"


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_reminder_says_what_it_is_about(stage: Stage, blocks: bool) -> None:
    """A weak model may talk of anything: then the user's own words follow, and are counted."""
    small_talk = "How is it going? I hope that you are well."
    content: list[str | dict[str, str]] = [{"type": "text", "text": small_talk}]
    weak = AIMessage(content) if blocks else small_talk
    async with world(stage, weak, "Your mum!", "And you?") as w:
        await start(w)
        async with listening(w, "one") as listener:
            await w.segue.remind("one", "call mum", after="2m")
            await w.segue.remind("one", "call mum again", after="1h")
            await w.pass_time(hours=2)
        said = [e.message.text for e in listener.events if isinstance(e, MessageStored)]
        assert said == await w.heard("one") == [f"{small_talk}\n\nReminder: call mum", "Your mum!"]
        [record] = [r for r in await told(w, "one", "a reminder") if r.startswith("sent_plainly")]
        assert "did not mention the reminder" in record
        counted = (await w.segue.stats()).reminders
        assert (counted.sent, counted.plainly) == (2, 1)
        await w.say("one", "I called her.")
        assert (await w.heard("one"))[-1] == "And you?"


async def test_nobody_is_reminded_plainly_who_opted_out_meanwhile(stage: Stage) -> None:
    """The gates are asked again before the plain words, too."""
    worlds: list[World] = []

    async def stop(_: list[BaseMessage]) -> str:
        await worlds[0].segue.set_user_preferences("sam", opted_out=True)
        return "NO_REPLY"

    async with world(stage, stop) as w:
        worlds.append(w)
        await start(w)
        await w.segue.remind("one", "call mum", after="2m")
        await w.pass_time(hours=1)
        assert await w.heard("one") == []


class Snapping(ScriptedChatModel):
    """A model that breaks for good at the end of its text, after something else has happened."""

    _first: Callable[[], Awaitable[None]] = PrivateAttr()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in super()._astream(*args, **kwargs):
            yield piece
        await self._first()
        raise ValueError("gone")


async def test_a_reminder_that_was_seen_in_part_fails_if_the_user_opted_out(stage: Stage) -> None:
    """The plain words would come after the stop; and the thread goes on."""
    model = Snapping(script=lambda _: "It is time to call mum, as you asked me to. " * 5)

    async def opt_out() -> None:
        while (await w.journal.turns.list_of("one"))[0].shown_at is None:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        await w.segue.set_user_preferences("sam", opted_out=True)

    model._first = opt_out
    async with stage.world(agent(), models={"ada": model}) as w:
        await start(w)
        await w.segue.remind("one", "call mum", after="2m")
        await w.pass_time(minutes=3)
        assert await w.heard("one") == []
        [turn] = await w.journal.turns.list_of("one")
        assert (turn.state, turn.attempts) == (TurnState.FAILED, 1)


async def test_a_thread_has_at_most_a_hundred_reminders(sqlite_stage: Stage) -> None:
    """And a text of at most 1,000 characters."""
    async with world(sqlite_stage) as w:
        await start(w)
        for number in range(1, 101):
            await w.segue.remind("one", f"task {number}", after=f"{number}h")
        with pytest.raises(ConflictError, match="cancel one first"):
            await w.segue.remind("one", "one more", after="1h")
        for text in ("", "  ", "x" * 1_001):
            with pytest.raises(UsageError):
                await w.segue.remind("one", text, after="1h")
        with pytest.raises(UsageError, match="Unknown argument"):
            await w.segue.remind("one", "x", when="1h")


async def test_a_user_sees_all_reminders_of_which_there_are_at_most_two_hundred(
    sqlite_stage: Stage,
) -> None:
    """Over all threads; one that no list shows could not be cancelled."""
    async with world(sqlite_stage) as w:
        for thread in ("one", "two", "three"):
            await w.segue.create_thread("sam", thread_id=thread)
        for number in range(200):
            await w.segue.remind(
                ("one", "two")[number % 2], f"task {number}", after=f"{number + 1}h"
            )
        assert len(await w.segue.list_reminders("sam")) == 200
        with pytest.raises(ConflictError, match="in all conversations"):
            await w.segue.remind("three", "one more", after="1h")


async def test_a_rule_without_a_time_holds_up_no_one(sqlite_stage: Stage) -> None:
    """To find that out takes a search through five years, which is not for the event loop."""
    rule = "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"
    async with world(sqlite_stage) as w:
        await start(w)
        async with watched_loop():
            setting = (w.segue.remind("one", "skate", every=rule) for _ in range(20))
            refused = await asyncio.gather(*setting, return_exceptions=True)
        assert {type(each) for each in refused} == {UsageError}


async def test_reminders_move_with_an_export(stage: Stage) -> None:
    """A series goes on in the new database with its rule and text."""
    async with world(stage) as w:
        await start(w)
        await w.segue.remind("one", "breathe", every="FREQ=DAILY;BYHOUR=10")
        await w.segue.remind("one", "call mum", after="2h")
        before = await w.segue.list_reminders("sam")
        exported = b"".join([line async for line in w.segue.export_all()])
        await w.segue.delete_user("sam")
        assert await w.segue.list_reminders("sam") == []
        await w.segue.import_file(BytesIO(exported))
        assert await w.segue.list_reminders("sam") == before
        await w.pass_time(days=1, hours=4)
        assert await sent(w) == ["15 Jan 09:00", "15 Jan 10:00", "16 Jan 09:00"]


async def test_switched_off_there_is_no_tool_and_no_promise_is_kept(sqlite_stage: Stage) -> None:
    """The setting `reminders.enabled`."""
    async with world(
        sqlite_stage, "I'll remind you in 20 minutes.", reminders={"enabled": False}
    ) as w:
        await start(w)
        await w.say("one", "Remind me in 20 minutes.")
        assert await w.segue.list_reminders("sam") == []
        kinds = {timer.kind for timer in await w.journal.timers.list_of("one")}
        assert TimerKind.REMINDER not in kinds


async def test_a_user_who_wants_no_reminders_gets_no_more(stage: Stage) -> None:
    """Those that recur end with the message, in its thread; one that comes once stays."""
    async with world(stage) as w:
        await start(w)
        await w.segue.create_thread("sam", thread_id="two")
        await w.segue.remind("one", "stretch", every="FREQ=HOURLY")
        await w.segue.remind("one", "drink water", every="FREQ=HOURLY")
        await w.segue.remind("one", "see the dentist", after="30h")
        await w.segue.remind("two", "breathe", every="FREQ=DAILY")
        await w.say("one", "Please stop reminding me.")
        left = await w.segue.list_reminders("sam")
        assert sorted(reminder.text for reminder in left) == ["breathe", "see the dentist"]
        [asked] = await told(w, "one", "the user's request about follow-ups")
        assert asked == "stop_reminders: The user asked not to be reminded any more."
        ends = await told(w, "one", "the reminder planned for")
        assert ends == ["cancelled: The user asked not to be reminded any more."] * 2
        await w.pass_time(days=2)
        assert len(await sent(w)) == 1
        assert (await w.segue.get_user_preferences("sam")).get("opted_out") is None


async def test_a_user_names_the_reminder_that_should_end(stage: Stage) -> None:
    """Also one that comes once; what is not named stays."""
    async with world(stage) as w:
        await start(w)
        for text in ("stretch", "water the plants"):
            await w.segue.remind("one", text, every="FREQ=HOURLY")
        await w.segue.remind("one", "call mum", after="3h")
        await w.say("one", "Stop reminding me to water my plants.")
        await w.say("one", "And don't remind me to call mum.")
        await w.say("one", "Stop reminding me of my ex.")
        assert [reminder.text for reminder in await w.segue.list_reminders("sam")] == ["stretch"]
        assert (await w.segue.get_user_preferences("sam")).get("opted_out") is None


async def test_without_reminders_it_is_a_stop(stage: Stage) -> None:
    """What the user takes for reminders is what the agent writes on its own."""
    async with world(stage) as w:
        await start(w)
        await w.say("one", "Stop reminding me!")
        assert (await w.segue.get_user_preferences("sam"))["opted_out"] is True
        [asked] = await told(w, "one", "the user's request about follow-ups")
        assert asked == "stop: The user asked not to be written to any more."
