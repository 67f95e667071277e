"""Schedules of reminders: what is accepted, what is refused, and the nights of clock changes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.autonomy.recurrence import parse_recurrence, read_recurrence
from segue.core.autonomy.schedule import Schedule, parse_schedule
from segue.errors import UsageError

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 17, 12, 26, 22, tzinfo=UTC)  # a Tuesday, 13:26 in Berlin
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def schedule(now: datetime = NOW, zone: str = BERLIN, /, **given: str) -> Schedule:
    return parse_schedule(now=now, zone=zone, **given)


def times_of(given: Schedule, count: int) -> list[str]:
    """The first times on the user's clock."""
    moments: list[datetime] = [given.first]
    while len(moments) < count and (later := given.next_after(moments[-1])):
        moments.append(later)
    return [m.astimezone(ZoneInfo(given.zone)).strftime("%a %d %b %H:%M") for m in moments]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"after": "2m"}, "Tuesday 17 November 2026, 13:28 (Europe/Berlin)"),
        ({"at": "2026-11-18T09:00"}, "Wednesday 18 November 2026, 09:00 (Europe/Berlin)"),
        (
            {"every": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0"},
            "Monday 23 November 2026, 09:00 (Europe/Berlin), then every week on Monday at 09:00",
        ),
        (
            {"every": "0 9 * * 1"},
            "Monday 23 November 2026, 09:00 (Europe/Berlin), then at 09:00 on Monday",
        ),
        (
            {"every": "FREQ=DAILY;BYHOUR=9", "until": "2026-12-31"},
            (
                "Wednesday 18 November 2026, 09:00 (Europe/Berlin), then every day at 09:00, "
                "until Thursday 31 December 2026, 23:59"
            ),
        ),
        (
            {"every": "RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17"},
            (
                "Monday 30 November 2026, 17:00 (Europe/Berlin), then every month on the last of "
                "Monday, Tuesday, Wednesday, Thursday and Friday at 17:00"
            ),
        ),
        (
            {"every": "FREQ=MONTHLY;BYDAY=2TU,-1FR;BYHOUR=9,18"},
            (
                "Friday 27 November 2026, 09:00 (Europe/Berlin), then every month on the 2nd "
                "Tuesday and the last Friday at 09:00 and 18:00"
            ),
        ),
        (
            {"every": "FREQ=YEARLY;BYMONTH=3,6;BYMONTHDAY=1,-1;BYHOUR=8"},
            (
                "Monday 1 March 2027, 08:00 (Europe/Berlin), then every year on the 1st and last "
                "day in March and June at 08:00"
            ),
        ),
        (
            {"every": "FREQ=HOURLY;BYMINUTE=0,15,30,45;BYHOUR=8,9,10"},
            (
                "Wednesday 18 November 2026, 08:00 (Europe/Berlin), then every hour at 08:00, "
                "08:15, … and 10:45"
            ),
        ),
    ],
)
def test_a_schedule_says_when_it_comes(arguments: dict[str, str], said: str) -> None:
    """The model repeats it to the user, who notices what was misunderstood."""
    assert schedule(**arguments).describe() == said


