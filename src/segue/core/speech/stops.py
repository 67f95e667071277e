"""Whether a user asks to be left alone, to be written to later, or to be written to again.

A request is a clause of the user's own, addressed to the agent: "My boss won't stop writing to me"
and "stop the music" are not requests. Each language has a grammar of such clauses.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

from segue.core.speech.phrases import (
    alternatives,
    at_edges,
    folded,
    languages,
    may_match,
    open_clause,
    whole_clause,
    whole_words,
    words_in,
)
from segue.core.speech.sentences import is_question, sentences_of

_LONGEST_CLAUSE: Final = 200  # characters
_CLAUSE_END: Final = re.compile(r"[\s)\]]*[,;:.!?…\u2014\u2013]+[\s(\[]*|\s+-+\s+")
# Stands for "never stop", so that what is left of the sentence is read, but is not a stop.
_TURNED: Final = " turned "
_VALUE: Final = re.compile(r":\s+(\w+)\W*$")
# Without width: a stop is one with such characters in it, too.
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
# What follows is not the user's own text: "Translate this: leave me alone".
_INTRODUCES: Final = re.compile(r":\s*$", re.MULTILINE)
UNITS: Final = {
    "minutes": timedelta(minutes=1),
    "hours": timedelta(hours=1),
    "days": timedelta(days=1),
    "weeks": timedelta(weeks=1),
    "months": timedelta(days=30),
}
_HINTS: Final = ("contact", "refusal", "alone")
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


class Wish(StrEnum):
    """What a user wants of follow-ups."""

    STOP = "stop"
    STOP_REMINDERS = "stop_reminders"
    LATER = "later"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user's request about follow-ups; `when` is set for LATER.

    STOP_REMINDERS is about the reminders that `about` names, or about all that recur; if there are
    none of these, it may be a stop of everything.
    """

    wish: Wish
    when: When | None = None
    about: str | None = None
    may_be_stop: bool = False


_STOP: Final = UserRequest(Wish.STOP)
_SOME_TIME: Final = UserRequest(Wish.LATER, When())


class Grammar:
    """The patterns of one language: of whole clauses, and of words to search for."""

    def __init__(self, language: Mapping[str, Any]) -> None:
        requests, times = language["requests"], language["times"]
        words = requests["words"]
        self.stop = whole_clause(requests, "stops")
        self.command = whole_clause(requests, "commands")
        self.later = whole_clause(requests, "laters")
        self.invitation = whole_clause(requests, "invitations")
        self.goodbye = whole_clause(requests, "goodbyes")
        self.resume = whole_clause(requests, "resumes")
        self.reminder_stop = whole_clause(requests, "reminder_stops")
        self.reminder_stop_of = open_clause(requests, "reminder_stops_of")
        self.reminder_noun = whole_words(requests["reminder_nouns"], words)
        self.reports = whole_words(requests["reporting"], words)
        self.loose_stop = whole_words(requests["loose_stops"], words)
        self.veto = whole_words(requests["vetoes"], words)
        self.turn = whole_words(requests["turns"], words)
        self.words = words_in(
            *(self.stop, self.command, self.later, self.goodbye, self.resume, self.loose_stop),
            *(self.invitation, self.reminder_stop, self.reminder_stop_of),
        )
        self._contact, self._refusal, self._alone = (
            re.compile(rf"\b(?:{alternatives(language['hints'][name])})\b") for name in _HINTS
        )
        self._spellings = [*requests["spellings"]]
        others = "|".join(f"({alternatives(each)})" for each in requests["spellings"].values())
        self._misspelt = re.compile(rf"(?<![\w'])(?:{others})(?![\w'])")
        self.conjunction = re.compile(rf"\s(?:{alternatives(requests['conjunctions'])})\s")
        self._numbers = read_numbers(times)
        self._when = _when(times, self._numbers)

    def spelled(self, sentence: str) -> str:
        """The sentence with the usual spelling of what people shorten or mistype."""
        return self._misspelt.sub(lambda m: self._spellings[(m.lastindex or 1) - 1], sentence)

    def suspects(self, sentence: str) -> bool:
        """Whether a sentence hints at a stop: alone, or by a word about contact and a refusal."""
        said = self.spelled(sentence)
        hints = self._contact.search(said) and self._refusal.search(said)
        return bool(hints or self._alone.search(said))

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


