"""Messages: send, cancel, answer a question, type, listen."""

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request, Response
from starlette.requests import HTTPConnection
from structlog.contextvars import bind_contextvars

from segue.conversations import check_lasting
from segue.core.media import ReferenceKind, find_reference
from segue.core.snowflake import parse
from segue.events import cursor_at, parse_cursor
from segue.journal.records import Accepted, Thread
from segue.server.access import (
    CallerDep,
    SegueDep,
    ThreadDep,
    get_own_turn,
    segue_of,
    settings_of,
)
from segue.server.connections import (
    EVENT_STREAM,
    EventStream,
    OptionalStreamDep,
    StreamDep,
    stream_events,
    stream_reply,
)
from segue.server.middleware import authenticated_router
from segue.server.problems import ApiError, errors
from segue.server.requests import AnswerIn, MessageIn, ReadIn
from segue.server.responses import AcceptedOut, ThreadOut, TurnsOut, respond

router = authenticated_router("/api/threads/{thread_id}", "talk", 404)
user_router = authenticated_router("/api", "talk")
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENT_STREAM: {}}, "description": "Server-sent events."}
}

# Code, what is wrong, what to send, and what the setting allows; of addresses, and of file ids.
_REFERENCES: Final = (
    ("content_url", "has an address", "the data as base64 or as a data: URL", "addresses"),
    ("content_file", "names a file of the provider", "the file itself as base64", "file ids"),
)


async def _cursor(
    since: Annotated[str | None, Query(max_length=60)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> str | None:
    """The cursor to listen from. An invalid one is refused before the stream sends its status."""
    if (cursor := last_event_id or since) is not None:
        parse_cursor(cursor)
    return cursor


CursorDep = Annotated[str | None, Depends(_cursor)]


@router.post(
    "/messages", status_code=202, response_model=AcceptedOut, responses=errors(409) | _STREAM
)
async def send_message(
    request: Request, segue: SegueDep, thread: ThreadDep, new: MessageIn, stream: OptionalStreamDep
) -> Response:
    """Store a message. Listeners receive the reply; with `Accept: text/event-stream` it is also the
    response, as server-sent events.
    """
    accepted = await accept_message(request, thread, new)
    bind_contextvars(batch=accepted.turn.batch)  # for the request's log lines
    if stream is None:
        return await respond(AcceptedOut.of(accepted), 202)
    # From before the message, so that no event of the reply is missed.
    since = cursor_at(thread.last_position)
    return EventStream(stream_reply(segue, accepted.turn, since, stream))


@router.post("/cancel")
async def cancel_turns(segue: SegueDep, thread: ThreadDep) -> TurnsOut:
    """Stop the agent, planned continuations included; the shown part of its reply is kept."""
    return TurnsOut.of(*await segue.cancel(thread))


@router.post("/answer", status_code=202, responses=errors(409))
async def answer_question(segue: SegueDep, thread: ThreadDep, given: AnswerIn) -> TurnsOut:
    """Answer a question of the agent, which then continues."""
    turn = await get_own_turn(segue, thread, given.turn_id)
    return TurnsOut.of(await segue.answer(turn, given.answer))


@router.post("/typing", status_code=204)
async def report_typing(segue: SegueDep, thread: ThreadDep) -> Response:
    """The user is typing; no follow-up is sent in the meantime."""
    await segue.report_typing(thread)
    return Response(status_code=204)


@router.get("/events", response_class=Response, responses=_STREAM)
async def listen_to_thread(
    segue: SegueDep, thread: ThreadDep, stream: StreamDep, cursor: CursorDep
) -> Response:
    """All events of a thread as server-sent events: from a cursor on (`since`, or `Last-Event-ID`
    when a browser reconnects), or from now on.
    """
    if cursor is None:  # set now, so that nothing is missed until listening begins
        cursor = cursor_at(thread.last_position)
    return EventStream(stream_events(segue.listen(thread, cursor), stream))


@user_router.get("/events", response_class=Response, responses=_STREAM)
async def listen(
    segue: SegueDep, caller: CallerDep, stream: StreamDep, cursor: CursorDep
) -> Response:
    """All events of all threads of the caller as server-sent events, also of new threads; from a
    cursor on, or from now on.
    """
    if cursor is None:
        cursor = await segue.user_cursor(caller.user_id)
    return EventStream(stream_events(segue.listen_user(caller.user_id, cursor), stream))


@router.post("/read")
async def mark_read(segue: SegueDep, thread: ThreadDep, read: ReadIn) -> ThreadOut:
    """The user has read everything up to the position of a message; never moves back."""
    return ThreadOut.of(await segue.mark_read(thread, parse(read.position)))


async def accept_message(connection: HTTPConnection, thread: Thread, new: MessageIn) -> Accepted:
    """Check and store a client's message, over HTTP or a socket."""
    check_lasting(thread)
    check_content(connection, new.content)
    return await segue_of(connection).send(
        thread, new.content, client_message_id=new.client_message_id, strategy=new.strategy
    )


def check_content(connection: HTTPConnection, content: str | list[Any]) -> None:
    """`ApiError` if the server's settings do not allow a message's content."""
    settings = settings_of(connection)
    blocks = [content] if isinstance(content, str) else content
    # Each block costs time whenever it is read.
    if len(blocks) > (most := settings.max_content_blocks):
        detail = f"The content has {len(blocks)} blocks; at most {most} are allowed"
        raise ApiError(422, "content_blocks", f"{detail} (server.max_content_blocks).")
    check_text(blocks, settings.max_text_bytes)
    if not settings.allow_content_urls:
        check_references(content)


def check_text(blocks: list[Any], most: int) -> None:
    """`ApiError` if the text is too long. Unlike a picture, it is repeated in history, search and
    every context.
    """
    texts = (block.get("text") if isinstance(block, dict) else block for block in blocks)
    size = sum(len(text.encode(errors="replace")) for text in texts if isinstance(text, str))
    if size > most:
        detail = f"The text has {size} bytes; at most {most} are allowed (server.max_text_bytes)."
        raise ApiError(422, "content_text", detail)


def check_references(content: str | list[Any]) -> None:
    """`ApiError` if a block has an address that a provider's client might fetch, or the id of a
    file in the operator's account at a provider.
    """
    found = find_reference(content)
    if found is None:
        return
    code, what, instead, others = _REFERENCES[found.kind is ReferenceKind.FILE]
    detail = f"A block of content {what} in {found.name!r:.60}. Send {instead}; {others} need"
    raise ApiError(422, code, f"{detail} server.allow_content_urls.")
