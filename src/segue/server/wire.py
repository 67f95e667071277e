"""What goes over the wire: real messages and natural replies, and nothing else.

Ids are text, since JavaScript rounds 64-bit numbers. Nothing here has a place for metadata, so
nothing of it can slip through.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from segue.agent.run import Progress, Recalled
from segue.core.calls import words_beside
from segue.core.errors import UsageError
from segue.core.messages import CLIENT_BLOCKS
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.plain import plain_json
from segue.core.snowflake import parse, time_of, to_text
from segue.journal.records import (
    Accepted,
    Memory,
    Page,
    Thread,
    Timer,
    Turn,
    TurnKind,
    TurnState,
)
from segue.runtime.events import (
    Asked,
    Cancelled,
    Failed,
    Heard,
    Lagged,
    Retracted,
    Said,
    Writing,
)
from segue.runtime.inbox import DoubleTexting
from segue.runtime.why import Reason

Id = Annotated[str, Field(examples=["2255260483588198400"])]
# Blocks of content that are for people: what they can send, and how some models write words.
_SHOWN = CLIENT_BLOCKS | {"output_text", "refusal"}
Answered = Literal["queued", "running", "waiting", "answered", "failed", "cancelled"]


class Sent(BaseModel):
    """What a client sends is strict: an unknown field is a mistake, told at once."""

    model_config = ConfigDict(extra="forbid")


class MessageOut(BaseModel):
    """One message as a person sees it."""

    id: str
    position: Id = Field(description="Its place; pages and listeners go on from here.")
    role: Literal["user", "agent"]
    text: str
    content: str | list[Any] = Field(description="Text, or blocks of text, pictures and files.")
    created_at: datetime
    origin: Literal["reply", "follow_up"] | None = Field(
        default=None, description="Of an agent's message: whether it answered or spoke first."
    )
    state: Answered | None = Field(
        default=None, description="Of a user's message: what became of it."
    )
    error: str | None = Field(default=None, description="Why it failed, if it did.")


class PageOut(BaseModel):
    """Messages, oldest first; `before` and `after` are the cursors of the pages around them."""

    messages: list[MessageOut]
    before: Id | None
    after: Id | None


class ThreadOut(BaseModel):
    """A conversation; title, preview and count follow what a person sees of it."""

    id: str
    agent_id: str
    title: str | None
    preview: str | None
    preview_role: Literal["user", "agent"] | None
    message_count: int
    settings: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class ThreadsOut(BaseModel):
    """Conversations, the one written to last first; `next` is the cursor of the next page."""

    threads: list[ThreadOut]
    next: str | None


Hour = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class Hours(Sent):
    """From when to when no follow-up comes, by the user's clock; also over midnight."""

    start: Hour
    end: Hour


class Wishes(Sent):
    """What a user wants of follow-ups; null takes one back."""

    time_zone: str | None = Field(default=None, examples=["Europe/Oslo"])
    quiet_hours: Hours | Literal[False] | None = Field(
        default=None,
        description="false for none at all",
        examples=[{"start": "22:00", "end": "08:00"}],
    )
    muted: bool | None = None
    snoozed_until: datetime | None = None
    opted_out: bool | None = None

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewThread(Sent):
    """A conversation to begin."""

    agent_id: str | None = Field(
        default=None, max_length=200, description="The first agent, if none is named."
    )
    title: str | None = Field(default=None, max_length=200, examples=["A trip to Oslo"])


class ThreadChange(Wishes):
    """What to change of a conversation."""

    title: str | None = Field(
        default=None, min_length=1, max_length=200, examples=["A trip to Oslo"]
    )

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in super().given().items() if name != "title"}


class NewMessage(Sent):
    """What a user says."""

    content: str | list[Any] = Field(examples=["Which river runs through Oslo?"])
    client_message_id: str | None = Field(
        default=None,
        max_length=200,
        description="Chosen by the client; sent again with it, a message is stored once.",
    )
    strategy: DoubleTexting | None = Field(
        default=None, description="If the agent is still answering an earlier message."
    )


class AcceptedOut(BaseModel):
    """A message that is stored, and the turn that answers it."""

    message: MessageOut
    turn_id: Id
    is_new: bool


