"""What the sentences of a reply do: ask, propose, report, fail or part. English, by rule.

Each list of phrases is tried on one of `sentences_of` a text. `segue.core.decide` draws the
conclusions.
"""

import re
from enum import StrEnum
from typing import Final

from segue.core.closing import is_courtesy, is_goodbye, without_filler
from segue.core.sentences import is_question, phrases, sentences_of


class Act(StrEnum):
    """What a sentence does; it may do several things at once, or none of these."""

    ASKS = "asks"  # for something that only the reader knows
    PROPOSES = "proposes"  # an act or a choice, and waits for a yes or a no
    OFFERS_HELP = "offers_help"  # of whatever kind, and so asks nothing in particular
    SHOWS = "shows"  # things to choose from
    FAILS = "fails"
    PROMISES = "promises"  # more to come
    REPORTS = "reports"  # that something is done
    PARTS = "parts"  # says goodbye
    IS_POLITE = "is_polite"


_QUESTION_WORD: Final = phrases("(what|what's|which|where|when|who|whom|whose|how|why)")
_TO_THE_READER: Final = phrases("(you|your|yours|you're|you'd|you'll|(shall|should|may|can) i)")
_HELP: Final = phrases(
    r"""
    (any|some)thing (else|more|further|other)
    what else
    (help|assist|assistance)
    (any|some|other|further|more) ((other|more|further) )?(questions?|requests?)
    (what|how) can i do
    what's on your mind
    """
)
_PROPOSAL: Final = phrases(
    r"""
    (how|what) about
    what do you (think|say)
    what('s| is) your (opinion|choice|preference|decision)
    why don't (we|you|i)
    which (one|ones|of|option|version|plan|sounds?|(do|would) you prefer)
    (would|do|did|will) you (like|want|wish|prefer|rather|care)
    (want|like) me to
    are you (interested|ready|okay|ok|happy|sure)
    (shall|should) (i|we)
    (may|can|could) i
    (can|could|will|would) you (\w+ )?(confirm|approve|verify)
    (do|does|would|will|did) (that|this|these|those|it|they|either|any) .*?(work|sound|suit|look)
    (is|are) (that|this|these|those|it|they|everything|all) .*?(right|correct|ok|okay|fine|good)
    (work|okay|ok|good|fine) (for|with) you
    sounds? (good|right|great|okay|ok|fine)
    """
)
_TAG: Final = re.compile(r"\b(right|correct|ok|okay|yes|agreed|deal|approve|proceed|confirm)\?$")
# Asked for without a question mark.
_CONFIRMATION: Final = phrases(
    r"""
    (please|kindly|let's|let me) (\w+ )?confirm
    (just|i'd like) to (confirm|check|be sure)
    to (confirm|be clear|be sure|recap)(?=[,:.])
    let (me|us) know which
    (up to you|your (call|choice|decision))
    please (choose|pick|select|decide)
    ^you('d| would) like(?! to (know|learn|understand))
    ^you (wish|want me)
    """
)
_REQUEST: Final = phrases(
    r"""
    (tell|give|send|show|provide|share) (me|us)(?! a (moment|minute|second))
    let (me|us) know (what|where|when|who|how|whether|your|the)
    please (specify|provide|enter|share|describe|state|clarify|indicate)
    i('ll| will)? need (your|to know|some (more )?(information|details))
    """
)
_APOLOGY: Final = phrases(
    r"""
    sorry(?! (to|for|about|if|you|that you)\b)
    apologies
    apologi[sz]e
    regret
    """
)
_NEGATIVE: Final = phrases(
    r"""
    (no|not|none|nothing|wrong|unsuccessful)
    (does|do|did|is|was|are|were|has|have|could)n't
    (can't|cannot)(?! (help|assist|discuss|provide|share|comply|answer|do that))
    """
)
_DID_NOT: Final = r"(couldn't|could not|unable to|not able to|wasn't able to|failed to)"
_FAILURE: Final = phrases(
    rf"""
    (^|(i|we)( was| were| am|'m)?( still| just)? ){_DID_NOT}(?! (agree|help|assist|discuss|share))
    (i|we)('ve| have)? (didn't|did not|haven't|not) (find|found|manage|managed)
    (could not|couldn't) be \w+
    (did not|didn't|has not|hasn't) (go|gone) through
    something (went|has gone) wrong
    (was|is|were|are)( still)? (not (successful|possible)|unsuccessful)
    ran into (an|a|some) (\w+ )?(errors?|problems?|issues?)
    """
)
_PROMISE: Final = phrases(
    r"""
    i('ll| will) (get back|let you know|keep you|follow up|report back|look into|notify|update you)
    i('ll| will) (be (right )?back|check (on|and))
    (i'm|i am|we're) ((still|currently|now) )?(working on|looking into|checking|searching)
    still (working on|processing|in progress|being)
    (one|just a|give me a) (moment|minute|second)
    stay tuned
    """
)
_SHOWING: Final = phrases(
    r"""
    i('ve| have)? (found|located|discovered|picked)
    i( can|'d| would)? (recommend|suggest|propose|offer|know|see)
    you (might|may|could|would) (like|want|consider|try|enjoy|love)
    (may|might|could|would) (meet|fit|suit|interest|work|be)
    (options|results|choices|available)
    (there's|there is|there are|here are)
    one (of (them|these|those)|option|is)
    try (the|a|out)
    """
)
_REPORT: Final = phrases(
    r"""
    success(ful|fully)?
    all (set|done)
    (is|are) now
    on (its|the|their) way
    (i've|has|have|been|is|was|are|were|just) (booked|reserved|confirmed|scheduled|ordered|rented)
    (i've|has|have|been|is|was|are|were|just) (sent|placed|created|saved|added|updated|paid|bought)
    (i've|has|have|been|is|was|are|were|just) (cancell?ed|deleted|removed|moved|changed|set|made)
    (i've|has|have|been|is|was|are|were|just) (completed?|done|finished|submitted|started|initiated)
    (i've|has|have|been|is|was|are|were|just) (fixed|installed|transferred|purchased)
    """
)
# Something of a kind, which the user has to choose, and not the one thing there is.
_SEARCH: Final = phrases(
    r"""
    (find|looking|search|searching|want|need|like|have|know|see|there) .{0,40}?(an?|any|some|one)
    (recommend|suggest) .{0,40}?(an?|any|some|one)
    (any|some)(thing|where)
    (what else|another|other)
    interested in
    """
)
_STATEMENTS: Final = {
    Act.SHOWS: _SHOWING,
    Act.FAILS: _FAILURE,
    Act.PROMISES: _PROMISE,
    Act.REPORTS: _REPORT,
}


