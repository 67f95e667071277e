"""Assistants: the agents of the settings; and the first requests of a client."""

from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, Depends
from pydantic import Field

from segue.core.snowflake import EPOCH
from segue.core.text import rfc3339
from segue.errors import NotFoundError
from segue.facade import Segue
from segue.server.access import SegueDep, require_local
from segue.server.langgraph.messages import Json
from segue.server.langgraph.records import NODE, Search
from segue.server.middleware import authenticated_router
from segue.server.requests import StrictModel

router = authenticated_router("/assistants", "langgraph", in_schema=False)
public = APIRouter(include_in_schema=False, dependencies=[Depends(require_local)])
_MESSAGES: Final[Json] = {
    "type": "object",
    "properties": {"messages": {"type": "array", "items": {"type": "object"}, "title": "Messages"}},
    "required": ["messages"],
}
_NOTHING: Final[Json] = {"type": "object", "properties": {}}


class AssistantFilter(StrictModel):
    metadata: dict[str, Any] | None = None
    graph_id: str | None = Field(default=None, max_length=200)
    name: str | None = Field(default=None, max_length=200)


class AssistantSearch(AssistantFilter, Search):
    pass


@public.get("/ok")
async def ok() -> Json:
    return {"ok": True}


@public.get("/info")
async def info() -> Json:
    """What the server can do, for clients that ask before they show more of it."""
    return {
        "version": version("segue"),
        "langgraph_py_version": version("langgraph"),
        "flags": {"assistants": True, "crons": True, "langsmith": False},
        "host": {"kind": "self-hosted"},
    }


def _assistants(segue: Segue, wanted: AssistantFilter) -> list[Json]:
    found = [_assistant(segue, agent.id) for agent in segue.agents]
    return [
        each
        for each in found
        if wanted.graph_id in {None, each["graph_id"]}
        and (wanted.name or "").lower() in str(each["name"]).lower()
        and (wanted.metadata or {}).items() <= each["metadata"].items()
    ]


def _assistant(segue: Segue, agent_id: str) -> Json:
    return {
        "assistant_id": agent_id,
        "graph_id": agent_id,
        "name": segue.get_agent(agent_id).name or agent_id,
        "description": None,
        "config": {},
        "context": {},
        # The mark of an assistant that comes with its graph; some clients look for it.
        "metadata": {"created_by": "system"},
        "version": 1,
        "created_at": rfc3339(EPOCH),
        "updated_at": rfc3339(EPOCH),
    }


@router.post("/search")
async def search(segue: SegueDep, wanted: AssistantSearch | None = None) -> list[Json]:
    wanted = wanted or AssistantSearch()
    return wanted.page(_assistants(segue, wanted))


@router.post("/count")
async def count(segue: SegueDep, wanted: AssistantFilter | None = None) -> int:
    return len(_assistants(segue, wanted or AssistantFilter()))


@router.get("/{assistant_id}")
async def get(segue: SegueDep, assistant_id: str) -> Json:
    return _assistant(segue, _check(segue, assistant_id))


@router.get("/{assistant_id}/schemas")
async def get_schemas(segue: SegueDep, assistant_id: str) -> Json:
    return {
        "graph_id": _check(segue, assistant_id),
        "input_schema": _MESSAGES,
        "output_schema": _MESSAGES,
        "state_schema": _MESSAGES,
        "config_schema": _NOTHING,
        "context_schema": _NOTHING,
    }


@router.get("/{assistant_id}/graph")
async def get_graph(segue: SegueDep, assistant_id: str) -> Json:
    """Always one node: clients get an agent's messages, not its graph."""
    _check(segue, assistant_id)
    nodes: list[Json] = [
        {"id": name, "type": "runnable", "data": {"name": name}} for name in ("__start__", NODE)
    ]
    edges = [{"source": "__start__", "target": NODE}, {"source": NODE, "target": "__end__"}]
    return {"nodes": [*nodes, {"id": "__end__"}], "edges": edges}


@router.get("/{assistant_id}/subgraphs")
async def get_subgraphs(segue: SegueDep, assistant_id: str) -> Json:
    _check(segue, assistant_id)
    return {}


def _check(segue: Segue, assistant_id: str) -> str:
    if assistant_id not in {agent.id for agent in segue.agents}:
        raise NotFoundError(f"There is no assistant {assistant_id!r:.60}.")
    return assistant_id
