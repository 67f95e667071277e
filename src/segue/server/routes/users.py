"""The caller: preferences, memories, notified browsers, deletion; and the agents to talk to."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from segue.core.snowflake import parse, to_text
from segue.errors import NotFoundError
from segue.server.access import CallerDep, SegueDep
from segue.server.auth import Caller
from segue.server.middleware import authenticated_router
from segue.server.problems import errors
from segue.server.requests import (
    DeletionIn,
    EndpointIn,
    Limit,
    MemoryIn,
    PreferencesIn,
    SubscriptionIn,
)
from segue.server.responses import (
    AgentOut,
    DeletedOut,
    ItemsOut,
    MemoryOut,
    MeOut,
    PushKeyOut,
    SubscriptionOut,
)

router = authenticated_router("/api", "users")
memories = authenticated_router("/api/memories", "memories", 404)
push = authenticated_router("/api/push", "notifications")
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
    own = dict(preferences)
    return MeOut(user_id=caller.user_id, is_operator=caller.is_operator, preferences=own)


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
    return MemoryOut.list_of(found, following)


@memories.get("/search")
async def search_memories(
    segue: SegueDep,
    caller: CallerDep,
    q: Annotated[str, Query(max_length=2_000)],
    agent_id: Agent = None,
) -> ItemsOut[MemoryOut]:
    """Memories that relate to a text, best first, as the agent would find them."""
    found = await segue.search_memories(caller.user_id, q, agent_id)
    return ItemsOut(
        items=[MemoryOut.of(each.memory).model_copy(update={"score": each.score}) for each in found]
    )


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
        raise NotFoundError(f"Memory {key!r:.60} does not exist.")
    return Response(status_code=204)


@push.get("/key", responses=errors(404))
async def get_push_key(segue: SegueDep, _: CallerDep) -> PushKeyOut:
    """The key to subscribe with; 404 if notifications are off."""
    return PushKeyOut(key=await segue.notifier.public_key())


@push.post("/subscriptions", status_code=201)
async def subscribe_push(
    segue: SegueDep, caller: CallerDep, new: SubscriptionIn
) -> SubscriptionOut:
    """Also notify this browser; subscribing again changes nothing. A user's newest 20 are kept."""
    given = (new.endpoint, new.keys.p256dh, new.keys.auth)
    return SubscriptionOut.of(await segue.notifier.subscribe(caller.user_id, *given))


@push.delete("/subscriptions", status_code=204)
async def unsubscribe_push(segue: SegueDep, caller: CallerDep, browser: EndpointIn) -> Response:
    """Do not notify this browser any more."""
    await segue.notifier.unsubscribe(caller.user_id, browser.endpoint)
    return Response(status_code=204)
