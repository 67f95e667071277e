"""When a reminder is due: in a while, at a local time, or again and again.

A rule is an RRULE (RFC 5545) or a cron expression. It is evaluated on the user's wall clock, so
that 09:00 stays 09:00 over a clock change: a time that the change skips comes when the clock has
moved on, and one that it repeats comes once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Final

from cronsim import CronSim, CronSimError
from dateutil.rrule import rrule, rrulestr

from segue.core.autonomy.local_time import as_utc
from segue.core.durations import parse_duration, show_duration
from segue.errors import UsageError

FARTHEST: Final = timedelta(days=5 * 366)
CLOSEST: Final = timedelta(minutes=15)
_LONGEST_RULE: Final = 300  # characters
_CHECKED: Final = 20  # occurrences of which none may be too close to the next


@dataclass(frozen=True, slots=True)
class Schedule:
    """The first time that a reminder is due, and the rule for the times after it."""

    due_at: datetime
    rule: str | None = None
    until: datetime | None = None
    zone: str | None = None

    def following(self, moment: datetime, clock: tzinfo) -> datetime | None:
        """The next time after `moment`; None if there is none."""
        if self.rule is None:
            return None
        due_at = next(_occurrences(self.rule, self.due_at, moment, clock), None)
        return None if due_at is None or (self.until and due_at > self.until) else due_at

    def describe(self, clock: tzinfo) -> str:
        """In words, such as `Monday 23 November 2026, 09:00 Europe/Berlin, again every week`."""
        local = self.due_at.astimezone(clock)
        text = f"{local:%A} {local.day} {local:%B %Y, %H:%M} {clock}"
        if self.rule is None:
            return text
        until = f" until {self.until.astimezone(clock):%d %B %Y}" if self.until else ""
        return f"{text}, again by the rule {self.rule}{until}"


def parse_schedule(
    now: datetime,
    clock: tzinfo,
    *,
    after: str | timedelta | None = None,
    at: str | datetime | None = None,
    every: str | None = None,
    until: str | datetime | None = None,
) -> Schedule:
    """The schedule that a request names; `UsageError` with a sentence that a model can act on."""
    given = [name for name, value in (("after", after), ("at", at), ("every", every)) if value]
    if len(given) != 1:
        what = " and ".join(given) or "none of them"
        raise UsageError(f"Give exactly one of after, at and every, not {what}.")
    if until and not every:
        raise UsageError("until goes with every; a reminder that comes once has no end.")
    end = _read_time(until, clock, "until") if until else None
    if every:
        return _recurring(every, now, clock, end)
    due_at = now + _read_span(after) if after else _read_time(at, clock, "at")
    if due_at <= now:
        raise UsageError(f"{_shown(due_at, clock)} is in the past: it is {_shown(now, clock)} now.")
    _check_near(due_at, now, clock)
    return Schedule(as_utc(due_at))


def _recurring(rule: str, now: datetime, clock: tzinfo, until: datetime | None) -> Schedule:
    start = as_utc(now)
    times = [*islice(_occurrences(rule, start, start, clock), _CHECKED)]
    if not times or (until is not None and times[0] > until):
        raise UsageError(f"The rule {rule!r:.80} is never due before it ends.")
    if any(later - earlier < CLOSEST for earlier, later in pairwise(times)):
        raise UsageError(
            f"The rule {rule!r:.80} is due more often than every {show_duration(CLOSEST)}."
        )
    _check_near(times[0], now, clock)
    return Schedule(times[0], rule, until)


def _occurrences(rule: str, start: datetime, moment: datetime, clock: tzinfo) -> Iterator[datetime]:
    """The times of a rule after `moment`, in UTC, each once, within `FARTHEST`."""
    horizon = moment + FARTHEST
    last = as_utc(moment)
    for local in _local_times(rule, _wall(start, clock), _wall(moment, clock), clock, horizon):
        due_at = as_utc(local.replace(tzinfo=clock).astimezone(UTC))
        if due_at > horizon:
            return
        if due_at > last:
            yield due_at
            last = due_at


def _local_times(
    rule: str, start: datetime, moment: datetime, clock: tzinfo, horizon: datetime
) -> Iterator[datetime]:
    # A day earlier: around a clock change the wall clock runs backwards.
    begin = moment - timedelta(days=1)
    if _is_cron(rule):
        try:
            yield from CronSim(rule, begin)
        except CronSimError as error:
            raise UsageError(f"{rule!r:.80} is not a cron expression: {error}.") from error
        return
    yield from _rrule(rule, start, _wall(horizon, clock)).xafter(begin, inc=True)


def _rrule(rule: str, start: datetime, horizon: datetime) -> rrule:
    if len(rule) > _LONGEST_RULE or "\n" in rule or "DTSTART" in rule.upper():
        raise UsageError(
            f"The rule {rule!r:.80} is not a single RRULE of at most {_LONGEST_RULE} characters."
        )
    try:
        read = rrulestr(rule.upper().removeprefix("RRULE:"), dtstart=start)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{rule!r:.80} is not an RRULE such as 'FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0'."
        ) from error
    if not isinstance(read, rrule) or read._freq > _HOURLY:  # noqa: SLF001 - it has no getter
        raise UsageError(f"The rule {rule!r:.80} has to repeat by the hour or more rarely.")
    end = min(read._until or horizon, horizon)  # noqa: SLF001 - likewise
    return read.replace(until=end, count=None) if read._count is None else read  # noqa: SLF001


_HOURLY: Final = 4


def _is_cron(rule: str) -> bool:
    return "=" not in rule and len(rule.split()) == 5


def _wall(moment: datetime, clock: tzinfo) -> datetime:
    return as_utc(moment).astimezone(clock).replace(tzinfo=None)


def _read_span(after: str | timedelta | None) -> timedelta:
    span = parse_duration(after) if isinstance(after, str) else after
    if span is None or span <= timedelta():
        raise UsageError(f"after is {after!r:.40}; expected a time from now such as '20m'.")
    return span


def _read_time(given: str | datetime | None, clock: tzinfo, name: str) -> datetime:
    """A local wall time without an offset, or a time with one."""
    try:
        read = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        read = None
    if read is None:
        raise UsageError(
            f"{name} is {given!r:.40}; expected a local time such as '2026-11-17T09:00'."
        )
    if read.tzinfo is not None:
        return as_utc(read)
    moment = read.replace(tzinfo=clock).astimezone(UTC)
    if moment.astimezone(clock).replace(tzinfo=None) != read:
        raise UsageError(f"{name} is {given}; the clock skips that time in {clock}.")
    return as_utc(moment)


def _check_near(due_at: datetime, now: datetime, clock: tzinfo) -> None:
    if due_at > now + FARTHEST:
        raise UsageError(f"{_shown(due_at, clock)} is more than five years away.")


def _shown(moment: datetime, clock: tzinfo) -> str:
    return f"{moment.astimezone(clock):%Y-%m-%d %H:%M} {clock}"