def _checked_answer(given: Any) -> Any:
    """An answer that can be stored, and that lets a graph go on: with null it would ask again."""
    if (answer := plain_json(given)) is None:
        raise ValueError("null answers nothing")
    return answer


Given = Annotated[Any, AfterValidator(_checked_answer), Field(examples=["Yes, for eight."])]


class Answer(Sent):
    """What a person says to a question that the agent waits with."""

    turn_id: Id
    answer: Given


class CancelledOut(BaseModel):
    """The turns that are being stopped."""

    turn_ids: list[Id]


class Snooze(Sent):
    """Until when no follow-up comes."""

    until: datetime = Field(examples=["2027-01-15T08:00:00+00:00"])


class FollowUpOut(BaseModel):
    """A planned or past follow-up, and what became of it."""

    id: Id
    trigger: str | None
    state: str
    reason: str | None = Field(description="Why it is in this state.")
    due_at: datetime
    created_at: datetime
    updated_at: datetime


class ReasonOut(BaseModel):
    """Something that happened, or did not, and why."""

    at: datetime
    what: str
    outcome: str
    why: str
    details: dict[str, Any]


class MemoryOut(BaseModel):
    """A fact that an agent keeps about the user."""

    id: Id
    agent_id: str
    key: str
    content: str
    created_at: datetime
    updated_at: datetime
    score: float | None = Field(default=None, description="Of a search: how well it fits.")


class MemoriesOut(BaseModel):
    """Memories, newest first or best first; `next` is the cursor of the next page."""

    memories: list[MemoryOut]
    next: Id | None = None


class NewMemory(Sent):
    """A fact to keep."""

    content: str = Field(min_length=1, examples=["Sam plays the guitar."])
    key: str | None = Field(default=None, examples=["hobby"])
    agent_id: str | None = Field(default=None, max_length=200)


class AgentOut(BaseModel):
    """An agent that one can talk to."""

    id: str
    name: str


def message_out(message: BaseMessage, turns: Iterable[Turn] = ()) -> MessageOut:
    """A visible message, and of a user's what became of it by the turns of its batch."""
    metadata = MessageMetadata.of(message)
    position = metadata.position or 0
    is_user = isinstance(message, HumanMessage)
    is_follow_up = metadata.batch_type is BatchType.SYSTEM_TRIGGER
    state, error = _fate(turns) if is_user else (None, None)
    return MessageOut(
        id=message.id or to_text(position),
        position=to_text(position),
        role="user" if is_user else "agent",
        text=message.text or words_beside(message),
        content=_content(message),
        created_at=time_of(position),
        origin=None if is_user else ("follow_up" if is_follow_up else "reply"),
        state=state,
        error=error,
    )


def _content(message: BaseMessage) -> str | list[Any]:
    """What is said; not what the model thinks, which may quote a trigger, nor what it calls."""
    content = message.content
    if isinstance(content, str):
        return content or words_beside(message)
    return [each for each in content if isinstance(each, str) or each.get("type") in _SHOWN]


def page_out(page: Page, turns: Iterable[Turn]) -> PageOut:
    by_batch: dict[int, list[Turn]] = {}
    for turn in turns:
        by_batch.setdefault(turn.batch, []).append(turn)
    return PageOut(
        messages=[
            message_out(message, by_batch.get(MessageMetadata.of(message).batch or 0, ()))
            for message in page.messages
        ],
        before=None if page.before is None else to_text(page.before),
        after=None if page.after is None else to_text(page.after),
    )


def thread_out(thread: Thread) -> ThreadOut:
    role = thread.preview_role
    return ThreadOut(
        id=thread.id,
        agent_id=thread.agent_id,
        title=thread.title,
        preview=thread.preview,
        preview_role=None if role is None else ("user" if role == "human" else "agent"),
        message_count=thread.message_count,
        settings=plain(thread.settings),
        created_at=thread.created_at,
        updated_at=thread.updated_at,
    )


