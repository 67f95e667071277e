"""The entrance: what happens to every request before and after its route.

It gets an id that stands on each log line, what is too big is refused before it is read, and one
line tells how it ended: method, path and status, never the query, a header or a body.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segue.noting import Tell, watched
from segue.server.problems import MEDIA_TYPE, Problem

logger = logging.getLogger(__name__)

REQUEST_ID: Final = "X-Request-ID"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# What one who calls may tell of the trace that this is a part of.
_TRACE: Final = ("traceparent", "tracestate")
# Asked by machines every few seconds.
_UNWATCHED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

# What browsers are told of every answer: it is what it says it is, and for pages of this server.
_FENCES: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# Route, method, status and seconds of a request that is over.
Observer = Callable[[str, str, int, float], None]


class Entrance:
    """Around the whole app; plain ASGI, so that streams pass through unbuffered."""

    def __init__(
        self,
        app: ASGIApp,
        room_for: Callable[[str], int],
        observe: Observer,
    ) -> None:
        """`room_for`: how many bytes may be sent to a path."""
        self._app = app
        self._room_for = room_for
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                if scope["type"] == "websocket":
                    await self._app(scope, receive, send)
                elif scope["path"] in _UNWATCHED:
                    await self._request(scope, receive, send)
                else:
                    with watched("request", _trace_of(scope), request_id=request_id) as tell:
                        await self._request(scope, receive, send, tell)
            finally:
                # Bound on the way, where they became known.
                structlog.contextvars.unbind_contextvars("thread_id", "batch")

    async def _request(
        self, scope: Scope, receive: Receive, send: Send, tell: Tell | None = None
    ) -> None:
        request_id = scope["state"]["request_id"]
        began, status = time.perf_counter(), 500
        most = self._room_for(scope["path"])
        body = _Body(receive, most)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                header = (REQUEST_ID.lower().encode(), request_id.encode())
                message["headers"] = [*message.get("headers", ()), *_FENCES, header]
            await send(message)

        try:
            if _length(scope) > most:
                await _too_big(answer, most, request_id)
                return
            await self._app(scope, body.receive, answer)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unknown")
            # Anybody can make up methods; there must not be a counter for each.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._observe(route, method, status, seconds)
            if tell is not None:
                tell({"route": route, "method": method, "status": status})
            # As it was sent: a path that is decoded may hold line breaks.
            path = scope.get("raw_path", b"").decode("latin-1") or quote(scope["path"])
            logger.info("%s %s: %d in %.0f ms", method, path, status, seconds * 1_000)


class _TooBig(HTTPException):
    """Of the kind that FastAPI passes on while it reads a body; anything else would be a 400."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"A request has at most {limit} bytes.", {"Connection": "close"})


class _Body:
    """A request's body, as far as it may be read."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._left = limit

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _TooBig(self._limit)
        return message


def _request_id(scope: Scope) -> str:
    """The caller's own, so that both sides' logs can be laid side by side; else a new one."""
    given = dict(scope["headers"]).get(REQUEST_ID.lower().encode(), b"").decode("latin-1")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


def _trace_of(scope: Scope) -> dict[str, str]:
    given = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
    return {name: given[name] for name in _TRACE if name in given}


def _length(scope: Scope) -> int:
    given = dict(scope["headers"]).get(b"content-length", b"0")
    return int(given) if given.isdigit() else 0


async def _too_big(send: Send, limit: int, request_id: str) -> None:
    problem = Problem(
        title="Too big",
        status=413,
        detail=f"A request has at most {limit} bytes.",
        code="too_big",
        request_id=request_id,
    )
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    body = problem.model_dump_json(exclude_none=True).encode()
    await send({"type": "http.response.body", "body": body})
