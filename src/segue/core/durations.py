"""Durations as text: `30s`, `10m`, `2h30m`, `3 days`, `1 week`.

`show_duration` writes what `parse_duration` reads, `say_duration` plain English. `Duration` is the
type of a setting that takes such text or a number of seconds; `OR_NONE` lets it be switched off.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import dropwhile
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from segue.errors import UsageError

# No months and years: their lengths vary.
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?) *([a-z]+)[ ,]*", re.ASCII)
_PARTS: Final = re.compile(rf"({_PART.pattern})+", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """The duration that a text names; `UsageError` if it names none."""
    given = text.strip().lower()
    parts = _PART.findall(given)
    if not _PARTS.fullmatch(given) or not all(unit in _UNITS for _, unit in parts):
        raise UsageError(
            f"{text!r:.60} is not a duration; "
            "write it like '30s', '10m', '2h30m', '3 days' or '1 week'."
        )
    try:
        return sum((_UNITS[unit] * float(count) for count, unit in parts), timedelta())
    except OverflowError:
        raise UsageError(f"{text!r:.60} is too long: the limit is 999,999,999 days.") from None


def show_duration(span: timedelta) -> str:
    """A duration in short, such as `3d 4h 30m`; fractions of a second are cut off."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        return f"-{show_duration(-span)}"
    return " ".join(f"{count}{unit[0]}" for count, unit in _counts(seconds) if count) or "0s"


def say_duration(span: timedelta) -> str:
    """A duration in words, in at most two units: `2 hours and 5 minutes`."""
    counts = [*dropwhile(lambda each: not each[0], _counts(max(int(span.total_seconds()), 0)))]
    said = (f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in counts[:2] if count)
    return " and ".join(said) or "0 seconds"


def _counts(seconds: int) -> Iterator[tuple[int, str]]:
    """How many days, hours, minutes and seconds it is."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, seconds = divmod(seconds, size)
        yield count, unit


def _read_duration(given: Any) -> Any:
    """The duration in a text; anything else is left to the validation of `timedelta`."""
    if isinstance(given, bool):  # Python takes it for a number
        raise UsageError("got true or false; expected a length of time")
    if not isinstance(given, str):
        return given
    if _SECONDS.fullmatch(given.strip()):
        return float(given)
    try:
        return parse_duration(given)
    except UsageError:
        return given


Duration = Annotated[timedelta, BeforeValidator(_read_duration)]
# In an annotation: 'none' means None, which neither TOML nor the environment can write.
OR_NONE: Final = BeforeValidator(lambda given: None if given == "none" else given)
