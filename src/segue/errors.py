"""Everything Segue raises on purpose.

    SegueError
    ├── UsageError            an argument or a setting is invalid
    │   ├── MetadataError     a message's metadata has the wrong type or is missing
    │   └── UnknownTrigger    a trigger type that does not exist
    ├── NotFoundError         the named thing does not exist
    ├── ConflictError         the named thing is in another state
    │   └── OptedOut          the user wants no messages that an agent starts
    ├── DeniedError           the caller may not do this
    ├── AnswerNeeded          the agent asked a question instead of answering
    ├── ReplyCancelled        the reply was cancelled before it was complete
    └── BackendError          a database, model or network failed

Each has a stable `code` for programs. The text says what failed, on what, what was expected and
what to do.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class SegueError(Exception):
    """Everything Segue raises on purpose."""

    code: ClassVar[str] = "error"


class UsageError(SegueError, ValueError):
    """An argument or a setting is invalid."""

    code = "usage"


class MetadataError(UsageError):
    """A message's metadata has the wrong type or is missing."""

    code = "metadata"


class UnknownTrigger(UsageError):
    """A trigger type that does not exist."""

    code = "unknown_trigger"


class NotFoundError(SegueError, LookupError):
    """The named thing does not exist."""

    code = "not_found"


class ConflictError(SegueError):
    """The named thing is in another state."""

    code = "conflict"


class OptedOut(ConflictError):
    """The user wants no messages that an agent starts."""

    code = "opted_out"


class DeniedError(SegueError):
    """The caller may not do this."""

    code = "denied"


class AnswerNeeded(SegueError):
    """The agent asked a question instead of answering.

    `questions` are its questions by id; an answer to the turn `turn_id` resumes it.
    """

    code = "answer_needed"

    def __init__(
        self, text: str, *, turn_id: int = 0, questions: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.turn_id = turn_id
        self.questions = dict(questions or {})


class ReplyCancelled(SegueError):
    """The reply was cancelled before it was complete; `seen` is its text so far."""

    code = "cancelled"

    def __init__(self, text: str, *, turn_id: int = 0, seen: str = "") -> None:
        super().__init__(text)
        self.turn_id = turn_id
        self.seen = seen


class BackendError(SegueError):
    """A database, model or network failed."""

    code = "backend"
