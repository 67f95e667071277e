"""Talking: send a message, stop the answer, answer a question, listen."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.requests import HTTPConnection
from structlog.contextvars import bind_contextvars

from segue.core.snowflake import to_text
from segue.journal.records import Accepted, Thread
from segue.runtime.events import cursor_at, place_of
from segue.server.access import (
    JournalHere,
    SegueHere,
    ThreadHere,
    own_turn,
    segue_of,
    settings_of,
)
from segue.server.content import check_content, check_count, check_text
from segue.server.guard import GuardedRoute
from segue.server.problems import responses
from segue.server.shapes import AcceptedOut, Answer, NewMessage, TurnsOut
from segue.server.streams import answering, event_stream, listening
from segue.server.visits import EVENT_STREAM, VisitHere, WantedVisit
from segue.server.wire import accepted_out

router = APIRouter(route_class=GuardedRoute, prefix="/api/threads/{thread_id}", tags=["talk"])
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENT_STREAM: {}}, "description": "Events as they come."}
}


@router.post(
    "/messages",
    status_code=202,
    response_model=AcceptedOut,
    responses=responses(404, 409, 413) | _STREAM,
)
async def send_message(
    request: Request,
    segue: SegueHere,
    thread: ThreadHere,
    new: NewMessage,
    visit: WantedVisit,
) -> Response | AcceptedOut:
    """Store a message; its answer comes to whoever listens, or right here as server-sent events
    if `Accept` is `text/event-stream`.
    """
    accepted = await take(request, thread, new)
    bind_contextvars(batch=accepted.turn.batch)  # for the request's log lines
    if visit is None:
        return accepted_out(accepted)
    # From before it was sent, so that nothing of the answer is missed.
    heard = segue.listen(thread, cursor_at(thread.last_position))
    return event_stream(answering(segue, accepted.turn, heard, visit))


@router.post("/cancel", responses=responses(404))
async def cancel(segue: SegueHere, thread: ThreadHere) -> TurnsOut:
    """Stop what the agent does or would go on with; what was seen of its reply is kept."""
    stopped = await segue.cancel(thread)
    return TurnsOut(turn_ids=[to_text(turn.id) for turn in stopped])


@router.post("/answer", status_code=202, responses=responses(404, 409))
async def answer(
    segue: SegueHere, journal: JournalHere, thread: ThreadHere, given: Answer
) -> TurnsOut:
    """Answer a question that the agent waits with; it goes on then."""
    turn = await own_turn(journal, thread, given.turn_id)
    going_on = await segue.answer(turn, given.answer)
    return TurnsOut(turn_ids=[to_text(going_on.id)])


@router.post("/typing", status_code=204, responses=responses(404))
async def typing(segue: SegueHere, thread: ThreadHere) -> Response:
    """The user is typing; no follow-up comes in between."""
    await segue.typing(thread)
    return Response(status_code=204)


@router.get("/events", responses=responses(404) | _STREAM)
async def events(
    request: Request,
    segue: SegueHere,
    thread: ThreadHere,
    visit: VisitHere,
    since: Annotated[str | None, Query(max_length=60)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Everything that happens in a thread, as server-sent events: from a cursor on (`since`, or
    `Last-Event-ID` when a browser comes back), or from now on.
    """
    cursor = last_event_id or since
    if cursor is None:  # from here on, so that nothing is missed while listening begins
        cursor = cursor_at(thread.last_position)
    place_of(cursor)  # refused now, since a stream that has begun cannot be refused
    every = settings_of(request).ping_every
    return event_stream(listening(segue.listen(thread, cursor), every, visit))


async def take(connection: HTTPConnection, thread: Thread, new: NewMessage) -> Accepted:
    """Store what a client says, if it may be sent; over HTTP and over a socket alike."""
    settings = settings_of(connection)
    check_count(new.content, settings.max_content_blocks)
    check_text(new.content, settings.max_text_bytes)
    if not settings.allow_content_urls:
        check_content(new.content)
    return await segue_of(connection).send(
        thread,
        new.content,
        client_message_id=new.client_message_id,
        strategy=new.strategy,
    )
