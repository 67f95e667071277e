"""For operators: what is stored, what was decided and why, and what hangs.

An operator sees everything of a thread, triggers and their reasons too; that is what it is for.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.plain import exact_json
from segue.core.snowflake import parse, time_of, to_text
from segue.runtime.batches import newest_batches
from segue.runtime.preview import context_json, next_context
from segue.server.access import JournalHere, SegueHere, operator_of
from segue.server.problems import responses

router = APIRouter(
    prefix="/api/admin",
    tags=["admin"],
    dependencies=[Depends(operator_of)],
    responses=responses(403, 404),
)
Limit = Annotated[int, Query(ge=1, le=500)]
Json = dict[str, Any]


@router.get("/threads/{thread_id}/batches")
async def list_batches(journal: JournalHere, thread_id: str, limit: Limit = 50) -> list[Json]:
    """The newest batches with state and reasons, newest first."""
    found = await newest_batches(journal, thread_id, limit=limit)
    return [_batch(each.batch) | {"turns": [*map(_json, each.turns)]} for each in found]


@router.get("/threads/{thread_id}/context")
async def get_context(segue: SegueHere, journal: JournalHere, thread_id: str) -> Json:
    """What the model would get of the thread now, and what is left out."""
    thread = await journal.get_thread(thread_id)
    return context_json(await next_context(journal, thread, segue.agent(thread.agent_id)))


@router.get("/threads/{thread_id}/decisions")
async def list_decisions(journal: JournalHere, thread_id: str, limit: Limit = 50) -> list[Json]:
    """What the decider and the gates decided, with all reasons; newest first."""
    found = await journal.list_decisions(thread_id, limit=limit)
    return [*map(_json, found)]


@router.get("/threads/{thread_id}/timers")
async def list_timers(journal: JournalHere, thread_id: str, limit: Limit = 50) -> list[Json]:
    """Planned and past follow-ups and continuations; newest first."""
    return [*map(_json, await journal.list_timers(thread_id, limit=limit))]


@router.get("/threads/{thread_id}/turns")
async def list_turns(journal: JournalHere, thread_id: str, limit: Limit = 50) -> list[Json]:
    """What was and is worked on; newest first."""
    return [*map(_json, await journal.list_turns(thread_id, limit=limit))]


@router.get("/dead-letters")
async def list_dead_letters(journal: JournalHere, limit: Limit = 100) -> list[Json]:
    """Webhooks and other effects that were given up."""
    return [*map(_json, await journal.list_dead_effects(limit=limit))]


@router.post("/dead-letters/{effect_id}/retry")
async def retry_dead_letter(segue: SegueHere, journal: JournalHere, effect_id: str) -> Json:
    """Try one again, at once."""
    parts = segue.composed.parts
    effect = await journal.revive_effect(parse(effect_id), now=parts.clock.now())
    parts.agendas.effects.at_once()
    return _json(effect)


def _batch(batch: Batch) -> Json:
    return {
        "id": to_text(batch.id),
        "type": batch.type.value,
        "state": batch.state.value,
        "reasons": batch.reasons,
        "parent": None if batch.parent is None else to_text(batch.parent),
        "began_at": time_of(batch.id).isoformat(),
        "messages": [_message(message) for message in batch.messages],
    }


def _message(message: BaseMessage) -> Json:
    known = {"id": message.id, "type": message.type, "content": message.content}
    return _json(known | {"metadata": message.additional_kwargs})


def _json(value: Any) -> Json:
    found: Json = exact_json(value)
    return found
