"""What clients receive: bodies and frames, built from the records and events of the runtime.

Ids are text, because JavaScript rounds 64-bit numbers. No model has a field for metadata. Only real
messages and replies are sent, and only the visible part of a model's message.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from fastapi import Response
from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import to_json

from segue.core.client_metadata import is_metadata
from segue.core.messages import Origin, origin_of, shown_content, spoken_text
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import time_of, to_text
from segue.core.text import exact_json, rfc3339
from segue.journal.records import TEMPORARY, Accepted, Found, Page, Turn, TurnKind, TurnState
from segue.migrate import SETTING
from segue.server.requests import Id, QuietHours
from segue.settings.agents import AgentConfig

T = TypeVar("T")
MessageState = Literal["queued", "running", "waiting", "answered", "failed", "cancelled"]
_STATES: dict[TurnState, MessageState] = {
    TurnState.QUEUED: "queued",
    TurnState.RUNNING: "running",
    TurnState.DONE: "answered",
    TurnState.VOID: "cancelled",
}

# Characters of a body or frame from which on it is encoded in a thread.
LARGE: Final = 256_000


def _visible_settings(settings: Mapping[str, Any]) -> Any:
    """Without marks and notes of clients, which are not preferences; times like all."""
    marks = {SETTING, TEMPORARY}
    shown = {n: v for n, v in settings.items() if n not in marks and not is_metadata(n)}
    if isinstance(until := shown.get("snoozed_until"), str):
        shown["snoozed_until"] = rfc3339(datetime.fromisoformat(until))
    return exact_json(shown)


def _text_or_none(position: int) -> str | None:
    return to_text(position) if position else None


RecordId = Annotated[Id, BeforeValidator(to_text)]
Json = Annotated[dict[str, Any], BeforeValidator(exact_json)]
Role = Literal["user", "agent"]


def _role(kind: str | None) -> Role | None:
    return None if kind is None else ("user" if kind == "human" else "agent")


class RecordOut(BaseModel):
    """Takes its fields from the attributes of a record."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, record: Any) -> Self:
        return cls.model_validate(record)

    @classmethod
    def list_of(cls, records: Iterable[Any], following: str | None = None) -> "ItemsOut[Self]":
        return ItemsOut(items=[*map(cls.of, records)], next=following)


class ItemsOut(BaseModel, Generic[T]):
    """A list; `next` is the cursor of the next page, null on the last page and for lists that have
    none.
    """

    items: list[T]
    next: str | None = None

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        [item] = params
        is_model = isinstance(item, type) and issubclass(item, BaseModel)
        return f"{item.__name__.removesuffix('Out') if is_model else 'Record'}List"


class AskedOut(BaseModel):
    """The agent's questions, by id, and the answer; null while it waits."""

    turn_id: Id
    questions: dict[str, Any]
    answer: Any = None


class MessageOut(BaseModel):
    """One message as a person sees it."""

    id: str
    position: Id = Field(description="Its place; a cursor for pages and listeners.")
    role: Role
    text: str
    content: str | list[Any] = Field(description="Text, or blocks of text, pictures and files.")
    created_at: datetime
    origin: Origin | None = Field(
        default=None, description="Of an agent's message: whether it answered or spoke first."
    )
    state: MessageState | None = Field(
        default=None, description="Of a user's message: whether it was answered."
    )
    error: str | None = Field(default=None, description="Why it failed or was stopped, if so.")
    asked: list[AskedOut] = Field(
        default_factory=list, description="The agent's questions about this message."
    )

    @classmethod
    def of(cls, message: BaseMessage, turns: Iterable[Turn] = ()) -> Self:
        """A visible message; `turns` are those of its batch."""
        metadata = MessageMetadata.of(message)
        position = metadata.position or 0
        is_user = isinstance(message, HumanMessage)
        state, error = _message_state(turns) if is_user else (None, None)
        return cls(
            id=message.id or to_text(position),
            position=to_text(position),
            role="user" if is_user else "agent",
            text=spoken_text(message),
            content=shown_content(message),
            created_at=metadata.created_at or time_of(position),
            origin=origin_of(message),
            state=state,
            error=error,
            asked=_asked(turns) if is_user else [],
        )


