"""The night of every time zone: for a year, nothing is sent in anybody's quiet hours."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from segue.core.autonomy.gates import GateOutcome, PolicyGates
from segue.core.autonomy.local_time import QuietHours
from segue.core.autonomy.policy import Facts, Policy
from segue.simulate.world import Stage
from tests.stories.scenes import PATIENCE, eager_agent, model_of, new_thread, sent_at

YEAR = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ZONES = sorted(available_timezones() - {"localtime", "Factory"})
# Over midnight; within a day; around the hours in which clocks are changed.
SPANS = [("22:00", "07:00"), ("12:30", "13:45"), ("23:30", "02:30"), ("02:00", "03:00")]


def is_quiet(moment: datetime, zone: ZoneInfo, start: time, end: time) -> bool:
    """By the hands of the user's clock, and nothing else."""
    shown = moment.astimezone(zone).time()
    return start <= shown < end if start < end else not end <= shown < start


def moments(zone: ZoneInfo) -> Iterator[datetime]:
    """Odd moments of the year, and the hours around each change of the clock, closely."""
    for step in range(50):
        yield YEAR + step * timedelta(days=7, hours=5, minutes=11, seconds=7)
    offset = YEAR.astimezone(zone).utcoffset()
    for number in range(1, 366):
        day = YEAR + number * DAY
        if (now := day.astimezone(zone).utcoffset()) != offset:
            offset = now
            yield from (
                day - DAY - timedelta(hours=2) + n * timedelta(minutes=47) for n in range(36)
            )


def test_in_no_zone_and_on_no_day_of_a_year_is_anybody_woken() -> None:
    """What the gates allow is by day; what they put off comes in the first moment that is."""
    gates = [
        PolicyGates(Policy(quiet_hours=QuietHours(*map(time.fromisoformat, span))))
        for span in SPANS
    ]
    asked = put_off = 0
    for name in ZONES:
        zone = ZoneInfo(name)
        for moment in moments(zone):
            asked += 1
            gate = gates[asked % len(gates)]
            hours = gate.policy.quiet_hours
            assert hours is not None
            facts = Facts(
                checked_at=moment, due_at=moment, armed_epoch=1, thread_epoch=1, zone=name
            )
            decision = gate.check(facts)
            if decision.outcome is GateOutcome.ALLOW:
                assert not is_quiet(moment, zone, hours.start, hours.end), (name, moment)
                continue
            put_off += 1
            until = decision.until
            assert until is not None
            assert moment < until <= moment + DAY, (name, moment)
            assert not is_quiet(until, zone, hours.start, hours.end), (name, moment)
            just_before = until - timedelta(microseconds=1)
            assert is_quiet(just_before, zone, hours.start, hours.end), (name, moment)
    assert len(ZONES) > 500
    assert put_off > asked / 10


@pytest.mark.anyio
@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca"])
async def test_a_year_of_nights_in_odd_zones(stage: Stage, zone: str) -> None:
    """Half an hour of summer time, half an hour of offset, a clock that goes back for Ramadan: a
    user who writes late in the evening hears from the agent in the morning.
    """
    night = {"start": "22:00", "end": "07:00"}
    agent = eager_agent(policy={"max_consecutive": 1})
    async with stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world, time_zone=zone, quiet_hours=night)
        for week in range(0, 52, 4):
            evening = datetime(2027, 1, 16, 22, tzinfo=ZoneInfo(zone)) + week * timedelta(weeks=1)
            await world.clock.advance_to(evening.astimezone(UTC) - PATIENCE / 2)
            await world.say(thread, "One more thought.")
        await world.pass_time(days=1)
        walls = {m.astimezone(ZoneInfo(zone)).time() for m in await sent_at(world, thread)}
        assert walls == {time(7)}
        assert len(await sent_at(world, thread)) == 13
