"""The user's clock, as the model reads it: date, time, weekday and zone, whether the agent may
write first, and how long the user has been silent.

Only the text is made here; the agent puts it at the end of the system message, where it leaves the
part that a prompt cache keeps unchanged.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from segue.core.autonomy.local_time import as_utc, find_zone
from segue.core.durations import say_duration

# Not by `strftime`, which writes the language of the process.
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_MAY_WRITE_FIRST: Final = (
    "You may write to the user first; such messages reach them without a question of theirs."
)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The time `at` in the user's zone; UTC if the zone is unknown.

    `silent_for` is set for a follow-up: the time since the last visible message.
    """

    at: datetime
    zone: str
    may_write_first: bool = False
    silent_for: timedelta | None = None

    @property
    def text(self) -> str:
        """What the system message ends with, one fact per line."""
        lines = [f"Now: {self._date(self.at)}, {self._time(self.at)} ({self._zone_name})."]
        if self.may_write_first:
            lines.append(_MAY_WRITE_FIRST)
        if self.silent_for is not None:
            minutes = self.silent_for // _MINUTE * _MINUTE
            silence = say_duration(minutes) if minutes > timedelta() else "less than a minute"
            lines.append(f"The user has been silent for {silence}.")
        return "\n".join(lines)

    @property
    def local_time(self) -> datetime:
        """The time `at`, in the user's zone."""
        return self._local(self.at)

    def describe(self, moment: datetime) -> str:
        """Another time on this clock, such as `14:05 (Europe/Berlin)`, with its date on another day
        than that of `at`.
        """
        is_today = self._local(moment).date() == self._local(self.at).date()
        day = "" if is_today else f" on {self._date(moment)}"
        return f"{self._time(moment)}{day} ({self._zone_name})"

    def _date(self, moment: datetime) -> str:
        day = self._local(moment)
        return f"{_DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1]} {day.year}"

    def _time(self, moment: datetime) -> str:
        return f"{self._local(moment):%H:%M}"

    def _local(self, moment: datetime) -> datetime:
        return as_utc(moment).astimezone(find_zone(self.zone) or UTC)

    @property
    def _zone_name(self) -> str:
        return self.zone if find_zone(self.zone) else "UTC"
