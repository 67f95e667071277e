"""The user's clock: quiet hours and local days in every time zone, over every clock change.

`SEGUE_LONG_SWEEP=1` walks through the clock changes of 68 years instead of one.
"""

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest

from segue.core.autonomy.local_time import (
    QuietHours,
    after,
    as_utc,
    day_began,
    find_zone,
    local_day,
    next_day,
)
from segue.errors import UsageError

NIGHT = QuietHours(time(22), time(8))
BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

LONG = os.environ.get("SEGUE_LONG_SWEEP") == "1"
YEARS = range(1973, 2041) if LONG else range(2026, 2027)
# Over midnight, within a night, ending and beginning where clocks change, short and long ones.
SPANS = [
    NIGHT,
    QuietHours(time(22), time(2, 30)),
    QuietHours(time(0, 30), time(0, 0)),
    QuietHours(time(1, 45), time(3, 15)),
    QuietHours(time(23, 50), time(0, 1)),
    QuietHours(time(2), time(3)),
]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]  # year to minute


def local(zone: tzinfo, *parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=zone, fold=fold)  # type: ignore[arg-type, misc]  # same


def clock_changes(zone: tzinfo) -> list[datetime]:
    """The moments, to the minute, at which the zone's clock is changed, found day by day."""
    changes = []
    for year in YEARS:
        start = utc(year, 1, 1)
        offsets = [(start + n * DAY).astimezone(zone).utcoffset() for n in range(367)]
        for day in (n for n in range(366) if offsets[n] != offsets[n + 1]):
            minutes = (start + day * DAY + n * MINUTE for n in range(1441))
            changed = (m for m in minutes if m.astimezone(zone).utcoffset() != offsets[day])
            changes.append(next(changed))
    return changes


@cache
def clocks() -> dict[str, list[datetime]]:
    """A zone for every way in which clocks go, with its changes; of many names, the first."""
    seen: dict[object, tuple[str, list[datetime]]] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        changes = clock_changes(zone)
        shown = [m.astimezone(zone).utcoffset() for m in [utc(YEARS[0], 1, 1), *changes]]
        seen.setdefault((tuple(changes), tuple(shown)), (name, changes))
    return dict(seen.values())


def walks() -> Iterator[tuple[ZoneInfo, list[datetime]]]:
    """Two days, minute by minute: around each clock change and a plain day of every zone."""
    for name, changes in clocks().items():
        for middle in [*changes, utc(YEARS[0], 7, 1, 12)]:
            yield ZoneInfo(name), [middle + n * MINUTE for n in range(-1440, 1441)]


def is_quiet_by_hand(quiet: QuietHours, minute_of_day: int) -> bool:
    """Another way to say it: so many minutes after the start, of so many."""
    start, end = (t.hour * 60 + t.minute for t in (quiet.start, quiet.end))
    return (minute_of_day - start) % 1440 < (end - start) % 1440


def first_open(flags: list[bool]) -> list[int | None]:
    """For each place, the first place from there on that is not quiet."""
    found: int | None = None
    places: list[int | None] = []
    for place in reversed(range(len(flags))):
        found = found if flags[place] else place
        places.append(found)
    return places[::-1]


def test_all_zones_are_here() -> None:
    """Without a time zone database every user would be treated as living in London's winter."""
    assert len(available_timezones()) > 400, "Install the `tzdata` package."


def test_nothing_is_open_in_quiet_hours_in_any_zone() -> None:
    """Nowhere, and over no clock change, is the first open minute quiet, or is there an earlier."""
    for zone, walk in walks():
        shown = [60 * m.hour + m.minute for m in (moment.astimezone(zone) for moment in walk)]
        for quiet in SPANS:
            by_minute = [is_quiet_by_hand(quiet, minute) for minute in range(1440)]
            flags = [by_minute[minute] for minute in shown]
            openings = first_open(flags)
            for place in range(0, len(walk), 61 if LONG else 31):
                moment, opening = walk[place], openings[place]
                assert quiet.is_quiet(moment, zone) is flags[place], (zone, moment)
                if opening is not None:
                    assert quiet.next_open(moment, zone) == walk[opening], (zone, moment)