@cache
def grammars() -> tuple[Grammar, ...]:
    """The grammar of each language; compiling their patterns takes half a second, once."""
    return tuple(map(Grammar, languages()))


def grammars_for(sentence: str) -> list[Grammar]:
    """The grammars of the languages that a sentence may be in."""
    return [grammar for grammar in grammars() if may_match(grammar.words, sentence)]


@lru_cache(maxsize=16)  # the inbox and the decider read the same message
def read_request(text: str) -> UserRequest | None:
    """The request about follow-ups in a user's message; None if there is none.

    A stop beats the others, and of the others the last one counts. A time that is named beats
    "not now": "Not now. Maybe tomorrow."
    """
    text = _INVISIBLE.sub("", text)
    own = text[: introduced.start()] if (introduced := _INTRODUCES.search(text)) else text
    sentences = sentences_of(own)
    whole = _CLAUSE_END.sub(" ", folded(" ".join(sentences))).strip()
    if any(grammar.command.fullmatch(whole[:_LONGEST_CLAUSE]) for grammar in grammars()):
        return _STOP
    meant = [*_not_taken_back(sentences)]
    found = [request for each in at_edges(meant) for request in _requests_in(folded(each))]
    stops = [request for request in found if request.wish is Wish.STOP]
    request = next(reversed(stops or found), None)
    if request == _SOME_TIME:
        timed = (
            each
            for each in (*found, *_requests_in(whole[:_LONGEST_CLAUSE]))
            if each.wish is Wish.LATER
        )
        request = next((each for each in reversed([*timed]) if each != _SOME_TIME), request)
    return request


def may_be_stop(text: str) -> bool:
    """Whether a user may ask to be left alone, in words that the grammars do not know.

    A wide net that also catches much else, so it opts no user out: the agent does not follow up
    on this message.
    """
    sentences = [folded(each) for each in at_edges(sentences_of(_INVISIBLE.sub("", text)))]
    # "You wake me every night. Never again." says it in two.
    pairs = [f"{one} {other}" for one, other in pairwise(sentences)] or sentences
    return any(grammar.suspects(part) for grammar in grammars() for part in pairs)


def read_answer(text: str) -> UserRequest | None:
    """The request to be left alone in an answer to an agent's question; None if there is none.

    Only in words about being written to: a mere "stop" or "later" answers the question.
    """
    request = read_request(text)
    if request is None or request.wish not in (Wish.STOP, Wish.STOP_REMINDERS):
        return None
    return request if len(text.split()) > 1 and may_be_stop(text) else None


def says_goodbye(text: str) -> bool:
    """Whether a clause of a user's message is a goodbye in one of the languages."""
    return any(
        grammar.goodbye.fullmatch(clause)
        for sentence in map(folded, at_edges(sentences_of(text)))
        for grammar in grammars_for(sentence)
        for clause in _clauses(sentence, grammar)
        if len(clause) <= _LONGEST_CLAUSE
    )


def _requests_in(written: str) -> Iterator[UserRequest]:
    for grammar in grammars_for(written):
        sentence = grammar.turn.sub(_TURNED, grammar.spelled(written))
        reported, loose = False, _loose_request(sentence, grammar)
        about_reminders: UserRequest | None = None
        found: list[UserRequest] = []
        for clause in _clauses(sentence, grammar):
            if not reported and len(clause) <= _LONGEST_CLAUSE:
                request = _request(clause, grammar)
                if reminders := _reminder_request(clause, grammar):
                    may_be_stop = reminders.about is None or _STOP in (request, loose)
                    about_reminders = replace(reminders, may_be_stop=may_be_stop)
                elif request:
                    found.append(request)
                elif refused := _refused_time(clause, grammar):
                    # "Not today, maybe on Friday": the time that is asked for counts.
                    found.insert(0, refused)
            # "He said, leave me alone": what follows is not the user's request.
            reported = reported or grammar.reports.search(clause) is not None
        yield from found
        if request := about_reminders or loose:
            yield request


