"""Messages in one line, for operators: who says what, with a mark for what is not text."""

from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from segue.core.calls import calls_of
from segue.core.metadata import is_synthetic
from segue.core.plain import one_line

_MEDIA: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "file",
    "media": "media",
}
_ROLES: Final = ((SystemMessage, "system"), (ToolMessage, "tool"), (AIMessage, "agent"))


def role_of(message: BaseMessage) -> str:
    """Who says it to the model; what Segue wrote itself is a trigger, or settles a batch."""
    if isinstance(message, HumanMessage):
        return "trigger" if is_synthetic(message) else "user"
    return next((role for kind, role in _ROLES if isinstance(message, kind)), message.type)


def in_words(message: BaseMessage, longest: int = 10_000) -> str:
    """Its text in one line, which pictures and files it has, and what it calls."""
    calls = ""
    if isinstance(message, AIMessage):
        calls = ", ".join(call.name for call in calls_of(message))
    words = with_media(message.text, message.content)
    return one_line(f"{words} {f'[calls {calls}]' if calls else ''}", longest)


def with_media(text: str, content: str | list[Any]) -> str:
    """Words of a message, and a mark for each picture, recording or file in it."""
    blocks = [] if isinstance(content, str) else content
    kinds = (block.get("type") for block in blocks if isinstance(block, dict))
    marks = (f"[{_MEDIA[kind]}]" for kind in kinds if isinstance(kind, str) and kind in _MEDIA)
    return " ".join([*([text] if text else []), *marks])
