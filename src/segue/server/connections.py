"""Long-lived connections: sockets and event streams.

They are counted per user, and end when their key or token is no longer valid. Re-checking costs per
key or token, not per connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from starlette.requests import HTTPConnection

from segue.errors import BackendError
from segue.server.access import CallerDep, identify, lifespan_of, settings_of
from segue.server.auth import Caller, parse_bearer
from segue.server.problems import ApiError

EVENT_STREAM: Final = "text/event-stream"
_CHECK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LiveConnection:
    """A caller's socket or event stream, with its credentials."""

    connection: HTTPConnection
    caller: Caller
    credentials: str | None

    async def check(self) -> None:
        """`ApiError` if the credentials are no longer valid."""
        caller = await identify(self.connection, self.credentials)
        if caller.user_id != self.caller.user_id:
            detail = "This key now belongs to another user; reconnect."
            raise ApiError(401, "unauthorized", detail)

    async def wait_until_over(self) -> None:
        """Wait until the server stops; `ApiError` if the credentials become invalid."""
        with self._shared_check() as shared:
            await asyncio.shield(shared.task)

    @contextmanager
    def _shared_check(self) -> Iterator["_SharedCheck"]:
        checks: dict[str | None, _SharedCheck] = self.connection.app.state.credential_checks
        shared = checks.get(self.credentials)
        if shared is None or shared.task.done():
            # In an empty context, because it also serves other connections.
            task = asyncio.create_task(self._check_repeatedly(), context=Context())
            shared = checks[self.credentials] = _SharedCheck(task)
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                shared.task.cancel()
                if checks.get(self.credentials) is shared:
                    del checks[self.credentials]

    async def _check_repeatedly(self) -> None:
        stopping = lifespan_of(self.connection).stopping
        while True:
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                with suppress(BackendError):  # check again next time
                    await self.check()
            else:
                return


@dataclass(slots=True)
class _SharedCheck:
    """One check for all connections with the same credentials.

    Only the validity of the credentials can change. The named user and the origin were checked
    when the connection was opened.
    """

    task: asyncio.Task[None]
    users: int = 0


@contextmanager
def count_connection(connection: HTTPConnection, caller: Caller, kind: str) -> Iterator[None]:
    """Count a connection; `ApiError` if its user has too many, of all kinds together."""
    counts: dict[str, Counter[str]] = connection.app.state.connections
    most, user = settings_of(connection).max_sockets_per_user, caller.user_id
    if sum(count[user] for count in counts.values()) >= most:
        detail = f"A user may have at most {most} sockets and event streams."
        raise ApiError(429, "sockets", detail)
    count = counts[kind]
    count[user] += 1
    try:
        yield
    finally:
        count[user] -= 1
        if not count[user]:
            del count[user]


@contextmanager
def _stream_of(request: Request, caller: Caller) -> Iterator[LiveConnection]:
    with count_connection(request, caller, "stream"):
        credentials = parse_bearer(request.headers.get("Authorization"))
        yield LiveConnection(request, caller, credentials)


async def _stream(request: Request, caller: CallerDep) -> AsyncIterator[LiveConnection]:
    with _stream_of(request, caller) as stream:
        yield stream


async def _stream_if_accepted(
    request: Request, caller: CallerDep, accept: Annotated[str, Header()] = "*/*"
) -> AsyncIterator[LiveConnection | None]:
    with _stream_of(request, caller) if EVENT_STREAM in accept else nullcontext() as stream:
        yield stream


# The scope keeps the connection counted until the stream ends.
StreamDep = Annotated[LiveConnection, Depends(_stream, scope="request")]
OptionalStreamDep = Annotated[LiveConnection | None, Depends(_stream_if_accepted, scope="request")]
