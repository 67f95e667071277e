"""Sources of conversations: their interface, and files of JSON lines.

A line is one conversation, with messages as OpenAI's API has them:

    {"messages": [{"role": "user", "content": "Hello!"}], "id": "a1", "user": "ann"}

`id`, `user` and `created_at` may be missing; a message may have a `created_at` of its own. A chat
without an `id` is named by a hash of its beginning, so that its name stays the same in any line or
file, and as it grows.
"""

import hashlib
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages

from segue.errors import UsageError
from segue.migrate.legacy import created_at, parse_moment

# Fields of its first messages that name a chat.
_NAMING: Final = ("role", "content", "created_at", "timestamp")
_NAME_LENGTH: Final = 16
_USER: Final = ("user", "human")
# Other fields are dropped: they could pass for our metadata.
_FIELDS: Final = frozenset(
    {"role", "content", "name", "tool_call_id", "function_call", "id", "created_at", "timestamp"}
)


class UnreadableError(UsageError):
    """One conversation cannot be read; others of its source may."""


@dataclass(frozen=True, slots=True)
class ThreadRef:
    """A conversation that was not read yet; its mark changes with its content."""

    id: str
    mark: str


@dataclass(frozen=True, slots=True)
class SourceThread:
    """The messages of a conversation, oldest first, with the time when each was first stored, if
    that is known.

    `facts` is other data of it, such as `{"metadata": {"user_id": "ann"}}`. `pending` are tool
    results of a step that was cut off: they may come again, or never.
    """

    messages: Sequence[BaseMessage]
    times: Sequence[datetime | None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    pending: Sequence[BaseMessage] = ()

    def fact(self, path: str) -> str | None:
        """The value at a path such as `metadata.user_id`, as text; None if there is none."""
        found: Any = self.facts
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        is_name = isinstance(found, str | int) and not isinstance(found, bool)
        return str(found) if is_name and str(found).strip() else None


class Source(Protocol):
    """Conversations of another system, opened read-only."""

    user_from: str
    """The path of a conversation's user: the source's default, or that of the migration."""
    is_live: bool
    """Whether an app may be writing to it."""

    @abstractmethod
    def heads(self) -> list[ThreadRef]:
        """All conversations, in the same order each time."""

    @abstractmethod
    def load(self, head: ThreadRef) -> SourceThread:
        """Read a conversation; `UnreadableError` says why it cannot be read."""

    @abstractmethod
    def close(self) -> None: ...


class ChatSource(Source):
    """A file with one conversation in each line."""

    user_from = "user"
    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        # The offset of each conversation in the file; None for one with the id of an earlier one.
        self._places: dict[str, int | None] = {}

    def heads(self) -> list[ThreadRef]:
        self._places.clear()
        heads, begun, end = [], Counter[str](), 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                place: int | None = end
                end += len(line)
                if not line.strip():
                    continue
                name = _name(line, self.user_from, begun) or f"line {number}"
                if name in self._places:
                    name, place = f"{name}, again in line {number}", None
                self._places[name] = place
                heads.append(ThreadRef(name, hashlib.sha256(line.strip()).hexdigest()))
        return heads

    def load(self, head: ThreadRef) -> SourceThread:
        place = self._places[head.id]
        if place is None:
            raise UnreadableError("A line before it has the same id.")
        with self._path.open("rb") as file:
            file.seek(place)
            chat = _parsed(file.readline())
        messages = [_message(each, number) for number, each in enumerate(chat["messages"], 1)]
        times = [created_at(message) for message in messages]
        if times and times[0] is None:
            times[0] = parse_moment(chat.get("created_at"))
        return SourceThread(messages, times, chat)

    def close(self) -> None:
        pass


def _name(line: bytes, user_from: str, begun: Counter[str]) -> str | None:
    """A chat's id, or a name from its beginning, with a number if an earlier one begins in the same
    way; None for a line that cannot be read, which is reported when it is loaded.
    """
    try:
        chat = json.loads(line)
        talk = SourceThread((), (), chat)
        if (own := talk.fact("id")) is not None:
            return own
        match chat:
            case {"messages": [_, *_] as messages}:
                name = _beginning(messages, talk.fact(user_from), chat.get("created_at"))
            case _:
                return None
    except (ValueError, RecursionError):
        return None
    begun[name] += 1
    return name if begun[name] == 1 else f"{name}-{begun[name]}"


def _beginning(messages: list[Any], user: str | None, created: Any) -> str:
    """A name from a chat's user, its time, and its messages up to the user's first."""
    parts = [each if isinstance(each, dict) else {"content": each} for each in messages]
    first = next((n for n, each in enumerate(parts) if each.get("role") in _USER), len(parts))
    beginning = [[each.get(name) for name in _NAMING] for each in parts[: first + 1]]
    digest = hashlib.sha256(json.dumps([user, created, beginning]).encode())
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
    from langchain_core.output_parsers.openai_tools import (  # noqa: PLC0415 - loads the models
        make_invalid_tool_call,
        parse_tool_call,
    )

    calls, broken = [], []
    for call in given:
        try:
            calls.append(parse_tool_call(call, return_id=True))
        except OutputParserException as error:
            broken.append(make_invalid_tool_call(call, str(error)))
    return AIMessage(**(message.model_dump() | {"tool_calls": calls, "invalid_tool_calls": broken}))
