"""The replies of the `scripted` model, by rules: for a demo without a key.

The same conversation gets the same replies. A follow-up refers to what the user wrote before. In a
run, triggers are recognised by their metadata, since the owner may have replaced their prompts. A
request for a summary gets the beginnings of the user's messages.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.agent.current import current_run
from segue.core.compression import SummaryRequest, cut_at_sentence
from segue.core.memory import STOP_WORDS
from segue.core.messages import CONTINUATION_PROMPT
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType

# Words before a noun.
_DETERMINER: Final = re.compile(r"(?i)a|about|an|for|my|of|our|some|the|these|this|those|your")
_TOKEN: Final = re.compile(r"[^\W\d_][\w'-]*|[.,;:!?]")
_CHOICE: Final = re.compile(r"(?i)(?<![\w'-])[\w'-]+ or [\w'-]+")
_QUESTION: Final = re.compile(r"(?i)\?\s*$|^(how|what|when|where|which|who|why)\b")

# The first pattern that matches decides.
_SMALL_TALK: Final[Mapping[str, str]] = MappingProxyType(
    {
        r"(?i)\b(good)?bye\b|\bgood night\b|\bsee you\b": "Goodbye, and take care!",
        r"(?i)\bthank(s| you)\b": "You're welcome! Just write whenever you like.",
        r"(?i)\bhow are you\b": "Very well, thanks. What are you up to?",
        r"(?i)^(hi|hello|hey|good (morning|afternoon|evening))\b[^?]{0,20}$": (
            "Hi there! How is your day going?"
        ),
    }
)
_TO_QUESTION: Final = (
    "Hard to say from here, but {topic} is worth a closer look. What do you think?"
)
_TO_REMARK: Final = "And how do you feel about {topic}?"
# By prompt.
_FOLLOW_UPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        TRIGGER_PROMPTS[TriggerType.CHECK_IN]: "By the way, how are things with {topic}?",
        TRIGGER_PROMPTS[TriggerType.QUESTION_UNANSWERED]: (
            "Did my answer about {topic} help, or shall we look at it from another side?"
        ),
        TRIGGER_PROMPTS[TriggerType.TASK_INCOMPLETE]: (
            "How far did you get with {topic}? I'm happy to take the next step with you."
        ),
        TRIGGER_PROMPTS[TriggerType.WAITING_FOR_DECISION]: (
            "Have you made up your mind about {choice}?"
        ),
        CONTINUATION_PROMPT: "That is done now. What would you like to do next?",
    }
)
_SECOND_FOLLOW_UP: Final = "I was just thinking of {topic}. Is there anything new?"
_WITHOUT_TOPIC: Final = "Is there anything new with you?"
# Speakers quoted in a summary, by their names in a transcript.
_QUOTED: Final = MappingProxyType({"user": "The user", "another agent": "Another agent"})
_QUOTE_TOKENS: Final = 30
_GREETING_WORDS: Final = 5


def demo_reply(messages: Sequence[BaseMessage]) -> str:
    """The next reply, or the summary that the messages ask for."""
    if (request := SummaryRequest.find(messages)) is not None:
        return _summarise(request)
    prompts = _prompts_in_run()
    texts = [
        prompts.get(message.id) or prompts.get(text) or text
        for message in messages
        if isinstance(message, HumanMessage)
        for text in [message.text.strip()]
    ]
    real = [text for text in texts if text not in _FOLLOW_UPS]
    topic = _latest(real, find_topic)
    choice = _latest(real, find_choice) or topic
    template = _template(texts, has_topic=bool(topic))
    return template.format(topic=topic or "that", choice=choice)


def _template(texts: Sequence[str], *, has_topic: bool) -> str:
    last = texts[-1] if texts else ""
    if last == CONTINUATION_PROMPT or last not in _FOLLOW_UPS:
        reply = _TO_QUESTION if _QUESTION.search(last) else _TO_REMARK
        return _FOLLOW_UPS.get(last) or _find_small_talk(last) or reply
    if not has_topic:
        return _WITHOUT_TOPIC
    in_a_row = len([*takewhile(_FOLLOW_UPS.__contains__, reversed(texts))])
    return _FOLLOW_UPS[last] if in_a_row % 2 else _SECOND_FOLLOW_UP


def _prompts_in_run() -> dict[str | None, str]:
    """The standard prompt of each trigger in the run, by the trigger's id and by its text."""
    found: dict[str | None, str] = {}
    run = current_run()
    for message in run.messages if run else ():
        if isinstance(message, HumanMessage) and is_synthetic(message):
            trigger = MessageMetadata.of(message).trigger_type
            standard = TRIGGER_PROMPTS[trigger] if trigger else CONTINUATION_PROMPT
            found |= {name: standard for name in (message.id, message.text.strip()) if name}
    return found


def find_topic(text: str) -> str:
    """The topic of a text: its longest noun phrase, else its longest word; empty if none."""
    if _find_small_talk(text):
        return ""
    phrases: list[str] = []
    words: list[str] = []
    follows_determiner = False
    for token in [*_TOKEN.findall(text), "."]:
        if _is_content(token):
            words.append(token)
            continue
        if words and follows_determiner:
            phrases.append(" ".join(words[:3]))
        words, follows_determiner = [], _DETERMINER.fullmatch(token) is not None
    if phrases:
        phrase = max(phrases, key=lambda phrase: phrase.count(" "))
        return phrase if phrase[0].isupper() else f"the {phrase}"
    long_words = (word for word in _TOKEN.findall(text) if _is_content(word) and len(word) > 4)
    return max(long_words, key=len, default="")


def find_choice(text: str) -> str:
    """The "this or that" of a text; empty if there is none."""
    found = _CHOICE.search(text)
    return found[0] if found else ""


def _summarise(request: SummaryRequest) -> str:
    """The earlier summary and one line per message to the agent; the newest lines that fit."""
    lines = request.earlier.splitlines()
    for entry in json.loads(request.transcript):
        speaker, text = _QUOTED.get(entry.get("from")), " ".join(entry.get("text", "").split())
        is_greeting = len(text.split()) <= _GREETING_WORDS and _find_small_talk(text)
        if speaker and text and not is_greeting:
            lines.append(f"{speaker} said: {cut_at_sentence(text, _QUOTE_TOKENS)}")
    room, kept = request.words, list[str]()
    for line in reversed(lines):
        room -= len(line.split())
        if kept and room < 0:
            break
        kept.insert(0, line)
    return "\n".join(kept) or "There was some small talk."


def _find_small_talk(text: str) -> str | None:
    replies = (reply for pattern, reply in _SMALL_TALK.items() if re.search(pattern, text))
    return next(replies, None)


def _is_content(word: str) -> bool:
    return word.isalpha() and word.lower() not in STOP_WORDS


def _latest(texts: Sequence[str], find: Callable[[str], str]) -> str:
    return next(filter(None, map(find, reversed(texts))), "")
