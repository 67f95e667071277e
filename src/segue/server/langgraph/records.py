"""Threads and turns as LangGraph's clients know them: threads with a state, and runs."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from segue.core.client_metadata import metadata_of
from segue.core.snowflake import time_of, to_text
from segue.core.text import exact_json, rfc3339
from segue.facade import Segue
from segue.journal.records import Thread, Turn, TurnState
from segue.runtime.listeners import end_state
from segue.server.chats import find_question
from segue.server.langgraph.messages import Json, Window
from segue.server.requests import StrictModel

# The one node of every graph, as far as clients are concerned.
NODE: Final = "agent"
_STATUSES: Final = {
    "queued": "pending",
    "running": "running",
    "done": "success",
    "failed": "error",
}


class Search(StrictModel):
    """Which part of a list, and which fields of its entries."""

    limit: int = Field(default=10, ge=1, le=1_000)
    offset: int = Field(default=0, ge=0)
    sort_by: str | None = None
    sort_order: str | None = None
    select: list[str] | None = None

    def page(self, found: list[Json]) -> list[Json]:
        page, select = found[self.offset : self.offset + self.limit], self.select
        return [{n: v for n, v in each.items() if select is None or n in select} for each in page]


def run_status(turn: Turn) -> str:
    return _STATUSES.get(end_state(turn), "interrupted")


def is_seen(turn: Turn) -> bool:
    """Whether the user may know of a turn; of a follow-up, once it is shown."""
    return turn.shown_at is not None or not turn.kind.speaks_first


def run_json(turn: Turn) -> Json:
    updated = time_of(turn.end_position) if turn.end_position else turn.begun_at or turn.queued_at
    return {
        "run_id": to_text(turn.id),
        "thread_id": turn.thread_id,
        "assistant_id": turn.agent_id,
        "created_at": rfc3339(turn.queued_at),
        "updated_at": rfc3339(updated),
        "status": run_status(turn),
        "metadata": {
            "origin": turn.kind.value,
            "graph_id": turn.agent_id,
            "assistant_id": turn.agent_id,
        },
        "kwargs": {},
        "multitask_strategy": "enqueue",
    }


async def seen_turns(segue: Segue, thread: Thread, *, limit: int) -> list[Turn]:
    """The newest turns of a thread that its user may know of."""
    return [*filter(is_seen, await segue.list_turns(thread, limit=limit))]


def interrupts_of(turn: Turn | None) -> list[Json]:
    """The questions that a turn waits with."""
    if turn is None or not turn.is_waiting:
        return []
    return interrupts_json((turn.ending or {}).get("questions", {}))


def interrupts_json(questions: Mapping[str, Any]) -> list[Json]:
    return [{"value": exact_json(value), "id": name} for name, value in questions.items()]


def thread_status(newest: Turn | None, waiting: Turn | None) -> str:
    if newest is not None and newest.is_live:
        return "busy"
    if waiting is not None:
        return "interrupted"
    is_failed = newest is not None and newest.state is TurnState.FAILED
    return "error" if is_failed else "idle"


def thread_metadata(thread: Thread) -> Json:
    own: Json = {"title": thread.title} if thread.title else {}
    agent = {"graph_id": thread.agent_id, "assistant_id": thread.agent_id}
    return {**own, **metadata_of(thread.settings), **agent}


async def thread_json(segue: Segue, thread: Thread) -> Json:
    """A thread with its status and its state."""
    return await thread_fields(segue, thread, (await Window.load(segue, thread)).values())


async def thread_fields(
    segue: Segue, thread: Thread, values: Json | None, select: frozenset[str] | None = None
) -> Json:
    """The selected fields of a thread, all by default."""
    newest: Turn | None = None
    waiting: Turn | None = None
    if select is None or select & {"status", "interrupts"}:
        newest, waiting = await newest_and_waiting(segue, thread)
    asked = interrupts_of(waiting)
    fields: Json = {
        "thread_id": thread.id,
        "created_at": rfc3339(thread.created_at),
        "updated_at": rfc3339(thread.updated_at),
        "state_updated_at": rfc3339(thread.updated_at),
        "metadata": thread_metadata(thread),
        "status": thread_status(newest, waiting),
        "config": {"configurable": {}},
        "values": values if thread.message_count else None,
        "interrupts": {NODE: asked} if asked else {},
        "error": None,
    }
    return {name: value for name, value in fields.items() if select is None or name in select}


async def newest_and_waiting(segue: Segue, thread: Thread) -> tuple[Turn | None, Turn | None]:
    """The last turn that the user may know of, and one that waits for an answer."""
    turns = await seen_turns(segue, thread, limit=10)
    return next(iter(turns), None), await find_question(segue, thread)


def state_json(
    thread: Thread, window: Window, newest: Turn | None, waiting: Turn | None, *, is_live: bool
) -> Json:
    """The state of a thread; `is_live` asks clients to listen although nothing runs."""
    asked = interrupts_of(waiting)
    is_busy = newest is not None and newest.is_live
    checkpoint = checkpoint_json(thread)
    after: list[str] | None = [NODE] if is_busy or asked else []
    return {
        "values": window.values(),
        "next": None if is_live and not after else after,
        "tasks": [_task_json(waiting, asked)] if waiting is not None else [],
        "metadata": {"source": "loop", "step": thread.message_count, **thread_metadata(thread)},
        "created_at": rfc3339(thread.updated_at),
        "checkpoint": checkpoint,
        "parent_checkpoint": None,
        "interrupts": asked,
        "checkpoint_id": checkpoint["checkpoint_id"],
        "parent_checkpoint_id": None,
    }


def checkpoint_json(thread: Thread) -> Json:
    """The end of a thread, which is the only place that clients can name."""
    return {
        "thread_id": thread.id,
        "checkpoint_ns": "",
        "checkpoint_id": to_text(thread.last_position) if thread.last_position else "0",
        "checkpoint_map": None,
    }


def _task_json(turn: Turn, asked: list[Json]) -> Json:
    return {
        "id": to_text(turn.id),
        "name": NODE,
        "path": ["__pregel_pull", NODE],
        "error": None,
        "interrupts": asked,
        "checkpoint": None,
        "state": None,
        "result": None,
    }
