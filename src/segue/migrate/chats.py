"""Conversations in a file of JSON lines, with messages as OpenAI's API has them.

    {"messages": [{"role": "user", "content": "Hello!"}], "id": "a1", "user": "ann"}

`id`, `user` and `created_at` may be missing; a message may have a `created_at` of its own. A chat
without an `id` is named by a hash of its beginning, so that its name stays the same in every line
and file, and however long it grows.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call

from segue.errors import NotFoundError
from segue.migrate.legacy import created_at
from segue.migrate.sources import SourceThread, ThreadRef, UnreadableError

# Fields of its first messages that name a chat.
_NAMING: Final = ("role", "content", "created_at", "timestamp")
_NAME_LENGTH: Final = 16
_USER: Final = ("user", "human")
# Other fields are dropped: they could pass for our metadata.
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
        # The offset of each conversation in the file.
        self._places: dict[str, int] = {}
        self._repeated: set[str] = set()
        self._begun: Counter[str] = Counter()

    def heads(self) -> list[ThreadRef]:
        heads = []
        for number, place, line in self._lines():
            name = self._name(number, line)
            self._places[name] = place
            heads.append(ThreadRef(name, hashlib.sha256(line.strip()).hexdigest()))
        return heads

    def load(self, head: ThreadRef) -> SourceThread:
        if head.id in self._repeated:
            raise UnreadableError("A line before it has the same id.")
        with self._path.open("rb") as file:
            file.seek(self._places[head.id])
            chat = _parsed(file.readline())
        messages = [_message(each, place) for place, each in enumerate(chat["messages"], 1)]
        return SourceThread(messages, _times(chat, messages), chat)

    def close(self) -> None:
        pass

    def _name(self, number: int, line: bytes) -> str:
        try:
            chat = json.loads(line)
            name = _own_id(chat) or self._numbered(_beginning(chat, self.user_from))
        except (ValueError, RecursionError):  # reported when it is loaded
            name = None
        name = name or f"line {number}"
        if name in self._places:
            name = f"{name}, again in line {number}"
            self._repeated.add(name)
        return name

    def _numbered(self, name: str | None) -> str | None:
        """The name, with a number if an earlier chat begins in the same way."""
        if name is None:
            return None
        self._begun[name] += 1
        return name if self._begun[name] == 1 else f"{name}-{self._begun[name]}"

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        """The lines that are not empty, with their numbers and offsets."""
        self._places.clear()
        self._repeated.clear()
        self._begun.clear()
        place = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, place, line
                place += len(line)


def _own_id(chat: Any) -> str | None:
    name = chat.get("id") if isinstance(chat, dict) else None
    return str(name) if isinstance(name, str | int) and str(name).strip() else None


def _beginning(chat: Any, user_from: str) -> str | None:
    """A name from a chat's user, its time, and its messages up to the user's first; None if it has
    no messages.
    """
    messages = chat.get("messages") if isinstance(chat, dict) else None
    if not isinstance(messages, list) or not messages:
        return None
    parts = [each if isinstance(each, dict) else {"content": each} for each in messages]
    first = next((n for n, each in enumerate(parts) if each.get("role") in _USER), len(parts))
    beginning = [[each.get(name) for name in _NAMING] for each in parts[: first + 1]]
    user = SourceThread((), (), chat).fact(user_from)
    digest = hashlib.sha256(json.dumps([user, chat.get("created_at"), beginning]).encode())
    return f"chat-{digest.hexdigest()[:_NAME_LENGTH]}"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        chat = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("It is not JSON.") from error
    if not isinstance(chat, dict) or not isinstance(chat.get("messages"), list):
        raise UnreadableError("It has no list of 'messages'.")
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
    except RecursionError:
        raise UnreadableError(f"Its message {place} is nested too deeply.") from None


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
    """Each message's own time; the first one's defaults to that of the conversation."""
    times = [created_at(message) for message in messages]
    if times and times[0] is None and "created_at" in chat:
        times[0] = created_at(AIMessage("", response_metadata={"created_at": chat["created_at"]}))
    return times
