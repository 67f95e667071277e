"""Goodbyes, thanks and courtesies, which end a conversation; of the user and of the agent.

Only the beginning of a short sentence counts: "contributions are welcome" is not a courtesy.
"""

import re
from typing import Final

from segue.core.speech.sentences import is_question, phrases, sentences_of

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
    """
)
# "That's all I need" ends a conversation, "that's all well and good, but …" does not.
_END_OF_NEED: Final = re.compile(
    r"[\s,.!]*($|thank|for (now|today|the)|i (need|want)|here|then|now|bye)"
)
_LEAVE_ME: Final = phrases(
    r"""
    (please )?(stop|don't|do not|quit) (messag\w+|writ\w+|text\w*|contact\w*|ping\w*|bother\w*) me
    (please )?leave me alone
    not now
    """
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
    """Whether a user says goodbye, needs nothing more, or wants to be left alone.

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
    return is_all or is_goodbye(core) or _LEAVE_ME.match(core) is not None


def _without_thanks(sentence: str) -> str:
    while lead := _FILLER.match(sentence) or _THANKS.match(sentence):
        sentence = sentence[lead.end() :]
    return sentence


def _is_short(sentence: str) -> bool:
    return len(sentence.split()) <= _LONGEST_COURTESY