def test_the_next_day_begins_with_its_first_minute_in_any_zone() -> None:
    """A cap per day ends exactly where the user's calendar turns, midnight or not."""
    for zone, walk in walks():
        days = [moment.astimezone(zone).date() for moment in walk]
        for place in range(0, len(walk), 311 if LONG else 97):
            later = next((n for n in range(place, len(days)) if days[n] > days[place]), None)
            if later is not None:
                assert next_day(walk[place], zone) == walk[later], (zone, walk[place])


def around_changes() -> Iterator[tuple[ZoneInfo, datetime]]:
    """Moments of every zone: through two days, and minute by minute around each clock change."""
    for name, changes in clocks().items():
        zone = ZoneInfo(name)
        for middle in [*changes, utc(YEARS[0], 7, 1, 12)]:
            for n in (*range(-1440, 1441, 97), *range(-180, 181, 7 if LONG else 1)):
                yield zone, middle + n * MINUTE
                yield zone, middle + n * MINUTE + MOMENT


def test_a_day_began_with_the_first_moment_that_shows_it_in_any_zone() -> None:
    """What is counted for a day is counted from where the user's calendar turned, midnight or not.

    Not later than the moment asked about, on the same day, and just before it was another day.
    """
    for zone, moment in around_changes():
        began, day = day_began(moment, zone), local_day(moment, zone)
        assert began <= moment, (zone, moment)
        assert local_day(began, zone) == day, (zone, moment)
        assert local_day(began - MOMENT, zone) != day, (zone, moment)


@pytest.mark.parametrize(
    ("hour", "minute", "is_quiet"),
    [(21, 59, False), (22, 0, True), (3, 0, True), (7, 59, True), (8, 0, False), (12, 0, False)],
)
def test_a_night_goes_over_midnight(hour: int, minute: int, is_quiet: bool) -> None:
    """From ten to eight means the night, with its first minute and without its last."""
    assert NIGHT.is_quiet(local(BERLIN, 2026, 1, 15, hour, minute), BERLIN) is is_quiet


def test_a_nap_lies_within_one_day() -> None:
    """From one to three means the early afternoon, not the rest of the day."""
    nap = QuietHours(time(13), time(15))
    quiet = [h for h in range(24) if nap.is_quiet(local(BERLIN, 2026, 1, 15, h), BERLIN)]
    assert quiet == [13, 14]


def test_the_hours_are_the_users() -> None:
    """One and the same moment is night for one user and day for another."""
    moment = utc(2026, 1, 15, 23)
    assert NIGHT.is_quiet(moment, BERLIN)
    assert not NIGHT.is_quiet(moment, ZoneInfo("America/Los_Angeles"))


def test_the_same_time_twice_is_refused() -> None:
    """It could mean always or never."""
    with pytest.raises(UsageError, match="start and end at the same time, 09:00"):
        QuietHours(time(9), time(9))


def test_an_open_moment_is_its_own_opening() -> None:
    """Nothing is put off that can be sent now, not even to the next full minute."""
    moment = utc(2026, 1, 15, 12, 0, 31)
    assert NIGHT.next_open(moment, BERLIN) == moment


def test_an_opening_is_on_the_minute() -> None:
    """Whatever second a timer is looked at, the morning begins when the clock strikes."""
    moment = utc(2026, 1, 15, 6, 59, 59, 999_999)
    assert NIGHT.next_open(moment, BERLIN) == local(BERLIN, 2026, 1, 15, 8)


def test_a_short_night_ends_an_hour_sooner() -> None:
    """When clocks go forward, eight o'clock is nine hours after ten, and is not passed over."""
    opening = NIGHT.next_open(local(BERLIN, 2026, 3, 28, 22), BERLIN)
    assert opening == utc(2026, 3, 29, 6)
    assert opening.astimezone(BERLIN).hour == 8


def test_a_long_night_ends_an_hour_later() -> None:
    """When clocks go back, nobody is woken at seven."""
    opening = NIGHT.next_open(local(BERLIN, 2026, 10, 24, 22), BERLIN)
    assert opening == utc(2026, 10, 25, 7)
    assert opening.astimezone(BERLIN).hour == 8


def test_an_end_that_the_clock_skips_is_where_it_skips_it() -> None:
    """Half past two does not exist that night: three o'clock, the next minute there is, is open."""
    quiet = QuietHours(time(22), time(2, 30))
    opening = quiet.next_open(local(BERLIN, 2026, 3, 29, 1), BERLIN)
    assert opening.astimezone(BERLIN).replace(tzinfo=None) == datetime(2026, 3, 29, 3)  # noqa: DTZ001 - a wall time


