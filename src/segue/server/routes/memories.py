"""What agents remember about the caller."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from segue.core.snowflake import parse, to_text
from segue.errors import NotFoundError
from segue.server.access import CallerDep, SegueDep
from segue.server.middleware import AuthenticatedRoute
from segue.server.problems import responses
from segue.server.requests import Limit, MemoryIn
from segue.server.responses import MemoriesOut, MemoryOut

router = APIRouter(route_class=AuthenticatedRoute, prefix="/api/memories", tags=["memories"])
Agent = Annotated[str | None, Query(max_length=200, description="The first agent by default.")]


@router.get("", responses=responses(404))
async def list_memories(
    segue: SegueDep,
    caller: CallerDep,
    agent_id: Agent = None,
    limit: Limit = 50,
    before: Annotated[str | None, Query(max_length=60)] = None,
) -> MemoriesOut:
    """An agent's memories of the caller, newest first."""
    place = None if before is None else parse(before)
    found = await segue.list_memories(caller.user_id, agent_id, limit=limit, before=place)
    following = to_text(found[-1].id) if len(found) == limit else None
    return MemoriesOut(memories=[*map(MemoryOut.of, found)], next=following)


@router.get("/search", responses=responses(404))
async def search_memories(
    segue: SegueDep,
    caller: CallerDep,
    q: Annotated[str, Query(max_length=2_000)],
    agent_id: Agent = None,
) -> MemoriesOut:
    """Memories that relate to a text, best first, as the agent would find them."""
    found = await segue.search_memories(caller.user_id, q, agent_id)
    memories = [
        MemoryOut.of(each.memory).model_copy(update={"score": each.score}) for each in found
    ]
    return MemoriesOut(memories=memories)


@router.post("", status_code=201, responses=responses(404, 409))
async def create_memory(segue: SegueDep, caller: CallerDep, new: MemoryIn) -> MemoryOut:
    """Store a memory; one with the same content is updated instead."""
    memory = await segue.remember(caller.user_id, new.content, new.agent_id, key=new.key)
    return MemoryOut.of(memory)


@router.put("/{key:path}", responses=responses(404, 409))
async def change_memory(segue: SegueDep, caller: CallerDep, key: str, new: MemoryIn) -> MemoryOut:
    """Set the content of a memory by its key."""
    return MemoryOut.of(await segue.remember(caller.user_id, new.content, new.agent_id, key=key))


@router.delete("/{key:path}", status_code=204, responses=responses(404))
async def delete_memory(
    segue: SegueDep, caller: CallerDep, key: str, agent_id: Agent = None
) -> Response:
    """Delete a memory."""
    if not await segue.forget(caller.user_id, key, agent_id):
        raise NotFoundError(f"There is no memory {key!r:.60}.")
    return Response(status_code=204)