@pytest.mark.parametrize(
    ("rule", "times"),
    [
        # Said on a Tuesday, it begins on the next Monday.
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9", ["Mon 23 Nov 09:00", "Mon 07 Dec 09:00"]),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=TH;BYHOUR=9", ["Thu 19 Nov 09:00", "Thu 26 Nov 09:00"]),
        # Without a time, from the minute at which it was said.
        ("FREQ=HOURLY;INTERVAL=3", ["Tue 17 Nov 16:26", "Tue 17 Nov 19:26"]),
        ("FREQ=DAILY", ["Wed 18 Nov 13:26", "Thu 19 Nov 13:26"]),
        ("FREQ=WEEKLY", ["Tue 24 Nov 13:26", "Tue 01 Dec 13:26"]),
        ("FREQ=MONTHLY", ["Thu 17 Dec 13:26", "Sun 17 Jan 13:26"]),
        ("FREQ=YEARLY;BYHOUR=9", ["Wed 17 Nov 09:00", "Fri 17 Nov 09:00"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=9", ["Tue 29 Feb 09:00", "Sun 29 Feb 09:00"]),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;BYHOUR=9", ["Fri 13 Aug 09:00", "Fri 13 Oct 09:00"]),
    ],
)
def test_a_rule_begins_as_a_person_would_expect(rule: str, times: list[str]) -> None:
    """What a rule leaves out is taken from now, but an hour alone is the full hour."""
    assert times_of(schedule(every=rule), 2) == times


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({}, "exactly one of"),
        ({"after": "2m", "at": "2026-11-18T09:00"}, "exactly one of"),
        ({"at": "2026-11-18T09:00", "every": "FREQ=DAILY"}, "exactly one of"),
        ({"after": "2m", "until": "2026-12-31"}, "with `every` only"),
        ({"after": "0m"}, "such as '20m'"),
        ({"after": "PT5M"}, "write it like '30s'"),
        ({"after": "6 weeks ago"}, "write it like '30s'"),
        ({"after": "300 weeks"}, "5 years ahead"),
        ({"at": "2026-11-17T13:26"}, "it is Tuesday 17 November 2026, 13:26 in Europe/Berlin"),
        ({"at": "2026-11-18T09:00Z"}, "local time without one"),
        ({"at": "2026-11-18T09:00+01:00"}, "local time without one"),
        ({"at": "2026-11-18 09:00 UTC"}, "local time without one"),
        ({"at": "2032-01-01T09:00"}, "5 years ahead"),
        ({"at": "2026-02-30T09:00"}, "Write it like '2026-11-17T09:00'"),
        ({"at": "2026-11-18T24:30"}, "Write it like '2026-11-17T09:00'"),
        ({"at": "2026-11-18"}, "Write it like '2026-11-17T09:00'"),
        ({"at": "tomorrow at 9"}, "Write it like '2026-11-17T09:00'"),
        ({"every": "every Monday"}, "as a cron line like '0 9 * * 1'"),
        ({"every": "FREQ=WEEKLY;BYDAY=MON"}, "BYDAY=MON"),
        ({"every": "BYDAY=MO"}, "no FREQ"),
        ({"every": "FREQ=DAILY;FREQ=DAILY"}, "twice"),
        ({"every": "FREQ=DAILY;COUNT=3"}, "pass `until` beside it"),
        ({"every": "FREQ=DAILY;UNTIL=20261231"}, "pass `until` beside it"),
        ({"every": "FREQ=MINUTELY;INTERVAL=30"}, "FREQ must be HOURLY"),
        ({"every": "FREQ=HOURLY;BYMINUTE=0,10"}, "every 15 minutes at most"),
        ({"every": "FREQ=DAILY;BYHOUR=0,23;BYMINUTE=0,50"}, "every 15 minutes at most"),
        ({"every": "*/5 * * * *"}, "every 15 minutes at most"),
        ({"every": "0 0 9 * * 1"}, "as a cron line like"),
        ({"every": "0 9 30 2 *"}, "as a cron line like"),
        ({"every": "0 9 * 2 MON#5"}, "check its days"),
        ({"every": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}, "check its days"),
        ({"every": "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"}, "check its days"),
        ({"every": "FREQ=MONTHLY;INTERVAL=999"}, "check its days"),
        ({"every": "FREQ=DAILY;INTERVAL=100000"}, "INTERVAL=100000"),
        ({"every": "FREQ=DAILY;BYSECOND=1"}, "BYSECOND=1"),
        ({"every": "FREQ=MONTHLY;BYMONTHDAY=0"}, "BYMONTHDAY=0"),
        ({"every": "FREQ=WEEKLY;BYDAY=2MO"}, "need FREQ=MONTHLY"),
        ({"every": "FREQ=YEARLY;BYDAY=2MO"}, "BYMONTH=3"),
        ({"every": "DTSTART:20260101T090000\nRRULE:FREQ=DAILY"}, "DTSTART"),
        ({"every": "FREQ=HOURLY;BYMINUTE=" + ",".join(["0"] * 32)}, "BYMINUTE"),
        ({"every": "FREQ=HOURLY;BYMINUTE=" + ",".join(["0"] * 200)}, "200 characters"),
        ({"every": "FREQ=DAILY;BYHOUR=9", "until": "2026-11-17"}, "pass a later one or none"),
    ],
)
def test_a_refusal_says_what_to_do_instead(arguments: dict[str, str], advice: str) -> None:
    """A model that reads it can correct its call, or ask the user."""
    with pytest.raises(UsageError) as refused:
        schedule(**arguments)
    assert advice in str(refused.value)


