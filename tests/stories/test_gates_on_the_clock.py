"""Stories of the user's own clock and wishes: quiet hours, time zones, mute, snooze, opt-out."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from segue.core.autonomy.policy import Policy
from segue.journal.records import TimerState
from segue.simulate.world import START, Stage
from tests.stories.scenes import (
    PATIENCE,
    arm,
    eager_agent,
    model_of,
    new_thread,
    sent_at,
    told,
)

pytestmark = pytest.mark.anyio

NIGHT = {"start": "22:00", "end": "07:00"}


def local(zone: str, *moment: int) -> datetime:
    return datetime(*moment, tzinfo=ZoneInfo(zone))  # type: ignore[misc,arg-type]


async def test_quiet_hours_over_midnight_put_a_follow_up_off_until_morning(stage: Stage) -> None:
    """What is due at eleven in the evening comes at seven, and the record says why."""
    evening = START.replace(hour=22, minute=59, second=30)
    await stage.clock.advance_to(evening)
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        await world.segue.set_user_preferences("ann", time_zone="UTC", quiet_hours=NIGHT)
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=8)
        assert await sent_at(world, thread) == []
        assert len(model.seen) == 1
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.POSTPONED
        await world.pass_time(seconds=30)
        assert await sent_at(world, thread) == [datetime(2027, 1, 16, 7, tzinfo=UTC)]
        assert await told(world, thread, "the gates") == [
            "postpone: Quiet hours are 22:00 to 07:00; 2027-01-15 23:00 in UTC is quiet.",
            "allow: All gates are open.",
        ]


async def test_by_default_nobody_is_woken_at_night_in_the_zone_of_the_settings(
    stage: Stage,
) -> None:
    """Half past nine in the evening UTC is night in Berlin; the follow-up comes at eight there."""
    await stage.clock.advance_to(START.replace(hour=21, minute=29, second=30))
    agent = eager_agent(policy={"quiet_hours": Policy().quiet_hours})
    async with stage.world(agent, models={"guide": model_of()}, time_zone="Europe/Berlin") as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=11)
        first, *_ = await sent_at(world, thread)
        assert first == local("Europe/Berlin", 2027, 1, 16, 8)


@pytest.mark.parametrize(
    ("zone", "said", "opens"),
    [
        # The night in which an hour is left out, and the one in which an hour comes twice.
        ("Europe/Berlin", (2027, 3, 27, 23, 0), (2027, 3, 28, 7, 0)),
        ("Europe/Berlin", (2027, 10, 30, 23, 0), (2027, 10, 31, 7, 0)),
        ("America/New_York", (2027, 3, 13, 23, 0), (2027, 3, 14, 7, 0)),
        ("America/New_York", (2027, 11, 6, 23, 0), (2027, 11, 7, 7, 0)),
    ],
)
async def test_quiet_hours_end_by_the_wall_clock_when_clocks_change(
    stage: Stage, zone: str, said: tuple[int, ...], opens: tuple[int, ...]
) -> None:
    """In the short night and in the long one, the agent speaks at seven on the user's wall."""
    await stage.clock.advance_to(local(zone, *said))
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world, time_zone=zone, quiet_hours=NIGHT)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=10)
        assert (await sent_at(world, thread))[0] == local(zone, *opens)
        assert (await told(world, thread, "the gates"))[0].startswith("postpone: Quiet hours are")


