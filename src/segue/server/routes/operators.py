"""Routes for operators: stored conversations, timers, dead letters, and statistics."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from pydantic import AwareDatetime
from starlette.requests import Request

from segue.core.snowflake import parse
from segue.core.text import exact_json
from segue.errors import UsageError
from segue.server.access import SegueDep
from segue.server.middleware import authenticated_router
from segue.server.problems import errors
from segue.server.requests import SimulationIn
from segue.server.responses import ItemsOut
from segue.simulate.simulator import Simulator

router = authenticated_router("/api/admin", "admin", 404, 409, operators=True)
Limit = Annotated[int, Query(ge=1, le=500)]
Json = dict[str, Any]
Items = ItemsOut[Json]


async def _simulator(request: Request, segue: SegueDep) -> Simulator:
    return Simulator(segue, request.app.state.simulating)


SimulatorDep = Annotated[Simulator, Depends(_simulator)]


@router.get("/threads")
async def list_threads(
    segue: SegueDep,
    limit: Limit = 50,
    user: Annotated[str | None, Query(max_length=200)] = None,
) -> Items:
    """The newest conversations of all users or of one, most recently written first."""
    return Items(items=await segue.inspector.list_threads(user, limit=limit))


@router.get("/timers")
async def list_pending_timers(segue: SegueDep, limit: Limit = 50) -> Items:
    """The pending follow-ups and continuations of all threads, soonest first."""
    return Items(items=await segue.inspector.list_pending_timers(limit=limit))


@router.get("/threads/{thread_id}/history")
async def get_history(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """The messages that the user sees, oldest first."""
    return Items(items=await segue.inspector.list_history(thread_id, limit=limit))


@router.get("/threads/{thread_id}/why")
async def list_reasons(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """Why the agent wrote, and why it did not; oldest first."""
    thread = await segue.get_thread(thread_id)
    return Items(items=await segue.inspector.list_reasons(thread.id, limit=limit))


@router.get("/threads/{thread_id}/batches")
async def list_batches(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """The newest batches with state and reasons, newest first; nested ones inside of them."""
    return Items(items=await segue.inspector.list_batches(thread_id, limit=limit))


@router.post("/threads/{thread_id}/batches/{batch_id}/settle", status_code=204)
async def settle_batch(segue: SegueDep, thread_id: str, batch_id: str) -> Response:
    """Close an open batch; its question or continuation is dropped."""
    await segue.settle_batch(thread_id, parse(batch_id))
    return Response(status_code=204)


@router.get("/turns")
async def list_live_turns(segue: SegueDep, limit: Limit = 50) -> Items:
    """The queue: waiting, running and retried turns of all threads, next one first."""
    return Items(items=await segue.inspector.list_live_turns(limit=limit))


@router.get("/threads/{thread_id}/context")
async def get_context(segue: SegueDep, thread_id: str) -> Json:
    """The model's next context, and what is left out."""
    thread = await segue.get_thread(thread_id)
    return await segue.inspector.get_context(thread, segue.get_agent(thread.agent_id))


@router.get("/threads/{thread_id}/memories")
async def list_recalled(segue: SegueDep, thread_id: str) -> Items:
    """The memories that a follow-up would find now, by the context's `memory_query`; best first."""
    thread = await segue.get_thread(thread_id)
    agent = segue.get_agent(thread.agent_id)
    query = (await segue.inspector.get_context(thread, agent))["memory_query"]
    if query is None or not agent.keeps_memories:
        return Items(items=[])
    found = await segue.search_memories(thread.user_id, query["text"], agent.id)
    return Items(
        items=[
            {"key": each.memory.key, "content": each.memory.content, "score": each.score}
            for each in found
        ]
    )


@router.get("/threads/{thread_id}/decisions")
async def list_decisions(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """The decisions of the decider and the gates, with all reasons; newest first."""
    return Items(items=await segue.inspector.list_decisions(thread_id, limit=limit))


@router.get("/threads/{thread_id}/timers")
async def list_timers(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """Planned and past follow-ups and continuations with their outcome; newest first."""
    return Items(items=await segue.inspector.list_timers(thread_id, limit=limit))


@router.get("/threads/{thread_id}/turns")
async def list_turns(segue: SegueDep, thread_id: str, limit: Limit = 50) -> Items:
    """Past and present turns; newest first."""
    return Items(items=await segue.inspector.list_turns(thread_id, limit=limit))


@router.get("/dead-letters")
async def list_dead_letters(segue: SegueDep, limit: Limit = 100) -> Items:
    """Webhooks and other effects that failed for good."""
    return Items(items=await segue.inspector.list_dead_letters(limit=limit))


@router.post("/dead-letters/{effect_id}/retry")
async def retry_dead_letter(segue: SegueDep, effect_id: str) -> Json:
    """Retry one at once."""
    effect: Json = exact_json(await segue.retry_effect(parse(effect_id)))
    return effect


@router.get("/simulations")
async def get_simulation_options(simulator: SimulatorDep) -> Json:
    """The scenarios to choose from, and the policies of the agents as they are set."""
    return simulator.options()


@router.post("/simulations", responses=errors(409))
async def simulate(simulator: SimulatorDep, asked: SimulationIn) -> Json:
    """What would be sent, and what would not and why, under one or two policies.

    No model is called, nothing is stored. One scenario runs at a time.
    """
    if (asked.scenario is None) == (asked.thread_id is None):
        raise UsageError("scenario, thread_id: expected exactly one of them.")
    if asked.thread_id is not None:
        return await simulator.replay_thread(asked.thread_id, asked.policies, asked.days)
    return await simulator.run_scenario(asked.scenario or "", asked.agent_id, asked.policies)


Time = Annotated[AwareDatetime | None, Query()]
_A_DAY = 86_400.0
Trigger = Annotated[str | None, Query(pattern="^[a-z][a-z0-9_]{0,63}$")]
Window = Annotated[float, Query(gt=0, le=366 * 86_400, description="In seconds.")]


@router.get("/stats")
async def get_stats(
    segue: SegueDep,
    since: Time = None,
    until: Time = None,
    agent: str | None = None,
    trigger: Trigger = None,
    window: Window = _A_DAY,
) -> Json:
    """Outcomes of follow-ups by agent, trigger and variant, and variants against the hold-out."""
    span = timedelta(seconds=window)
    found = await segue.stats(since=since, until=until, agent=agent, trigger=trigger, window=span)
    return found.as_json()
