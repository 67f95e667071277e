"""The guard before the first word: finds follow-ups that are machinery, not talk to the user.

It reads how a follow-up opens, without code and quotations: there a model says that it has nothing
to say, comments on the prompt, thinks aloud, or leaves a template unfilled. Plain talk of timers,
check-ins and following up is allowed, because people talk like that, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from segue.core.speech.phrases import alternatives, read_phrases
from segue.core.triggers import TriggerType

# Characters of a follow-up that the guard reads before it is shown.
OPENING: Final = 400

# A sentence that ends after this is enough.
_SHORT: Final = 120
_SENTENCE_END: Final = re.compile(r"[.!?…]\s")
# A text this short that names a silence token is nothing else.
_TOKEN: Final = 40
_SILENCE_TOKEN: Final = re.compile(
    r"no[_-]reply|heartbeat[_ ]ok|<silent|no[_-]response", re.IGNORECASE
)
_CODE: Final = re.compile(
    r"^[ \t]*(`{3,}|~{3,})(?s:.)*?(?:^[ \t]*\1|\Z)|`[^`\n]+`|^(?:[ \t]*>| {4}|\t).*$", re.MULTILINE
)
_QUOTED: Final = re.compile(r'"[^"\n]+"|“[^“”\n]+”|«[^«»\n]+»|„[^„“”\n]+[“”]')


class MachineryKind(StrEnum):
    """What gives the machinery away."""

    SILENCE = "silence token"
    MARKER = "marker"
    TRIGGER = "trigger name"
    PROMPT = "prompt"
    THIRD_PERSON = "third person"
    MESSAGE = "message about a message"
    DELIBERATION = "deliberation"
    ANNOUNCEMENT = "announcement"
    STAGE_DIRECTION = "stage direction"
    PLACEHOLDER = "placeholder"


@dataclass(frozen=True, slots=True)
class Machinery:
    """A phrase that gives the machinery away, and its kind."""

    kind: MachineryKind
    text: str


_SILENT: Final = (
    r"(?:no|non?e|nothing|null|n/a|skip(?:ped|ping)?|pass|silen(?:ce|t|tly)|empty|ignore|noop|no-op|stay"
    r"|heartbeat|do not|don't|stop|end|wait(?:ing)?|idle|ack|hold)"
)


# Each is searched for in the opening, before the phrases.
_MARKERS: Final = (
    (MachineryKind.MARKER, re.compile(r"\[\s*AUTONOMOUS[^\]]*\]?")),
    # In brackets and capitals, as programs write; models imitate such markers.
    (
        MachineryKind.MARKER,
        re.compile(r"[\[<](?!AUTO)[A-Z](?:[A-Z0-9 ,-]*_|[A-Z0-9 ,-]{4,}:)[^\]>]*"),
    ),
    # The frame of a trigger's data, which a model repeats together with the prompt before it.
    (MachineryKind.PROMPT, re.compile(r"<data note=|</data>")),
    (MachineryKind.MARKER, re.compile(r"</?(?:think|thinking|reasoning|scratchpad|reflection)>")),
    (MachineryKind.SILENCE, re.compile(r"(?<!\w)(?:NO|HEARTBEAT|SILENT|SKIP|STAY|DO)_[A-Z_]+")),
)
_START_SIGNS: Final = (
    (
        MachineryKind.SILENCE,
        re.compile(
            rf"\s*[\[(<*_]*\s*{_SILENT}(?:[\s_-]+(?:reply|response|message|answer|output|follow[ _-]?ups?|action|update|ok|needed|send|silent|quiet|required|for the user|for user|text|comment|content|further|necessary|at this time))*\s*[\])>*_.!]*\s*(?:\Z|\n)",
            re.IGNORECASE,
        ),
    ),
    (MachineryKind.SILENCE, re.compile(r"[\s.…\-\u2013\u2014_*\[\]()]*\Z")),
    (
        MachineryKind.STAGE_DIRECTION,
        re.compile(
            r"\s*[*(\[_]+\s*(?:\w+ ){0,4}?(?:wait(?:s|ing)? (?:patiently|for (?:a |your |the )?(?:user|reply|response|answer))|silence\s*[*)\]]|no (?:response|reply)"
            r"|time passes|minutes? later|hours? later|follow(?:s|ing)? up|check(?:s|ing)? in|noticing the silence|notices the silence|sends? (?:a )?(?:message|follow|check)|typing|continu\w+ the conversation|remain\w* silent|stays? silent)[^*)\]]{0,120}[*)\]_]?",
            re.IGNORECASE,
        ),
    ),
    (
        MachineryKind.STAGE_DIRECTION,
        re.compile(r"\s*(?:\*[^*\n]{2,200}\*|\([^()\n]{2,200}\)|\[[^\[\]\n]{2,200}\])\s*\Z"),
    ),
    (
        MachineryKind.ANNOUNCEMENT,
        re.compile(
            r"\s*[*_#\[(]*\s*(?:follow[- ]?up|check[- ]?in|assistant|ai|agent|bot|reply|response|message|subject|system|output|draft|thought|thinking|reasoning|analysis|human|user|internal)(?: (?:message|reply|response|note|thought|monologue|text))?\s*[*_\])]*\s*:",
            re.IGNORECASE,
        ),
    ),
)
_PLACEHOLDER: Final = re.compile(
    r"\[(?:(?:the |your |their |user'?s? |friend'?s? |insert |specific |relevant |previous |name |topic |first |last |today'?s |current |mention )*"
    r"(?:name|nombre|nom|nome|naam|user|username|topic|insert|date|time|task|project|subject|detail|details|company|product|question|decision|issue|item|place|link|event|interest|hobby|city|day|reason|activity|thing|something|user name|context|here|placeholder))(?: [^\]\n]{0,40})?\](?![\[(\w])"
    r"|\{\{?\s*(?:user|first|last|the|your)?[ _.]?(?:name|user|topic|task|question|date|username)\s*\}?\}|<(?:insert [^>\n]{1,40}|(?:your |user |first )?name|user|topic|placeholder)>|\b(?:lorem ipsum|(?-i:X{3,}|TBD|TODO(?! lists?\b)))\b",  # "todo" is Spanish, "xxx" a greeting
    re.IGNORECASE,
)


def can_be_judged(text: str) -> bool:
    """Whether the beginning of a follow-up is long enough for the guard."""
    return len(text) >= OPENING or _SENTENCE_END.search(text, _SHORT) is not None


def find_machinery(text: str, *, whole: bool = True) -> Machinery | None:
    """The first phrase in the opening of a follow-up that is machinery; None if it is talk.

    `whole` says that nothing comes after the text; a beginning may still become a sentence.
    """
    return next(_found(text, whole=whole), None)


def _found(text: str, *, whole: bool) -> Iterator[Machinery]:
    if len(text) <= _TOKEN and (token := _SILENCE_TOKEN.search(text)):
        yield Machinery(MachineryKind.SILENCE, token[0])
    own = _QUOTED.sub("…x", _CODE.sub("…x", text))
    opening = own[:OPENING].replace("\u2019", "'")
    for kind, pattern in _START_SIGNS if whole else ():
        if (found := pattern.match(opening)) and len(own) <= OPENING:
            yield Machinery(kind, found[0].strip() or text[:40])
    for kind, pattern in (*_MARKERS, *_phrases(), (MachineryKind.PLACEHOLDER, _PLACEHOLDER)):
        if found := pattern.search(opening):
            yield Machinery(kind, found[0])
    # A silence token may also end a follow-up.
    if whole and (
        found := re.search(r"(?:\n|^)\W*(?:NO_REPLY|HEARTBEAT_OK|\[?SILENT\]?)\W*\Z", own)
    ):
        yield Machinery(MachineryKind.SILENCE, found[0].strip())


@cache
def _phrases() -> list[tuple[MachineryKind, re.Pattern[str]]]:
    machinery = read_phrases("machinery")
    words = {**machinery["words"], "trigger": "|".join(TriggerType)}
    return [
        (
            MachineryKind[kind.upper()],
            re.compile(rf"(?<![\w'])(?:{alternatives(lines, words)})", re.IGNORECASE),
        )
        for kind, lines in machinery["signs"].items()
    ]