def _asked(turns: Iterable[Turn]) -> list[AskedOut]:
    """The questions of a batch, oldest first; an answer is stored with the turn that it resumed."""
    found: list[AskedOut] = []
    for turn in sorted(turns, key=lambda turn: turn.id):
        if found and "answer" in turn.payload:
            found[-1].answer = exact_json(turn.payload["answer"])
        ending = turn.ending or {}
        if ending.get("kind") == "question":
            asked = exact_json(ending.get("questions") or {})
            found.append(AskedOut(turn_id=to_text(turn.id), questions=asked))
    return found


def _message_state(turns: Iterable[Turn]) -> tuple[MessageState | None, str | None]:
    """The state of the latest turn of a message's batch, and an error."""
    turn = max(turns, key=lambda turn: turn.id, default=None)
    if turn is None:  # imported
        return None, None
    ending = turn.ending or {}
    if ending.get("kind") == "cancelled":
        return "cancelled", ending.get("reason")
    if turn.state is TurnState.FAILED:
        return "failed", str(ending.get("reason") or "It could not be answered.")
    if turn.is_waiting:
        return "waiting", None
    if turn.kind is TurnKind.CONTINUATION:
        return "answered", None
    return _STATES[turn.state], None


class PageOut(BaseModel):
    """Messages, oldest first; `before` and `after` are the cursors of the pages around them, null
    where there is nothing more. `after` also takes the position of a message.

    A page with large pictures or files has fewer messages than `limit`: it ends when it reaches
    about 1 MB.
    """

    items: list[MessageOut]
    before: Id | None
    after: Id | None

    @classmethod
    def of(cls, page: Page, turns: Iterable[Turn]) -> Self:
        by_batch: dict[int, list[Turn]] = {}
        for turn in turns:
            by_batch.setdefault(turn.batch, []).append(turn)
        return cls(
            items=[
                MessageOut.of(message, by_batch.get(MessageMetadata.of(message).batch or 0, ()))
                for message in page.messages
            ],
            before=None if page.before is None else to_text(page.before),
            after=None if page.after is None else to_text(page.after),
        )


class ThreadOut(RecordOut):
    """A conversation; title, preview and count cover the visible messages."""

    id: str
    agent_id: str
    title: str | None
    preview: str | None
    preview_role: Annotated[Role | None, BeforeValidator(_role)]
    message_count: int
    unread: int = Field(description="The agent's messages after `read_position`.")
    read_position: Annotated[Id | None, BeforeValidator(_text_or_none)] = Field(
        description="The user has read everything up to here."
    )
    position: Annotated[Id | None, BeforeValidator(_text_or_none)] = Field(
        validation_alias="changed_position",
        description="Rises with each change: of two entries, the one with the higher is newer.",
    )
    preferences: Annotated[dict[str, Any], BeforeValidator(_visible_settings)] = Field(
        validation_alias="settings"
    )
    created_at: datetime
    updated_at: datetime


class FoundOut(BaseModel):
    """A search result. Its `text` and `content` are an excerpt of about 300 characters around the
    first match; pictures and files are left out.
    """

    thread_id: str
    message: MessageOut

    @classmethod
    def of(cls, found: Found) -> Self:
        is_user = found.role == "human"
        is_follow_up = found.batch_type == BatchType.SYSTEM_TRIGGER
        message = MessageOut(
            id=found.message_id,
            position=to_text(found.position),
            role="user" if is_user else "agent",
            text=found.text,
            content=found.text,
            created_at=time_of(found.position),
            origin=None if is_user else ("follow_up" if is_follow_up else "reply"),
        )
        return cls(thread_id=found.thread_id, message=message)


