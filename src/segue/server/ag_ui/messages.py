"""Messages between AG-UI's form and ours: the user's content, and the history."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.messages import origin_of, shown_content, spoken_text
from segue.core.metadata import MessageMetadata
from segue.errors import UsageError

# Parts of a message in AG-UI, and the blocks of ours.
_KINDS: Final = {"image": "image", "audio": "audio", "video": "video", "document": "file"}
_PARTS: Final = {block: part for part, block in _KINDS.items()}
# What our blocks call the value of a source.
_SOURCES: Final = {"data": "base64", "url": "url", "file": "file_id"}
_DATA_URL: Final = re.compile(r"data:([\w.+/-]{1,100});base64,")


def content_of(message: Mapping[str, Any]) -> Any:
    """What a user's message says, in our blocks; other fields of it are dropped."""
    content = message.get("content")
    return [*map(_block_of, content)] if isinstance(content, list) else content


def _block_of(part: Any) -> Any:
    """A block of a part; one of another form goes on as it is, and is refused with a reason."""
    if not isinstance(part, dict) or (kind := _KINDS.get(str(part.get("type")))) is None:
        return part
    source = part.get("source")
    if not isinstance(source, dict) or (name := _SOURCES.get(str(source.get("type")))) is None:
        raise UsageError(f"A part of type {part['type']!r} needs a source: data, url or file.")
    block = {"type": kind, name: source.get("value")}
    return block | ({"mime_type": source["mimeType"]} if source.get("mimeType") else {})


def history_of(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Visible messages in AG-UI's form."""
    return [*map(message_of, messages)]


def id_of(message: BaseMessage) -> str:
    """The id that the client knows a message by: of its own, the one that it chose."""
    return MessageMetadata.of(message).client_message_id or message.id or ""


def message_of(message: BaseMessage) -> dict[str, Any]:
    """A visible message; one that the agent wrote of its own accord says so in its metadata."""
    if isinstance(message, HumanMessage):
        return {"id": id_of(message), "role": "user", "content": _parts(shown_content(message))}
    said = {"id": id_of(message), "role": "assistant", "content": spoken_text(message)}
    return said | {"metadata": {"origin": origin_of(message)}}


def _parts(content: str | list[Any]) -> str | list[Any]:
    return content if isinstance(content, str) else [*_each_part(content)]


def _each_part(blocks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, str) or block.get("type") == "text":
            yield {"type": "text", "text": block if isinstance(block, str) else block["text"]}
        elif (source := _source_of(block)) is not None:
            kind = "image" if block["type"] == "image_url" else _PARTS.get(block["type"])
            if kind is not None:
                yield {"type": kind, "source": source}


def _source_of(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the bytes of a block are; None for a form that is not known here."""
    inner = block.get(str(block["type"]))
    place = inner if isinstance(inner, dict) else block
    url = inner if isinstance(inner, str) else place.get("url")
    kind = block.get("mime_type")
    if isinstance(url, str):
        if found := _DATA_URL.match(url):
            return {"type": "data", "value": url[found.end() :], "mimeType": found[1]}
        return {"type": "url", "value": url}
    data = block.get("base64") or block.get("data")
    if isinstance(data, str) and isinstance(kind, str):
        return {"type": "data", "value": data, "mimeType": kind}
    return None
