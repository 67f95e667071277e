"""Threads: create, find, change and delete them, and read their state."""

from typing import Annotated, Any, Final, Literal

from fastapi import Header, Query, Request, Response
from pydantic import Field

from segue.core.client_metadata import metadata_settings
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.events import cursor_at
from segue.facade import Segue
from segue.journal.records import Thread
from segue.server.access import (
    PAGE_SLOT,
    SEARCH_SLOT,
    CallerDep,
    SegueDep,
    ThreadDep,
    get_own_thread,
)
from segue.server.auth import Caller
from segue.server.connections import EventStream, StreamDep
from segue.server.langgraph.dispatch import create_thread, refuse
from segue.server.langgraph.messages import Json, Window
from segue.server.langgraph.narrator import Place
from segue.server.langgraph.records import (
    Search,
    checkpoint_json,
    newest_and_waiting,
    state_json,
    thread_fields,
    thread_json,
    thread_metadata,
    thread_status,
)
from segue.server.langgraph.streams import ThreadStream, parse_thread_modes
from segue.server.middleware import authenticated_router
from segue.server.requests import StrictModel
from segue.server.responses import respond, size_of

router = authenticated_router("", "langgraph", in_schema=False)
_PAGE: Final = 200
# A client that looks further is better served by a cursor, which this wire does not have.
_FURTHEST: Final = 10_000
# Of all states in a response to a search; the threads after them come without theirs.
_MOST_CHARACTERS: Final = 1_000_000
_SKIPPED: Final = 100_000
LIVE_HEADER: Final = "Segue-Live"
_REFUSED: Final = {
    "supersteps": "a thread begins empty; conversations are imported by `segue import`",
    "ttl": "how long conversations are kept is set in the settings",
    "values": "threads are not searched by their state; `/api/search` finds messages",
    "extract": "threads are not searched by their state",
}


class ThreadIn(StrictModel):
    thread_id: str | None = Field(default=None, max_length=200)
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    supersteps: Any = None
    ttl: Any = None


class ThreadPatch(StrictModel):
    metadata: dict[str, Any] | None = None
    ttl: Any = None


class ThreadFilter(StrictModel):
    ids: list[str] | None = Field(default=None, max_length=1_000)
    metadata: dict[str, Any] | None = None
    values: Any = None
    status: Literal["idle", "busy", "interrupted", "error"] | None = None


class ThreadSearch(ThreadFilter, Search):
    limit: int = Field(default=10, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=_FURTHEST)
    extract: Any = None


class HistoryIn(StrictModel):
    limit: int = Field(default=10, ge=1, le=1_000)
    before: Any = None
    metadata: Any = None
    checkpoint: Any = None
    select: list[str] | None = None


@router.post("/threads", dependencies=[PAGE_SLOT])
async def create(segue: SegueDep, caller: CallerDep, new: ThreadIn | None = None) -> Response:
    new = new or ThreadIn()
    refuse(new, _REFUSED)
    metadata = new.metadata or {}
    named = metadata.get("graph_id") or metadata.get("assistant_id")
    agent = segue.get_agent(named if isinstance(named, str) else None).id
    settings = metadata_settings(_notes(metadata))
    thread = None if new.thread_id is None else await _find(segue, caller, new.thread_id)
    only_new = new.if_exists != "do_nothing"
    if thread is None:  # another request may create it just now
        thread = await create_thread(
            segue, caller, agent, new.thread_id, settings, only_new=only_new
        )
    elif only_new:
        raise ConflictError(f"Thread {new.thread_id!r:.60} already exists.")
    return await respond(await thread_json(segue, thread))


def _notes(metadata: Json) -> Json:
    """What a client notes; a thread's agent is known without it."""
    return {n: v for n, v in metadata.items() if n not in {"graph_id", "assistant_id"}}


async def _find(segue: Segue, caller: Caller, thread_id: str) -> Thread | None:
    try:
        return await get_own_thread(segue, caller, thread_id)
    except NotFoundError:
        return None


@router.post("/threads/search", dependencies=[SEARCH_SLOT])
async def search(segue: SegueDep, caller: CallerDep, wanted: ThreadSearch) -> Response:
    refuse(wanted, _REFUSED)
    is_newest_first = wanted.sort_order in {None, "desc"}
    if wanted.sort_by not in {None, "updated_at"} or not is_newest_first:
        raise UsageError(
            "sort_by: not supported: threads come in the order of updated_at, newest first."
        )
    found = await _matching(segue, caller, wanted, wanted.offset + wanted.limit)
    select = None if wanted.select is None else frozenset(wanted.select)
    threads, left = [], 0 if select is not None and "values" not in select else _MOST_CHARACTERS
    for thread in found[wanted.offset :]:
        values = None
        if left > 0 and thread.message_count:
            values = (await Window.load(segue, thread)).values()
            size = size_of(values)
            # Reading also has a cost: a few states that are too large end it.
            values, left = (values, left - size) if size <= left else (None, left - _SKIPPED)
        threads.append(await thread_fields(segue, thread, values, select))
    return await respond(threads)


