"""A rule by which times repeat: an RRULE such as `FREQ=WEEKLY;BYDAY=MO;BYHOUR=9`, or a cron line.

A rule is on the user's wall clock, without time zone; `schedule` converts its times. Rules are
written by models and users: every search ends, also for a rule without any time.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice, pairwise, product, takewhile
from typing import Final, Literal

from cronsim import CronSim, CronSimError
from dateutil import rrule

from segue.core.autonomy.local_time import MONTHS, WEEKDAYS
from segue.errors import UsageError

HORIZON: Final = timedelta(days=5 * 366)
CLOSEST: Final = timedelta(minutes=15)

_ANY_TIME: Final = datetime.combine(date.min, time())
_LONGEST: Final = 200  # characters
_CRON: Final = re.compile(r"[\w*/,#-]+(?: +[\w*/,#-]+){4}", re.ASCII)
_Frequency = Literal[0, 1, 2, 3, 4]
_FREQUENCIES: Final[Mapping[str, tuple[_Frequency, timedelta | None, str]]] = {
    "HOURLY": (rrule.HOURLY, timedelta(hours=1), "hour"),
    "DAILY": (rrule.DAILY, timedelta(days=1), "day"),
    "WEEKLY": (rrule.WEEKLY, timedelta(weeks=1), "week"),
    "MONTHLY": (rrule.MONTHLY, None, "month"),
    "YEARLY": (rrule.YEARLY, None, "year"),
}
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY: Final = re.compile(r"([+-]?[1-5])?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER: Final = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_RANGES: Final = {
    "INTERVAL": range(1, 1000),
    "BYMONTH": range(1, 13),
    "BYMONTHDAY": range(-31, 32),
    "BYSETPOS": range(-31, 32),
    "BYHOUR": range(24),
    "BYMINUTE": range(60),
}
_MOST_ITEMS: Final = 31
_EXAMPLE: Final = (
    "write it like 'FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0' or as a cron line like '0 9 * * 1'"
)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A checked rule. An RRULE names all of its parts, so only its intervals depend on a start."""

    text: str

    def times(self, start: datetime, since: datetime) -> Iterator[datetime]:
        """The local times from `since` on, within the horizon; intervals count from `start`.

        They count whole hours or days: a clock change may have moved the start itself.
        """
        if "=" in self.text:
            found = _rule_times(_read_parts(self.text), start, since)
        else:
            found = iter(CronSim(self.text, since - timedelta(seconds=1)))
        return takewhile(lambda wall: wall <= since + HORIZON, found)

    def describe(self) -> str:
        if "=" in self.text:
            return _in_words(_read_parts(self.text))
        words = CronSim(self.text, _ANY_TIME).explain()
        return words[0].lower() + words[1:]


def parse_recurrence(text: str, start: datetime) -> Recurrence:
    """The rule; what it leaves out is taken from `start`, a local time.

    `UsageError` if it cannot be read, has no time, or repeats more often than every 15 minutes.
    """
    given = read_recurrence(text).text
    if "=" in given:
        given = _write_parts(_completed(_read_parts(given), start))
    found = Recurrence(given)
    begins = first_match(found, start)
    times = list(islice(found.times(begins, begins), 200))
    if not times:
        raise UsageError(f"The rule {text!r:.80} has no time within 5 years; check its days.")
    if any(later - earlier < CLOSEST for earlier, later in pairwise(times)):
        raise UsageError(
            f"The rule {text!r:.80} is too frequent; a reminder may come every 15 minutes at most."
        )
    return found


def read_recurrence(text: str) -> Recurrence:
    """The rule as it is written; `UsageError` if it cannot be read. Does not compute times."""
    given = text.strip().upper().removeprefix("RRULE:")
    if len(given) > _LONGEST:
        raise UsageError(f"The rule is too long; the limit is {_LONGEST} characters.")
    if "=" in given:
        _read_parts(given)
    else:
        _check_cron(given)
    return Recurrence(given)


def first_match(rule: Recurrence, start: datetime) -> datetime:
    """Where intervals begin: the first time that fits the rule if its interval is left out.

    "Every second Monday", said on a Tuesday, begins on the next Monday.
    """
    if "=" not in rule.text:
        return start
    parts = {**_read_parts(rule.text), "INTERVAL": ("1",)}
    return next(Recurrence(_write_parts(parts)).times(start, start), start)


Parts = Mapping[str, tuple[str, ...]]


