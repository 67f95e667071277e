"""Nothing that reads a text takes longer on a nasty one than the event loop may be held.

Each function that reads what a user or a model wrote gets 100 kB, which is what a message may have,
of signs that patterns and loops are known to stumble over. CPU time counts, so that a busy machine
does not matter; what grows with the square of the text takes seconds here.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from langchain_core.messages import HumanMessage

from segue.agent.scripted import demo_reply
from segue.core.compression import cut_at_sentence
from segue.core.memory import indexed_words, query_words
from segue.core.messages import user_message
from segue.core.speech.acts import acts_of, asks_something, ends_conversation, looks_for_something
from segue.core.speech.reminders import find_promise
from segue.core.speech.sentences import is_quote
from segue.core.text import cut_text, harmless, one_line, plain_json, storable
from segue.core.tokens import estimate_text
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import UsageError
from segue.journal.postgres.tx import to_tsvector
from segue.journal.search import words_of
from segue.server.middleware import BodyTooLarge, check_parts
from segue.server.problems import ApiError
from segue.server.routes.messages import check_references, check_text
from segue.server.settings import ServerSettings
from segue.server.socket import parse_frame
from segue.testing.watchdog import LIMIT

SIZE: Final = ServerSettings().max_text_bytes
PROMPTS: Final = [*TRIGGER_PROMPTS.values()]
Reads = Callable[[str], object]


def reads_frames(text: str) -> None:
    for frame in (text, json.dumps({"type": "message", "content": text})):
        with suppress(UsageError):
            parse_frame(frame)


def reads_bodies(text: str) -> None:
    for body in (text.encode(errors="replace"), json.dumps([text]).encode()):
        with suppress(BodyTooLarge):
            check_parts(body)


def reads_contents(text: str) -> None:
    blocks = [
        {"type": "text", "text": text},
        {"type": "image", "base64": text, "mime_type": text, text: text},
        {"type": "image_url", "image_url": {"url": f"data:{text}"}},
    ]
    check_text(blocks, 10 * SIZE)
    contents: list[str | list[Any]] = [text, *([each] for each in blocks)]
    for content in contents:
        with suppress(ApiError, UsageError):
            check_references(content)
            user_message(content)


READERS: Final[dict[str, Reads]] = {
    "what a reply does": acts_of,
    "what a user looks for": lambda text: (looks_for_something(text), asks_something(text)),
    "whether a talk ends": lambda text: ends_conversation(text, help_was_offered=True),
    "whether it quotes a trigger": lambda text: is_quote(text, PROMPTS, [text]),
    "who said a trigger's words": lambda text: is_quote(PROMPTS[0], PROMPTS, [text]),
    "words of a memory": lambda text: (indexed_words(text), query_words(text)),
    "words of a message": lambda text: to_tsvector(words_of(text), "m"),
    "a promise to remind": lambda text: find_promise(text, text),
    "a summary": lambda text: [cut_at_sentence(text, size) for size in (30, 1_000, 20_000)],
    "a shorter text": lambda text: (cut_text(text, 500), estimate_text(text)),
    "plain text": lambda text: (storable(text), one_line(text), harmless(text), plain_json([text])),
    "the scripted model": lambda text: demo_reply([HumanMessage(storable(text))]),
    "a message": reads_contents,
    "bodies": reads_bodies,
    "frames": reads_frames,
}
SIGNS: Final = (
    *" \n\t\"'`“«„([{<)].!?a0_*-#>|\\\r\u2028\ud800\0,:",
    *("a ", "a'", "'a", "a\n", '"a', '\\"', "\\\\", "```\n", "~~~\n", "``` ", " \n", "> ", "- "),
    *("www.", "http://", ".)", ". ", "a .", "a 's ", "n't ", "x or ", "a-"),
    *("ok, ", "no a ", "thank you ", "i'm ", "it's always ", "please check ", "is that ", "find "),
    *("i'll remind you in 2 hours ", "ich werde dich ", "remind me. ", "at 9 ", "in 2 days "),
    *("é", "a\u0301", "\u0301", "你", "。", "😀", "\ufdfa"),
)


def texts() -> Iterator[str]:
    """Each sign by itself, and some of them mixed, the same on every run."""
    yield from SIGNS
    dice = random.Random(1)  # noqa: S311 - not a secret
    for _ in range(15):
        yield "".join(dice.choices(SIGNS, k=dice.choice((2, 3, 5))))


@pytest.mark.parametrize("name", READERS)
def test_a_nasty_text_is_read_in_no_time(name: str) -> None:
    """However a hundred kilobytes are made, they do not hold up everybody."""
    reads = READERS[name]
    reads("warm up")
    slow = {}
    for unit in texts():
        # The end is what a pattern hardly expects, so that it fails where it can.
        text = unit * (SIZE // len(unit.encode(errors="replace"))) + "\0x"
        took = _seconds(reads, text)
        # A busy machine makes CPU time longer, too: the best of a few counts.
        for _ in range(5 if took > LIMIT else 0):
            took = min(took, _seconds(reads, text))
        if took > LIMIT:
            slow[unit] = round(took, 2)
    assert not slow


def _seconds(reads: Reads, text: str) -> float:
    began = time.thread_time()
    reads(text)
    return time.thread_time() - began
