"""When a reminder is due: once, or repeatedly by a rule, in the user's time zone.

Rules are evaluated on the wall clock and their times converted: a time that a clock change
repeats comes once, one that it skips comes as much later as the clock was moved. The texts of
refusals are read by users, programs and models: each says what to do instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final

from segue.core.autonomy.local_time import MONTHS, WEEKDAYS, as_utc, find_zone
from segue.core.autonomy.local_time import after as later
from segue.core.autonomy.recurrence import (
    HORIZON,
    Recurrence,
    first_match,
    parse_recurrence,
    read_recurrence,
)
from segue.core.durations import parse_duration
from segue.errors import UsageError

_LOCAL: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OFFSET: Final = re.compile(r"(?:Z|[+-]\d\d:?\d\d|UTC|GMT)$", re.IGNORECASE | re.ASCII)
# Wider than any clock change: an island may skip a day.
_CLOCK_CHANGE: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One time, or the first time of a rule, from which its intervals count.

    `first` and `until` are in UTC; `zone` is an IANA name. `after` is how one time was asked for.
    """

    first: datetime
    zone: str
    every: str | None = None
    until: datetime | None = None
    after: timedelta | None = None

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time later than `moment`, in UTC; None if there is none within 5 years."""
        moment = as_utc(moment)
        if self.every is None:
            return self.first if self.first > moment else None
        found: datetime | None = None
        start = _wall(self.first, self._clock)
        since = max(_wall(moment, self._clock), start) - _CLOCK_CHANGE
        for wall in Recurrence(self.every).times(start, since):
            # A skipped time may end up after times that are later on the clock.
            if found is not None and wall >= _wall(found, self._clock):
                break
            at = as_utc(wall.replace(tzinfo=self._clock))
            if at > moment and at >= self.first:
                found = at if found is None else min(found, at)
        return None if found and self.until and found > self.until else found

    def moved_to(self, zone: str | None) -> "Schedule":
        """The same local times in another zone; a single time keeps its moment."""
        there = find_zone(zone)
        if zone is None or there is None or zone == self.zone or self.every is None:
            return self

        def move(moment: datetime) -> datetime:
            return as_utc(_wall(moment, self._clock).replace(tzinfo=there))

        return Schedule(move(self.first), zone, self.every, self.until and move(self.until))

    def describe(self, at: datetime | None = None) -> str:
        """Such as "Monday 23 November 2026, 09:00 (Europe/Berlin), then every week on Monday ...".

        `at` is the time to name instead of the first one.
        """
        words = f"{in_words(at or self.first, self.zone)} ({self.zone})"
        if self.every is not None:
            words += f", then {Recurrence(self.every).describe()}"
        return words if self.until is None else f"{words}, until {in_words(self.until, self.zone)}"

    @property
    def _clock(self) -> tzinfo:
        return find_zone(self.zone) or UTC

    def as_json(self) -> dict[str, str | float | None]:
        until = self.until.isoformat() if self.until else None
        return {
            "first": self.first.isoformat(),
            "zone": self.zone,
            "every": self.every,
            "until": until,
            "after": self.after.total_seconds() if self.after else None,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Schedule":
        """The schedule that was stored; `UsageError` if it is damaged."""
        try:
            first = as_utc(datetime.fromisoformat(stored["first"]))
            until = as_utc(datetime.fromisoformat(stored["until"])) if stored["until"] else None
            after = timedelta(seconds=stored["after"]) if stored.get("after") else None
            zone, every = stored["zone"], stored["every"]
            if find_zone(zone) is None:
                raise UsageError(f"Time zone {zone!r:.60} is unknown.")
            if every is not None:  # its times were checked when it was set
                every = read_recurrence(every).text
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError(f"This is not a stored schedule: {error}") from None
        return cls(first, zone, every, until, after)


def parse_schedule(
    *,
    after: str | timedelta | None = None,
    at: str | None = None,
    every: str | None = None,
    until: str | None = None,
    now: datetime,
    zone: str | None,
) -> Schedule:
    """The schedule that exactly one of `after`, `at` and `every` names; `UsageError` if none."""
    zone = zone if zone and find_zone(zone) else "UTC"
    if sum(given is not None for given in (after, at, every)) != 1:
        raise UsageError(
            "Pass exactly one of `after` (a duration such as '20m'), `at` (local time such as "
            "'2026-11-17T09:00') and `every` (a rule)."
        )
    if every is None and until is not None:
        raise UsageError("`until` ends a rule; pass it with `every` only.")
    if every is not None:
        return _repeated(every, until, as_utc(now), zone)
    span = None if after is None else _span(after)
    moment = _at(at or "", as_utc(now), zone) if span is None else later(now, span)
    if moment > as_utc(now) + HORIZON:
        raise UsageError(
            f"{in_words(moment, zone)} is more than 5 years away; reminders "
            "reach 5 years ahead. Choose an earlier time."
        )
    return Schedule(moment, zone, after=span)


def _span(given: str | timedelta) -> timedelta:
    span = given if isinstance(given, timedelta) else parse_duration(given)
    if span <= timedelta():
        raise UsageError("`after` must be more than zero; pass a duration such as '20m'.")
    return span


def _at(given: str, now: datetime, zone: str) -> datetime:
    moment = _read_local(given, "at", zone)
    if moment <= now:
        raise UsageError(
            f"{given} has passed: it is {in_words(now, zone)} in {zone}. Choose a later time."
        )
    return moment


def _repeated(every: str, until: str | None, now: datetime, zone: str) -> Schedule:
    clock = find_zone(zone) or UTC
    wall = _wall(now, clock).replace(second=0, microsecond=0)
    rule = parse_recurrence(every, wall)
    begins = as_utc(first_match(rule, wall).replace(tzinfo=clock))
    end = None if until is None else _read_local(until, "until", zone)
    first = Schedule(begins, zone, rule.text).next_after(now)
    if first is None or first > now + HORIZON:
        raise UsageError(f"The rule {every!r:.80} has no time within 5 years; check its days.")
    if end is not None and end < first:
        raise UsageError(
            f"`until` is before the first time, {in_words(first, zone)}; pass a later one or none."
        )
    return Schedule(first, zone, rule.text, end)


def _read_local(given: str, name: str, zone: str) -> datetime:
    """A time on the user's clock, in UTC; of a date alone, its last second."""
    text = given.strip()
    if _OFFSET.search(text) and not _DATE.fullmatch(text):
        raise UsageError(
            f"`{name}` has a UTC offset: {given!r:.60}. Pass local time without one, "
            f"such as '2026-11-17T09:00'; it is read in {zone}."
        )
    try:
        if name == "until" and _DATE.fullmatch(text):
            wall = datetime.combine(datetime.fromisoformat(text), time(23, 59, 59))
        elif _LOCAL.fullmatch(text):
            wall = datetime.fromisoformat(text)
        else:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"`{name}` is not a time: {given!r:.60}. Write it like '2026-11-17T09:00'."
        ) from None
    return as_utc(wall.replace(tzinfo=find_zone(zone) or UTC))


def _wall(moment: datetime, clock: tzinfo) -> datetime:
    return moment.astimezone(clock).replace(tzinfo=None, fold=0)


def in_words(moment: datetime, zone: str) -> str:
    """Such as "Monday 23 November 2026, 09:00"."""
    local = moment.astimezone(find_zone(zone) or UTC)
    name, month = WEEKDAYS[local.weekday()], MONTHS[local.month - 1]
    return f"{name} {local.day} {month} {local.year}, {local:%H:%M}"
