"""Sentences of a text in its writer's own words.

Code, addresses, quotations, headings and tables are taken out first, so that nothing quoted is
taken for a question. What a sentence does is `segue.core.acts`'s.
"""

import re
from collections.abc import Iterator
from typing import Final

# What a text wants of its reader stands at its end.
_READ: Final = 20_000
_LONGEST: Final = 600

_NOT_OWN_LINES: Final = re.compile(
    r"""
      ^[ \t]*(`{3,}|~{3,})[^\0]*?(?:^[ \t]*\1|\Z)      # fenced code, closed or not
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
# Text that was cut into tokens, and apostrophes that were left out: "do n't", "you 're", "fine ?".
_TOKEN_GAP: Final = re.compile(r"(?<=\w) (?=(?:n't|'(?:s|m|d|re|ve|ll))\b|[,;:.!?](?:\s|$))")
_NO_APOSTROPHE: Final = re.compile(
    r"\b((?:do|did|does|is|are|was|were|has|have|had|could|would|should|ca|wo)n)t\b"
)
# The curly apostrophe, and the question marks and the full stop of other scripts.
_MARKS: Final = str.maketrans(
    {"\u2019": "'", "\uff1f": "? ", "\u061f": "? ", "\u3002": ". ", "*": "", "_": " "}
)


def sentences_of(text: str) -> list[str]:
    """The sentences in the writer's own words, in lower case and without formatting.

    Items of a list are left out, unless they ask: what is asked often stands above its choices.
    """
    return list(_sentences(_NOT_OWN_LINES.sub("\n", text)[-_READ:]))


def _sentences(text: str) -> Iterator[str]:
    for line in _NOT_OWN_WORDS.sub("quoted", text).splitlines():
        item = _LIST_ITEM.match(line)
        if item and not line.rstrip(" *_").endswith("?"):
            continue
        plain = line[item.end() if item else 0 :].translate(_MARKS).casefold()
        for piece in _SENTENCE_END.split(_joined(" ".join(plain.split()))):
            if any(sign.isalnum() for sign in piece):
                yield piece[-_LONGEST:]


def _joined(text: str) -> str:
    """The text as people write it, if it came as tokens."""
    return _NO_APOSTROPHE.sub(r"\1't", _TOKEN_GAP.sub("", text))


def is_question(sentence: str) -> bool:
    return sentence.rstrip(" )]!…").endswith("?")


def phrases(lines: str) -> re.Pattern[str]:
    """A pattern for any of the phrases, one to a line, as whole words."""
    return re.compile(r"(?<![\w'])(" + "|".join(lines.strip().split("\n    ")) + r")(?![\w'])")
