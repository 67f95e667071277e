"""What agents know about the caller."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from segue.agent.memory import MemoryBook
from segue.core.errors import NotFoundError
from segue.core.snowflake import to_text
from segue.facade import Segue
from segue.server.access import CallerHere, JournalHere, SegueHere
from segue.server.cursors import position_of
from segue.server.guard import GuardedRoute
from segue.server.problems import responses
from segue.server.shapes import MemoriesOut, MemoryOut, NewMemory
from segue.server.wire import memory_out

router = APIRouter(route_class=GuardedRoute, prefix="/api/memories", tags=["memories"])
Agent = Annotated[
    str | None, Query(max_length=200, description="The first agent, if none is named.")
]


@router.get("", responses=responses(404))
async def list_memories(
    segue: SegueHere,
    journal: JournalHere,
    caller: CallerHere,
    agent_id: Agent = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(max_length=60)] = None,
) -> MemoriesOut:
    """All that an agent knows of the caller, newest first."""
    agent, place = segue.agent(agent_id).id, position_of(before)
    found = await journal.list_memories(agent, caller.user_id, limit=limit, before=place)
    following = to_text(found[-1].id) if len(found) == limit else None
    return MemoriesOut(memories=[*map(memory_out, found)], next=following)


@router.get("/search", responses=responses(404))
async def search_memories(
    segue: SegueHere,
    caller: CallerHere,
    q: Annotated[str, Query(max_length=2_000)],
    agent_id: Agent = None,
) -> MemoriesOut:
    """What has to do with some words, best first: as the agent would find it."""
    agent, book = _book(segue, agent_id)
    found = await book.search(agent, caller.user_id, q)
    return MemoriesOut(memories=[memory_out(each.memory, each.score) for each in found])


@router.post("", status_code=201, responses=responses(404, 409))
async def create_memory(segue: SegueHere, caller: CallerHere, new: NewMemory) -> MemoryOut:
    """Have an agent know a fact; one that says the same is updated instead."""
    agent, book = _book(segue, new.agent_id)
    return memory_out((await book.remember(agent, caller.user_id, new.content, new.key)).memory)


@router.put("/{key:path}", responses=responses(404, 409))
async def change_memory(
    segue: SegueHere, caller: CallerHere, key: str, new: NewMemory
) -> MemoryOut:
    """Set the words of a fact, by its key."""
    agent, book = _book(segue, new.agent_id)
    return memory_out((await book.remember(agent, caller.user_id, new.content, key)).memory)


@router.delete("/{key:path}", status_code=204, responses=responses(404))
async def delete_memory(
    segue: SegueHere, journal: JournalHere, caller: CallerHere, key: str, agent_id: Agent = None
) -> Response:
    """Have an agent forget a fact."""
    if not await journal.delete_memory(segue.agent(agent_id).id, caller.user_id, key):
        raise NotFoundError(f"There is no memory {key!r:.60}.")
    return Response(status_code=204)


def _book(segue: Segue, agent_id: str | None) -> tuple[str, MemoryBook]:
    agent = segue.agent(agent_id).id
    book = segue.composed.books.get(agent)
    if book is None:
        raise NotFoundError(f"Agent {agent!r:.60} keeps no memories.")
    return agent, book
