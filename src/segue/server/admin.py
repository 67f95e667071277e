"""For operators: what is stored, what was decided and why, and what hangs.

An operator sees everything of a thread, triggers and their reasons too; that is what it is for.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from segue.core.plain import exact_json
from segue.core.snowflake import parse
from segue.runtime import views
from segue.runtime.preview import context_json, next_context
from segue.server.access import JournalHere, SegueHere, operator_of
from segue.server.guard import GuardedRoute
from segue.server.problems import responses

router = APIRouter(
    route_class=GuardedRoute,
    prefix="/api/admin",
    tags=["admin"],
    dependencies=[Depends(operator_of)],
    responses=responses(403, 404),
)
Limit = Annotated[int, Query(ge=1, le=500)]
Json = dict[str, Any]


@router.get("/threads")
async def list_threads(
    journal: JournalHere,
    limit: Limit = 50,
    user: Annotated[str | None, Query(max_length=200)] = None,
) -> list[Json]:
    """The newest conversations of all users, or those of one; the one written to last first."""
    return await views.list_threads(journal, user, limit=limit)


@router.get("/timers")
async def list_pending_timers(journal: JournalHere, limit: Limit = 50) -> list[Json]:
    """The follow-ups and continuations of all threads that are still to come, soonest first."""
    return await views.list_pending_timers(journal, limit=limit)


@router.get("/threads/{thread_id}/history")
async def get_history(
    segue: SegueHere, journal: JournalHere, thread_id: str, limit: Limit = 50
) -> list[Json]:
    """What the user sees of the conversation, oldest first."""
    thread = await journal.get_thread(thread_id)
    return await views.list_history(journal, thread, segue.composed.settings.agents, limit=limit)


@router.get("/threads/{thread_id}/why")
async def list_reasons(journal: JournalHere, thread_id: str, limit: Limit = 50) -> list[Json]:
    """Why the agent wrote, and why it did not; oldest first."""
    await journal.get_thread(thread_id)
    return await views.list_reasons(journal, thread_id, limit=limit)


@router.get("/threads/{thread_id}/batches")
async def list_batches(
    segue: SegueHere, journal: JournalHere, thread_id: str, limit: Limit = 50
) -> list[Json]:
    """The newest batches with state and reasons, newest first; nested ones inside of them."""
    agents = segue.composed.settings.agents
    return await views.list_batches(journal, thread_id, agents, limit=limit)


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
    """Planned and past follow-ups and continuations, with what became of them; newest first."""
    return await views.list_timers(journal, thread_id, limit=limit)


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


def _json(value: Any) -> Json:
    found: Json = exact_json(value)
    return found
