"""Batches as one text, for somebody who is to sum them up; and a summary within its bounds.

As JSON, because nobody can write words in it that look like another one's. What Segue itself said
to the model is left out: a trigger's words are nobody's. What the agent answered to them is in, as
the agent's. Tool traffic is shortened.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.core.batch import Batch
from segue.core.calls import calls_of, has_content
from segue.core.metadata import BatchType, is_synthetic
from segue.core.plain import plain_json, storable
from segue.core.query import text_of
from segue.core.tokens import estimate_text

# How many characters of a message are told, until all of them fit.
_LENGTHS: Final = (4_000, 1_000, 250, 80)
_TOOL_LENGTH: Final = 300
_CUT: Final = " […] "
_LEFT_OUT: Final = json.dumps({"left out": "some messages"})
_BYTES_PER_TOKEN: Final = 4
# No text has so few tokens that more of it could fit.
_ROOMY: Final = 16
# A full stop in a number or an abbreviation is followed by something.
_SENTENCE_END: Final = re.compile(r"[.!?…][)\]\"'”’]*(?=\s|\Z)|[。！？]|\n")  # noqa: RUF001


def retell(batches: Sequence[Batch], max_tokens: int) -> str:
    """What was said in batches, oldest first, in about so many tokens; "" if nobody said a thing.

    If it is too much, messages are shortened, and in the end those in the middle are left out.
    """
    lines: list[str] = []
    for length in _LENGTHS:
        lines = [*_lines(batches, length)]
        if _tokens(lines) <= max_tokens:
            break
    else:
        lines = _both_ends(lines, max_tokens)
    return "[" + ",\n".join(lines) + "]" if lines else ""


def first_fitting(batches: Sequence[Batch], max_tokens: int) -> list[Batch]:
    """The oldest of the batches that can be told together without shortening; at least one."""
    ordered = sorted(batches, key=lambda batch: batch.id)
    taken: list[Batch] = []
    for batch in ordered:
        max_tokens -= _tokens([*_lines([batch], _LENGTHS[0])])
        if taken and max_tokens < 0:
            break
        taken.append(batch)
    return taken


def cut_at_sentence(text: str, max_tokens: int) -> str:
    """The text, or as many of its first sentences as fit; where none does, as many words."""
    size = max(max_tokens, 0) * _BYTES_PER_TOKEN
    # Megabytes need not be looked through to keep a page of them.
    text = storable(text[: _ROOMY * size + _ROOMY]).strip()
    if estimate_text(text) <= max_tokens:
        return text
    room = len(text.encode()[:size].decode(errors="ignore"))
    ends = (found.end() for found in _SENTENCE_END.finditer(text))
    last = max((end for end in ends if end <= room), default=0)
    if not text[:last].strip():
        blank = text.rfind(" ", 0, room + 1)
        last = blank if blank > 0 else room
    return text[:last].strip()


def _lines(batches: Sequence[Batch], length: int) -> Iterator[str]:
    for batch in sorted(batches, key=lambda batch: batch.id):
        for message in batch.arranged:
            if not is_synthetic(message) and (told := _told(message, batch.type, length)):
                yield json.dumps(told, ensure_ascii=False)


def _told(message: BaseMessage, batch_type: BatchType, length: int) -> dict[str, Any] | None:
    """Who said what; None if there is nothing to tell."""
    short = min(length, _TOOL_LENGTH)
    words = _shortened(text_of(message), short if isinstance(message, ToolMessage) else length)
    if not words and has_content(message):
        words = "(a picture or a file)"
    calls = [_shortened(_call(call.name, call.args), short) for call in calls_of(message)]
    told: dict[str, Any] = {"text": words} if words else {}
    told |= {"calls": calls} if calls else {}
    return {"from": _speaker(message, batch_type), **told} if told else None


def _speaker(message: BaseMessage, batch_type: BatchType) -> str:
    if isinstance(message, HumanMessage):
        return "another agent" if batch_type is BatchType.AGENT_TO_AGENT else "user"
    if isinstance(message, AIMessage):
        return "agent"
    return f"tool {storable(message.name or '')}" if isinstance(message, ToolMessage) else "system"


def _call(name: str, args: dict[str, Any]) -> str:
    return f"{name} {json.dumps(plain_json(args), ensure_ascii=False)}"


def _shortened(text: str, length: int) -> str:
    """Its beginning and its end: what a message wants of its reader stands at one of them."""
    text = storable(text)
    if len(text) <= length:
        return text
    half = (length - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def _both_ends(lines: Sequence[str], max_tokens: int) -> list[str]:
    """The first and the last lines that fit, with a mark where others are missing."""
    first: list[str] = []
    last: list[str] = []
    room = max_tokens - _tokens([_LEFT_OUT])
    rest = list(lines)
    while rest:
        is_first = len(first) <= len(last)
        line = rest.pop(0 if is_first else -1)
        room -= _tokens([line])
        if room < 0:
            return [*first, _LEFT_OUT, *reversed(last)]
        (first if is_first else last).append(line)
    return [*first, *reversed(last)]


def _tokens(lines: Sequence[str]) -> int:
    return sum(estimate_text(line) + 1 for line in lines)