@pytest.mark.parametrize(
    ("zone", "said", "quiet", "opens"),
    [
        # Their end is the hour that is left out: they end as the clock jumps over it.
        ("Europe/Berlin", "2027-03-28T00:30+00:00", ("01:00", "02:30"), "2027-03-28T01:00+00:00"),
        (
            "America/New_York",
            "2027-03-14T06:30+00:00",
            ("01:00", "02:30"),
            "2027-03-14T07:00+00:00",
        ),
        # The hour that comes twice is quiet twice.
        ("Europe/Berlin", "2027-10-31T00:10+00:00", ("02:00", "03:00"), "2027-10-31T02:00+00:00"),
        (
            "America/New_York",
            "2027-11-07T05:10+00:00",
            ("01:00", "02:00"),
            "2027-11-07T07:00+00:00",
        ),
    ],
)
async def test_quiet_hours_that_lie_in_the_changed_hour(
    stage: Stage, zone: str, said: str, quiet: tuple[str, str], opens: str
) -> None:
    """The very hour of the change: not a minute of it is used, and not a minute is wasted."""
    await stage.clock.advance_to(datetime.fromisoformat(said))
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        hours = dict(zip(("start", "end"), quiet, strict=True))
        thread = await new_thread(world, time_zone=zone, quiet_hours=hours)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=3)
        assert (await sent_at(world, thread))[0] == datetime.fromisoformat(opens)


async def test_the_zone_of_the_moment_counts_not_that_of_the_plan(stage: Stage) -> None:
    """A user who flies to Tokyo after the plan was made is not woken there."""
    agent = eager_agent(delays={"check_in": timedelta(hours=6)})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin", quiet_hours=NIGHT)
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=1)
        await world.segue.set_user_preferences("ann", time_zone="Asia/Tokyo")
        await world.pass_time(days=1)
        # It was due at 15:00 in Berlin, which is 23:00 in Tokyo.
        assert (await sent_at(world, thread))[0] == local("Asia/Tokyo", 2027, 1, 16, 7)


async def test_a_thread_may_have_hours_of_its_own(stage: Stage) -> None:
    """Quiet hours of the user hold everywhere, but where a thread has other ones or none."""
    agent = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        await world.segue.set_user_preferences(
            "ann", quiet_hours={"start": "08:00", "end": "09:00"}
        )
        threads = [
            await new_thread(world),
            await new_thread(world, quiet_hours={"start": "08:00", "end": "10:00"}),
            await new_thread(world, quiet_hours=False),
        ]
        for thread in threads:
            await world.say(thread, "Where is Oslo?")
        await world.pass_time(hours=2)
        first = [(await sent_at(world, thread))[0] for thread in threads]
        assert first == [START.replace(hour=9), START.replace(hour=10), START + PATIENCE]


@pytest.mark.parametrize(
    ("wish", "whose", "reason"),
    [
        ("muted", "user", "suppress: The user muted all threads."),
        ("muted", "thread", "suppress: The thread is muted."),
        ("opted_out", "user", "suppress: The user opted out of follow-ups."),
        ("opted_out", "thread", "suppress: The user opted out of follow-ups."),
    ],
)
async def test_who_wants_no_follow_ups_gets_none(
    stage: Stage, wish: str, reason: str, whose: str
) -> None:
    """Mute and opt-out hold from the moment of the wish, also for what was planned before."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        if whose == "user":
            await world.segue.set_user_preferences("ann", **{wish: True})
        else:
            await world.segue.set_thread_preferences(thread, **{wish: True})
        await world.pass_time(days=7)
        assert len(model.seen) == 1
        assert await told(world, thread, "the gates") == [reason]
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.SUPPRESSED


async def test_a_wish_that_is_taken_back_no_longer_counts(stage: Stage) -> None:
    """After the mute is lifted, the next reply is followed up again."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world, muted=True)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        await world.segue.set_thread_preferences(thread, muted=None)
        await world.say(thread, "And Bergen?")
        await world.pass_time(PATIENCE)
        assert await sent_at(world, thread) == [START + timedelta(days=1) + PATIENCE]


