"""Sentences of a text in plain form, and whether a text quotes a hidden prompt.

A quote is a few words in a row, whatever their case and punctuation, unless a person wrote them,
too. Scripts without spaces between words are compared character by character.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final
from unicodedata import normalize

from segue.core.text import UNSPACED

# Only the end of a long text is read: that is where a text states its request.
_READ_CHARACTERS: Final = 20_000
_LONGEST_SENTENCE: Final = 600
# Bounds the work, since each sentence is tried on every phrase; prose has half as many.
_MOST_SENTENCES: Final = 500

_NOT_OWN_LINES: Final = re.compile(
    r"""
      ^[ \t]*(`{3,}+|~{3,}+)(?s:.)*?(?:^[ \t]*\1|\Z)   # fenced code, closed or not
    | ^[ \t]*(?:>|\||\#{1,6}[ ]).*$                    # a quoted line, a row of a table, a heading
    """,
    re.VERBOSE | re.MULTILINE,
)
_NOT_OWN_WORDS: Final = re.compile(
    r"""
      `[^`\n]+` | "[^"\n]+" | “[^“”\n]+” | «[^«»\n]+» | „[^„“”\n]+[“”] | (?<!\w)'[^'\n]+[?!.]'
    | \b(?:https?://|www\.)[^\s<>)\]]*[^\s<>)\].,;:!]
    """,
    re.VERBOSE,
)
_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+•]|(?:\d{1,3}|[A-Za-z])[.)])\s")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])[)\]]* | [\u2014\u2013] ")
# Tokenised text and missing apostrophes: "do n't", "you 're", "fine ?".
_TOKEN_GAP: Final = re.compile(r"(?<=\w) (?=(?:n't|'(?:s|m|d|re|ve|ll))\b|[,;:.!?](?:\s|$))")
_NO_APOSTROPHE: Final = re.compile(
    r"\b((?:do|did|does|is|are|was|were|has|have|had|could|would|should|ca|wo)n)t\b"
)
# The curly apostrophe, and the question marks and the full stop of other scripts.
_MARKS: Final = str.maketrans(
    {"\u2019": "'", "\uff1f": "? ", "\u061f": "? ", "\u3002": ". ", "*": "", "_": " "}
)

_UNIT: Final = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_UNSPACED_UNIT: Final = re.compile(f"[{UNSPACED}]")
_QUOTED_WORDS: Final = 4
_QUOTED_CHARACTERS: Final = 8
# A prompt of fewer words, such as "Go on.", is quoted only by an equal text.
_SHORTEST_PART: Final = 3

Rows = set[tuple[str, ...]]


def sentences_of(text: str) -> list[str]:
    """The writer's own sentences, in lower case, without formatting, quotations and code.

    Items of a list are left out unless they are questions: a question is often above its choices.
    """
    return list(_sentences(_NOT_OWN_LINES.sub("\n", text)[-_READ_CHARACTERS:]))[-_MOST_SENTENCES:]


def _sentences(text: str) -> Iterator[str]:
    for line in _NOT_OWN_WORDS.sub("quoted", text).splitlines():
        item = _LIST_ITEM.match(line)
        if item and not line.rstrip(" *_").endswith("?"):
            continue
        plain = line[item.end() if item else 0 :].translate(_MARKS).casefold()
        for piece in _SENTENCE_END.split(_joined(" ".join(plain.split()))):
            if any(sign.isalnum() for sign in piece):
                yield piece[-_LONGEST_SENTENCE:]


def _joined(text: str) -> str:
    """The text without the gaps of a tokeniser."""
    return _NO_APOSTROPHE.sub(r"\1't", _TOKEN_GAP.sub("", text))


def is_question(sentence: str) -> bool:
    return sentence.rstrip(" )]!…").endswith("?")


def is_quote(text: str, hidden: Iterable[str], visible: Iterable[str]) -> bool:
    """Whether a text repeats a part of the hidden texts that is in none of the visible ones."""
    units = _units(text)
    secrets = [*map(_units, hidden)]
    is_short = any(len(secret) < _SHORTEST_PART and secret == units for secret in secrets)
    rows_of_text = cache(lambda count: _rows(units, count))  # a text may have 100,000 rows
    rows = {row for secret in secrets for row in _shared_rows(secret, rows_of_text)}
    if not is_short and not rows:
        return False  # the visible texts may be long; do not read them
    known = [*map(_units, visible)]
    if is_short and units not in known:
        return True
    lines = [*map(_line, known)]
    return any(not any(_line(row) in line for line in lines) for row in rows)


def _shared_rows(secret: Sequence[str], rows_of_text: Callable[[int], Rows]) -> Rows:
    """The parts that a hidden text and a text share; none if the hidden one is too short."""
    if len(secret) < _SHORTEST_PART:
        return set()
    count = min(_row_length(secret), len(secret))
    return _rows(secret, count) & rows_of_text(count)


def _line(units: Sequence[str]) -> str:
    """The units as one text, to search for a row of them."""
    return f" {' '.join(units)} "


def _units(text: str) -> list[str]:
    return _UNIT.findall(normalize("NFKC", text).casefold())


def _row_length(units: Sequence[str]) -> int:
    unspaced = sum(_UNSPACED_UNIT.fullmatch(unit) is not None for unit in units)
    return _QUOTED_CHARACTERS if unspaced * 2 > len(units) else _QUOTED_WORDS


def _rows(units: Sequence[str], count: int) -> Rows:
    return {tuple(units[at : at + count]) for at in range(len(units) - count + 1)}
