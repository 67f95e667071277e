"""Whether a user asks to be left alone, to be written to later, or to be written to again.

A request is a clause of the user's own, addressed to the agent: "My boss won't stop writing to me"
and "stop the music" are not requests.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Final

from segue.core.sentences import sentences_of
from segue.core.speech.grammar import Grammar, When, grammars, grammars_for
from segue.core.speech.phrases import alternatives, folded, languages

# A request stands at the beginning or the end of a message; the middle may be pasted text.
_EDGE: Final = 4
_LONGEST_CLAUSE: Final = 200  # characters
_CLAUSE_END: Final = re.compile(r"[\s)\]]*[,;:.!?…\u2014\u2013]+[\s(\[]*|\s+-+\s+")
# Without width: a stop is one with such characters in it, too.
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
# What follows is not the user's own text: "Translate this: leave me alone".
_INTRODUCES: Final = re.compile(r":\s*$", re.MULTILINE)


class Wish(StrEnum):
    """What a user wants of follow-ups."""

    STOP = "stop"
    LATER = "later"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class FollowUpRequest:
    """A user's request about follow-ups; `when` is set for LATER."""

    wish: Wish
    when: When | None = None


@lru_cache(maxsize=16)  # the inbox and the decider read the same message
def read_request(text: str) -> FollowUpRequest | None:
    """The request about follow-ups in a user's message; None if there is none.

    A stop beats the others, and of the others the last one counts.
    """
    text = _INVISIBLE.sub("", text)
    own = text[: introduced.start()] if (introduced := _INTRODUCES.search(text)) else text
    sentences = sentences_of(own)
    whole = _CLAUSE_END.sub(" ", folded(" ".join(sentences))).strip()
    if any(grammar.command.fullmatch(whole[:_LONGEST_CLAUSE]) for grammar in grammars()):
        return FollowUpRequest(Wish.STOP)
    if len(sentences) > 2 * _EDGE:
        sentences = sentences[:_EDGE] + sentences[-_EDGE:]
    found = [request for each in sentences for request in _requests_in(folded(each))]
    stops = [request for request in found if request.wish is Wish.STOP]
    return next(reversed(stops or found), None)


def says_goodbye(text: str) -> bool:
    """Whether a clause of a user's message is a goodbye in one of the languages."""
    sentences = [folded(each) for each in sentences_of(text)]
    return any(
        grammar.goodbye.fullmatch(clause)
        for sentence in sentences[:_EDGE] + sentences[-_EDGE:]
        for grammar in grammars_for(sentence)
        for clause in _clauses(sentence, grammar)
        if len(clause) <= _LONGEST_CLAUSE
    )


def _requests_in(sentence: str) -> Iterator[FollowUpRequest]:
    for grammar in grammars_for(sentence):
        reported = False
        for clause in _clauses(sentence, grammar):
            is_own = not reported and len(clause) <= _LONGEST_CLAUSE
            if is_own and (request := _request(clause, grammar)):
                yield request
            # "He said, leave me alone": what follows is not the user's request.
            reported = reported or grammar.reports.search(clause) is not None
        if request := _loose_request(sentence, grammar):
            yield request


def _clauses(sentence: str, grammar: Grammar) -> Iterator[str]:
    """The sentence without punctuation, its clauses, and their parts between conjunctions."""
    clauses = [*filter(None, _CLAUSE_END.split(sentence))]
    if len(clauses) > 1:
        yield " ".join(clauses)
    for clause in clauses:
        yield clause
        yield from grammar.conjunction.split(clause)[1:]


def _request(clause: str, grammar: Grammar) -> FollowUpRequest | None:
    if grammar.resume.fullmatch(clause):
        return FollowUpRequest(Wish.RESUME)
    if grammar.stop.fullmatch(clause):
        return FollowUpRequest(Wish.STOP)
    for when, rest in grammar.timed(clause):
        if grammar.stop.fullmatch(rest) or grammar.later.fullmatch(rest):
            return FollowUpRequest(Wish.LATER, when)
    return FollowUpRequest(Wish.LATER, When()) if grammar.later.fullmatch(clause) else None


def _loose_request(sentence: str, grammar: Grammar) -> FollowUpRequest | None:
    """A stop inside of a longer sentence: with a reason, or after something else."""
    plain = _CLAUSE_END.sub(" ", sentence).strip()
    if not grammar.loose_stop.search(plain) or grammar.veto.search(plain):
        return None
    if sentence.endswith("?") and not _asks().match(sentence):  # "You don't write to me any more?"
        return None
    if any(each.reports.search(sentence) for each in grammars()):  # "Was heisst leave me alone?"
        return None
    when = next((when for when, _ in grammar.timed(plain)), None)
    return FollowUpRequest(Wish.LATER, when) if when else FollowUpRequest(Wish.STOP)


@cache
def _asks() -> re.Pattern[str]:
    """The beginning of a question that is a request: "Could you …?"."""
    verbs = "|".join(alternatives(each["requests"]["asking"]) for each in languages())
    return re.compile(rf"\W*(?:please |bitte |hey |ok |und |and )*(?:{verbs})\b")
