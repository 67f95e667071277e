"""The replies of the `scripted` model: a polite companion made of rules, for a demo without a key.

The same conversation gets the same words. Rules cannot tell by its words what an owner's own prompt
asks for, so in a run of an agent it looks up which messages are triggers; it answers to something
the user really said before. Asked for a summary, it repeats what the user began to say.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from zlib import crc32

from langchain_core.messages import BaseMessage, HumanMessage

from segue.agent.run import current_run
from segue.agent.summary_request import SummaryRequest
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.transcript import cut_at_sentence
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType

# What may stand before a thing, and what ends its name.
_OPENER: Final = re.compile(r"(?i)a|about|an|for|my|of|our|some|the|these|this|those|your")
_BREAK: Final = re.compile(
    r"(?i)after|all|am|and|any|are|as|at|be|because|been|before|but|by|can|could|did|do|does|from|"
    r"had|has|have|he|her|his|how|i|if|in|into|is|it|its|just|like|me|not|on|or|she|should|so|"
    r"than|that|their|them|then|there|they|to|today|tomorrow|tonight|too|up|us|very|was|we|were|"
    r"what|when|where|which|who|why|will|with|would|yet|you"
)
_TOKEN: Final = re.compile(r"[^\W\d_][\w'-]*|[.,;:!?]")
_CHOICE: Final = re.compile(r"(?i)(?<![\w'-])[\w'-]+ or [\w'-]+")
_QUESTION: Final = re.compile(r"(?i)\?\s*$|^(how|what|when|where|which|who|why)\b")

# In this order: the first that fits is what the user means.
_SMALL_TALK: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        r"(?i)\b(good)?bye\b|\bgood night\b|\bsee you\b|\btalk (to you )?later\b": (
            "Goodbye, and take care!",
            "See you soon. It was nice to talk to you!",
        ),
        r"(?i)\bthank(s| you)\b|\bcheers\b": (
            "You're welcome! Just write whenever you like.",
            "My pleasure. I'm glad if it helps.",
        ),
        r"(?i)\bhow are you\b|\bhow('s| is) it going\b": (
            "I'm well, thank you! And how are you today?",
            "Very well, thanks. What are you up to?",
        ),
        r"(?i)^(hi|hello|hey|good (morning|afternoon|evening))\b[^?]{0,20}$": (
            "Hello! What is on your mind today?",
            "Hi there! How is your day going?",
        ),
    }
)
# Who is quoted in a summary, by what a transcript calls them.
_QUOTED: Final[Mapping[str, str]] = MappingProxyType(
    {"user": "The user", "another agent": "Another agent"}
)
_QUOTE_TOKENS: Final = 30
_GREETING_WORDS: Final = 5
_QUESTIONS: Final = (
    "Good question. With {topic} I would start small and see how it feels. What matters most?",
    "Hard to say from here, but {topic} is worth a closer look. What do you lean towards?",
    "Good question. What do you think yourself?",
)
_TALK: Final = (
    "I see. Tell me a little more about {topic}.",
    "And how do you feel about {topic}?",
    "I see. Tell me a little more.",
)
_FOLLOW_UPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        TRIGGER_PROMPTS[TriggerType.CHECK_IN]: (
            "By the way, how are things with {topic}?",
            "I was just thinking of {topic}. Is there anything new?",
            "How is your day going?",
        ),
        TRIGGER_PROMPTS[TriggerType.QUESTION_UNANSWERED]: (
            "Did my answer about {topic} help, or shall we look at it from another side?",
            "I'm still curious what you make of {topic}. Does it sound right to you?",
            "Was my answer of any help?",
        ),
        TRIGGER_PROMPTS[TriggerType.TASK_INCOMPLETE]: (
            "How far did you get with {topic}? I'm happy to take the next step with you.",
            "There was a bit left to do for {topic}. Shall we finish it together?",
            "How far did you get? I'm happy to help with the rest.",
        ),
        TRIGGER_PROMPTS[TriggerType.WAITING_FOR_DECISION]: (
            "Have you made up your mind about {choice}?",
            "Which way do you lean with {choice}? I can go through both sides with you.",
            "Have you made up your mind yet?",
        ),
        CONTINUATION_PROMPT: ("That is done now. What would you like to do next?",),
    }
)


def demo_reply(messages: Sequence[BaseMessage]) -> str:
    """What a friendly companion would say next. A request for a summary gets one."""
    if (request := SummaryRequest.find(messages)) is not None:
        return _summary(request)
    triggers = _triggers_of_run()
    said = [
        triggers.get(message.id) or triggers.get(text) or text
        for message in messages
        if isinstance(message, HumanMessage)
        for text in [message.text.strip()]
    ]
    real = [text for text in said if text not in _FOLLOW_UPS]
    topic = _latest(real, find_topic)
    choice = _latest(real, find_choice) or topic
    ways = _ways(said[-1] if said else "")
    about_it = [way for way in ways if ("{" in way) == bool(topic)] or ways
    # The number of messages, so that the second follow-up in a row has other words.
    way = about_it[(crc32((real[-1] if real else "").encode()) + len(said)) % len(about_it)]
    return way.format(topic=topic, choice=choice)


def _triggers_of_run() -> dict[str | None, str]:
    """The fixed prompt of each trigger in the run, by its id and by its text."""
    found: dict[str | None, str] = {}
    run = current_run()
    for message in run.messages if run else ():
        if isinstance(message, HumanMessage) and is_synthetic(message):
            trigger = MessageMetadata.of(message).trigger_type
            fixed = TRIGGER_PROMPTS[trigger] if trigger else CONTINUATION_PROMPT
            found |= {name: fixed for name in (message.id, message.text.strip()) if name}
    return found


def find_topic(text: str) -> str:
    """The thing that a text is about, as far as rules can tell; empty if there is none."""
    if any(re.search(meant, text) for meant in _SMALL_TALK):
        return ""
    things: list[str] = []
    words: list[str] = []
    opened = False
    for token in [*_TOKEN.findall(text), "."]:
        if _can_name(token):
            words.append(token)
            continue
        if words and opened:
            things.append(" ".join(words[:3]))
        words, opened = [], _OPENER.fullmatch(token) is not None
    if things:
        thing = max(things, key=lambda thing: thing.count(" "))
        return thing if thing[0].isupper() else f"the {thing}"
    weighty = (word for word in _TOKEN.findall(text) if _can_name(word) and len(word) > 4)
    return max(weighty, key=len, default="")


def find_choice(text: str) -> str:
    """Two things that a text weighs against each other; empty if it does not."""
    found = _CHOICE.search(text)
    return found[0] if found else ""


def _summary(request: SummaryRequest) -> str:
    """One line for each thing that was said to the agent; where room is short, the newest ones."""
    lines = request.earlier.splitlines()
    for told in json.loads(request.retold):
        who, text = _QUOTED.get(told.get("from")), " ".join(told.get("text", "").split())
        if who and text and not _is_small_talk_alone(text):
            lines.append(f"{who} said: {cut_at_sentence(text, _QUOTE_TOKENS)}")
    room, kept = request.words, list[str]()
    for line in reversed(lines):
        room -= len(line.split())
        if kept and room < 0:
            break
        kept.insert(0, line)
    return "\n".join(kept) or "There was some small talk."


def _is_small_talk_alone(text: str) -> bool:
    """A long message says something else besides."""
    is_short = len(text.split()) <= _GREETING_WORDS
    return is_short and any(re.search(meant, text) for meant in _SMALL_TALK)


def _ways(asked: str) -> tuple[str, ...]:
    if follow_ups := _FOLLOW_UPS.get(asked):
        return follow_ups
    for meant, replies in _SMALL_TALK.items():
        if re.search(meant, asked):
            return replies
    return _QUESTIONS if _QUESTION.search(asked) else _TALK


def _can_name(word: str) -> bool:
    return word.isalpha() and not _OPENER.fullmatch(word) and not _BREAK.fullmatch(word)


def _latest(texts: Sequence[str], find: Callable[[str], str]) -> str:
    return next((found for text in reversed(texts) if (found := find(text))), "")
