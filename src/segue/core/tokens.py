"""Estimates of how many tokens a message costs, without a tokenizer.

They lean high: a context that is a little short works, one that is too long is refused. For exact
numbers pass the model's own counter to `build_context`.
"""

import json
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.calls import blocks_of, calls_of, is_call_block, is_of_type
from segue.core.media import MEDIA
from segue.core.text import plain_json, sendable_args

PER_MESSAGE: Final = 4
# A call's id and frame; fixed, since repeated ids are renamed in the request.
PER_CALL: Final = 12
# A large picture at the most expensive of the three big providers.
PER_MEDIA_BLOCK: Final = 1_600
BYTES_PER_TOKEN: Final = 4


def estimate_text(text: str) -> int:
    """By bytes, since a Chinese or Greek character costs more than a Latin one."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def estimate_tokens(message: BaseMessage) -> int:
    """Text, media and tool calls of a message."""
    tokens = PER_MESSAGE + sum(map(estimate_block, blocks_of(message)))
    for call in calls_of(message):
        tokens += PER_CALL + estimate_text(call.name) + _estimate_json(sendable_args(call.args))
    return tokens


def estimate_block(block: Any) -> int:
    """One block of content; call blocks cost 0, since they are counted as calls."""
    if isinstance(block, str):
        return estimate_text(block)
    if not isinstance(block, dict):
        return _estimate_json(plain_json(block))
    if is_call_block(block):
        return 0
    text = estimate_text(block["text"]) if isinstance(block.get("text"), str) else 0
    if is_of_type(block, MEDIA):
        return PER_MEDIA_BLOCK + text
    return text if block.keys() <= {"type", "text"} else _estimate_json(plain_json(block))


def _estimate_json(value: Any) -> int:
    return estimate_text(json.dumps(value, ensure_ascii=False))
