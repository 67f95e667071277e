"""Speech acts: what each sentence does, by the phrases in `languages/english.toml`.

The default decider and compression draw conclusions from them. A goodbye, thanks or courtesy is
recognised only at the beginning of a short sentence: "contributions are welcome" is not one.
"""

import re
from enum import StrEnum
from functools import cache
from typing import Final

from segue.core.speech.phrases import alternatives, read_phrases, whole_words
from segue.core.speech.sentences import is_question, sentences_of


class Act(StrEnum):
    """What a sentence does; several acts, one, or none."""

    ASKS = "asks"  # for something that only the user knows
    PROPOSES = "proposes"  # an action or a choice, and waits for a decision
    OFFERS_HELP = "offers_help"  # of any kind, which asks nothing in particular
    SHOWS = "shows"  # things to choose from
    FAILS = "fails"
    LACKS = "lacks"  # something is not available: a failure if it is regretted
    REGRETS = "regrets"
    PROMISES = "promises"  # more to come
    REPORTS = "reports"  # that something is done
    PARTS = "parts"  # says goodbye
    IS_POLITE = "is_polite"


# The phrases of acts that a statement may do.
_STATEMENTS: Final = {
    Act.SHOWS: "showing",
    Act.FAILS: "failure",
    Act.REGRETS: "regret",
    Act.PROMISES: "promise",
    Act.REPORTS: "report",
}
_LONGEST_COURTESY: Final = 16  # words
_WORD: Final = re.compile(r"[^\W\d_]+")
_READ: Final = 200  # words
_SHARE: Final = 0.15
_FEW: Final = 5


def is_english(text: str) -> bool:
    """In doubt a text is not English: the rules then conclude less."""
    common, shared, foreign = map(_vocabulary, ("common", "shared", "foreign"))
    words = [*map(str.casefold, _WORD.findall(text))][:_READ]
    known = sum(word in common for word in words)
    strange = sum(word in foreign - common for word in words)
    if len(words) < _FEW:  # "Oslo.", "Santa Fe Depot": names may be all there is
        return known > strange or (not strange and "".join(words).isascii())
    is_sure = any(word in common - shared for word in words)
    return is_sure and known >= max(strange, _SHARE * len(words))


def acts_of(text: str) -> list[frozenset[Act]]:
    """The acts of each sentence of a reply."""
    sentences = sentences_of(text)
    last = len(sentences) - 1
    return [_acts(sentence, is_last=n == last) for n, sentence in enumerate(sentences)]


def looks_for_something(text: str) -> bool:
    """Whether a user wants one of several things: a hotel, not the weather."""
    return any(_pattern("search").search(sentence) for sentence in sentences_of(text))


def asks_something(text: str) -> bool:
    return any(map(is_question, sentences_of(text)))


def asks_fact(text: str) -> bool:
    """Whether a user asks for a fact, not for advice, and tells nothing of their own life."""
    sentences = sentences_of(text)
    other = (_pattern("action"), _pattern("small_talk"))
    asked = [
        s
        for s in sentences
        if _pattern("fact").search(s) or (is_question(s) and not any(p.search(s) for p in other))
    ]
    if any(_pattern("advice").search(s) for s in asked):
        return False
    clauses = (c for s in sentences for c in _pattern("clause_end").split(without_filler(s)))
    return bool(asked) and not any(
        _pattern("own_life").search(clause) and not _pattern("fact").search(clause)
        for clause in clauses
    )


def _acts(sentence: str, *, is_last: bool) -> frozenset[Act]:
    core = without_filler(sentence)
    found = {act for act, name in _STATEMENTS.items() if _pattern(name).search(core)}
    # In the whole sentence: the "No" of "No rooms are left" is not a filler.
    if _pattern("lack").search(sentence):
        found.add(Act.LACKS)
    if (apology := _pattern("apology").search(core)) and _pattern("negative").search(
        core, apology.end()
    ):
        found.add(Act.FAILS)
    if found & {Act.FAILS, Act.LACKS}:
        # "That time is booked already" reports no success, "There are no others" shows nothing.
        found -= {Act.REPORTS, Act.SHOWS}
    if is_goodbye(core):
        found.add(Act.PARTS)
    if not core or is_courtesy(core):
        found.add(Act.IS_POLITE)
    return frozenset(found | _asking(core, is_last=is_last, fails=Act.FAILS in found))


def _asking(sentence: str, *, is_last: bool, fails: bool) -> set[Act]:
    if not is_question(sentence):
        if _pattern("confirmation").search(sentence):
            return {Act.PROPOSES}
        return {Act.ASKS} if _pattern("request").search(sentence) else set()
    if _pattern("help").search(sentence):
        return {Act.OFFERS_HELP}
    # "Why is that? Because …" asks the reader nothing.
    if not _pattern("addresses_reader").search(sentence) and (fails or not is_last):
        return set()
    proposal, question = (
        _pattern("proposal").search(sentence),
        _pattern("question_word").search(sentence),
    )
    proposes = proposal and not (question and question.start() < proposal.start())
    confirms = _pattern("confirmation").search(sentence) or _pattern("tag").search(sentence)
    return {Act.PROPOSES if proposes or confirms else Act.ASKS}


def without_filler(sentence: str) -> str:
    """The sentence without an "okay, so" in front; empty if there is nothing else."""
    filler = _pattern("filler").match(sentence)
    return sentence[filler.end() :] if filler else sentence


def is_goodbye(sentence: str) -> bool:
    return _is_short(sentence) and _pattern("goodbye").match(sentence) is not None


def is_courtesy(sentence: str) -> bool:
    return _is_short(sentence) and _pattern("courtesy").match(sentence) is not None


def ends_conversation(text: str, *, help_was_offered: bool = False) -> bool:
    """Whether a user says goodbye, needs nothing more, or has no time now.

    A bare "no, thanks" ends the conversation only after an offer of help.
    """
    sentences = sentences_of(text)
    if not sentences or any(map(is_question, sentences)):
        return False
    cores = [_without_thanks(sentence) for sentence in sentences]
    if help_was_offered and _pattern("refusal").match(sentences[0]) and not any(cores):
        return True
    return any(map(_is_ending, cores))


def _is_ending(core: str) -> bool:
    need = _pattern("needs_no_more").match(core)
    is_all = need is not None and _pattern("end_of_need").match(core, need.end()) is not None
    return is_all or is_goodbye(core)


def _without_thanks(sentence: str) -> str:
    while lead := _pattern("filler").match(sentence) or _pattern("thanks").match(sentence):
        sentence = sentence[lead.end() :]
    return sentence


def _is_short(sentence: str) -> bool:
    return len(sentence.split()) <= _LONGEST_COURTESY


@cache
def _pattern(name: str) -> re.Pattern[str]:
    acts = read_phrases("languages/english")["acts"]
    if name in acts["patterns"]:
        return re.compile(alternatives(acts["patterns"][name]))
    return whole_words(acts[name], acts["words"])


@cache
def _vocabulary(name: str) -> frozenset[str]:
    return frozenset(read_phrases("languages/english")["vocabulary"][name].split())