def accepted_out(accepted: Accepted) -> AcceptedOut:
    return AcceptedOut(
        message=message_out(accepted.message, [accepted.turn]),
        turn_id=to_text(accepted.turn.id),
        is_new=accepted.is_new,
    )


def follow_up_out(timer: Timer) -> FollowUpOut:
    # Not the decider's own reason: its words may quote what nobody should see.
    return FollowUpOut(
        id=to_text(timer.id),
        trigger=timer.trigger_type,
        state=timer.state.value,
        reason=timer.state_reason,
        due_at=timer.due_at,
        created_at=timer.created_at,
        updated_at=timer.updated_at,
    )


def reason_out(reason: Reason) -> ReasonOut:
    return ReasonOut(
        at=reason.at,
        what=reason.what,
        outcome=reason.outcome,
        why=reason.why,
        details=plain(reason.details),
    )


def memory_out(memory: Memory, score: float | None = None) -> MemoryOut:
    return MemoryOut(
        id=to_text(memory.id),
        agent_id=memory.agent_id,
        key=memory.key,
        content=memory.content,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        score=score,
    )


def frame(heard: Heard) -> dict[str, Any]:
    """An event as a frame."""
    event = heard.event
    body: dict[str, Any]
    match event:
        case Said():
            body = {
                "type": "message",
                "message": message_out(event.message).model_dump(mode="json"),
            }
        case Writing():
            body = {
                "type": "token",
                "message_id": event.message_id,
                "offset": event.offset,
                "text": event.text,
            }
        case Retracted():
            body = {"type": "retracted", "message_id": event.message_id}
        case Failed():
            turn = None if event.turn_id is None else to_text(event.turn_id)
            body = {"type": "error", "code": event.code, "reason": event.reason, "turn_id": turn}
        case Cancelled():
            body = {"type": "cancelled", "turn_id": to_text(event.turn_id)}
        case Asked():
            body = {
                "type": "question",
                "turn_id": to_text(event.turn_id),
                "questions": plain(event.questions),
            }
        case Lagged():
            body = {"type": "lagged"}
        case Recalled():
            body = {"type": "memory", "keys": [*event.keys], "source": event.source.value}
        case Progress():
            body = {"type": "progress", "value": plain(event.value)}
    return {**body, "cursor": heard.cursor}


def plain(value: Any) -> Any:
    """A value as JSON has it: ids that JavaScript would round, and times, as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def position_of(cursor: str | None) -> int | None:
    """A page's cursor; `UsageError` if it is none."""
    return None if cursor is None else parse(cursor)


def thread_cursor(thread: Thread) -> str:
    words = f"{thread.updated_at.astimezone(UTC).isoformat()} {thread.id}"
    return base64.urlsafe_b64encode(words.encode()).decode().rstrip("=")


def read_thread_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    """Behind which thread a page begins; `UsageError` if it is no cursor."""
    if cursor is None:
        return None
    try:
        words = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, thread_id = words.partition(" ")
        updated_at = datetime.fromisoformat(moment)
    except (ValueError, binascii.Error) as error:
        raise UsageError(f"{cursor!r:.60} is no cursor; take `next` of a page.") from error
    if updated_at.tzinfo is None:
        raise UsageError(f"{cursor!r:.60} is no cursor; take `next` of a page.")
    return updated_at, thread_id


def _fate(turns: Iterable[Turn]) -> tuple[Answered | None, str | None]:
    """What became of a user's message: the state of the latest turn of its batch."""
    turn = max(turns, key=lambda turn: turn.id, default=None)
    if turn is None:  # imported
        return None, None
    if turn.ending is not None and turn.ending.get("kind") == "cancelled":
        return "cancelled", None
    if turn.state is TurnState.FAILED:
        ending = turn.ending or {}
        return "failed", str(ending.get("reason") or "It could not be answered.")
    if turn.is_waiting:
        return "waiting", None
    states: dict[TurnState, Answered] = {
        TurnState.QUEUED: "queued",
        TurnState.RUNNING: "running",
        TurnState.DONE: "answered",
        TurnState.VOID: "cancelled",
    }
    if turn.kind is TurnKind.CONTINUATION and turn.state is not TurnState.DONE:
        return "answered", None
    return states[turn.state], None