async def test_a_snoozed_follow_up_is_sent_when_the_snooze_ends(stage: Stage) -> None:
    """A snooze is no refusal: what was due in it comes right after it."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        ends = START + timedelta(hours=5)
        await world.segue.snooze(thread, ends)
        await world.pass_time(ends - START - timedelta(seconds=1))
        assert len(model.seen) == 1
        await world.pass_time(seconds=1)
        assert await sent_at(world, thread) == [ends]
        assert (await told(world, thread, "the gates"))[0] == (
            "postpone: Follow-ups in this thread are snoozed until 2027-01-15 13:00 in UTC."
        )


async def test_a_snooze_that_ends_at_night_is_waited_out_until_morning(stage: Stage) -> None:
    """One gate after the other: where one wait ends in another, the agent waits for both."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world, time_zone="UTC", quiet_hours=NIGHT)
        await world.say(thread, "Where is Oslo?")
        await world.segue.snooze(thread, START.replace(hour=23))
        await world.pass_time(days=1)
        assert (await sent_at(world, thread))[0] == datetime(2027, 1, 16, 7, tzinfo=UTC)


async def test_a_timer_that_expires_before_it_may_speak_is_closed(stage: Stage) -> None:
    """What could only be said too late is not said, and the record tells both times."""
    model = model_of()
    async with stage.world(
        eager_agent(expires_after=timedelta(hours=2)), models={"guide": model}
    ) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.segue.snooze(thread, START + timedelta(hours=5))
        await world.pass_time(days=1)
        assert len(model.seen) == 1
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.EXPIRED
        [reason] = await told(world, thread, "the gates")
        assert reason.startswith("suppress: It expires at 2027-01-15 10:00 in UTC")
        assert "and cannot be sent before 2027-01-15 13:00 in UTC" in reason


async def test_a_timer_found_after_its_expiry_is_closed(stage: Stage) -> None:
    """A follow-up that is past its time says nothing, even if all else would let it."""
    model = model_of()
    async with stage.world(eager_agent(), models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await arm(world, thread, START + PATIENCE, expires_at=START + PATIENCE)
        await world.pass_time(days=1)
        assert len(model.seen) == 1
        assert (await told(world, thread, "the follow-up planned"))[-1].startswith(
            "expired: It expired at 2027-01-15 08:00"
        )


@pytest.mark.parametrize("of_thread", [True, False])
@pytest.mark.parametrize(
    ("wish", "changed"),
    [
        ({"snoozed_until": START + timedelta(days=1)}, {"snoozed_until": None}),
        ({"quiet_hours": {"start": "08:00", "end": "12:00"}}, {"quiet_hours": False}),
        ({"quiet_hours": {"start": "08:00", "end": "12:00"}}, {"time_zone": "Asia/Tokyo"}),
    ],
)
async def test_what_was_put_off_comes_when_the_user_no_longer_minds(
    stage: Stage, wish: dict[str, object], changed: dict[str, object], *, of_thread: bool
) -> None:
    """A snooze that is ended, quiet hours that are over in another way: it comes at once."""
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)

        async def set_wishes(wishes: dict[str, object]) -> None:
            if of_thread:
                await world.segue.set_thread_preferences(thread, **wishes)
            else:
                await world.segue.set_user_preferences("ann", **wishes)

        await set_wishes(wish)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        [timer] = await world.segue.list_follow_ups(thread)
        assert timer.state is TimerState.POSTPONED
        await world.pass_time(minutes=1)
        await set_wishes(changed)
        await world.clock.settle()
        assert await sent_at(world, thread) == [world.clock.now()]


async def test_what_was_put_off_waits_on_if_the_user_wants_it_to(stage: Stage) -> None:
    """A snooze that is made longer is a longer wait, and a mute that is taken back in time costs
    nothing.
    """
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.segue.snooze(thread, START + timedelta(hours=1))
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        await world.segue.snooze(thread, START + timedelta(hours=2))
        await world.clock.settle()
        for muted in (True, None):
            await world.segue.set_user_preferences("ann", muted=muted)
            await world.clock.settle()
        [timer] = await world.segue.list_follow_ups(thread)
        assert (timer.state, timer.due_at) == (TimerState.POSTPONED, START + timedelta(hours=2))
        await world.pass_time(hours=2)
        assert await sent_at(world, thread) == [START + timedelta(hours=2)]
