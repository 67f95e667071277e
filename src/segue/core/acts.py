"""Speech acts: what each sentence does, by lists of English phrases.

The default decider and compression draw conclusions from them. A goodbye, thanks or courtesy is
recognised only at the beginning of a short sentence: "contributions are welcome" is not one.
"""

import re
from enum import StrEnum
from typing import Final

from segue.core.sentences import is_question, phrases, sentences_of


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


_QUESTION_WORD: Final = phrases("(what|what's|which|where|when|who|whom|whose|how|why)")
_ADDRESSES_READER: Final = phrases("(you|your|yours|you're|you'd|you'll|(shall|should|may|can) i)")
_HELP: Final = phrases(
    r"""
    (any|some)thing (else|more|further|other)
    what else
    (help|assist|assistance)
    (any|some|other|further|more) ((other|more|further) )?(questions?|requests?|services?|things?)
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
    ^you (want|wish|need|prefer|'d like|would like)
    """
)
_TAG: Final = re.compile(r"\b(right|correct|ok|okay|yes|agreed|deal|approve|proceed|confirm)\?$")
# "Please could you check the details and confirm", but not "Please open the door and confirm".
_BEFORE_CONFIRM: Final = (
    "((can|could|will|would|you|just|also|check|review|verify|read|look|at|over|it|this|that"
    "|these|those|the|details|below|carefully|again|and|then|to|help|me|us) )"
)
# Requests to confirm or choose without a question mark.
_CONFIRMATION: Final = phrases(
    rf"""
    (please|kindly|let's|let me) (\w+ )?confirm
    (please|kindly) {_BEFORE_CONFIRM}+(confirm|approve)
    (please|kindly) (approve|authori[sz]e)
    (please|kindly|need|want|give|await\w*|waiting for)( \w+)? (confirmation|approval)
    ^(can|could|will|would) you (\w+ )?(confirm|approve)
    ^(how|what) about
    ^(would|do) you (like|want) (me )?to(?! (know|learn))
    please verify (the (following|details)|these|this)
    (confirm|verify) (that )?you('d| would)? (like|want|wish)
    ^confirming
    (just|i'd like|i would like) to (confirm|check|be sure|make sure)
    to (confirm|verify|review|be clear|be sure|recap)(?=[,:.])
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
_REGRET: Final = phrases("(sorry|apolog(ies|i[sz]e)|regret|unfortunately|sadly|afraid)")
_APOLOGY: Final = phrases(
    r"""
    sorry(?! (to(?! (say|tell|inform|report))|for|about|if|you|that you)\b)
    apologies
    apologi[sz]e
    regret
    """
)
_NEGATIVE: Final = phrases(
    r"""
    (no|not|none|nothing|wrong|unsuccessful|unavailable|impossible|failed)
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
_NOT: Final = r"(not|no|\w+n't|cannot)"
_DONE: Final = (
    "(booked|reserved|confirmed|scheduled|ordered|rented|sent|placed|created|saved|added|updated"
    "|paid|bought|cancell?ed|deleted|removed|moved|changed|set|made|completed?|done|finished"
    "|submitted|started|initiated|fixed|installed|transferred|purchased)"
)
# Alone it may be an explanation; after "sorry" or before "Anything else?" a task has failed.
_LACK: Final = phrases(
    rf"""
    (failed|failure|fail to|unable to|impossible|unavailable)
    {_NOT}( \w+)? (able to|available|possible|successful)
    {_NOT}( be| been| yet| being)? ({_DONE}|found|played|processed|delivered|reached)
    (did not|didn't|won't|will not) (work|go)
    (fully|all|already|completely) (booked|reserved|taken|full)
    (booked|sold|filled) (up|out|already)
    (is|was|are|were|been) (declined|rejected|refused|denied)
    ((i|we) )?(couldn't|could not)(?! (help|assist|agree))
    (i|we)( still| just)? (can't|cannot|can not|won't)(?! (help|assist|answer))
    ^(can't|cannot|can not) (get|find|book|make|do)
    (i|we) (do|did)(n't| not) (find|see|have) an?(y(thing)?)?
    no (\w+ ){{0,5}}(available|left|found|match\w*|meet\w*|fit\w*|suit\w*)
    {_NOT} availability
    (find|found|see|got|have|there (is|was)) nothing
    nothing (else |more )?(available|left|found|match\w*|came up)
    there ((is|was|are|were) no|(is|was|are|were)(n't| not) any) (other|more)
    ^no,? there (is|was|are|were)(n't| not)
    (that|this|those|these)('s| is| was| are| were) (all|the only)
    (there (was|has been|seems to)|ran into|encountered) .{{0,20}}?(error|problem|issue|trouble)
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
    i('ve| have)? (found|located|discovered|picked)(?! your)
    i( can|'d| would)? (recommend|suggest|propose|offer|know|see)(?! (that|contacting|checking))
    you (might|may|could|would) (like|want|consider|try|enjoy|love)
    (may|might|could|would) (meet|fit|suit|interest|work|be)
    (options|results|choices|available)
    (?<!if )(?<!since )(?<!because )(there's|there is|there are|here are)
    one (of (them|these|those)|option|is)
    try (the|a|out)
    """
)
_REPORT: Final = phrases(
    rf"""
    success(ful|fully)?
    all (set|done)
    (is|are) now
    on (its|the|their) way
    (i've|has|have|been|is|was|are|were|just) {_DONE}
    """
)
# The user wants one of several things and has to choose.
_SEARCH: Final = phrases(
    r"""
    (find|looking|search|searching|want|need|like|have|know|see|there) .{0,40}?(an?|any|some|one)
    (recommend|suggest) .{0,40}?(an?|any|some|one)
    (any|some)(thing|where)
    (what else|another|other)
    interested in
    """
)
# "Could you tell me …?" asks for a fact, "could you book …?" for an action.
_ACTION: Final = phrases(
    "(can|could|will|would) (we|you)( (please|also|just|maybe))*"
    "(?! (please|also|just|maybe|tell|say|explain|give|show|name|describe|remind|know))"
)
_FACT: Final = phrases(
    r"""
    (tell|give|show) me
    (explain|define|describe)
    (want|like|need|love) to (know|understand|learn (about|more|how|what|why|when|where|who))
    (wonder|wondering|curious)
    """
)
# Small talk asks for company, not for a fact.
_SMALL_TALK: Final = phrases(
    r"""
    how (are|have) you
    how(s| is|'s) (it|everything|life|your day|things)
    how (do|did) you (do|feel|sleep)
    what(s| is|'s) (up|new)(?! \w)
    what are you (up to|doing)
    """
)
# "I see", "I should have asked before": about the conversation.
_ABOUT_TALK: Final = (
    "(agree|ask|asked|confirm|guess|know|mean|see|think|understand|wonder|should have asked"
    r"|have (a|one) question)\b"
)
# The user's own life, plans or feelings: "I have an exam tomorrow", "should I go?"
_OWN_LIFE: Final = phrases(
    rf"""
    ^((and|but|so|because|since|now|today|also) )*((i|we)((?! {_ABOUT_TALK})|'\w+)|my|our)
    (should|shall|must) (i|we)
    """
)
_CLAUSE_END: Final = re.compile(r"[,;:] | (?=(?:and|but|so|because|since) (?:i|my|we|our)\b)")
_STATEMENTS: Final = {
    Act.SHOWS: _SHOWING,
    Act.FAILS: _FAILURE,
    Act.REGRETS: _REGRET,
    Act.PROMISES: _PROMISE,
    Act.REPORTS: _REPORT,
}


def acts_of(text: str) -> list[frozenset[Act]]:
    """The acts of each sentence of a reply."""
    sentences = sentences_of(text)
    last = len(sentences) - 1
    return [_acts(sentence, is_last=n == last) for n, sentence in enumerate(sentences)]


def looks_for_something(text: str) -> bool:
    """Whether a user wants one of several things: a hotel, not the weather."""
    return any(_SEARCH.search(sentence) for sentence in sentences_of(text))


def asks_something(text: str) -> bool:
    return any(map(is_question, sentences_of(text)))


def asks_fact(text: str) -> bool:
    """Whether a user asks what is so, and tells nothing of their own life, plans or feelings."""
    sentences = sentences_of(text)
    other = (_ACTION, _SMALL_TALK)
    asked = [
        s
        for s in sentences
        if _FACT.search(s) or (is_question(s) and not any(p.search(s) for p in other))
    ]
    clauses = (c for s in sentences for c in _CLAUSE_END.split(without_filler(s)))
    return bool(asked) and not any(
        _OWN_LIFE.search(clause) and not _FACT.search(clause) for clause in clauses
    )


def _acts(sentence: str, *, is_last: bool) -> frozenset[Act]:
    core = without_filler(sentence)
    found = {act for act, pattern in _STATEMENTS.items() if pattern.search(core)}
    # In the whole sentence: the "No" of "No rooms are left" is not a filler.
    if _LACK.search(sentence):
        found.add(Act.LACKS)
    if (apology := _APOLOGY.search(core)) and _NEGATIVE.search(core, apology.end()):
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
        if _CONFIRMATION.search(sentence):
            return {Act.PROPOSES}
        return {Act.ASKS} if _REQUEST.search(sentence) else set()
    if _HELP.search(sentence):
        return {Act.OFFERS_HELP}
    # "Why is that? Because …" asks the reader nothing.
    if not _ADDRESSES_READER.search(sentence) and (fails or not is_last):
        return set()
    proposal, question = _PROPOSAL.search(sentence), _QUESTION_WORD.search(sentence)
    proposes = proposal and not (question and question.start() < proposal.start())
    confirms = _CONFIRMATION.search(sentence) or _TAG.search(sentence)
    return {Act.PROPOSES if proposes or confirms else Act.ASKS}


_LONGEST_COURTESY: Final = 16  # words

_GOODBYE: Final = phrases(
    r"""
    (good)?bye
    farewell
    good ?night
    see (you|ya)
    take care(?! of)
    cheers
    (i'll |we'll )?(talk|speak) ((to you|again) )?(soon|later|tomorrow)
    until (next time|tomorrow|then)
    """
)
_COURTESY: Final = phrases(
    r"""
    ((you're|your|you are) )?((most|very) )?welcome
    (thanks?|thank you)
    ((i'm|i am|we're|it was|it's|always|very|so) )*(glad|happy to|my pleasure|a pleasure)
    ((i'm|i am|we're|always) )*here (to help|if|when|any)
    (any ?time|feel free|don't hesitate)
    (if|should) you (have|need) (any|more|further|something)
    (please )?(let (me|us) know|reach out|come back) (if|when|any|should)
    (i hope you |hope you )?(have|enjoy) (a|an|your|the|it|yourself)
    """
)
_NEEDS_NO_MORE: Final = phrases(
    r"""
    that('s| is| was| will be|'ll be|'d be| would be| should be)? (all|it|everything)
    that (should|will|would) do( it)?
    (nothing|no more)( (else|more|further))?
    (i \w+ )?(we're|i'm|we are|i am) (all )?(done|finished)
    (i )?(gotta|got to|have to|must) (go|run)
    (i'm |i am )?(off|going|heading) to (bed|sleep)
    not now
    """
)
# "That's all I need" ends a conversation, "that's all well and good, but …" does not.
_END_OF_NEED: Final = re.compile(
    r"[\s,.!]*($|thank|for (now|today|the)|i (need|want)|here|then|now|bye)"
)
_THANKS: Final = re.compile(
    r"((thank you|thanks|thx|i appreciate|appreciate)"
    r"( (again|so|very|much|a lot|a bunch|a ton|it|that|for|all|of|your|the|help|time|info)\b)*"
    r"[\s,.!:;-]*)+"
)
_FILLER: Final = re.compile(
    r"((ok|okay|sure|alright|all right|great|perfect|well|and|also|so|then|got it|understood"
    r"|of course|certainly|absolutely|no problem|no worries|sounds good|yes|no|nope|nah|done)"
    r"(?![\w'-])[\s,.!:;-]*)+"
)
_REFUSAL: Final = phrases("(no|nope|nah)")


def without_filler(sentence: str) -> str:
    """The sentence without an "okay, so" in front; empty if there is nothing else."""
    filler = _FILLER.match(sentence)
    return sentence[filler.end() :] if filler else sentence


def is_goodbye(sentence: str) -> bool:
    return _is_short(sentence) and _GOODBYE.match(sentence) is not None


def is_courtesy(sentence: str) -> bool:
    return _is_short(sentence) and _COURTESY.match(sentence) is not None


def ends_conversation(text: str, *, help_was_offered: bool = False) -> bool:
    """Whether a user says goodbye, needs nothing more, or has no time now.

    A bare "no, thanks" ends the conversation only after an offer of help.
    """
    sentences = sentences_of(text)
    if not sentences or any(map(is_question, sentences)):
        return False
    cores = [_without_thanks(sentence) for sentence in sentences]
    if help_was_offered and _REFUSAL.match(sentences[0]) and not any(cores):
        return True
    return any(map(_is_ending, cores))


def _is_ending(core: str) -> bool:
    need = _NEEDS_NO_MORE.match(core)
    is_all = need is not None and _END_OF_NEED.match(core, need.end()) is not None
    return is_all or is_goodbye(core)


def _without_thanks(sentence: str) -> str:
    while lead := _FILLER.match(sentence) or _THANKS.match(sentence):
        sentence = sentence[lead.end() :]
    return sentence


def _is_short(sentence: str) -> bool:
    return len(sentence.split()) <= _LONGEST_COURTESY
