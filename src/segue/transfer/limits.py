"""What an import refuses although it could be stored, because the API refuses it, too.

Names and texts have the API's limits, messages its rules for content. A trusted file, such as one
of your own server, may hold system messages, addresses and provider file ids.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from segue.core.media import ReferenceKind, find_reference, media_in
from segue.core.text import LONGEST_MESSAGE_ID, is_name, name_rule
from segue.errors import UsageError
from segue.journal.records import NESTING
from segue.journal.rows import PREVIEW_LENGTH, is_deeper

# The API takes 64 levels; a stored message adds a few of its own.
DEEPEST: Final = 100
_LONGEST_TITLE: Final = 200
_LONGEST_THREAD: Final = 1_000
_REFERENCES: Final[Mapping[ReferenceKind, str]] = {
    ReferenceKind.ADDRESS: "has an address",
    ReferenceKind.FILE: "names a file of a provider",
}
_IF_TRUSTED: Final = "Only a trusted import (--trusted, or ?trusted=true) takes it."


class Rule(NamedTuple):
    """Which texts a column takes, and what an error says is expected."""

    allows: Callable[[str], bool]
    expected: str


def _is_thread(text: str) -> bool:
    """A name, or the names of a thread and of the agents that were asked in it."""
    return len(text) <= _LONGEST_THREAD and all(map(is_name, text.split(NESTING)))


def _at_most(longest: int) -> Rule:
    return Rule(lambda text: len(text) <= longest, f"at most {longest} characters")


_NAME: Final = Rule(is_name, name_rule())
RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("threads", "id"): Rule(_is_thread, name_rule()),
    ("threads", "agent_id"): _NAME,
    ("threads", "user_id"): _NAME,
    ("threads", "title"): _at_most(_LONGEST_TITLE),
    ("threads", "preview"): _at_most(PREVIEW_LENGTH),
    ("messages", "client_message_id"): _NAME,
    ("users", "user_id"): _NAME,
    ("memories", "agent_id"): _NAME,
    ("memories", "user_id"): _NAME,
    ("memories", "key"): _NAME,
}


def check_depth(body: Mapping[str, Any]) -> None:
    """`UsageError` for a stored message that is nested too deeply to be shown."""
    data = body.get("data")
    # A tool may put anything into an artifact, which is never shown.
    shown = {**data, "artifact": None} if isinstance(data, dict) else data
    if is_deeper({**body, "data": shown}, DEEPEST):
        raise UsageError(f"it is nested too deeply; expected at most {DEEPEST} levels.")


def check_message(message: BaseMessage, *, trusted: bool) -> None:
    """`UsageError` for a message that the API would refuse."""
    if not is_name(message.id, LONGEST_MESSAGE_ID):
        raise UsageError(f"its id is {message.id!r:.60}; expected {name_rule(LONGEST_MESSAGE_ID)}.")
    if not trusted:
        _check_content(message)


def _check_content(message: BaseMessage) -> None:
    if isinstance(message, SystemMessage):
        raise UsageError(
            f"it is a system message, which would join the agent's instructions. {_IF_TRUSTED}"
        )
    content = message.content
    # A model and a tool may name addresses, such as their sources; a person may not.
    shown = content if isinstance(message, HumanMessage) else media_in(content)
    if (found := find_reference(shown)) is not None:
        raise UsageError(
            f"its content {_REFERENCES[found.kind]} in {found.name!r:.60}. {_IF_TRUSTED}"
        )
