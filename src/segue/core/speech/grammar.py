"""The requests about follow-ups of one language, and how they name their time."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final

from segue.core.speech.phrases import (
    alternatives,
    languages,
    may_match,
    whole_clause,
    whole_words,
    words_in,
)

UNITS: Final = {
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


@cache
def grammars() -> tuple["Grammar", ...]:
    """The grammar of each language; compiling their patterns takes half a second, once."""
    return tuple(map(Grammar, languages()))


def grammars_for(sentence: str) -> list["Grammar"]:
    """The grammars of the languages that a sentence may be in."""
    return [grammar for grammar in grammars() if may_match(grammar.words, sentence)]


class Grammar:
    """The patterns of one language: of whole clauses, and of words to search for."""

    def __init__(self, language: Mapping[str, Any]) -> None:
        requests, times = language["requests"], language["times"]
        words = requests["words"]
        self.stop = whole_clause(requests, "stops")
        self.command = whole_clause(requests, "commands")
        self.later = whole_clause(requests, "laters")
        self.goodbye = whole_clause(requests, "goodbyes")
        self.resume = whole_clause(requests, "resumes")
        self.reports = whole_words(requests["reporting"], words)
        self.loose_stop = whole_words(requests["loose_stops"], words)
        self.veto = whole_words(requests["vetoes"], words)
        self.words = words_in(
            *(self.stop, self.command, self.later, self.goodbye, self.resume, self.loose_stop)
        )
        self.conjunction = re.compile(rf"\s(?:{alternatives(requests['conjunctions'])})\s")
        self._numbers = read_numbers(times)
        self._when = _when(times, self._numbers)

    def timed(self, clause: str) -> Iterator[tuple[When, str]]:
        """Each time that a clause names, with the clause without it."""
        for found in self._when.finditer(clause):
            # "until tomorrow" may be the request itself, or only its time.
            for start in dict.fromkeys((found.start(), found.start("time"))):
                rest = f"{clause[:start]} {clause[found.end() :]}"
                yield self._read_when(found), " ".join(rest.split())

    def _read_when(self, found: re.Match[str]) -> When:
        groups = {name: text for name, text in found.groupdict().items() if text}
        for part in Part:
            if part.value in groups:
                return When(part)
        for n in range(7):
            if f"day{n}" in groups:
                return When(weekday=n)
        count = groups["count"]
        number = int(count) if count.isdecimal() else self._numbers[count]
        unit = next(length for name, length in UNITS.items() if name in groups)
        return When(after=min(number * unit, _LONGEST))


def read_numbers(times: Mapping[str, Any]) -> dict[str, int]:
    """The words of a language for numbers."""
    rows = times["numbers"].items()
    return {word: int(number) for number, words in rows for word in words.split("|")}


def _when(times: Mapping[str, Any], numbers: Mapping[str, int]) -> re.Pattern[str]:
    names = [f"(?P<{part}>{alternatives(lines)})" for part, lines in times["parts"].items()]
    names += [f"(?P<day{n}>{alternatives(day)})" for n, day in enumerate(times["weekdays"])]
    units = "|".join(f"(?P<{name}>{alternatives(each)})" for name, each in times["units"].items())
    names.append(rf"(?P<count>\d{{1,4}}|{'|'.join(numbers)})\s?(?:{units})")
    before = rf"(?:(?:{alternatives(times['prepositions'])})\s)*"
    return re.compile(rf"(?<![\w']){before}(?P<time>{'|'.join(names)})(?![\w'])")
