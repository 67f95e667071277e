"""Visits: callers who stay, on a socket or with a stream of events.

They are counted, and whoever would not be let in any more has to go. What that costs follows the
number of keys and tokens that they came with, not the number of visitors.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from starlette.requests import HTTPConnection

from segue.core.errors import BackendError
from segue.server.access import CallerHere, recognise, running_of, settings_of
from segue.server.auth import Caller, bearer
from segue.server.problems import Refusal

EVENT_STREAM: Final = "text/event-stream"
# How often it is looked whether a key or token of visitors still holds.
_LOOK_EVERY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Visit:
    """A caller who stays, and the words that let them in."""

    connection: HTTPConnection
    caller: Caller
    words: str | None

    async def check(self) -> None:
        """`Refusal` if the caller would not be let in any more."""
        if (await recognise(self.connection, self.words)).user_id != self.caller.user_id:
            raise Refusal(401, "unauthorized", "You are somebody else by now.")

    async def over(self) -> None:
        """Wait until the server stops; `Refusal` if the caller has to go before."""
        with self._watched() as watch:
            await asyncio.shield(watch.looking)

    @contextmanager
    def _watched(self) -> Iterator["_Watch"]:
        watches: dict[str | None, _Watch] = self.connection.app.state.watches
        watch = watches.get(self.words)
        if watch is None or watch.looking.done():
            # In a context of its own, since it looks for others as well.
            looking = asyncio.create_task(self._keep_looking(), context=Context())
            watch = watches[self.words] = _Watch(looking)
        watch.visitors += 1
        try:
            yield watch
        finally:
            watch.visitors -= 1
            if not watch.visitors:
                watch.looking.cancel()
                if watches.get(self.words) is watch:
                    del watches[self.words]

    async def _keep_looking(self) -> None:
        stopping = running_of(self.connection).stopping
        while True:
            try:
                async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                with suppress(BackendError):  # nobody can tell just now; the next look is soon
                    await self.check()
            else:
                return


@dataclass(slots=True)
class _Watch:
    """The looks of the first visitor with some words, for all who come with the same.

    Only what the words open can change. Whom a visitor named beside them, and from where they came,
    was checked at the door and stays as it is.
    """

    looking: asyncio.Task[None]
    visitors: int = 0


@contextmanager
def counted(connection: HTTPConnection, caller: Caller, kind: str) -> Iterator[None]:
    """Counts a visit; `Refusal` if its user has too many, of all kinds together."""
    visits: dict[str, Counter[str]] = connection.app.state.visits
    most, user = settings_of(connection).max_sockets_per_user, caller.user_id
    if sum(counts[user] for counts in visits.values()) >= most:
        raise Refusal(429, "sockets", f"At most {most} sockets and event streams for one user.")
    counts = visits[kind]
    counts[user] += 1
    try:
        yield
    finally:
        counts[user] -= 1
        if not counts[user]:
            del counts[user]


async def _stream_visit(request: Request, caller: CallerHere) -> AsyncIterator[Visit]:
    with counted(request, caller, "stream"):
        yield _visit(request, caller)


async def _wanted_visit(
    request: Request, caller: CallerHere, accept: Annotated[str, Header()] = "*/*"
) -> AsyncIterator[Visit | None]:
    if EVENT_STREAM not in accept:
        yield None
        return
    with counted(request, caller, "stream"):
        yield _visit(request, caller)


def _visit(request: Request, caller: Caller) -> Visit:
    return Visit(request, caller, bearer(request.headers.get("Authorization")))


# The scope is said, since the visit has to last as long as the stream does.
VisitHere = Annotated[Visit, Depends(_stream_visit, scope="request")]
WantedVisit = Annotated[Visit | None, Depends(_wanted_visit, scope="request")]