def _read_parts(text: str) -> dict[str, tuple[str, ...]]:
    pairs = [part.partition("=") for part in text.strip(";").split(";")]
    parts = {name: tuple(values.split(",")) for name, _, values in pairs}
    if len(parts) < len(pairs):
        raise UsageError(f"The rule {text!r:.80} names a part twice; {_EXAMPLE}.")
    for name, values in parts.items():
        _check_part(name, values)
    if "FREQ" not in parts:
        raise UsageError(f"The rule {text!r:.80} has no FREQ; {_EXAMPLE}.")
    _check_days(parts)
    return parts


def _check_part(name: str, values: tuple[str, ...]) -> None:
    if name in ("UNTIL", "COUNT"):
        raise UsageError(f"Leave {name} out of the rule and pass `until` beside it.")
    if name == "FREQ" and values[0] in ("MINUTELY", "SECONDLY"):
        raise UsageError("FREQ must be HOURLY, DAILY, WEEKLY, MONTHLY or YEARLY, not shorter.")
    if name == "FREQ":
        is_right = len(values) == 1 and values[0] in _FREQUENCIES
    elif name == "WKST":
        is_right = len(values) == 1 and values[0] in _DAYS
    elif name == "BYDAY":
        is_right = all(map(_DAY.fullmatch, values))
    else:
        numbers = _RANGES.get(name, range(0))
        is_right = all(_NUMBER.fullmatch(v) and int(v) in numbers for v in values)
        is_right = is_right and not (min(numbers) < 0 and any(int(v) == 0 for v in values))
    if not is_right or len(values) > (_MOST_ITEMS if name != "INTERVAL" else 1):
        part = f"{name}={','.join(values)}"
        raise UsageError(f"The rule's part {part!r:.60} is not valid; {_EXAMPLE}.")


def _check_days(parts: Parts) -> None:
    """Refuse parts to which RFC 5545 gives an unexpected meaning, or none."""
    is_long = parts["FREQ"][0] in ("MONTHLY", "YEARLY")
    is_numbered = any(len(day) > 2 for day in parts.get("BYDAY", ()))
    if not is_long and (is_numbered or "BYSETPOS" in parts):
        raise UsageError("A numbered day such as 2MO, and BYSETPOS, need FREQ=MONTHLY or YEARLY.")
    if (
        parts["FREQ"][0] == "YEARLY"
        and "BYMONTH" not in parts
        and parts.keys() & {"BYDAY", "BYMONTHDAY"}
    ):
        raise UsageError("With FREQ=YEARLY name the month, such as BYMONTH=3.")


def _completed(parts: Parts, start: datetime) -> dict[str, tuple[str, ...]]:
    """The rule with every part that it leaves out, as RFC 5545 takes them from the start.

    But an hour without a minute is the full hour, not the minute at which the user happened to ask.
    """
    freq, given = parts["FREQ"][0], dict(parts)
    has_day = bool(parts.keys() & {"BYDAY", "BYMONTHDAY"})
    if freq == "WEEKLY" and not has_day:
        given["BYDAY"] = (_DAYS[start.weekday()],)
    if freq in ("MONTHLY", "YEARLY") and not has_day:
        given["BYMONTHDAY"] = (str(start.day),)
    if freq == "YEARLY":
        given.setdefault("BYMONTH", (str(start.month),))
    given.setdefault("BYMINUTE", ("0",) if "BYHOUR" in parts else (str(start.minute),))
    if freq != "HOURLY":
        given.setdefault("BYHOUR", (str(start.hour),))
    return given


def _write_parts(parts: Parts) -> str:
    return ";".join(f"{name}={','.join(values)}" for name, values in parts.items())


def _numbers(parts: Parts, name: str) -> list[int] | None:
    return [*map(int, parts[name])] if name in parts else None


