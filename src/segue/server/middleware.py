"""The handling of every request before and after its route.

A request gets an id, which all its log lines have. The caller is authenticated before the body is
read; a body that is too large, or has too many JSON values, is refused before it is parsed. One log
line reports the method, path and status, never the query, a header or a body.
"""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segue.server.access import BEARER_SCHEME, caller_of, require_operator, slot_of
from segue.server.problems import errors, path_of, problem_of, problem_response
from segue.telemetry import AddFields, span

logger = logging.getLogger(__name__)

REQUEST_ID: Final = "X-Request-ID"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
# Polled every few seconds, so not traced.
_NOT_TRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
# Bytes of a body that are sent at once.
_PIECE: Final = 256 * 1_024
_VALID_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Browsers may neither guess another media type nor embed a response in a page of another origin.
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# JSON values and names in a body or frame; messages have a few hundred at most. A parser's time
# depends on the number of values, not on bytes.
MOST_PARTS: Final = 10_000
# A larger body is held in memory until it is complete, so a user may send only a few at once.
_LARGE_BYTES: Final = 100_000
_LARGE_AT_ONCE: Final = 4

# Route, method, status and seconds of a finished request.
Observer = Callable[[str, str, int, float], None]


class BodyTooLarge(HTTPException):
    """An `HTTPException`, because FastAPI turns other errors while reading a body into a 400."""

    def __init__(self, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(413, detail, headers)


class RequestMiddleware:
    """Around the whole app; plain ASGI, so that streams are not buffered."""

    def __init__(self, app: ASGIApp, observe: Observer) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # The caller's own id connects the logs of both sides.
        given = headers.get(REQUEST_ID, "")
        request_id = given if _VALID_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                if scope["type"] == "websocket":
                    await self._app(scope, receive, send)
                elif path_of(scope) in _NOT_TRACED:
                    await self._request(scope, receive, send)
                else:
                    trace = {name: headers[name] for name in _TRACE_HEADERS if name in headers}
                    with span("request", trace, request_id=request_id) as add_fields:
                        await self._request(scope, receive, send, add_fields)
            finally:
                # Routes bind these when they are known.
                structlog.contextvars.unbind_contextvars("thread_id", "batch")

    async def _request(
        self, scope: Scope, receive: Receive, send: Send, add_fields: AddFields | None = None
    ) -> None:
        request_id = scope["state"]["request_id"]
        began, status = time.perf_counter(), 500

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                header = (REQUEST_ID.lower().encode(), request_id.encode())
                message["headers"] = [*message.get("headers", ()), *_SECURITY_HEADERS, header]
            for piece in _pieces(message):
                await send(piece)
                if piece is not message:
                    await asyncio.sleep(0)  # lets other tasks run, even if the client reads at once

        try:
            await self._app(scope, receive, respond)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unknown")
            # A client can invent methods; they share one counter.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._observe(route, method, status, seconds)
            if add_fields is not None:
                add_fields({"route": route, "method": method, "status": status})
            # Not decoded: a decoded path may contain line breaks.
            path = scope.get("raw_path", b"").decode("latin-1") or quote(scope["path"])
            logger.info("%s %s: %d in %.0f ms", method, path, status, seconds * 1_000)


def _pieces(message: Message) -> Iterator[Message]:
    """Split a response body: uvicorn waits for a slow client only between messages."""
    body = message.get("body", b"")
    if len(body) <= _PIECE:
        yield message
        return
    for start in range(0, len(body), _PIECE):
        end = start + _PIECE
        more_body = end < len(body) or message.get("more_body", False)
        yield {**message, "body": body[start:end], "more_body": more_body}


class BodyLimit:
    """Refuses a body that is too large: by its announced size, or once it has become too large."""

    def __init__(self, app: ASGIApp, max_bytes: Callable[[str], int]) -> None:
        """`max_bytes` is the limit of a body by path."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._max_bytes(path_of(scope))
        if _announced(Headers(scope=scope)) > limit:
            error = _too_large(limit)
            refusal = problem_response(problem_of(error), scope, error.headers)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, _limit_body(receive, limit), send)


def _limit_body(receive: Receive, limit: int) -> Receive:
    left = limit

    async def limited() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise _too_large(limit)
        return message

    return limited


def _too_large(limit: int) -> BodyTooLarge:
    detail = f"The body of a request may have at most {limit} bytes."
    return BodyTooLarge(detail, {"Connection": "close"})


def check_parts(body: bytes) -> None:
    """`BodyTooLarge` if JSON has too many parts: strings, and punctuation outside of strings.

    Only searches for fixed bytes, which is fast for any body.
    """
    if b"\\" in body:  # searching for two bytes takes 30 times as long
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    pieces = body.split(b'"', 2 * MOST_PARTS)
    outside = b"".join(pieces[::2])
    if len(pieces) // 2 + sum(map(outside.count, (b",", b"[", b"{", b":"))) > MOST_PARTS:
        raise BodyTooLarge(f"The JSON of a body or frame may have at most {MOST_PARTS} parts.")


def operation_id(route: APIRoute) -> str:
    """The name of a route's function as generated clients write it: `listThreads`."""
    words = (f"admin_{route.name}" if "admin" in route.tags else route.name).split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def authenticated_router(
    prefix: str, tag: str, *statuses: int, operators: bool = False, in_schema: bool = True
) -> APIRouter:
    """A router for callers with a key or token, or for operators only.

    `statuses` are errors of its routes, besides those that any route may have. `in_schema` if it
    belongs to our own API, which `/docs` describes.
    """
    dependencies = [Depends(BEARER_SCHEME)]
    if operators:
        dependencies.append(Depends(require_operator))
    return APIRouter(
        route_class=_AuthenticatedRoute,
        generate_unique_id_function=operation_id,
        prefix=prefix,
        tags=[tag],
        include_in_schema=in_schema,
        dependencies=dependencies,
        responses=errors(*statuses, 400, 401, 403, 413, 422, 429, 503),
    )


class _AuthenticatedRoute(APIRoute):
    """Authenticates the caller before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def authenticated(request: Request) -> Response:
            request.state.caller = caller = await caller_of(request)
            checked = CheckedRequest(request.scope, request.receive)
            if not _is_large(request):
                return await handle(checked)
            async with slot_of(request, caller, "bodies", _LARGE_AT_ONCE):
                return await handle(checked)

        return authenticated


def _is_large(request: Request) -> bool:
    headers = request.headers
    return _announced(headers) > _LARGE_BYTES or "transfer-encoding" in headers


def _announced(headers: Headers) -> int:
    """The size of a body as its request gives it; 0 if it does not."""
    given = headers.get("content-length", "")
    return int(given) if given.isdecimal() else 0


class CheckedRequest(Request):
    """Counts the parts of a body before it parses it."""

    async def json(self) -> Any:
        body = await self.body()
        is_large = len(body) > _LARGE_BYTES
        return await asyncio.to_thread(parse_json, body) if is_large else parse_json(body)


def parse_json(body: bytes) -> Any:
    """The JSON of a body or frame; half an emoji is read, and replaced when it is stored."""
    check_parts(body)
    with suppress(ValueError):  # json names the mistake, and reads half an emoji
        return from_json(body)
    # `json.loads` of bytes also reads UTF-16, where other bytes are quotation marks, and takes a
    # second for ten megabytes of half emojis.
    return json.loads(body.decode("utf-8-sig"))
