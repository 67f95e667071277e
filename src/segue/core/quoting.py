"""Whether a text quotes a trigger: repeats words that only the agent was told.

A quote is a few words in a row, whatever their case and punctuation. Words that a person said too
are that person's. Scripts that put no spaces between words are compared character by character.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from unicodedata import normalize

# Hiragana, katakana, Han, Thai, Lao, Burmese and Khmer.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
)
_UNIT: Final = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_WORDS: Final = 4
_CHARACTERS: Final = 8
# A shorter trigger, such as "Go on.", is quoted by the whole text alone.
_SHORTEST: Final = 3


def is_quote(text: str, hidden: Iterable[str], said: Iterable[str]) -> bool:
    """Whether a text repeats a part of the hidden texts that is in nothing that was said."""
    units, spoken = _units(text), [*map(_units, said)]
    for secret in map(_units, hidden):
        if len(secret) < _SHORTEST:
            if units == secret and units not in spoken:
                return True
            continue
        count = min(_row(secret), len(secret))
        known = {row for each in spoken for row in _rows(each, count)}
        if (_rows(secret, count) - known) & _rows(units, count):
            return True
    return False


def _units(text: str) -> list[str]:
    return _UNIT.findall(normalize("NFKC", text).casefold())


def _row(units: Sequence[str]) -> int:
    unspaced = sum(
        len(unit) == 1 and re.match(f"[{_UNSPACED}]", unit) is not None for unit in units
    )
    return _CHARACTERS if unspaced * 2 > len(units) else _WORDS


def _rows(units: Sequence[str], count: int) -> set[tuple[str, ...]]:
    return {tuple(units[at : at + count]) for at in range(len(units) - count + 1)}