@router.post("/threads/count", dependencies=[SEARCH_SLOT])
async def count(segue: SegueDep, caller: CallerDep, wanted: ThreadFilter | None = None) -> int:
    wanted = wanted or ThreadFilter()
    refuse(wanted, _REFUSED)
    return len(await _matching(segue, caller, wanted, _FURTHEST))


async def _matching(segue: Segue, caller: Caller, wanted: ThreadFilter, most: int) -> list[Thread]:
    """The caller's threads that match, the one written to last first."""
    found: list[Thread] = []
    place, seen = None, 0
    while len(found) < most and seen < _FURTHEST:
        page = await segue.list_threads(caller.user_id, limit=_PAGE, before=place)
        found += [each for each in page if await _matches(segue, each, wanted)]
        if len(page) < _PAGE:
            break
        place, seen = page[-1].place, seen + len(page)
    return found[:most]


async def _matches(segue: Segue, thread: Thread, wanted: ThreadFilter) -> bool:
    if wanted.ids is not None and thread.id not in wanted.ids:
        return False
    known = thread_metadata(thread)
    if any(known.get(name) != value for name, value in (wanted.metadata or {}).items()):
        return False
    if wanted.status is None:
        return True
    return wanted.status == thread_status(*await newest_and_waiting(segue, thread))


@router.get("/threads/{thread_id}", dependencies=[PAGE_SLOT])
async def get(segue: SegueDep, thread: ThreadDep) -> Response:
    return await respond(await thread_json(segue, thread))


@router.patch("/threads/{thread_id}", dependencies=[PAGE_SLOT])
async def update(
    segue: SegueDep,
    thread: ThreadDep,
    change: ThreadPatch,
    prefer: Annotated[str | None, Header()] = None,
) -> Response:
    refuse(change, _REFUSED)
    if notes := _notes(change.metadata or {}):
        thread = await segue.set_thread_metadata(thread, notes)
    if prefer == "return=minimal":
        return Response(status_code=204)
    return await respond(await thread_json(segue, thread))


@router.delete("/threads/{thread_id}", status_code=204)
async def delete(segue: SegueDep, thread: ThreadDep) -> Response:
    await segue.delete_thread(thread)
    return Response(status_code=204)


@router.post("/threads/{thread_id}/copy", dependencies=[SEARCH_SLOT])
async def copy(segue: SegueDep, thread: ThreadDep) -> Response:
    return await respond(await thread_json(segue, await segue.copy_thread(thread)))


@router.get("/threads/{thread_id}/state", dependencies=[PAGE_SLOT])
@router.get("/threads/{thread_id}/state/{checkpoint_id}", dependencies=[PAGE_SLOT])
async def get_state(segue: SegueDep, thread: ThreadDep, request: Request) -> Response:
    checkpoint_id = request.path_params.get("checkpoint_id")
    return await _respond_at(segue, thread, checkpoint_id, request)


async def _respond_at(
    segue: Segue, thread: Thread, checkpoint_id: Any, request: Request
) -> Response:
    if checkpoint_id not in (None, checkpoint_json(thread)["checkpoint_id"]):  # of any type
        raise NotFoundError("A thread keeps no earlier checkpoints, only its present state.")
    return await respond(await _state(segue, thread, is_live=LIVE_HEADER in request.headers))


async def _state(segue: Segue, thread: Thread, *, is_live: bool = False) -> Json:
    newest, waiting = await newest_and_waiting(segue, thread)
    window = await Window.load(segue, thread)
    return state_json(thread, window, newest, waiting, is_live=is_live)


class CheckpointIn(StrictModel):
    checkpoint: dict[str, Any]
    subgraphs: bool = False
    select: list[str] | None = None


@router.post("/threads/{thread_id}/state/checkpoint", dependencies=[PAGE_SLOT])
async def get_state_of_checkpoint(
    segue: SegueDep, thread: ThreadDep, given: CheckpointIn, request: Request
) -> Response:
    return await _respond_at(segue, thread, given.checkpoint.get("checkpoint_id"), request)


@router.get("/threads/{thread_id}/history", dependencies=[PAGE_SLOT])
async def get_history(segue: SegueDep, thread: ThreadDep, before: str | None = None) -> Response:
    return await _history(segue, thread, before)


@router.post("/threads/{thread_id}/history", dependencies=[PAGE_SLOT])
async def search_history(
    segue: SegueDep, thread: ThreadDep, wanted: HistoryIn | None = None
) -> Response:
    return await _history(segue, thread, wanted.before if wanted else None)


async def _history(segue: Segue, thread: Thread, before: Any) -> Response:
    """The present state, which is the only one that is kept; nothing before it."""
    is_empty = bool(before) or not thread.message_count
    return await respond([] if is_empty else [await _state(segue, thread)])


@router.get("/threads/{thread_id}/stream")
async def join_stream(
    segue: SegueDep,
    thread: ThreadDep,
    stream: StreamDep,
    stream_mode: Annotated[list[str] | None, Query()] = None,
    last_event_id: Annotated[str | None, Header(max_length=400)] = None,
) -> Response:
    place = Place.parse(last_event_id, "0", cursor_at(thread.last_position))
    modes = parse_thread_modes([mode for mode in stream_mode or () if mode])
    newest, _ = await newest_and_waiting(segue, thread)
    return EventStream(ThreadStream(stream, thread, modes, place, newest).lines())
