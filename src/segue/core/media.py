"""Pictures, sound and files in a message: whether a model's client can be given them.

Every client passes a message through LangChain's conversions first. A block that they cannot
convert fails the call, and with it each later call that has the block in its history.
"""

from typing import Any, Final

from langchain_core.messages import (
    BaseMessage,
    convert_to_openai_image_block,
    is_data_content_block,
)

_NAMES: Final = {
    "image": "a picture",
    "image_url": "a picture",
    "audio": "a recording",
    "input_audio": "a recording",
    "video": "a video",
    "file": "a file",
}


def is_convertible(block: dict[str, Any]) -> bool:
    """Whether LangChain can convert a block; what is no picture, sound or file, it leaves alone."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in _NAMES:
        return True
    source = block.get("source_type", "")
    # With `file` beside it, it would be in two forms at once.
    if not isinstance(source, str) or (source and isinstance(block.get("file"), dict)):
        return False
    try:
        # Traces have pictures in the form of one provider, but for those that it keeps itself.
        is_kept = "file_id" in block or source == "id"
        if kind == "image" and is_data_content_block(block) and not is_kept:
            convert_to_openai_image_block(block)
        return bool(BaseMessage([block], type="any").content_blocks)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def stand_in(block: dict[str, Any]) -> dict[str, Any]:
    """Words in the place of a block that cannot be converted."""
    return {"type": "text", "text": f"[{name_of(block)} that cannot be read]"}


def name_of(block: dict[str, Any]) -> str:
    """What to call a block in a sentence."""
    return _NAMES.get(block["type"], f"content of type {block['type']}")
