"""What a route needs: the running system, who calls, and only what belongs to the caller."""

from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from structlog.contextvars import bind_contextvars

from segue.core.errors import NotFoundError
from segue.core.snowflake import parse
from segue.facade import Segue
from segue.journal.ports import Journal
from segue.journal.records import Thread, Turn
from segue.runtime.thread_service import ThreadService
from segue.server.auth import USER_HEADER, Caller, Doorkeeper, RateLimit, bearer
from segue.server.problems import Refusal
from segue.server.running import Running
from segue.server.settings import ServerSettings

_HOME: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
# Only so that the documentation shows how to come in; `caller_of` reads the header.
SHOWN = HTTPBearer(auto_error=False, description="An API key, or a JWT.")


def running_of(connection: HTTPConnection) -> Running:
    found: Running = connection.app.state.running
    return found


def settings_of(connection: HTTPConnection) -> ServerSettings:
    found: ServerSettings = connection.app.state.settings
    return found


def segue_of(connection: HTTPConnection) -> Segue:
    return running_of(connection).segue


def journal_of(connection: HTTPConnection) -> Journal:
    return segue_of(connection).composed.parts.journal


def threads_of(connection: HTTPConnection) -> ThreadService:
    return segue_of(connection).composed.threads


async def recognise(connection: HTTPConnection, words: str | None) -> Caller:
    """Who calls; `Refusal` if that is not known."""
    doorkeeper = _doorkeeper(connection)
    if words is None and await doorkeeper.is_open():
        _check_home(connection, settings_of(connection))
    return await doorkeeper.let_in(words, _named_user(connection))


def _named_user(connection: HTTPConnection) -> str | None:
    """The user that a header names, in UTF-8 as in tokens, so that "ä" is one user."""
    if (given := connection.headers.get(USER_HEADER)) is None:
        return None
    try:
        return given.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise Refusal(400, "user", f"{USER_HEADER} is not UTF-8.") from None


async def let_in(connection: HTTPConnection, words: str | None) -> Caller:
    """Who calls; `Refusal` if that is not known, or if they have to wait."""
    caller = await recognise(connection, words)
    rate: RateLimit = connection.app.state.rate
    rate.take(caller)
    return caller


async def caller_of(connection: HTTPConnection) -> Caller:
    """Who calls; asked once for a request, before its body is read (`segue.server.guard`)."""
    known: Caller | None = getattr(connection.state, "caller", None)
    return known or await let_in(connection, bearer(connection.headers.get("Authorization")))


CallerHere = Annotated[Caller, Depends(caller_of)]


async def operator_of(connection: HTTPConnection) -> Caller:
    caller = await caller_of(connection)
    caller.check_operator()
    return caller


async def at_home(connection: HTTPConnection) -> None:
    """For what is shown without a key: where there are none, it is for this machine alone too."""
    if running_of(connection).is_ready and await _doorkeeper(connection).is_open():
        _check_home(connection, settings_of(connection))


async def own_thread(journal: Journal, caller: Caller, thread_id: str) -> Thread:
    """A thread of the caller's. Of another's it is not even said that it is there."""
    missing = NotFoundError(f"There is no thread {thread_id!r:.60}.")
    try:
        thread = await journal.get_thread(thread_id)
    except NotFoundError:
        raise missing from None
    if thread.user_id != caller.user_id:
        raise missing
    bind_contextvars(thread_id=thread.id)  # for the request's log lines
    return thread


async def own_turn(journal: Journal, thread: Thread, turn_id: str) -> Turn:
    """A turn of a thread. Of another thread's it is not even said that it is there."""
    missing = NotFoundError(f"There is no turn {turn_id!r:.60} in this thread.")
    try:
        turn = await journal.get_turn(parse(turn_id))
    except NotFoundError:
        raise missing from None
    if turn.thread_id != thread.id:
        raise missing
    return turn


async def thread_of(connection: HTTPConnection, caller: CallerHere, thread_id: str) -> Thread:
    """The thread that a path names, if it is the caller's."""
    return await own_thread(journal_of(connection), caller, thread_id)


def _doorkeeper(connection: HTTPConnection) -> Doorkeeper:
    """Made with the first request, since the keys are in the store."""
    state = connection.app.state
    if state.doorkeeper is None:
        state.doorkeeper = Doorkeeper(journal_of(connection), settings_of(connection).jwt)
    found: Doorkeeper = state.doorkeeper
    return found


def _check_home(connection: HTTPConnection, settings: ServerSettings) -> None:
    """Without keys, only this machine may call, and for itself: nobody through a proxy, and no page
    in the user's browser behind its back, neither under a name of its own that leads here, nor from
    its own origin.
    """
    if not _is_here(connection) and not settings.allowed_hosts:
        raise Refusal(403, "host", "Without keys, this server answers only to this machine.")
    names = _HOME | set(settings.allowed_hosts)
    if _host_in(f"//{connection.headers.get('host', '')}") not in names:
        detail = "Without keys, this server answers only to names of this machine."
        raise Refusal(403, "host", detail)
    if _is_of_another_page(connection, settings):
        raise Refusal(403, "origin", "A page of another origin may not call this server.")


def _is_of_another_page(connection: HTTPConnection, settings: ServerSettings) -> bool:
    """Whether a browser says that a page calls which is not this server's own.

    An origin is a scheme, a host and a port: what another port of this machine serves is another
    page. Requests without an `Origin`, such as for a picture, are known by `Sec-Fetch-Site`; to
    follow a link from elsewhere harms nobody.
    """
    headers, origin = connection.headers, connection.headers.get("origin")
    if origin is not None and origin in settings.cors_origins:
        return False
    scheme = "https" if connection.url.scheme in {"https", "wss"} else "http"
    if origin is not None and origin.lower() != f"{scheme}://{headers.get('host', '')}".lower():
        return True
    if headers.get("sec-fetch-site", "none") in {"none", "same-origin"}:
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate"
    return not (is_link and connection.scope.get("method") == "GET")


def _host_in(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # half a bracket, or what is no address in one
        return None


def _is_here(connection: HTTPConnection) -> bool:
    """Whether the call comes from this machine itself; a proxy says that it passes it on."""
    if any(name in connection.headers for name in _FORWARDED):
        return False
    try:
        return connection.client is None or ip_address(connection.client.host).is_loopback
    except ValueError:  # a test's client has a name
        return True


SegueHere = Annotated[Segue, Depends(segue_of)]
JournalHere = Annotated[Journal, Depends(journal_of)]
ThreadHere = Annotated[Thread, Depends(thread_of)]
ThreadServiceHere = Annotated[ThreadService, Depends(threads_of)]
