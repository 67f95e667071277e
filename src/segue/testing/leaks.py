"""Finds replies that talk about the machinery behind a follow-up instead of to the user.

A detector of phrases, for tests and evals. It is told whether a timer fired: only then are "your
message seems incomplete" and "the user" leaks. Plain talk of timers, check-ins and following up is
not a leak, because people talk like that, too.
"""

import re
from dataclasses import dataclass
from typing import Final

from segue.core.triggers import TriggerType


@dataclass(frozen=True, slots=True)
class Leak:
    """A phrase that gives the machinery away, and its kind."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Sign:
    kind: str
    pattern: re.Pattern[str]
    # Without a timer these phrases can be an honest answer to the user.
    only_after_timer: bool = True


def _sign(kind: str, *phrases: str) -> _Sign:
    return _Sign(kind, re.compile(rf"\b(?:{'|'.join(phrases)})", re.IGNORECASE))


_FOLLOW_UP: Final = r"(?:follow(?:ing)?|check(?:ing)?)[\s_-]?(?:up|in)s?"
_ODD: Final = r"(?:incomplete|unfinished|empty|blank|partial|truncated)"
_MESSAGE: Final = r"(?:message|prompt|request|instruction|command|input|query)s?"
_MACHINE: Final = r"(?:system|internal|automat\w+|autonomous\w*|synthetic|scheduled|hidden)"

_SIGNS: Final = (
    _Sign("marker", re.compile(r"\[\s*AUTONOMOUS[^\]]*\]?"), only_after_timer=False),
    # In brackets and capitals, as programs write; models imitate such markers.
    _Sign("marker", re.compile(r"\[(?!AUTO)[A-Z](?:[A-Z0-9 ,-]*_|[A-Z0-9 ,-]{4,}:)[^\]]*\]?")),
    _sign(
        "trigger name",
        rf"(?:{'|'.join(TriggerType)})\b",
        r"wait_for_decision\b",
        r"trigger[_ ](?:type|reason|message|event)",
    ),
    _sign(
        "prompt",
        r"continu\w+ (?:our|the|this) (?:conversation|chat) (?:\w+ )?naturally",
        r"(?:the )?incomplete task (?:that )?(?:we|you) (?:have )?(?:discussed|mentioned)",
        r"(?:the )?decisions? (?:that )?(?:the|a) user (?:needs|has)",
    ),
    _sign(
        "third person",
        r"(?:the|a|this|our) user(?:'s)? (?:asked|asks|did|does|has|is|message|needs|question|"
        r"repl|respon|said|says|sent|wants|was|wrote)",
    ),
    _sign(
        "machinery",
        rf"{_MACHINE}(?:[- ]generated)?\W{{1,3}}(?:{_MESSAGE}|{_FOLLOW_UP}|notification|reminder|"
        r"trigger|event|reply|response)",
        r"(?:i (?:was|am|have been|got)|i'm|i've been|(?:message|reply|response) (?:was|is)) "
        r"(?:\w+ )?(?:triggered|prompted|instructed|scheduled|programmed)\b",
        r"(?:the|my|a|your|this) (?:\w+ )?timer (?:has )?(?:fired|triggered|expired)",
        r"triggered by (?:a|the|my|your) (?:timer|system|message|silence)",
    ),
    _sign(
        "message about a message",
        rf"{_ODD} {_MESSAGE}\b",
        rf"your (?:last |previous )?{_MESSAGE} (?:\w+ ){{1,3}}?(?:{_ODD}|cut off|unclear|missing)",
        rf"(?:looks|seems|appears) (?:like|as if|that) your (?:last |previous )?{_MESSAGE}\b",
        rf"you(?:'ve| have)? (?:just )?(?:sent|mentioned|typed|entered|provided|included) (?:me )?"
        rf"(?:an?|the|this) (?:\w+ )?(?:{_ODD}|{_FOLLOW_UP}|marker|tag|placeholder|trigger)",
        rf"{_FOLLOW_UP}\W{{1,2}}(?:{_MESSAGE}|function|marker|tag|timer|trigger)\b",
    ),
    _sign(
        "announcement",
        rf"as (?:a|an|the|your) (?:\w+ )?{_FOLLOW_UP}\b(?! (?:question|appointment|visit))",
        rf"this is (?:just )?(?:a|an|your|my|the) (?:\w+ )?{_FOLLOW_UP}\b",
        rf"{_FOLLOW_UP} (?:\w+ ){{0,3}}as (?:you )?(?:asked|requested|instructed|scheduled|told)",
        r"as (?:instructed|requested|asked|told) to (?:follow|check|continue)",
    ),
)


def find_leaks(reply: str, *, timer_fired: bool) -> list[Leak]:
    """The leaks of a reply, in the order of the text."""
    found = [
        (match.start(), Leak(sign.kind, match[0]))
        for sign in _SIGNS
        if timer_fired or not sign.only_after_timer
        for match in sign.pattern.finditer(reply)
    ]
    return [leak for _, leak in sorted(found, key=lambda place: place[0])]
