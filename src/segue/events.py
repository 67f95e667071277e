"""What `Segue.listen` and `Segue.listen_user` yield: events in order, each with a cursor to resume
from.

A cursor is text: the position of the last stored message, and the number of events since. A
listener that resumes from it gets everything stored after it, and the whole text so far of the
message that is being written; `MessageDelta.offset` shows which part of that it already has.
Positions rise over all threads of a user, so the same holds for a listener of all of them.

`OutsideEvent` goes the other way: `Segue.wake` takes it.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.memory import QuerySource
from segue.core.snowflake import parse, to_text
from segue.core.triggers import EVENT
from segue.errors import UsageError

__all__ = [
    "Event",
    "ListenerLagged",
    "MemoriesRecalled",
    "MessageDelta",
    "MessageRetracted",
    "MessageStored",
    "OutsideEvent",
    "Payload",
    "ProgressReported",
    "QuestionAsked",
    "ThreadChanged",
    "ThreadDeleted",
    "ToolActivity",
    "TurnCancelled",
    "TurnEnded",
    "TurnFailed",
    "TurnStarted",
]

_CURSOR: Final = re.compile(r"(0|[0-9]{19})(?:\.([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class MessageStored:
    """A whole message of the user or the agent."""

    message: BaseMessage


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """The next text of a message that is being written, after `offset` characters."""

    message_id: str
    offset: int
    text: str
    turn_id: int | None = None
    # Why the agent writes: the kind of its turn.
    origin: str = "reply"


@dataclass(frozen=True, slots=True)
class MessageRetracted:
    """A message that was being written will not be finished: remove it from the screen."""

    message_id: str


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """An agent works in a thread; a follow-up starts when it is shown. A thread has one running
    turn; a listener that connects later also gets this event.
    """

    turn_id: int
    origin: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over: `done`, `waiting` for an answer, `failed` or `cancelled`."""

    turn_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """A call of a tool is `running`, `done` or `failed`. Listeners do not get its arguments and
    result, which may contain text that the user must not see.
    """

    turn_id: int
    call_id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class ThreadChanged:
    """A thread of the user is new, or its entry in the list changed; `thread` is its record."""

    thread: Any


@dataclass(frozen=True, slots=True)
class ThreadDeleted:
    """A thread of the user was deleted; with None, unknown ones: list the threads again."""

    thread_id: str | None


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn ended without a reply; `reason` is a text for the user."""

    code: str
    reason: str
    turn_id: int | None = None


@dataclass(frozen=True, slots=True)
class TurnCancelled:
    """The user cancelled a turn."""

    turn_id: int


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The agent waits for an answer to its questions, by id; `Segue.answer` resumes the turn."""

    turn_id: int
    questions: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ListenerLagged:
    """The listener was too slow: stored messages are sent again, skipped deltas are not."""


@dataclass(frozen=True, slots=True)
class MemoriesRecalled:
    """The keys of the memories that the model gets, and which text they were searched with."""

    keys: tuple[str, ...]
    source: QuerySource


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """What a node or tool of the graph wrote to its stream."""

    value: Any


Payload = (
    MessageStored
    | MessageDelta
    | MessageRetracted
    | TurnFailed
    | TurnCancelled
    | QuestionAsked
    | ListenerLagged
    | MemoriesRecalled
    | ProgressReported
    | TurnStarted
    | TurnEnded
    | ToolActivity
    | ThreadChanged
    | ThreadDeleted
)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, the cursor to resume from after it, and the thread it happened in."""

    cursor: str
    payload: Payload
    thread_id: str | None = None


def cursor_at(position: int) -> str:
    """The cursor after everything up to a stored position."""
    return to_text(position) if position else "0"


def parse_cursor(cursor: Any) -> tuple[int, int]:
    """A cursor's stored position, and the number of events since; `UsageError` if invalid."""
    if isinstance(cursor, str) and (found := _CURSOR.fullmatch(cursor)):
        return 0 if found[1] == "0" else parse(found[1]), int(found[2] or 0)
    raise UsageError(
        f"{cursor!r:.60} is not a cursor; take one from an event, or '0' for the beginning."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideEvent:
    """An event of another system; its id is the same each time it is reported."""

    id: str
    type: str = "event"
    data: Any = None
    source: str = "program"
    trigger: str = EVENT

    @property
    def key(self) -> str:
        """Equal keys mean the same event."""
        return f"event:{self.source}:{self.id}"
