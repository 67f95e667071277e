"""What a migration asks of a source of conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from segue.core.errors import UsageError


class UnreadableError(UsageError):
    """One conversation cannot be read; the others of its source may."""


@dataclass(frozen=True, slots=True)
class Head:
    """A conversation that was not read yet; its mark is another one once something changed."""

    id: str
    mark: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a conversation, oldest first, and when each was first seen, if that is known.

    `facts` is what else the source says of it, such as `{"metadata": {"user_id": "ann"}}`.
    `pending` are results of a step that was cut off: they may come again, or be given up.
    """

    messages: Sequence[BaseMessage]
    times: Sequence[datetime | None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    pending: Sequence[BaseMessage] = ()

    def fact(self, path: str) -> str | None:
        """What stands at a path such as `metadata.user_id`, as text; None if nothing does."""
        found: Any = self.facts
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        is_name = isinstance(found, str | int) and not isinstance(found, bool)
        return str(found) if is_name and str(found).strip() else None


class Source(Protocol):
    """Where conversations are, opened for reading alone."""

    user_from: str
    """Where its conversations say whose they are: as a rule, or as a migration was told."""
    is_live: bool
    """Whether an app may be writing to it."""

    def heads(self) -> list[Head]:
        """All conversations, in the same order each time."""
        ...

    def load(self, head: Head) -> Conversation:
        """Read a conversation; `UnreadableError` says why it cannot be read."""
        ...

    def close(self) -> None: ...
