"""The interface of a source of conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from segue.errors import UsageError


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

    def heads(self) -> list[ThreadRef]:
        """All conversations, in the same order each time."""
        ...

    def load(self, head: ThreadRef) -> SourceThread:
        """Read a conversation; `UnreadableError` says why it cannot be read."""
        ...

    def close(self) -> None: ...
