"""Fills the shapes: from what the journal and the runtime know to what a client gets of it.

Only real messages and natural replies go out, and of a model's message only what is for people.
"""

from collections.abc import Iterable
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from segue.agent.run import Progress, Recalled
from segue.core.messages import origin_of, shown_content, spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.plain import exact_json
from segue.core.snowflake import time_of, to_text
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
from segue.migrate.ledger import SETTING
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
from segue.runtime.why import Reason
from segue.server.shapes import (
    AcceptedOut,
    Answered,
    FollowUpOut,
    MemoryOut,
    MessageOut,
    PageOut,
    ReasonOut,
    ThreadOut,
)


def message_out(message: BaseMessage, turns: Iterable[Turn] = ()) -> MessageOut:
    """A visible message, and of a user's what became of it by the turns of its batch."""
    metadata = MessageMetadata.of(message)
    position = metadata.position or 0
    is_user = isinstance(message, HumanMessage)
    state, error = _fate(turns) if is_user else (None, None)
    return MessageOut(
        id=message.id or to_text(position),
        position=to_text(position),
        role="user" if is_user else "agent",
        text=spoken_text(message),
        content=shown_content(message),
        created_at=metadata.created_at or time_of(position),
        origin=origin_of(message),
        state=state,
        error=error,
    )


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
        # What a migration notes of its thread is not the user's.
        settings=exact_json({k: v for k, v in thread.settings.items() if k != SETTING}),
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
        details=exact_json(reason.details),
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
                "questions": exact_json(event.questions),
            }
        case Lagged():
            body = {"type": "lagged"}
        case Recalled():
            body = {"type": "memory", "keys": [*event.keys], "source": event.source.value}
        case Progress():
            body = {"type": "progress", "value": exact_json(event.value)}
    return {**body, "cursor": heard.cursor}


def _fate(turns: Iterable[Turn]) -> tuple[Answered | None, str | None]:
    """What became of a user's message: the state of the latest turn of its batch."""
    turn = max(turns, key=lambda turn: turn.id, default=None)
    if turn is None:  # imported
        return None, None
    if turn.ending is not None and turn.ending.get("kind") == "cancelled":
        return "cancelled", turn.ending.get("reason")
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
