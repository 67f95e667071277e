"""Everything Segue raises on purpose.

    SegueError
    ├── UsageError            the caller gave something that cannot be right
    │   ├── MetadataError     a message's metadata has the wrong type or is missing
    │   └── UnknownTrigger    a trigger type that does not exist
    ├── NotFoundError         the thing named is not there
    ├── ConflictError         the thing named is there, but in another state
    ├── DeniedError           the caller may not do this
    ├── AnswerNeeded          the agent asked a question instead of answering
    ├── ReplyCancelled        somebody stopped the agent before it had answered
    └── BackendError          a database, model or network failed

Each has a stable `code` for programs; the text is for people and says what failed, on what,
what was expected and what to do.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class SegueError(Exception):
    """Everything Segue raises on purpose."""

    code: ClassVar[str] = "error"


class UsageError(SegueError, ValueError):
    """The caller gave something that cannot be right."""

    code = "usage"


class MetadataError(UsageError):
    """A message's metadata has the wrong type or is missing."""

    code = "metadata"


class UnknownTrigger(UsageError):
    """A trigger type that does not exist."""

    code = "unknown_trigger"


class NotFoundError(SegueError, LookupError):
    """The thing named is not there."""

    code = "not_found"


class ConflictError(SegueError):
    """The thing named is there, but in another state."""

    code = "conflict"


class DeniedError(SegueError):
    """The caller may not do this."""

    code = "denied"


class AnswerNeeded(SegueError):
    """The agent asked a question instead of answering.

    `questions` are what it asked, by their ids; an answer for the turn `turn_id` lets it go on.
    """

    code = "answer_needed"

    def __init__(
        self, text: str, *, turn_id: int = 0, questions: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.turn_id = turn_id
        self.questions = dict(questions or {})


class ReplyCancelled(SegueError):
    """Somebody stopped the agent before it had answered; `seen` is what it had said by then."""

    code = "cancelled"

    def __init__(self, text: str, *, turn_id: int = 0, seen: str = "") -> None:
        super().__init__(text)
        self.turn_id = turn_id
        self.seen = seen


class BackendError(SegueError):
    """A database, model or network failed."""

    code = "backend"
