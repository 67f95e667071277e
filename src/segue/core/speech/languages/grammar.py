"""The grammar of requests about follow-ups, built from the phrases of one language.

Phrases are in lower case without accents, one pattern per line. A name in angle brackets stands
for a word list of the same language: `<stop> <writing>`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Final
from unicodedata import category, combining, normalize

_NAME: Final = re.compile(r"<(\w+)>")
# Words of one kind in a row. Without a bound, hostile text takes exponential time.
_REPEATS: Final = 5
_INVERTED: Final = str.maketrans("¿¡", "  ")
_UNITS: Final = {
    "minutes": timedelta(minutes=1),
    "hours": timedelta(hours=1),
    "days": timedelta(days=1),
    "weeks": timedelta(weeks=1),
    "months": timedelta(days=30),
}
# Longer than this is a stop in other words.
_LONGEST: Final = timedelta(days=366)


class Part(StrEnum):
    """A part of the calendar; the user's clock decides what it means."""

    LATER = "later"
    EVENING = "evening"
    TOMORROW = "tomorrow"
    DAY_AFTER = "day_after"
    WEEKEND = "weekend"
    NEXT_WEEK = "next_week"
    NEXT_MONTH = "next_month"


@dataclass(frozen=True, slots=True)
class When:
    """When to write again: a part of the calendar, a weekday (0 is Monday), or a duration."""

    part: Part = Part.LATER
    weekday: int | None = None
    after: timedelta | None = None


def folded(sentence: str) -> str:
    """The sentence without accents, emojis, inverted marks and double blanks."""
    plain = "".join(sign for sign in normalize("NFKD", sentence) if not combining(sign))
    plain = "".join(" " if category(sign).startswith("S") else sign for sign in plain)
    plain = plain.translate(_INVERTED)
    return " ".join(plain.split())


def units(patterns: str) -> dict[str, str]:
    """The units of a duration from their patterns, minutes to months, with blanks between them."""
    return dict(zip(_UNITS, patterns.split(), strict=True))


def numbers(rows: str) -> dict[str, int]:
    """Words and their numbers from rows such as `1 a|an, 2 two`."""
    pairs = (row.split(" ", 1) for row in rows.split(", "))
    return {word: int(number) for number, words in pairs for word in words.split("|")}


@dataclass(frozen=True)
class Grammar:
    """The phrases of one language; `lists` are the words that the phrases refer to."""

    lists: Mapping[str, str]
    leads: str
    stops: str
    # Stops within a longer sentence; words of the vetoes make it something else.
    loose_stops: str
    vetoes: str
    # Stops that count only as a whole message.
    commands: str
    endings: str
    laters: str
    goodbyes: str
    resumes: str
    reporting: str
    conjunctions: str
    # Patterns of the parts of the calendar, the seven weekdays, and the units of a duration.
    parts: Mapping[Part, str]
    weekdays: Sequence[str]
    units: Mapping[str, str]
    numbers: Mapping[str, int]
    # A time is introduced by such words: until, on, in, for.
    prepositions: str

    @cached_property
    def stop(self) -> re.Pattern[str]:
        return self._request(self.stops)

    @cached_property
    def command(self) -> re.Pattern[str]:
        return self._request(self.commands)

    @cached_property
    def later(self) -> re.Pattern[str]:
        return self._request(self.laters)

    @cached_property
    def goodbye(self) -> re.Pattern[str]:
        return self._request(self.goodbyes)

    @cached_property
    def resume(self) -> re.Pattern[str]:
        return self._request(self.resumes)

    @cached_property
    def reports(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w'])(?:{self._any(self.reporting)})(?![\w'])")

    @cached_property
    def loose_stop(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w'])(?:{self._any(self.loose_stops)})(?![\w'])")

    @cached_property
    def veto(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w'])(?:{self._any(self.vetoes)})(?![\w'])")

    @cached_property
    def conjunction(self) -> re.Pattern[str]:
        return re.compile(rf"\s(?:{self._any(self.conjunctions)})\s")

    def compile(self) -> None:
        """Compile all patterns now, not at their first use."""
        for name, value in vars(type(self)).items():
            if isinstance(value, cached_property):
                getattr(self, name)

    def timed(self, clause: str) -> Iterator[tuple[When, str]]:
        """Each time that a clause names, with the clause without it."""
        for found in self._when.finditer(clause):
            # "until tomorrow" may be the request itself, or only its time.
            for start in dict.fromkeys((found.start(), found.start("time"))):
                rest = f"{clause[:start]} {clause[found.end() :]}"
                yield self._read_when(found), " ".join(rest.split())

    @cached_property
    def _when(self) -> re.Pattern[str]:
        names = [f"(?P<{part}>{pattern})" for part, pattern in self.parts.items()]
        names += [f"(?P<day{n}>{pattern})" for n, pattern in enumerate(self.weekdays)]
        units = "|".join(f"(?P<{name}>{pattern})" for name, pattern in self.units.items())
        count = rf"(?P<count>\d{{1,4}}|{'|'.join(self.numbers)})"
        names.append(rf"{count}\s?(?:{units})")
        before = rf"(?:(?:{self._any(self.prepositions)})\s)*"
        return re.compile(rf"(?<![\w']){before}(?P<time>{'|'.join(names)})(?![\w'])")

    def _read_when(self, found: re.Match[str]) -> When:
        groups = {name: text for name, text in found.groupdict().items() if text}
        for part in Part:
            if part.value in groups:
                return When(part)
        for n in range(len(self.weekdays)):
            if f"day{n}" in groups:
                return When(weekday=n)
        count = groups["count"]
        number = int(count) if count.isdecimal() else self.numbers[count]
        unit = next(length for name, length in _UNITS.items() if name in groups)
        return When(after=min(number * unit, _LONGEST))

    def _request(self, phrases: str) -> re.Pattern[str]:
        """A whole clause: leading words, one of the phrases, and what may follow it."""
        leads = rf"(?:(?:{self._any(self.leads)})\s){{0,{_REPEATS}}}"
        endings = rf"(?:\s(?:{self._any(self.endings)})(?![\w'])){{0,{_REPEATS}}}+"
        return re.compile(rf"{leads}(?:{self._any(phrases)}){endings}")

    def _any(self, lines: str) -> str:
        """One pattern for all lines, with the word lists put in."""
        pattern = "|".join(line.strip() for line in lines.strip().splitlines())
        while _NAME.search(pattern):
            pattern = _NAME.sub(lambda name: f"(?:{self.lists[name[1]].strip()})", pattern)
        return pattern.replace(")*", f"){{0,{_REPEATS}}}")
