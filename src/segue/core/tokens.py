"""How many tokens a message costs, estimated without a tokenizer.

Leans to the high side: a context that is a little short works, one that is too long is refused.
Where a model's own counter is at hand, pass it to `build_context` instead.
"""

import json
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.calls import calls_of, is_call_block
from segue.core.plain import plain_json, sendable_args

PER_MESSAGE: Final = 4
# A call's id and frame. Not by the id's length: ids that repeat are renamed for the request.
PER_CALL: Final = 12
# A large picture costs about this on the dearest of the three big providers.
PER_MEDIA_BLOCK: Final = 1_600
_BYTES_PER_TOKEN: Final = 4
_MEDIA_BLOCKS: Final = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "video", "file", "media"}
)


def estimate_text(text: str) -> int:
    """Bytes, not characters: a Chinese or Greek character costs more than a Latin one."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_PER_TOKEN)


def estimate_tokens(message: BaseMessage) -> int:
    """A message with its text, media and tool calls."""
    content = message.content
    if isinstance(content, str):
        tokens = estimate_text(content)
    else:
        tokens = sum(estimate_block(block) for block in content)
    for call in calls_of(message):
        tokens += PER_CALL + estimate_text(call.name) + _estimate_args(call.args)
    return tokens + PER_MESSAGE


def estimate_block(block: Any) -> int:
    """One block of a message's content; a call costs nothing here, it counts with the calls."""
    if isinstance(block, str):
        return estimate_text(block)
    if not isinstance(block, dict):
        return _estimate_json(block)
    if is_call_block(block):
        return 0
    words = estimate_text(block["text"]) if isinstance(block.get("text"), str) else 0
    if block.get("type") in _MEDIA_BLOCKS:
        return PER_MEDIA_BLOCK + words
    return words if block.keys() <= {"type", "text"} else _estimate_json(block)


def _estimate_args(args: dict[str, Any]) -> int:
    return estimate_text(json.dumps(sendable_args(args), ensure_ascii=False))


def _estimate_json(value: Any) -> int:
    return estimate_text(json.dumps(plain_json(value), ensure_ascii=False))
