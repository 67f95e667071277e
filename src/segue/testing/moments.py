"""Times as a scenario writes them: moments, quiet hours and time zones, for people to type.

A moment is a date and time, an offset from the start such as `+2h30m`, or a day of the story such
as `day 3 09:15`. Where it lies in UTC follows from the start and from the user's clock.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, Final, Literal

from segue.core.durations import parse_duration
from segue.core.errors import UsageError
from segue.core.quiet import QuietHours, as_utc, find_zone

_DAY: Final = re.compile(r"day +(\d{1,5}),? +(\d{1,2}):(\d{2})", re.ASCII | re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_HOURS: Final = re.compile(r"(\S+?)\s*(?: to |-)\s*(\S+)")


@dataclass(frozen=True, slots=True)
class Offset:
    """So long after the start."""

    span: timedelta


@dataclass(frozen=True, slots=True)
class DayTime:
    """A time of day on the user's clock; the start is on day 1."""

    day: int
    time: time


# A datetime without a zone is one on the user's clock.
Moment = Offset | DayTime | datetime


def read_moment(value: Any) -> Moment:
    """A moment of a text, or of a date or time as TOML has them."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("+"):
            return Offset(parse_duration(text[1:]))
        with suppress(ValueError):
            if day := _DAY.fullmatch(text):
                return DayTime(int(day[1]), time(int(day[2]), int(day[3])))
            return datetime.fromisoformat(text)
    raise UsageError(
        f"{value!r:.60} is no moment; write it like '+2h30m' (after the start), 'day 3 09:15' or "
        "'2027-03-01 09:15' (on the user's clock)"
    )


def resolve(moment: Moment, start: datetime, first_day: date, zone: tzinfo) -> datetime:
    """Where a moment lies in UTC, for a story that starts then, on a clock of that zone."""
    try:
        if isinstance(moment, Offset):
            return as_utc(start + moment.span)
        if isinstance(moment, DayTime):
            day = first_day + timedelta(days=moment.day - 1)
            return as_utc(datetime.combine(day, moment.time, zone))
    except OverflowError:
        raise UsageError("it lies beyond the end of the calendar") from None
    return as_utc(moment if moment.tzinfo else moment.replace(tzinfo=zone))


def read_hours(value: Any) -> QuietHours | Literal[False]:
    """Quiet hours of `22:00 to 07:00`, of a table with start and end, or false for none."""
    if value is False or isinstance(value, QuietHours):
        return value
    ends: tuple[Any, Any] | None = None
    if isinstance(value, str) and (found := _HOURS.fullmatch(value.strip())):
        ends = found[1], found[2]
    elif isinstance(value, Mapping) and value.keys() == {"start", "end"}:
        ends = value["start"], value["end"]
    with suppress(ValueError, TypeError):
        if ends is not None:
            return QuietHours(*map(_clock_time, ends))
    raise UsageError(
        f"{value!r:.60} are no quiet hours; write them like '22:00 to 07:00', or false for none"
    )


def read_span(value: Any) -> timedelta:
    """A length of time of a text; a bare number could mean anything."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise UsageError(f"{value!r:.60} has no unit; write it like '30s', '2h30m' or '3 days'")
    return parse_duration(value)


def check_zone(name: str) -> str:
    """The name of a time zone, if there is one of that name."""
    if find_zone(name) is None:
        raise UsageError(f"{name!r:.60} is no time zone; write its name like 'Europe/Berlin'")
    return name


def zone_of(name: str) -> tzinfo:
    found = find_zone(check_zone(name))
    assert found is not None  # noqa: S101 - just checked
    return found


def _clock_time(value: Any) -> time:
    if isinstance(value, time):
        return value
    found = _CLOCK.fullmatch(value)
    if found is None:
        raise ValueError(value)
    return time(int(found[1]), int(found[2]))