class AcceptedOut(BaseModel):
    """A stored message, and the turn that answers it."""

    message: MessageOut
    turn_id: Id
    is_new: bool

    @classmethod
    def of(cls, accepted: Accepted) -> Self:
        return cls(
            message=MessageOut.of(accepted.message, [accepted.turn]),
            turn_id=to_text(accepted.turn.id),
            is_new=accepted.is_new,
        )


class TurnsOut(BaseModel):
    """The turns that are being stopped or continued."""

    turn_ids: list[Id]

    @classmethod
    def of(cls, *turns: Turn) -> Self:
        return cls(turn_ids=[to_text(turn.id) for turn in turns])


class FollowUpOut(RecordOut):
    """A planned or past follow-up or continuation."""

    id: RecordId
    kind: str = Field(
        description="`follow_up`, or `continuation`: the agent itself wanted to continue later."
    )
    trigger: str | None = Field(validation_alias="trigger_type")
    state: str
    # Not the decider's own `reason`, which may quote hidden text.
    reason: str | None = Field(
        validation_alias="state_reason", description="Why it is in this state."
    )
    due_at: datetime
    created_at: datetime
    updated_at: datetime


class RequestedOut(FollowUpOut):
    """A follow-up that a program asked for."""

    is_new: bool = Field(description="False if its key was used before.")


class ReminderOut(RecordOut):
    """A pending reminder; `description` says when it is due."""

    id: RecordId
    thread_id: str
    agent_id: str
    text: str
    due_at: datetime
    every: str | None
    until: datetime | None
    time_zone: str
    description: str
    created_at: datetime


class ReasonOut(RecordOut):
    """A decision or event of a follow-up, and its reason."""

    at: datetime
    what: str
    outcome: str
    why: str
    details: Json


class MemoryOut(RecordOut):
    """A fact that an agent remembers about the user."""

    id: RecordId
    agent_id: str
    key: str
    content: str
    created_at: datetime
    updated_at: datetime
    score: float | None = Field(
        default=None, description="Of a search: how well it matches, from 0 to 1."
    )


class AgentOut(BaseModel):
    """An agent to talk to."""

    id: str
    name: str
    takes_reminders: bool = Field(description="Whether you can ask it for reminders.")
    quiet_hours: QuietHours | None = Field(
        description="When it does not write first, unless you set your own."
    )

    @classmethod
    def of(cls, agent: AgentConfig) -> Self:
        hours = agent.autonomy.policy.quiet_hours
        return cls(
            id=agent.id,
            name=agent.name or agent.id,
            takes_reminders=agent.takes_reminders,
            quiet_hours=QuietHours(start=f"{hours.start:%H:%M}", end=f"{hours.end:%H:%M}")
            if hours
            else None,
        )


class DeletedOut(RecordOut):
    """Number of deleted records by kind."""

    deleted: dict[str, int] = Field(validation_alias="rows")


class MeOut(BaseModel):
    """The caller, with preferences about follow-ups."""

    user_id: str
    is_operator: bool
    preferences: Annotated[dict[str, Any], BeforeValidator(_visible_settings)]


class PushKeyOut(BaseModel):
    """The server's public key, as `applicationServerKey` takes it."""

    key: str


class SubscriptionOut(RecordOut):
    """A browser that is notified."""

    id: RecordId
    created_at: datetime


def size_of(value: Any) -> int:
    """The characters of all texts in a body or frame."""
    size, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif each is None or isinstance(each, int):
            continue  # most values; to ask for a model takes longest
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, BaseModel):
            left += each.__dict__.values()
    return size


async def encode(value: BaseModel | dict[str, Any] | list[Any] | None) -> bytes:
    """As JSON, far faster than `json.dumps`; with a picture of 10 MB not on the event loop."""
    return await asyncio.to_thread(to_json, value) if size_of(value) > LARGE else to_json(value)


async def respond(
    body: BaseModel | dict[str, Any] | list[Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response of a route whose body may be large."""
    return Response(await encode(body), status, headers, media_type="application/json")