def test_a_skipped_end_is_found_to_the_second() -> None:
    """Asked in the middle of a second, the opening is still where the clock is changed."""
    quiet = QuietHours(time(22), time(2, 30))
    asked = utc(2026, 3, 29, 0, 0, 7, 500_000)
    assert quiet.next_open(asked, BERLIN) == utc(2026, 3, 29, 1)


def test_an_end_that_comes_twice_opens_twice() -> None:
    """What the clock shows counts: open from half past two, quiet again when it shows two again."""
    quiet = QuietHours(time(22), time(2, 30))
    assert quiet.next_open(local(BERLIN, 2026, 10, 25, 1), BERLIN) == utc(2026, 10, 25, 0, 30)
    again = local(BERLIN, 2026, 10, 25, 2, 15, fold=1)
    assert quiet.next_open(again, BERLIN) == utc(2026, 10, 25, 1, 30)


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        ("Asia/Kolkata", utc(2026, 6, 1, 2, 30)),
        ("Asia/Kathmandu", utc(2026, 6, 1, 2, 15)),
        ("Australia/Lord_Howe", utc(2026, 5, 31, 21, 30)),
        ("Pacific/Chatham", utc(2026, 5, 31, 19, 15)),
        ("America/St_Johns", utc(2026, 6, 1, 10, 30)),
    ],
)
def test_offsets_of_half_and_quarter_hours_are_kept(name: str, opening: datetime) -> None:
    """Eight in the morning is eight in the morning in Kathmandu, too."""
    zone = ZoneInfo(name)
    assert NIGHT.next_open(local(zone, 2026, 6, 1, 0), zone) == opening


def test_a_clock_change_of_half_an_hour_is_kept() -> None:
    """Lord Howe's clocks go forward by thirty minutes, and the morning comes so much sooner."""
    zone = ZoneInfo("Australia/Lord_Howe")
    opening = NIGHT.next_open(local(zone, 2026, 10, 3, 22), zone)
    assert opening - local(zone, 2026, 10, 3, 22).astimezone(UTC) == 9.5 * HOUR


def test_a_day_that_never_was_is_passed_over() -> None:
    """Samoa went from the 29th straight to the 31st; so do the night and the daily cap."""
    apia = ZoneInfo("Pacific/Apia")
    evening = local(apia, 2011, 12, 29, 23)
    assert NIGHT.next_open(evening, apia) == local(apia, 2011, 12, 31, 8)
    assert next_day(evening, apia) == local(apia, 2011, 12, 31)
    assert local_day(next_day(evening, apia), apia) == date(2011, 12, 31)


def test_a_day_without_a_midnight_begins_at_one() -> None:
    """Cairo's clocks skip midnight; the day begins with its first minute."""
    cairo = ZoneInfo("Africa/Cairo")
    start = next_day(local(cairo, 2026, 4, 23, 12), cairo)
    assert start.astimezone(cairo).isoformat() == "2026-04-24T01:00:00+03:00"


def test_a_day_that_is_set_back_to_the_one_before_goes_on() -> None:
    """Newfoundland's clocks once went back over midnight; the day before is no next day."""
    zone = ZoneInfo("America/St_Johns")
    first = datetime(2010, 11, 7, 0, 0, 30, tzinfo=zone)
    assert local_day(after(first, MINUTE), zone) == date(2010, 11, 6)
    assert next_day(first, zone) == local(zone, 2010, 11, 8)


def test_a_day_began_at_its_own_first_moment() -> None:
    """Asked at midnight, a day began now; in the moment before, a day ago."""
    midnight = local(BERLIN, 2026, 1, 15).astimezone(UTC)
    assert day_began(midnight, BERLIN) == midnight
    assert day_began(midnight - MOMENT, BERLIN) == midnight - DAY


def test_a_day_without_a_midnight_began_at_one() -> None:
    """Cairo's clocks skip midnight: what was sent at half past eleven was sent yesterday."""
    cairo = ZoneInfo("Africa/Cairo")
    began = day_began(local(cairo, 2026, 4, 24, 12), cairo)
    assert began.astimezone(cairo).isoformat() == "2026-04-24T01:00:00+03:00"


