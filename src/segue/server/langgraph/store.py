"""The store: a user's memories, in one namespace for each agent.

`("memories",)` names the first agent's and `("memories", agent_id)` any agent's. A value is
`{"content": text}`; nothing else is stored.
"""

from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import Field

from segue.core.text import rfc3339
from segue.errors import NotFoundError, UsageError
from segue.facade import Segue
from segue.server.access import SEARCH_SLOT, CallerDep, SegueDep
from segue.server.langgraph.messages import Json
from segue.server.middleware import authenticated_router
from segue.server.requests import StrictModel
from segue.server.responses import MemoryOut

router = authenticated_router("/store", "langgraph", in_schema=False)
_ROOT: Final = "memories"
Namespace = Annotated[list[str], Field(max_length=10)]


class ItemName(StrictModel):
    namespace: Namespace
    key: str = Field(min_length=1, max_length=200)


class ItemIn(ItemName):
    value: dict[str, Any]
    index: Any = None
    ttl: Any = None


class ItemSearch(StrictModel):
    namespace_prefix: Namespace = Field(default_factory=list)
    filter: dict[str, Any] | None = None
    limit: int = Field(default=10, ge=1, le=1_000)
    offset: int = Field(default=0, ge=0, le=100_000)
    query: str | None = Field(default=None, max_length=2_000)
    refresh_ttl: bool | None = None


class NamespaceSearch(StrictModel):
    prefix: Namespace | None = None
    suffix: Namespace | None = None
    max_depth: int | None = Field(default=None, ge=1)
    limit: int = Field(default=100, ge=1, le=1_000)
    offset: int = Field(default=0, ge=0)


def _agent_in(segue: Segue, namespace: list[str]) -> str:
    """The agent whose memories a namespace holds; `NotFoundError` if there is none."""
    if not namespace or namespace[0] != _ROOT or len(namespace) > 2:
        raise NotFoundError(f"There is no namespace {namespace!r:.80}; use ['{_ROOT}', agent_id].")
    return segue.get_agent(namespace[1] if len(namespace) == 2 else None).id


def _item(stored: Any) -> Json:
    memory = MemoryOut.of(stored)
    return {
        "namespace": [_ROOT, memory.agent_id],
        "key": memory.key,
        "value": {"content": memory.content},
        "created_at": rfc3339(memory.created_at),
        "updated_at": rfc3339(memory.updated_at),
    }


@router.put("/items", status_code=204)
async def put_item(segue: SegueDep, caller: CallerDep, new: ItemIn) -> Response:
    if new.index is not None or new.ttl is not None:
        raise UsageError("index and ttl are not supported: every memory is searched, and stays.")
    content = new.value.get("content")
    if not isinstance(content, str) or len(new.value) != 1:
        raise UsageError('value: expected {"content": text}: a memory is one fact in words.')
    agent = _agent_in(segue, new.namespace)
    await segue.remember(caller.user_id, content, agent, key=new.key)
    return Response(status_code=204)


@router.get("/items")
async def get_item(
    segue: SegueDep,
    caller: CallerDep,
    key: Annotated[str, Query(max_length=200)],
    namespace: Annotated[str, Query(max_length=400)] = _ROOT,
) -> Json:
    agent = _agent_in(segue, namespace.split(".", 1))
    memory = await segue.find_memory(caller.user_id, key, agent)
    if memory is None:
        raise NotFoundError(f"There is no item {key!r:.60}.")
    return _item(memory)


@router.delete("/items", status_code=204)
async def delete_item(segue: SegueDep, caller: CallerDep, name: ItemName) -> Response:
    """Also one that is not there."""
    await segue.forget(caller.user_id, name.key, _agent_in(segue, name.namespace))
    return Response(status_code=204)


@router.post("/items/search", dependencies=[SEARCH_SLOT])
async def search_items(segue: SegueDep, caller: CallerDep, wanted: ItemSearch) -> Json:
    """By meaning and by words with a `query`, as the agent itself searches; else newest first."""
    if wanted.filter:
        raise UsageError("filter is not supported: a memory has no fields to filter by.")
    namespace = wanted.namespace_prefix or [_ROOT]
    named = [_agent_in(segue, namespace)] if len(namespace) > 1 else None
    _agent_in(segue, namespace)
    items: list[Json] = []
    for agent in named or [each.id for each in segue.agents if each.memory.enabled]:
        if wanted.query:
            found = await segue.search_memories(caller.user_id, wanted.query, agent)
            items += [{**_item(each.memory), "score": each.score} for each in found]
        else:
            most = wanted.offset + wanted.limit
            listed = await segue.list_memories(caller.user_id, agent, limit=most)
            items += [{**_item(each), "score": None} for each in listed]
    if wanted.query:
        items.sort(key=lambda item: -item["score"])
    return {"items": items[wanted.offset : wanted.offset + wanted.limit]}


@router.post("/namespaces")
async def list_namespaces(
    segue: SegueDep, _: CallerDep, wanted: NamespaceSearch | None = None
) -> Json:
    wanted = wanted or NamespaceSearch()
    names = [[_ROOT, agent.id] for agent in segue.agents if agent.memory.enabled]
    prefix, suffix = wanted.prefix or [], wanted.suffix or []
    found = [
        name[: wanted.max_depth]
        for name in names
        if name[: len(prefix)] == prefix and (not suffix or name[-len(suffix) :] == suffix)
    ]
    unique = [name for place, name in enumerate(found) if name not in found[:place]]
    return {"namespaces": unique[wanted.offset : wanted.offset + wanted.limit]}
