"""The caller: preferences, memories, and the deletion of all data; and the agents to talk to."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from segue.core.snowflake import parse, to_text
from segue.errors import NotFoundError
from segue.server.access import CallerDep, SegueDep
from segue.server.auth import Caller
from segue.server.middleware import api_router
from segue.server.problems import errors
from segue.server.requests import DeletionIn, Limit, MemoryIn, PreferencesIn
from segue.server.responses import AgentOut, DeletedOut, ItemsOut, MemoryOut, MeOut

router = api_router("", "users")
memories = api_router("/memories", "memories", 404)
Agent = Annotated[str | None, Query(max_length=200, description="The first agent by default.")]


@router.get("/agents")
async def list_agents(segue: SegueDep, _: CallerDep) -> ItemsOut[AgentOut]:
    """The agents to talk to; a new thread uses the first one by default."""
    return ItemsOut(items=[*map(AgentOut.of, segue.agents)])


@router.get("/me")
async def get_me(segue: SegueDep, caller: CallerDep) -> MeOut:
    """The caller, and their preferences."""
    return _me(caller, await segue.get_user_preferences(caller.user_id))


@router.patch("/me")
async def update_me(segue: SegueDep, caller: CallerDep, change: PreferencesIn) -> MeOut:
    """Set preferences for all threads; null removes one."""
    return _me(caller, await segue.set_user_preferences(caller.user_id, **change.changes()))


def _me(caller: Caller, preferences: Mapping[str, Any]) -> MeOut:
    return MeOut(
        user_id=caller.user_id, is_operator=caller.is_operator, preferences=dict(preferences)
    )


@router.delete("/me")
async def delete_me(segue: SegueDep, caller: CallerDep, confirmation: DeletionIn) -> DeletedOut:
    """Delete all data of the caller: conversations, memories, preferences."""
    del confirmation
    return DeletedOut.of(await segue.delete_user(caller.user_id))


@memories.get("")
async def list_memories(
    segue: SegueDep,
    caller: CallerDep,
    agent_id: Agent = None,
    limit: Limit = 50,
    before: Annotated[str | None, Query(max_length=60)] = None,
) -> ItemsOut[MemoryOut]:
    """An agent's memories of the caller, newest first."""
    place = None if before is None else parse(before)
    found = await segue.list_memories(caller.user_id, agent_id, limit=limit, before=place)
    following = to_text(found[-1].id) if len(found) == limit else None
    return ItemsOut(items=[*map(MemoryOut.of, found)], next=following)


@memories.get("/search")
async def search_memories(
    segue: SegueDep,
    caller: CallerDep,
    q: Annotated[str, Query(max_length=2_000)],
    agent_id: Agent = None,
) -> ItemsOut[MemoryOut]:
    """Memories that relate to a text, best first, as the agent would find them."""
    found = await segue.search_memories(caller.user_id, q, agent_id)
    memories = [
        MemoryOut.of(each.memory).model_copy(update={"score": each.score}) for each in found
    ]
    return ItemsOut(items=memories)


@memories.post("", status_code=201, responses=errors(409))
async def create_memory(segue: SegueDep, caller: CallerDep, new: MemoryIn) -> MemoryOut:
    """Store a memory; one with the same content is updated instead."""
    memory = await segue.remember(caller.user_id, new.content, new.agent_id, key=new.key)
    return MemoryOut.of(memory)


@memories.put("/{key:path}", responses=errors(409))
async def update_memory(segue: SegueDep, caller: CallerDep, key: str, new: MemoryIn) -> MemoryOut:
    """Set the content of a memory by its key."""
    return MemoryOut.of(await segue.remember(caller.user_id, new.content, new.agent_id, key=key))


@memories.delete("/{key:path}", status_code=204)
async def delete_memory(
    segue: SegueDep, caller: CallerDep, key: str, agent_id: Agent = None
) -> Response:
    """Delete a memory."""
    if not await segue.forget(caller.user_id, key, agent_id):
        raise NotFoundError(f"There is no memory {key!r:.60}.")
    return Response(status_code=204)
