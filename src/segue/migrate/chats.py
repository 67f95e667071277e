"""Conversations in a file of JSON lines, with messages as OpenAI's API has them.

    {"messages": [{"role": "user", "content": "Hello!"}], "id": "a1", "user": "ann"}

`id`, `user` and `created_at` may be missing; a message may have a `created_at` of its own.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call

from segue.core.errors import NotFoundError
from segue.core.legacy import created_at
from segue.migrate.sources import Conversation, Head, UnreadableError

# What else stands in a message is no part of what was said, and could pass for our metadata.
_FIELDS: Final = frozenset(
    {"role", "content", "name", "tool_call_id", "function_call", "id", "created_at", "timestamp"}
)


class ChatSource:
    """A file with one conversation in each line."""

    user_from = "user"
    is_live = False

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"There is no file {str(path)!r}.")
        self._path = path
        # Where each conversation begins in the file.
        self._places: dict[str, int] = {}
        self._repeated: set[str] = set()

    def heads(self) -> list[Head]:
        heads = []
        for number, place, line in self._lines():
            name = _name(line) or f"{self._path.stem}-{number}"
            if name in self._places:
                name = f"{name}, again in line {number}"
                self._repeated.add(name)
            self._places[name] = place
            heads.append(Head(name, hashlib.sha256(line.strip()).hexdigest()))
        return heads

    def load(self, head: Head) -> Conversation:
        if head.id in self._repeated:
            raise UnreadableError("A line before it has the same id.")
        with self._path.open("rb") as file:
            file.seek(self._places[head.id])
            chat = _parsed(file.readline())
        messages = [_message(each, place) for place, each in enumerate(chat["messages"], 1)]
        return Conversation(messages, _times(chat, messages), chat)

    def close(self) -> None:
        pass

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        """The lines that are not empty, with their numbers and places."""
        self._places.clear()
        self._repeated.clear()
        place = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, place, line
                place += len(line)


def _name(line: bytes) -> str | None:
    try:
        chat = json.loads(line)
    except (ValueError, RecursionError):  # told when it is read
        return None
    name = chat.get("id") if isinstance(chat, dict) else None
    return str(name) if isinstance(name, str | int) and str(name).strip() else None


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        chat = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"Its line is no JSON: {error}.") from error
    if not isinstance(chat, dict) or not isinstance(chat.get("messages"), list):
        raise UnreadableError("Its line has no list of 'messages'.")
    return chat


def _message(given: Any, place: int) -> BaseMessage:
    try:
        fields = {name: value for name, value in given.items() if name in _FIELDS}
        fields.setdefault("content", None)
        [message] = convert_to_messages([fields])
        return _with_calls(message, given.get("tool_calls"))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableError(f"Its message {place} cannot be read: {reason}") from error


def _with_calls(message: BaseMessage, given: Any) -> BaseMessage:
    if not isinstance(message, AIMessage) or not given:
        return message
    calls, broken = [], []
    for call in given:
        try:
            calls.append(parse_tool_call(call, return_id=True))
        except OutputParserException as error:
            broken.append(make_invalid_tool_call(call, str(error)))
    return AIMessage(**(message.model_dump() | {"tool_calls": calls, "invalid_tool_calls": broken}))


def _times(chat: Mapping[str, Any], messages: list[BaseMessage]) -> list[datetime | None]:
    """Each message's own time; the first one's is that of the conversation, if it has none."""
    times = [created_at(message) for message in messages]
    if times and times[0] is None and "created_at" in chat:
        times[0] = created_at(AIMessage("", response_metadata={"created_at": chat["created_at"]}))
    return times
