"""The guard before the first word: finds follow-ups that are machinery, not talk to the user.

It reads how a follow-up opens, without code and quotations: there a model says that it has nothing
to say, comments on the prompt, thinks aloud, or leaves a template unfilled. Plain talk of timers,
check-ins and following up is allowed, because people talk like that, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


_FOLLOW_UP: Final = r"(?:follow(?:ing)?|check(?:ing)?)[\s_-]?(?:up|in)s?"
_ODD: Final = r"(?:incomplete|unfinished|empty|blank|partial|truncated|cut[- ]off|garbled)"
_MESSAGE: Final = r"(?:message|prompt|request|instruction|command|input|query|text|question)s?"
_MACHINE: Final = (
    r"(?:system|internal|automat(?:ed|ic)|autonomous|synthetic|scheduled|hidden|silent)"
)
_TURN: Final = (
    r"(?:message|reply|response|follow[- ]?up|check[- ]?in|reminder|nudge|output|update)s?"
)
_SILENT: Final = (
    r"(?:no|non?e|nothing|null|n/a|skip(?:ped|ping)?|pass|silen(?:ce|t|tly)|empty|ignore|noop|no-op|stay"
    r"|heartbeat|do not|don't|stop|end|wait(?:ing)?|idle|ack|hold)"
)


def _kind(kind: MachineryKind, *phrases: str) -> tuple[MachineryKind, re.Pattern[str]]:
    return kind, re.compile(rf"(?<![\w'])(?:{'|'.join(phrases)})", re.IGNORECASE)


# Each is searched for in the opening.
_SIGNS: Final = (
    (MachineryKind.MARKER, re.compile(r"\[\s*AUTONOMOUS[^\]]*\]?")),
    # In brackets and capitals, as programs write; models imitate such markers.
    (
        MachineryKind.MARKER,
        re.compile(r"[\[<](?!AUTO)[A-Z](?:[A-Z0-9 ,-]*_|[A-Z0-9 ,-]{4,}:)[^\]>]*"),
    ),
    (MachineryKind.MARKER, re.compile(r"</?(?:think|thinking|reasoning|scratchpad|reflection)>")),
    (MachineryKind.SILENCE, re.compile(r"(?<!\w)(?:NO|HEARTBEAT|SILENT|SKIP|STAY|DO)_[A-Z_]+")),
    _kind(
        MachineryKind.TRIGGER,
        rf"(?:{'|'.join(TriggerType)})\b",
        r"wait_for_decision\b",
        r"trigger[_ ](?:type|reason|message|event)",
    ),
    _kind(
        MachineryKind.PROMPT,
        r"continu\w+ (?:our|the|this) (?:conversation|chat) (?:\w+ )?naturally",
        r"(?:the )?incomplete task (?:that )?(?:we|you) (?:have )?(?:discussed|mentioned)",
        r"(?:the )?decisions? (?:that )?(?:the|a) user (?:needs|has)",
        r"natural(?:ly)? (?:continu\w+|follow[- ]?up) (?:of|to|for|our|the|this)",
    ),
    _kind(
        MachineryKind.THIRD_PERSON,
        r"(?:(?<=\A)|(?<=[.!?\n] )|(?<=so )|(?<=okay, )|(?<=since )|(?<=that )|(?<=see whether )|(?<=see if ))the user(?:'s)? (?:\w+ly )?(?:asked|did|"
        r"has|hasn't|is (?:silent|quiet|busy|idle|away|not)|isn't|last|never|said|seems|sent|still|just|stopped|didn't|went|wants|needs|already|managed|replied|was)",
        r"(?:i (?:think|guess|believe|suppose)|it (?:seems|looks like|appears)|perhaps|maybe)(?: that)? the user(?:'s (?:question|message|request|reply)| (?:wants|needs to|expects|asked|hasn't|is (?:busy|away|waiting|asking)|might|may|would like|sent|meant))\b",
        r"(?:they|he|she) (?:haven't|hasn't|have not|has not) (?:yet )?(?:repl|respon|answered|written)",
        r"(?:let's|let me|i'll|i will|i should) (?:see|check|wait) (?:if|for|until|what) the user",
        r"(?<=\A)(?:el usuario|la usuaria|der (?:be)?nutzer|l'utilisateur|l'utente|o utilizador|o usuario|de gebruiker) (?:no |nao |non |n'|hat |a |ha |heeft )",
        r"(?:用户|ユーザー)(?:还|没|はまだ|が)",
    ),
    _kind(
        MachineryKind.MESSAGE,
        rf"(?:sent|received|got|see|seeing|detected|is|was|seems|looks like|appears to be|was just) (?:me )?(?:an?|your|the|this) {_ODD} {_MESSAGE}\b",
        r"(?:tu mensaje|votre message|ton message|deine nachricht|ihre nachricht|il tuo messaggio|a tua mensagem|sua mensagem|je bericht) (?:\w+ ){0,3}(?:vaci[oa]|vide|leer|vuoto|vazia|leeg|incomplet\w*|unvollst\w+)",
        r"消息似乎是空|消息是空|the user message (?:is|was|seems)",
        rf"your (?:last |previous |latest )?{_MESSAGE} (?:\w+ ){{1,5}}?(?:{_ODD}|unclear|missing)",
        rf"your (?:last |previous |latest )?{_MESSAGE} (?:may not have|might not have|did not|didn't|hasn't|has not|doesn't seem to have) (?:\w+ )?(?:come|came|arrived?|gone|go)",
        rf"there(?:'s| is| was|'re| are) no (?:new |actual |specific )?{_MESSAGE} (?:from you|from the user|to (?:respond|reply|answer))",
        rf"(?:looks|seems|appears) (?:like|as if|that|as though)? ?your (?:last |previous )?{_MESSAGE}\b",
        rf"you(?:'ve| have)? (?:just |only |accidentally )?(?:sent|mentioned|typed|entered|provided|included|submitted) "
        rf"(?:me )?(?:an?|the|this|no) (?:\w+ )?(?:{_ODD}|{_FOLLOW_UP}|marker|tag|placeholder|trigger|{_MESSAGE} without)",
        rf"{_FOLLOW_UP}\W{{1,2}}(?:function|marker|tag|timer|trigger)\b",
        rf"(?:this|that|it) (?:looks|seems|appears) (?:like|to be) (?:an?|the) {_MACHINE} {_MESSAGE}\b",
        rf"(?:don't|do not) understand (?:this|the|your) (?:{_FOLLOW_UP}|{_MACHINE}) {_MESSAGE}\b",
        r"you (?:haven't|have not|didn't|did not) (?:actually )?(?:asked|ask|said|say|sent|send|provided?|written|write|typed?) "
        rf"(?:me )?(?:anything|a |any |an? actual |your )(?:specific )?(?:{_MESSAGE})?",
        r"(?:i|there) (?:don't|do not|didn't|did not|doesn't|can't|cannot|is no|isn't an?|am not|was no) "
        rf"(?:\w+ )?(?:see|seem to be|find|have|receive|seeing|get)? ?(?:an?|any|new|your|actual|specific)* ?"
        rf"(?:new |actual |specific |recent )?(?:user |follow-up )?{_MESSAGE} (?:from you|from the user|to (?:respond|reply|answer)|here|in your|yet|this time)",
        rf"(?:it )?(?:seems|looks|appears) (?:like |that |as if |as though )?you(?:'ve| have| may have| might have)? "
        rf"(?:\w+ )?(?:sent (?:an?|your|the) (?:\w+ )?{_MESSAGE}|hit send|pressed (?:send|enter)|forgot(?:ten)? to|got cut|been cut|were cut|stopped (?:mid|typing|writing)|didn't finish)",
        r"(?:did|didn't) (?:you )?(?:mean|forget) to (?:send|finish|complete|write|include|add)",
        rf"(?:could|can|would) you (?:please )?(?:complete|finish|resend|re-send) (?:your|the|that) (?:{_MESSAGE}|thought|sentence)",
    ),
    _kind(
        MachineryKind.DELIBERATION,
        rf"(?:no|not an?y?) (?:further |more |new |proactive |additional )?(?:{_TURN}) (?:is |are |was |needed|required|necessary|at this|to send|sent|from me)",
        rf"(?:i|we) (?:should|shouldn't|will|won't|would|wouldn't|need to|don't need to|must|can|decided? (?:not )?to|am going to|'ll|have decided (?:not )?to|do not need to|will not|should not) "
        rf"(?:probably |now |just |not |best |simply |also )?(?:(?:send|write|craft|generate|compose|draft|produce|output) (?:an?|no|any|another|the) (?:\w+ )?(?:{_TURN})|follow up (?:on|with|about) (?:this|that|it|the question|them)|stay silent|remain silent|stay quiet|remain quiet|wait for|follow up with the user|check in with the user|reach out to the user|keep (?:quiet|silent)|not (?:respond|reply|send|follow|write|message))",
        r"(?:i'll|i will|i'm going to|let me|i should|i'd) (?:stay|remain|keep|be) (?:silent|quiet)",
        r"(?:follow[- ]?up|nudge|check[- ]?in|reminder) (?:is|seems|isn't|is not|would be|may be|might be) (?:not |un)?(?:necessary|appropriate|needed|required|warranted)",
        r"i(?:'ve| have)? decided (?:not )?to (?:send|write|follow|check|reach|stay|remain)",
        r"whether (?:reaching out|to reach out|following up|a follow-up|writing|to (?:send|write))",
        r"(?:nothing|there(?:'s| is) nothing) (?:new |more |else )?(?:to (?:follow up|report|add|say|send|check)|worth (?:saying|sending)|that needs)",
        r"(?:since|given that|because|as) (?:the (?:user|person|human) (?:has|hasn't|is|isn't|didn't|was|went)|there (?:has been|was|is) (?:no|a) (?:reply|response|silence|activity))",
        rf"(?:okay|ok|alright|so|hmm|well|first)?,? ?(?:let me|i need to|i have to|let's) (?:(?:think|decide|determine|figure out|consider) (?:about )?(?:what|how|whether|if) (?:(?:to|i should|i can|we should) (?:say|respond|reply|follow|write|send|reach|phrase|continue|check|do next)|reaching|a (?:{_TURN}))|craft|generate a|compose a|draft a|write a (?:\w+ )?(?:{_TURN})|look at the (?:conversation|context|history))",
        r"(?:based on|looking at|reviewing|considering) (?:the|this|our|my) (?:conversation history|chat history|context|conversation so far|instructions?|system prompt|prompt|last message)",
        r"(?:my|the) (?:instructions?|system prompt|guidelines|task) (?:is|are|says?|tells?|asks?|requires?|to)\b",
        rf"(?:it's|it is|this is) (?:not )?(?:been |appropriate |a good time |time |the right time |best |better )+to (?:send (?:a|another|the) (?:{_TURN})|follow up|check in|reach out|stay (?:silent|quiet)|not (?:send|write|reply|respond))",
        r"(?:the )?(?:best|right|appropriate|ideal) (?:response|action|approach|reply) (?:here |now |would be |is |in this )",
        r"(?:conversation|thread|chat) (?:is|has) (?:already |been |naturally |come to )*(?:over|ended|concluded|complete|closed|an end|idle)",
        r"as an? (?:ai|large language model|language model|assistant),? i (?:should|can't|cannot|don't|am|was|will|need)",
    ),
    _kind(
        MachineryKind.ANNOUNCEMENT,
        rf"as (?:a|an|the|your) (?:\w+ )?{_FOLLOW_UP}\b(?! (?:question|appointment|visit))",
        rf"this is (?:just )?(?:a|an|your|my|the) (?:\w+ )?(?:{_FOLLOW_UP}|automat\w+)\b",
        rf"{_FOLLOW_UP} (?:\w+ ){{0,3}}as (?:you )?(?:asked|requested|instructed|scheduled|told)",
        r"as (?:instructed|requested|asked|told|prompted|per (?:the|your|my) (?:instructions?|request|prompt))\b",
        r"(?:here(?:'s| is| are)|below is) (?:a|an|my|the|your|one|some|possible|the possible)(?: \w+){0,3} (?:message|reply|response|follow[- ]?up|check[- ]?in|nudge|continuation|draft|opening|conversation starter)s?\b",
        r"(?:sure|certainly|of course|okay|absolutely)[,.!]? (?:i(?:'ll| will| can)|let me|here|let's) (?:follow up|check in|continue (?:our|the|this) conversation|continue naturally|keep the conversation)",
        rf"(?:this is|here is|here's|as|sending(?: you)?|consider this|responding to|in response to|got|received) (?:an?|the|my|your|this) (?:{_MACHINE}|proactive)(?:[- ]generated)?\W{{1,3}}(?:message|prompt|{_FOLLOW_UP}|notification|trigger|reply|response|ping|nudge|tick)s?\b",
        rf"\A\W{{0,3}}(?:{_MACHINE}|proactive)(?:[- ]generated)?\W{{1,3}}(?:message|{_FOLLOW_UP}|notification|trigger|response|ping|nudge)s?\b",
        r"(?:i (?:was|am|have been|got)|i'm|i've been|(?:message|reply|response) (?:was|is)) "
        r"(?:\w+ )?(?:triggered|prompted|instructed|scheduled|programmed)\b",
        r"(?:the|my|a|your|this) (?:inactivity |idle |follow[- ]?up |check[- ]?in |silence )?(?:timer|trigger) (?:has |was |just )?(?:fired|triggered|expired|went off(?! too))",
        r"(?:per|according to) (?:the|my|your) (?:instructions?|(?:system )?prompt)|scheduled trigger",
        r"here(?:'s| is| are) [^.:\n]{0,50}(?:follow[- ]?up|check[- ]?in|nudge)s?\b[^.\n]{0,30}:",
        r"(?:voici|hier ist|aqui tienes|ecco|aqui esta|hier is) (?:un|une|eine|una|uma|een) (?:message|nachricht|mensaje|messaggio|mensagem|bericht)",
        rf"sending you (?:this|an?) (?:{_MACHINE}) (?:{_TURN})",
        r"triggered by (?:a|the|my|your) (?:timer|system|message|silence)",
        r"(?:you|they)(?:'ve| have)? (?:asked|told|instructed|prompted|requested) me to (?:follow up|check in|continue|reach out|write first)",
    ),
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
    r"|\{\{?\s*(?:user|first|last|the|your)?[ _.]?(?:name|user|topic|task|question|date|username)\s*\}?\}|<(?:insert [^>\n]{1,40}|(?:your |user |first )?name|user|topic|placeholder)>|\b(?:X{3,}|lorem ipsum|TBD|TODO)\b",
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
    for kind, pattern in (*_SIGNS, (MachineryKind.PLACEHOLDER, _PLACEHOLDER)):
        if found := pattern.search(opening):
            yield Machinery(kind, found[0])
    # A silence token may also end a follow-up.
    if whole and (
        found := re.search(r"(?:\n|^)\W*(?:NO_REPLY|HEARTBEAT_OK|\[?SILENT\]?)\W*\Z", own)
    ):
        yield Machinery(MachineryKind.SILENCE, found[0].strip())
