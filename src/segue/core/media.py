"""Pictures, sound and files in a message: references out of them, and whether clients take them.

Every client passes a message through LangChain's conversions first. A block that they cannot
convert fails the call, and with it each later call that has the block in its history.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from langchain_core.messages import (
    BaseMessage,
    convert_to_openai_image_block,
    is_data_content_block,
)

# No scheme that a client fetches is longer; the pattern must not read megabytes of base64.
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}://", re.IGNORECASE)
_FILE_ID: Final = re.compile(r"file[-_]?id", re.IGNORECASE)
# Blocks that a client turns into a picture, a sound or a file, by what they are.
MEDIA: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "file",
    "media": "media",
}
# The same, of providers whose messages occur only in migrations.
_ALL_MEDIA: Final = MEDIA.keys() | {"input_file", "document", "container_upload"}
# A tool's arguments may hold addresses; no client fetches them.
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "tool_call", "function_call"})
_NAMES: Final = {
    "image": "a picture",
    "image_url": "a picture",
    "audio": "a recording",
    "input_audio": "a recording",
    "video": "a video",
    "file": "a file",
}


class ReferenceKind(StrEnum):
    FILE = "file"
    ADDRESS = "address"


class Reference(NamedTuple):
    """What a block refers to outside of itself, and the name of the field that does."""

    kind: ReferenceKind
    name: str


def find_reference(content: str | list[Any]) -> Reference | None:
    """The first address or provider file id in the blocks of a content, if there is one."""
    for name, text in _texts([] if isinstance(content, str) else content):
        if _FILE_ID.fullmatch(name):
            return Reference(ReferenceKind.FILE, name)
        if _is_address(name, text):
            return Reference(ReferenceKind.ADDRESS, name)
    return None


def media_in(content: str | list[Any]) -> list[Any]:
    """The pictures, sounds and files in a content, at any depth; not the arguments of calls."""
    found: list[Any] = []
    left: list[Any] = [] if isinstance(content, str) else [*content]
    while left:  # no recursion: the sender chooses the depth
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and kind in _ALL_MEDIA:
                found.append(value)
            elif not isinstance(kind, str) or kind not in _CALLS:
                left += value.values()
    return found


def is_convertible(block: dict[str, Any]) -> bool:
    """Whether LangChain can convert a block; it leaves blocks without media alone."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in _NAMES:
        return True
    source = block.get("source_type", "")
    # With `file` beside it, the block would be in two forms at once.
    if not isinstance(source, str) or (source and isinstance(block.get("file"), dict)):
        return False
    try:
        # Tracing converts pictures to OpenAI's form, except those stored at the provider.
        is_stored = "file_id" in block or source == "id"
        if kind == "image" and is_data_content_block(block) and not is_stored:
            convert_to_openai_image_block(block)
        return bool(BaseMessage([block], type="any").content_blocks)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False


def name_of(block: dict[str, Any]) -> str:
    return _NAMES.get(block["type"], f"content of type {block['type']}")


def _texts(blocks: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """All strings in blocks, at any depth, each with its key; not the `text` of a block."""
    left = [("content", each) for each in blocks if not isinstance(each, str)]
    while left:  # no recursion: the sender chooses the depth
        name, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((name, each) for each in value)
        elif isinstance(value, str) and name != "text":  # prose may mention addresses
            yield name, value


def _is_address(name: str, text: str) -> bool:
    if name.lower().endswith(("url", "uri")):
        return not text.startswith("data:")
    return _ADDRESS.match(text.lstrip()) is not None  # clients cut blanks off