def _clauses(sentence: str, grammar: Grammar) -> Iterator[str]:
    """The sentence without punctuation, its clauses, and their parts between conjunctions."""
    clauses = [*filter(None, _CLAUSE_END.split(sentence))]
    if len(clauses) > 1:
        yield " ".join(clauses)
    # A word after a colon is a value: "Question 4: later".
    named = {*_VALUE.findall(sentence)}
    for clause in clauses:
        if clause in named:
            continue
        yield clause
        yield from grammar.conjunction.split(clause)[1:]


def _request(clause: str, grammar: Grammar) -> UserRequest | None:
    if grammar.resume.fullmatch(clause):
        return UserRequest(Wish.RESUME)
    if grammar.stop.fullmatch(clause):
        return UserRequest(Wish.STOP)
    for when, rest in grammar.timed(clause):
        if any(p.fullmatch(rest) for p in (grammar.stop, grammar.later, grammar.invitation)):
            return UserRequest(Wish.LATER, when)
    return None


def _refused_time(clause: str, grammar: Grammar) -> UserRequest | None:
    """A request such as "not now" or "not today", which names no time to write again."""
    if not grammar.later.fullmatch(clause):
        return None
    parts = (when.part for when, _ in grammar.timed(clause) if when.part is not Part.LATER)
    # "Not tonight" puts off to the next day.
    part = next((Part.TOMORROW if p is Part.EVENING else p for p in parts), Part.LATER)
    return UserRequest(Wish.LATER, When(part))


def _reminder_request(clause: str, grammar: Grammar) -> UserRequest | None:
    names_reminders = (
        grammar.reminder_noun.search(clause)
        and not grammar.conjunction.search(clause)
        and grammar.stop.fullmatch(clause)
    )
    if names_reminders or grammar.reminder_stop.fullmatch(clause):
        return UserRequest(Wish.STOP_REMINDERS)
    found = grammar.reminder_stop_of.fullmatch(clause)
    return UserRequest(Wish.STOP_REMINDERS, about=found[1]) if found else None


def _loose_request(sentence: str, grammar: Grammar) -> UserRequest | None:
    """A stop inside of a longer sentence: with a reason, or after something else."""
    plain = _CLAUSE_END.sub(" ", sentence).strip()
    if not grammar.loose_stop.search(plain) or grammar.veto.search(plain):
        return None
    if sentence.endswith("?") and not _asks().match(sentence):  # "You don't write to me any more?"
        return None
    if any(each.reports.search(sentence) for each in grammars()):  # "Was heisst leave me alone?"
        return None
    when = next((when for when, _ in grammar.timed(plain)), None)
    return UserRequest(Wish.LATER, when) if when else UserRequest(Wish.STOP)


def _not_taken_back(sentences: list[str]) -> Iterator[str]:
    """The sentences without a question that the next one denies: "Stop writing to me? Never!"."""
    for sentence, following in pairwise([*sentences, ""]):
        if not (is_question(sentence) and _denies().fullmatch(folded(following))):
            yield sentence


@cache
def _denies() -> re.Pattern[str]:
    words = "|".join(alternatives(each["requests"]["denials"]) for each in languages())
    return re.compile(rf"(?:{words})[\s.!…]*")


@cache
def _asks() -> re.Pattern[str]:
    """The beginning of a question that is a request: "Could you …?"."""
    verbs = "|".join(alternatives(each["requests"]["asking"]) for each in languages())
    return re.compile(rf"\W*(?:please |bitte |hey |ok |und |and )*(?:{verbs})\b")


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
