"""The user's local time: time zones, local days and quiet hours, across midnight and clock changes;
and the clock as the model reads it at the end of the system message.

All results are in UTC: Python compares and adds times of one zone by their wall clock, which is
wrong when the clock changes.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from segue.core.durations import say_duration
from segue.errors import UsageError

# Local times of the first and last days of the calendar are out of range.
FIRST_MOMENT: Final = datetime(2, 1, 1, tzinfo=UTC)
LAST_MOMENT: Final = datetime(9998, 12, 31, tzinfo=UTC)

# Entries of the zone folder that are not IANA zones: the machine's own zone, an unset one, and
# copies of the zones, some with leap seconds. Some file systems ignore case.
_NOT_A_ZONE: Final = re.compile(r"(localtime|posixrules|factory)$|(posix|right)/", re.IGNORECASE)

_MIDNIGHT: Final = time()
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
# Not by `strftime`, which writes the language of the process.
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_MAY_WRITE_FIRST: Final = (
    "You may write to the user first; such messages reach them without a question of theirs."
)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` until just before `end` on the user's wall clock; it may cross midnight.

    `UsageError` for times with seconds or a time zone, and for two equal times, which could mean
    always or never.
    """

    start: time
    """The first quiet minute on the user's clock, such as `22:00`."""
    end: time
    """The first minute that is not quiet, such as `07:30`."""

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.end)):
            if value.tzinfo is not None or value.second or value.microsecond:
                raise UsageError(
                    f"Quiet hours cannot {name} at {value.isoformat()}: expected hours and "
                    "minutes without a time zone, since the zone is the user's."
                )
        if self.start == self.end:
            raise UsageError(
                f"Quiet hours cannot start and end at the same time, {self.start:%H:%M}: leave "
                "them out for none; to get no follow-up at any hour, mute the thread."
            )

    def __str__(self) -> str:
        return f"{self.start:%H:%M} to {self.end:%H:%M}"

    def as_json(self) -> dict[str, str]:
        return {"start": f"{self.start:%H:%M}", "end": f"{self.end:%H:%M}"}

    def is_quiet(self, moment: datetime, zone: tzinfo) -> bool:
        """Whether the wall clock shows a quiet time, in both runs of a repeated hour."""
        return self._covers(as_utc(moment).astimezone(zone).time())

    def next_open(self, moment: datetime, zone: tzinfo) -> datetime:
        """The first time from `moment` on that is not quiet, in UTC.

        If a clock change skips the end of the quiet hours, the time of the change.
        """
        moment = as_utc(moment)
        while self._covers(moment.astimezone(zone).time()):
            moment = _onward(moment, zone, self.end)
        return moment

    def _covers(self, shown: time) -> bool:
        if self.start <= self.end:
            return self.start <= shown < self.end
        return shown >= self.start or shown < self.end


# The default quiet hours, and what reports count as night.
NIGHT: Final = QuietHours(time(22), time(8))


def find_zone(name: str | None) -> tzinfo | None:
    """The IANA time zone of that name; None if there is none."""
    try:
        return ZoneInfo(name) if name and not _NOT_A_ZONE.match(name) else None
    except (KeyError, ValueError, TypeError, OSError):  # OSError for a folder such as "America"
        return None


def as_utc(moment: datetime) -> datetime:
    """The time in UTC, within the range of every zone; `UsageError` without a time zone."""
    if moment.utcoffset() is None:
        raise UsageError(f"{moment!r} has no time zone; pass an aware datetime.")
    try:
        return min(max(moment.astimezone(UTC), FIRST_MOMENT), LAST_MOMENT)
    except OverflowError:
        return FIRST_MOMENT if moment.year == 1 else LAST_MOMENT


def after(moment: datetime, delay: timedelta) -> datetime:
    """The moment `delay` of real time later; at most `LAST_MOMENT`."""
    try:
        return as_utc(as_utc(moment) + delay)
    except OverflowError:
        return LAST_MOMENT


def local_day(moment: datetime, zone: tzinfo) -> date:
    return as_utc(moment).astimezone(zone).date()


def day_began(moment: datetime, zone: tzinfo) -> datetime:
    """When the user's local day of `moment` began, in UTC: at midnight, or at a clock change."""
    moment = as_utc(moment)
    day = local_day(moment, zone)
    began = as_utc(datetime.combine(day, _MIDNIGHT, zone))
    if local_day(began, zone) == day:
        return min(began, moment)
    return next_day(began, zone)


def next_day(moment: datetime, zone: tzinfo) -> datetime:
    """When the user's next local day begins, in UTC; not always at midnight."""
    moment = as_utc(moment)
    day = local_day(moment, zone)
    while moment.astimezone(zone).date() <= day:
        moment = _onward(moment, zone, _MIDNIGHT)
    return moment


def _onward(moment: datetime, zone: tzinfo, wall: time) -> datetime:
    """When the clock next shows `wall`, or the next clock change if that comes first."""
    local = moment.astimezone(zone)
    left = (datetime.combine(local, wall) - local.replace(tzinfo=None)) % _DAY
    shown = moment + (left or _DAY)
    return _clock_change(moment, shown, zone) or shown


def _clock_change(start: datetime, stop: datetime, zone: tzinfo) -> datetime | None:
    """The first second after `start` with another offset; None if `stop` has the same one."""
    offset = _offset(start, zone)
    if _offset(stop, zone) == offset:
        return None
    start = start.replace(microsecond=0)
    seconds = range((stop - start) // _SECOND + 1)
    first = bisect_left(seconds, True, key=lambda n: _offset(start + n * _SECOND, zone) != offset)
    return min(start + first * _SECOND, stop)


def _offset(moment: datetime, zone: tzinfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The time `at` in the user's zone; UTC if the zone is unknown.

    `silent_for` is set for a follow-up: the time since the last visible message. Less than a minute
    is not stated: small models answer the remark instead of the user.
    """

    at: datetime
    zone: str
    may_write_first: bool = False
    silent_for: timedelta | None = None

    @property
    def text(self) -> str:
        """The end of the system message, one fact per line."""
        lines = [f"Now: {self._date(self.at)}, {self._time(self.at)} ({self._zone_name})."]
        if self.may_write_first:
            lines.append(_MAY_WRITE_FIRST)
        if self.silent_for is not None and self.silent_for >= _MINUTE:
            minutes = self.silent_for // _MINUTE * _MINUTE
            lines.append(f"The user has been silent for {say_duration(minutes)}.")
        return "\n".join(lines)

    @property
    def local_time(self) -> datetime:
        """The time `at`, in the user's zone."""
        return self._local(self.at)

    def describe(self, moment: datetime) -> str:
        """Another time, such as `14:05 (Europe/Berlin)`; with its date if that is another."""
        is_today = self._local(moment).date() == self._local(self.at).date()
        day = "" if is_today else f" on {self._date(moment)}"
        return f"{self._time(moment)}{day} ({self._zone_name})"

    def _date(self, moment: datetime) -> str:
        day = self._local(moment)
        return f"{WEEKDAYS[day.weekday()]}, {day.day} {MONTHS[day.month - 1]} {day.year}"

    def _time(self, moment: datetime) -> str:
        return f"{self._local(moment):%H:%M}"

    def _local(self, moment: datetime) -> datetime:
        return as_utc(moment).astimezone(find_zone(self.zone) or UTC)

    @property
    def _zone_name(self) -> str:
        return self.zone if find_zone(self.zone) else "UTC"
