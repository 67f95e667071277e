"""Whether an agent promises in its reply not to write on its own any more.

A promise counts like the user's own request, so it also helps where `stops` missed that request.
It is a whole clause of the agent's, about itself and the user: "I won't write the essay for you",
"I won't contact them" and "Shall I stop writing to you?" are not promises.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from typing import Final

from segue.core.speech.phrases import (
    alternatives,
    at_edges,
    folded,
    languages,
    may_match,
    whole_clause,
    words_in,
)
from segue.core.speech.sentences import is_question, sentences_of

_MOST_CLAUSES: Final = 8
_LONGEST: Final = 200  # characters
_CLAUSE_END: Final = re.compile(r"[\s)\]]*[,;.!…\u2014\u2013]+[\s(\[]*|\s+-+\s+")


@dataclass(frozen=True, slots=True)
class _Language:
    """How one language promises; `link` joins clauses that share the `subject`."""

    promise: re.Pattern[str]
    words: frozenset[str]
    link: re.Pattern[str]
    subject: str


@lru_cache(maxsize=16)  # the decider and the end of the turn read the same reply
def promises_silence(text: str) -> bool:
    """Whether a reply says that the agent will not write on its own any more."""
    return any(_is_promise(folded(sentence)) for sentence in at_edges(sentences_of(text)))


def _is_promise(sentence: str) -> bool:
    if is_question(sentence) or _any_of("conditions").match(sentence):
        return False
    own = sentence.partition(":")[0]  # "You can tell him: I won't write to you any more"
    condition = _any_of("unless", before=r"[\s,]+").search(own)
    promise = own[: condition.start()] if condition else own
    parts = {part for text in (own, promise) for part in _parts(text)}
    return any(
        each.promise.fullmatch(clause)
        for each in _languages()
        if may_match(each.words, sentence)
        for part in parts
        for clause in _linked(part, each)
    )


def _parts(sentence: str) -> Iterator[str]:
    """All runs of clauses: "I'll stop, as you asked, writing to you"."""
    clauses = [*filter(None, _CLAUSE_END.split(sentence))][:_MOST_CLAUSES]
    for start, end in combinations(range(len(clauses) + 1), 2):
        yield " ".join(clauses[start:end])[:_LONGEST]


def _linked(part: str, language: _Language) -> Iterator[str]:
    """The part, and what follows each of its conjunctions, with the subject that it shares."""
    yield part
    for link in language.link.finditer(part):
        rest = part[link.end() :]
        yield rest
        if language.subject and re.search(rf"\b{language.subject}\b", part[: link.start()]):
            yield f"{language.subject} {rest}"


@cache
def _languages() -> tuple[_Language, ...]:
    tables = [language["silence"] for language in languages()]
    return tuple(
        _Language(
            promise := whole_clause(table, "promises"),
            words_in(promise),
            re.compile(rf"\s(?:{table['links']})\s"),
            table["subject"],
        )
        for table in tables
    )


@cache
def _any_of(name: str, before: str = "") -> re.Pattern[str]:
    """The words of this name in any language."""
    words = "|".join(alternatives(language["silence"][name]) for language in languages())
    return re.compile(rf"{before}(?:{words})\b")
