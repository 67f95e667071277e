"""The frames of sockets and event streams: how events are written, and what they look like.

`frame` writes an event; the models describe every frame for `/frames.json`, and the tests hold
what is sent against them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from segue.core.snowflake import to_text
from segue.core.text import exact_json
from segue.events import (
    Event,
    ListenerLagged,
    MemoriesRecalled,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    ProgressReported,
    QuestionAsked,
    ThreadChanged,
    ThreadDeleted,
    ToolActivity,
    TurnCancelled,
    TurnEnded,
    TurnFailed,
    TurnStarted,
)
from segue.server.problems import Problem
from segue.server.requests import ClientFrame, Id
from segue.server.responses import MessageOut, ThreadOut

TurnOrigin = Literal["reply", "follow_up", "reminder", "continuation"]
_SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"


class _Frame(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _EventFrame(_Frame):
    cursor: str = Field(description="Reconnect with `since` = this one.")
    thread_id: str


class MessageFrame(_EventFrame):
    """A stored message, as in the history."""

    type: Literal["message"]
    message: MessageOut


class TokenFrame(_EventFrame):
    """The next text of a message that is being written, after `offset` characters."""

    type: Literal["token"]
    message_id: str
    offset: int
    text: str
    turn_id: Id | None
    origin: TurnOrigin


class RetractedFrame(_EventFrame):
    """A message that was being written will not be finished; remove it."""

    type: Literal["retracted"]
    message_id: str


class StartedFrame(_EventFrame):
    """The agent works; a thread has one running turn. Not stored, but sent again on connecting."""

    type: Literal["started"]
    turn_id: Id
    origin: TurnOrigin


class DoneFrame(_EventFrame):
    """A turn is over."""

    type: Literal["done"]
    turn_id: Id
    state: Literal["done", "waiting", "failed", "cancelled", "void"]


class ToolFrame(_EventFrame):
    """The agent uses a tool. Not stored."""

    type: Literal["tool"]
    turn_id: Id
    call_id: str
    name: str
    state: Literal["running", "done", "failed"]


class QuestionFrame(_EventFrame):
    """The agent waits for an answer, by the ids of its questions."""

    type: Literal["question"]
    turn_id: Id
    questions: dict[str, Any]


class CancelledFrame(_EventFrame):
    """A turn was stopped."""

    type: Literal["cancelled"]
    turn_id: Id


class MemoryFrame(_EventFrame):
    """The keys of the memories that the model got, and what they were searched with. Not stored."""

    type: Literal["memory"]
    keys: list[str]
    source: str


class ProgressFrame(_EventFrame):
    """What a node or tool of the agent reported. Not stored."""

    type: Literal["progress"]
    value: Any


class ThreadFrame(_EventFrame):
    """A thread is new, or its entry in the list changed; only for listeners of all threads."""

    type: Literal["thread"]
    thread: ThreadOut


class DeletedFrame(_Frame):
    """A thread was deleted; without `thread_id`, some were: list the threads again."""

    type: Literal["deleted"]
    cursor: str
    thread_id: str | None = None


class LaggedFrame(_Frame):
    """You read too slowly: what was stored comes again, tokens in between do not."""

    type: Literal["lagged"]
    cursor: str


class ErrorFrame(_Frame):
    """A turn failed; or, without a cursor, your frame was refused or the stream ends."""

    type: Literal["error"]
    code: str
    reason: str
    turn_id: Id | None = None
    thread_id: str | None = None
    cursor: str | None = None


class AcceptedFrame(_Frame):
    """Your message is stored; `is_new` is false if it was before."""

    type: Literal["accepted"]
    thread_id: str
    client_message_id: str | None
    message_id: str
    turn_id: Id
    is_new: bool


class PongFrame(_Frame):
    """The answer to `ping`."""

    type: Literal["pong"]


ServerFrame = Annotated[
    MessageFrame
    | TokenFrame
    | RetractedFrame
    | StartedFrame
    | DoneFrame
    | ToolFrame
    | QuestionFrame
    | CancelledFrame
    | MemoryFrame
    | ProgressFrame
    | ThreadFrame
    | DeletedFrame
    | LaggedFrame
    | ErrorFrame
    | AcceptedFrame
    | PongFrame,
    Field(discriminator="type"),
]
_FRAME_TYPES: Final[Mapping[type[Payload], str]] = {
    MessageStored: "message",
    MessageDelta: "token",
    MessageRetracted: "retracted",
    TurnFailed: "error",
    TurnCancelled: "cancelled",
    QuestionAsked: "question",
    ListenerLagged: "lagged",
    MemoriesRecalled: "memory",
    ProgressReported: "progress",
    TurnStarted: "started",
    TurnEnded: "done",
    ToolActivity: "tool",
    ThreadChanged: "thread",
    ThreadDeleted: "deleted",
}


def frame(event: Event) -> dict[str, Any]:
    """An event as a frame: the fields of what happened, its thread and its cursor."""
    happened = event.payload
    fields: dict[str, Any] = {} if event.thread_id is None else {"thread_id": event.thread_id}
    if isinstance(happened, MessageStored):
        fields["message"] = MessageOut.of(happened.message)
    elif isinstance(happened, ThreadChanged):
        fields["thread"] = ThreadOut.of(happened.thread)
    else:
        fields |= exact_json(happened)
    if (turn_id := getattr(happened, "turn_id", None)) is not None:
        fields["turn_id"] = to_text(turn_id)
    return {"type": _FRAME_TYPES[type(happened)], **fields, "cursor": event.cursor}


def error_frame(problem: Problem) -> dict[str, Any]:
    return {"type": "error", "code": problem.code, "reason": problem.detail}


@cache
def frames_schema() -> dict[str, Any]:
    """A JSON Schema of all frames; `ServerFrame` and `ClientFrame` are among its `$defs`."""
    server, client = TypeAdapter[Any](ServerFrame), TypeAdapter[Any](ClientFrame)
    schemas, definitions = TypeAdapter.json_schemas(
        [("server", "serialization", server), ("client", "validation", client)],
        ref_template="#/$defs/{model}",
    )
    sides = {
        "ServerFrame": schemas["server", "serialization"],
        "ClientFrame": schemas["client", "validation"],
    }
    return {
        "$schema": _SCHEMA,
        "title": "Frames of Segue's sockets and event streams",
        "$defs": {**definitions["$defs"], **sides},
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in sides],
    }