def _rule_times(parts: Parts, start: datetime, since: datetime) -> Iterator[datetime]:
    is_hourly = parts["FREQ"][0] == "HOURLY"
    start = start.replace(hour=start.hour if is_hourly else 0, minute=0, second=0, microsecond=0)
    start = _forward(parts, start, since)
    # dateutil searches until the year 9999; so a rule is asked for its times shortly before, in
    # years with the same calendar, and one that never comes ends soon.
    shift = _twin_year(start.year) - start.year
    try:
        rule = rrule.rrule(
            _FREQUENCIES[parts["FREQ"][0]][0],
            dtstart=start.replace(year=start.year + shift),
            interval=int(parts.get("INTERVAL", ("1",))[0]),
            wkst=_DAYS.index(parts.get("WKST", ("MO",))[0]),
            byweekday=[_weekday(day) for day in parts["BYDAY"]] if "BYDAY" in parts else None,
            bymonth=_numbers(parts, "BYMONTH"),
            bymonthday=_numbers(parts, "BYMONTHDAY"),
            bysetpos=_numbers(parts, "BYSETPOS"),
            byhour=_numbers(parts, "BYHOUR"),
            byminute=_numbers(parts, "BYMINUTE"),
            bysecond=0,
        )
    except ValueError:  # its interval never reaches one of its hours
        return iter(())
    times = (wall.replace(year=wall.year - shift) for wall in rule)
    return (wall for wall in times if wall >= since)


def _forward(parts: Parts, start: datetime, since: datetime) -> datetime:
    """The start moved on by whole intervals, near `since`: an old rule costs as much as a new."""
    interval = int(parts.get("INTERVAL", ("1",))[0])
    if (unit := _FREQUENCIES[parts["FREQ"][0]][1]) is not None:
        return start + max(0, (since - start) // (interval * unit)) * interval * unit
    interval *= 12 if parts["FREQ"][0] == "YEARLY" else 1
    months = (since.year - start.year) * 12 + since.month - start.month
    if (months := months // interval * interval) <= 0:
        return start
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return start.replace(year=year, month=month + 1, day=1)


def _twin_year(year: int) -> int:
    """The last year whose calendar, and that of the years of the horizon, is the same."""

    def calendar(first: int) -> list[int]:
        return [date(first + n, 1, 1).weekday() for n in range(8)]

    return next(twin for twin in range(9992, 1, -1) if calendar(twin) == calendar(year))


def _weekday(day: str) -> rrule.weekday:
    found = rrule.weekday(_DAYS.index(day[-2:]))
    return found(int(day[:-2])) if day[:-2] else found


def _in_words(parts: Parts) -> str:
    """Such as "every 2 weeks on Monday and Friday at 09:00"."""
    interval, unit = int(parts.get("INTERVAL", ("1",))[0]), _FREQUENCIES[parts["FREQ"][0]][2]
    words = [f"every {unit}" if interval == 1 else f"every {interval} {unit}s"]
    days = _listed([_day_in_words(day) for day in parts.get("BYDAY", ())])
    dates = _listed([_ordinal(int(n), "day") for n in parts.get("BYMONTHDAY", ())])
    if places := _numbers(parts, "BYSETPOS"):
        days = f"the {_listed([_ordinal(n) for n in places])} of {days or dates}"
        dates = dates if "BYDAY" in parts else ""
    if dates:
        words.append(f"on the {dates}" + (f", if that is {days}," if days else ""))
    elif days:
        words.append(f"on {days}")
    if "BYMONTH" in parts:
        words.append(f"in {_listed([MONTHS[int(n) - 1] for n in parts['BYMONTH']])}")
    minutes = sorted({int(n) for n in parts["BYMINUTE"]})
    if "BYHOUR" in parts:
        hours = sorted({int(n) for n in parts["BYHOUR"]})
        clock = [f"{hour:02}:{minute:02}" for hour, minute in product(hours, minutes)]
    else:
        clock = [f"minute {minute}" for minute in minutes]
    return " ".join(
        [*words, "at", _listed(clock if len(clock) <= 6 else [*clock[:2], "…", clock[-1]])]
    )


def _day_in_words(day: str) -> str:
    name = WEEKDAYS[_DAYS.index(day[-2:])]
    return f"the {_ordinal(int(day[:-2]))} {name}" if day[:-2] else name


def _ordinal(number: int, noun: str = "") -> str:
    """1st, 2nd, last, 2nd last."""
    n = abs(number)
    suffix = "th" if n in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    if number > 0:
        return f"{n}{suffix}"
    return " ".join(filter(None, ("last" if n == 1 else f"{n}{suffix} last", noun)))


def _listed(items: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def _check_cron(line: str) -> None:
    try:
        if not _CRON.fullmatch(line):
            raise CronSimError("not a cron line")
        CronSim(line, _ANY_TIME)
    except (CronSimError, ValueError):
        raise UsageError(f"{line!r:.80} is not a rule; {_EXAMPLE}.") from None
