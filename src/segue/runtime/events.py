"""What a listener of a thread hears, in order, each with a cursor to come back to.

A cursor is text: the position of the last stored thing, and a number for what was heard since. A
listener that comes back with it gets all that was stored after it, and the whole text so far of
the message that is being written; of that it knows by `offset` what it has already.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.agent.run import Progress, Recalled
from segue.core.errors import UsageError
from segue.core.snowflake import parse, to_text

_CURSOR: Final = re.compile(r"(0|[0-9]{19})(?:\.([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class Said:
    """A message that is stored now: the user's own, or the agent's."""

    message: BaseMessage


@dataclass(frozen=True, slots=True)
class Writing:
    """A piece of a message that is being written, and how many characters came before it."""

    message_id: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Retracted:
    """A message that was being written will not be finished: take it off the screen."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn that ended without a reply, with words for the user."""

    code: str
    reason: str
    turn_id: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A turn that was stopped as the user wished."""

    turn_id: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent waits for a person; `answer` of the turn goes on. Questions by their ids."""

    turn_id: int
    questions: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lagged:
    """The listener was too slow; what was stored comes again, pieces in between do not."""


ThreadEvent = Said | Writing | Retracted | Failed | Cancelled | Asked | Lagged | Recalled | Progress


@dataclass(frozen=True, slots=True)
class Heard:
    """An event, and the cursor with which a listener goes on after it."""

    cursor: str
    event: ThreadEvent


def cursor_at(position: int) -> str:
    """The cursor of a listener that has heard everything up to a stored position."""
    return to_text(position) if position else "0"


def place_of(cursor: Any) -> tuple[int, int]:
    """The stored position that a cursor stands for, and the number of what was heard since;
    `UsageError` if it is none.
    """
    if isinstance(cursor, str) and (found := _CURSOR.fullmatch(cursor)):
        return 0 if found[1] == "0" else parse(found[1]), int(found[2] or 0)
    raise UsageError(
        f"{cursor!r:.60} is no cursor; take one from an event, or '0' for the beginning."
    )