def test_a_rule_ends_with_until() -> None:
    """The last day counts; after it there is no time."""
    given = schedule(every="FREQ=DAILY;BYHOUR=9", until="2026-11-19")
    assert times_of(given, 5) == ["Wed 18 Nov 09:00", "Thu 19 Nov 09:00"]


def test_an_old_rule_keeps_its_interval() -> None:
    """Also years later, when its search starts near the present."""
    given = schedule(every="FREQ=WEEKLY;INTERVAL=3;BYDAY=MO;BYHOUR=9")
    months = schedule(every="FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=31;BYHOUR=9")
    for rule in (given, months):
        every_one = [rule.first]
        while every_one[-1].year < 2036 and (later := rule.next_after(every_one[-1])):
            every_one.append(later)
        assert every_one[-1].year == 2036
        assert [rule.next_after(moment - DAY) for moment in every_one] == every_one
    weeks = {(later - earlier).days for earlier, later in pairwise(every_one)}
    assert min(weeks) >= 150


@pytest.mark.parametrize("rule", ["FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "30 2 * * *"])
def test_half_past_two_comes_once_on_the_night_of_a_clock_change(rule: str) -> None:
    """In autumn at the first of two; in spring, when there is none, an hour later."""
    autumn = schedule(datetime(2026, 10, 24, 12, tzinfo=UTC), every=rule)
    spring = schedule(datetime(2027, 3, 27, 12, tzinfo=UTC), every=rule)
    assert times_of(autumn, 2) == ["Sun 25 Oct 02:30", "Mon 26 Oct 02:30"]
    assert autumn.first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert times_of(spring, 2) == ["Sun 28 Mar 03:30", "Mon 29 Mar 02:30"]


def test_a_time_that_the_clock_skips_is_taken_as_later() -> None:
    """On the night when clocks go forward, 02:30 is an hour after 01:30."""
    given = schedule(datetime(2027, 3, 27, 12, tzinfo=UTC), at="2027-03-28T02:30")
    assert given.first == datetime(2027, 3, 28, 1, 30, tzinfo=UTC)


def clock_changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The hours of 2027 in which the zone's clock is changed."""
    hours = [datetime(2027, 1, 1, tzinfo=UTC) + n * 60 * MINUTE for n in range(0, 366 * 24, 24)]
    for day, next_day in pairwise(hours):
        if day.astimezone(zone).utcoffset() != next_day.astimezone(zone).utcoffset():
            yield day


def check_nights(name: str) -> int:
    """Every half hour of the days around a clock change comes once a day, in order."""
    zone, count = ZoneInfo(name), 0
    for change in clock_changes(zone):
        for half_hour in range(0, 48, 1 if name == BERLIN else 5):
            hour, minute = divmod(30 * half_hour, 60)
            rule = f"FREQ=DAILY;BYHOUR={hour};BYMINUTE={minute}"
            given = schedule(change - 2 * DAY, name, every=rule)
            moments = [given.first]
            while moments[-1] < change + 3 * DAY:
                moments.append(given.next_after(moments[-1]) or moments[0])
            days = [m.astimezone(zone).date() for m in moments]
            assert all(b - a == DAY for a, b in pairwise(days)), (name, rule, moments)
            shown = {m.astimezone(zone).strftime("%H:%M") for m in moments}
            assert f"{hour:02}:{minute:02}" in shown, (name, rule)
            assert len(shown) <= 2, (name, rule)
            assert all(given.next_after(m - MINUTE) == m for m in moments), (name, rule)
            count += 1
    return count


@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe"])
def test_every_half_hour_comes_once_a_day_over_clock_changes(zone: str) -> None:
    """None is lost and none comes twice, also where the clock moves by half an hour."""
    assert check_nights(zone) > 10


@pytest.mark.long
def test_every_half_hour_comes_once_a_day_in_all_zones() -> None:
    """Over the clock changes of a year."""
    assert sum(map(check_nights, sorted(available_timezones()))) > 1000


numbers = st.integers(-40, 70).map(str)
lists = st.lists(numbers, min_size=1, max_size=4).map(",".join)
days = st.lists(st.sampled_from(["MO", "2TU", "-1FR", "SU", "WE"]), min_size=1, max_size=3)
parts = st.fixed_dictionaries(
    {"FREQ": st.sampled_from(["HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"])},
    optional={
        "INTERVAL": st.integers(1, 999).map(str),
        "BYDAY": days.map(",".join),
        **dict.fromkeys(("BYMONTH", "BYMONTHDAY", "BYHOUR", "BYMINUTE", "BYSETPOS"), lists),
    },
).map(lambda given: ";".join(f"{name}={value}" for name, value in given.items()))
fields = st.text("0123456789*/,-#LW", min_size=1, max_size=6)
crons = st.lists(fields, min_size=5, max_size=5).map(" ".join)


@given(
    st.one_of(parts, crons, st.text(max_size=60)),
    st.sampled_from([BERLIN, "Australia/Lord_Howe", "Pacific/Apia"]),
    st.integers(0, 400),
)
def test_no_rule_hangs_and_all_times_rise(rule: str, zone: str, day: int) -> None:
    """Whatever is passed is refused, or comes in the future, again and again, and can be stored."""
    now = NOW + day * DAY
    try:
        given = schedule(now, zone, every=rule)
    except UsageError:
        return
    moments = [now, given.first]
    while len(moments) < 10 and (later := given.next_after(moments[-1])):
        moments.append(later)
    assert all(earlier < later for earlier, later in pairwise(moments))
    assert Schedule.from_json(given.as_json()) == given
    assert given.describe()


@pytest.mark.parametrize(
    "damage",
    [{"first": "soon"}, {"first": "2026-11-17T09:00"}, {"zone": "Berlin"}, {"every": "daily"}],
)
def test_a_damaged_schedule_is_refused(damage: dict[str, str]) -> None:
    """An imported file may hold anything."""
    stored = schedule(every="FREQ=DAILY;BYHOUR=9").as_json()
    with pytest.raises(UsageError):
        Schedule.from_json({**stored, **damage})


def test_a_stored_rule_is_read_without_looking_for_its_times() -> None:
    """A list of many strange rules must not hold up other users; setting one refuses it."""
    every = "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"
    stored = {"first": "2027-01-15T08:00:00+00:00", "zone": "UTC", "every": every, "until": None}
    assert Schedule.from_json(stored).every == every
    with pytest.raises(UsageError, match="no time within 5 years"):
        parse_schedule(every=every, now=datetime(2027, 1, 15, 8, tzinfo=UTC), zone="UTC")


def test_a_rule_keeps_its_wall_clock_in_another_zone() -> None:
    """Its days, its weeks between, and its end; what comes once keeps its moment."""
    rule = "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=1"
    here = schedule(every=rule, until="2026-12-21")
    for zone in ("Asia/Tokyo", "America/New_York"):
        assert (
            times_of(here.moved_to(zone), 5)
            == times_of(here, 5)
            == [
                "Mon 23 Nov 01:00",
                "Mon 07 Dec 01:00",
                "Mon 21 Dec 01:00",
            ]
        )
    once = schedule(at="2026-11-18T09:00")
    assert once.moved_to("Asia/Tokyo") == once
    assert here.moved_to("Nowhere/Else") == here.moved_to(None) == here


def test_a_rule_whose_interval_never_reaches_its_hour_has_no_times() -> None:
    """Every 24 hours from five o'clock is never at two; to ask for it is no error of the server."""
    start = datetime(2027, 3, 27, 5, 10)  # noqa: DTZ001 - on the user's wall clock
    rule = read_recurrence("FREQ=HOURLY;INTERVAL=24;BYHOUR=2;BYMINUTE=30")
    assert list(rule.times(start, start)) == []
    with pytest.raises(UsageError, match="no time within 5 years"):
        parse_recurrence("FREQ=HOURLY;INTERVAL=24;BYHOUR=3;BYMONTH=2;BYMONTHDAY=30", start)