def test_a_day_that_was_set_back_to_the_one_before_began_the_first_time() -> None:
    """Newfoundland's clocks showed the 7th for a minute, and again an hour later: one day."""
    zone = ZoneInfo("America/St_Johns")
    assert day_began(local(zone, 2010, 11, 7, 12), zone) == utc(2010, 11, 7, 2, 30)


def test_the_day_after_one_that_never_was_began_at_its_midnight() -> None:
    """Samoa went from the 29th straight to the 31st."""
    apia = ZoneInfo("Pacific/Apia")
    began = day_began(local(apia, 2011, 12, 31, 12), apia)
    assert began == local(apia, 2011, 12, 31)
    assert local_day(began - MOMENT, apia) == date(2011, 12, 29)


def test_a_midnight_is_not_the_next_day_of_itself() -> None:
    """Asked at the first moment of a day, the next day is a day ahead."""
    midnight = local(BERLIN, 2026, 1, 15)
    assert next_day(midnight, BERLIN) == local(BERLIN, 2026, 1, 16)


def test_a_moment_may_be_told_in_any_zone() -> None:
    """The answer depends on the moment, not on whose clock it was written down by."""
    tokyo = utc(2026, 10, 24, 23).astimezone(ZoneInfo("Asia/Tokyo"))
    assert NIGHT.next_open(tokyo, BERLIN) == utc(2026, 10, 25, 7)


def test_a_moment_without_a_zone_is_refused() -> None:
    """Nobody can say whether it is night at a time that could be anyone's."""
    naive = datetime(2026, 1, 15)  # noqa: DTZ001 - what is refused
    for question in (NIGHT.is_quiet, NIGHT.next_open):
        with pytest.raises(UsageError, match="no time zone"):
            question(naive, BERLIN)


@pytest.mark.parametrize("odd", [time(22, 0, 1), time(22, 0, 0, 1), time(22, tzinfo=UTC)])
def test_quiet_hours_are_plain_minutes(odd: time) -> None:
    """Seconds and zones in a setting are refused when it is set, not at night."""
    with pytest.raises(UsageError, match="hours and minutes"):
        QuietHours(odd, time(8))
    with pytest.raises(UsageError, match="hours and minutes"):
        QuietHours(time(20), odd)


def test_quiet_hours_read_as_people_write_them() -> None:
    """Reasons and settings show them in hours and minutes."""
    assert str(NIGHT) == "22:00 to 08:00"


@pytest.mark.parametrize(
    "name",
    ["", None, "Mars/Base", "America", "../../etc/passwd", "/etc/passwd", "zone.tab", "a\0b", "é"],
)
def test_a_zone_that_is_none_is_not_found(name: str | None) -> None:
    """Whatever a client calls its zone, nothing breaks and no other file is read."""
    assert find_zone(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "localtime",
        "posixrules",
        "Factory",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "LocalTime",
        "FACTORY",
    ],
)
def test_a_zone_that_is_nobodys_is_not_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the machine that Segue runs on is not the user's, even where it has a name."""
    monkeypatch.setattr(
        "segue.core.autonomy.local_time.ZoneInfo", lambda _: BERLIN
    )  # as if each were a file
    assert find_zone(name) is None


def test_a_zone_that_is_no_text_is_not_found() -> None:
    """A setting of the wrong kind is an unknown zone like any other."""
    assert find_zone(5) is None  # type: ignore[arg-type]  # what a stored setting may hold


def test_a_zone_is_found_by_its_name() -> None:
    """The names are those of the IANA database."""
    assert find_zone("Europe/Berlin") == BERLIN
    for name in available_timezones() - {"localtime", "Factory"}:
        assert find_zone(name) == ZoneInfo(name)


@pytest.mark.parametrize("hours", [-14, 0, 14])
@pytest.mark.parametrize("year", [1, 9999])
def test_the_ends_of_the_calendar_break_nothing(year: int, hours: int) -> None:
    """A snooze "for ever" is written as the last date there is, and still has an answer."""
    ends = {1: datetime(1, 1, 1, tzinfo=UTC), 9999: datetime.max.replace(tzinfo=UTC)}
    moment = ends[year].replace(tzinfo=timezone(timedelta(hours=hours)))
    for name in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"):
        zone = ZoneInfo(name)
        assert next_day(moment, zone) > as_utc(moment)
        assert day_began(moment, zone) <= as_utc(moment)
        assert NIGHT.next_open(moment, zone) >= as_utc(moment)
    assert after(as_utc(moment), timedelta.max) == as_utc(ends[9999])
