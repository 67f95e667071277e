"""Whether a message names what it should remind of, and the plain words if it does not.

A message names a reminder if both share a word that says something: not a common one, nor a number
word, a time or a word for reminding. In doubt it does not: plain words too many cost less than a
reminder that says nothing.
"""

import re
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any, Final

from segue.core.memory import query_words
from segue.core.speech.phrases import alternatives, folded, languages
from segue.core.speech.stops import read_numbers

# A shorter word counts only if it is equal; a longer one may be part of a compound.
_SHORTEST_PREFIX: Final = 4
_SHORTEST_PART: Final = 5
# Of a longer message, this much is read.
_LONGEST: Final = 20_000  # characters
_WORD: Final = re.compile(r"\w+")


def names_reminder(message: str, reminder: str) -> bool:
    """Whether a message has a word of the reminder that says what it is about."""
    return any(_is_same(*pair) for pair in product(_telling(reminder), _telling(message)))


def plain_reminder(reminder: str) -> str:
    return f"Reminder: {reminder}"


def _telling(text: str) -> set[str]:
    words = {*_WORD.findall(folded(text[:_LONGEST].casefold()))}
    said = " ".join(word for word in words if not _is_common(word))
    return {word for word in query_words(said) if len(word) > 2 or not word.isascii()}


def _is_common(word: str) -> bool:
    return len(word) < 3 if word.isdecimal() else any(each.match(word) for each in _common())


def _is_same(one: str, other: str) -> bool:
    """Equal, one a part of the other, or alike but for the last letter of the shorter one."""
    short, long = sorted((one, other), key=len)
    if short.isdecimal():
        return short == long
    is_part = len(short) >= _SHORTEST_PART and short in long
    prefix = short[:-1]
    return short == long or is_part or (len(prefix) >= _SHORTEST_PREFIX and long.startswith(prefix))


@cache
def _common() -> list[re.Pattern[str]]:
    return [*map(_common_words, languages())]


def _common_words(language: Mapping[str, Any]) -> re.Pattern[str]:
    table, times = language["reminders"], language["times"]
    listed = "|".join([*table["common"].split(), *read_numbers(times)])
    lines = [*times["units"].values(), *times["weekdays"], *times["parts"].values()]
    times_of = "|".join(map(alternatives, lines))
    about = "|".join(map(re.escape, table["mentions"]))
    return re.compile(rf"(?:{listed}|{times_of})$|(?:{about})")