def acts_of(text: str) -> list[frozenset[Act]]:
    """What each sentence of a reply does."""
    sentences = sentences_of(text)
    last = len(sentences) - 1
    return [_acts(sentence, is_last=n == last) for n, sentence in enumerate(sentences)]


def looks_for_something(words: str) -> bool:
    """Whether a user asks for one of several things: for a hotel, not for the weather."""
    return any(_SEARCH.search(sentence) for sentence in sentences_of(words))


def _acts(sentence: str, *, is_last: bool) -> frozenset[Act]:
    core = without_filler(sentence)
    found = {act for act, pattern in _STATEMENTS.items() if pattern.search(core)}
    if (apology := _APOLOGY.search(core)) and _NEGATIVE.search(core, apology.end()):
        found.add(Act.FAILS)
    if is_goodbye(core):
        found.add(Act.PARTS)
    if not core or is_courtesy(core):
        found.add(Act.IS_POLITE)
    return frozenset(found | _asking(core, is_last=is_last, fails=Act.FAILS in found))


def _asking(sentence: str, *, is_last: bool, fails: bool) -> set[Act]:
    if not is_question(sentence):
        if _CONFIRMATION.search(sentence):
            return {Act.PROPOSES}
        return {Act.ASKS} if _REQUEST.search(sentence) else set()
    if _HELP.search(sentence):
        return {Act.OFFERS_HELP}
    # "Why is that? Because …" asks nothing of the reader.
    if not _TO_THE_READER.search(sentence) and (fails or not is_last):
        return set()
    proposal, question = _PROPOSAL.search(sentence), _QUESTION_WORD.search(sentence)
    proposes = proposal and not (question and question.start() < proposal.start())
    return {Act.PROPOSES if proposes or _TAG.search(sentence) else Act.ASKS}
