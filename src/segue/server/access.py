"""Dependencies of routes: the running system, the caller, and only the caller's own threads."""

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from structlog.contextvars import bind_contextvars

from segue.core.snowflake import parse
from segue.core.text import check_name
from segue.errors import NotFoundError
from segue.facade import Segue
from segue.journal.records import NESTING, Thread, Turn
from segue.server.auth import PREFIX as KEY_PREFIX
from segue.server.auth import (
    USER_HEADER,
    Authenticate,
    Authenticator,
    Caller,
    RateLimit,
    parse_bearer,
)
from segue.server.problems import ApiError
from segue.server.serving import Lifespan
from segue.server.settings import ServerSettings

_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# A browser can set only the protocols of a socket: `segue` and `bearer.<key>`.
_BEARER: Final = "bearer."
# In place of `Authorization`; LangGraph's clients send it.
API_KEY_HEADER: Final = "X-Api-Key"
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
# Only for the OpenAPI document; `caller_of` reads the header.
BEARER_SCHEME = HTTPBearer(auto_error=False, description="An API key, or a JWT.")


def lifespan_of(connection: HTTPConnection) -> Lifespan:
    found: Lifespan = connection.app.state.lifespan
    return found


def settings_of(connection: HTTPConnection) -> ServerSettings:
    found: ServerSettings = connection.app.state.settings
    return found


def segue_of(connection: HTTPConnection) -> Segue:
    return lifespan_of(connection).segue


def _authenticator(connection: HTTPConnection) -> Authenticator:
    """Created with the first request, because the keys are in the store."""
    state = connection.app.state
    if state.authenticator is None:
        state.authenticator = Authenticator(segue_of(connection), settings_of(connection).jwt)
    found: Authenticator = state.authenticator
    return found


def credentials_of(connection: HTTPConnection) -> str | None:
    """The caller's key or token, if any."""
    return _bearer_of(connection) or connection.headers.get(API_KEY_HEADER) or None


def _bearer_of(connection: HTTPConnection) -> str | None:
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(_BEARER):
            return str(protocol.removeprefix(_BEARER))
    return parse_bearer(connection.headers.get("Authorization"))


async def identify(connection: HTTPConnection) -> Caller:
    """The caller; `ApiError` if the credentials are not valid."""
    authenticate: Authenticate | None = connection.app.state.authenticate
    if authenticate is not None:
        return await _ask(authenticate, connection)
    authenticator, credentials = _authenticator(connection), credentials_of(connection)
    # Clients of other protocols must send a key, even where none is needed.
    if not (credentials or "").startswith(KEY_PREFIX) and await authenticator.is_open():
        _check_local(connection)
        credentials = None
    return await authenticator.authenticate(credentials, _named_user(connection))


async def _ask(authenticate: Authenticate, connection: HTTPConnection) -> Caller:
    """The caller, as the embedding app knows them. A browser may send the app's cookies along with
    the request of another site's page, so that is refused first.
    """
    _check_origin(connection)
    identity = await authenticate(connection)
    if identity is None:
        raise ApiError(401, "unauthorized", "Sign in first.")
    user = check_name(identity.user_id, "user_id")
    return Caller(user, identity.is_operator, key="app")


def _named_user(connection: HTTPConnection) -> str | None:
    """The user named by a header; decoded as UTF-8 like tokens, so that "ä" is one user."""
    if (given := connection.headers.get(USER_HEADER)) is None:
        return None
    try:
        return given.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise ApiError(400, "user", f"{USER_HEADER} is not valid UTF-8.") from None


async def admit(connection: HTTPConnection) -> Caller:
    """The caller; `ApiError` if the credentials are not valid or the rate limit is exceeded."""
    caller = await identify(connection)
    rate: RateLimit = connection.app.state.rate
    rate.take(caller)
    return caller


async def caller_of(connection: HTTPConnection) -> Caller:
    """The caller; found once per request, before its body is read."""
    known: Caller | None = getattr(connection.state, "caller", None)
    return known or await admit(connection)


CallerDep = Annotated[Caller, Depends(caller_of)]


async def require_operator(caller: CallerDep) -> None:
    caller.check_operator()


async def require_local(connection: HTTPConnection) -> None:
    """For pages that need no key: without keys they are for this machine only, like the rest. Links
    to them may be followed from anywhere.
    """
    is_link = connection.headers.get("sec-fetch-mode") == "navigate"
    if connection.app.state.authenticate is not None:  # the embedding app decides
        return
    if lifespan_of(connection).is_ready and await _authenticator(connection).is_open():
        _check_local(connection, may_be_cross_site=is_link)


async def get_own_thread(segue: Segue, caller: Caller, thread_id: str) -> Thread:
    """A thread of the caller. Another user's thread gives the same error as a missing one, and so
    does one in which agents ask each other, which users do not see.
    """
    missing = NotFoundError(f"Thread {thread_id!r:.60} does not exist.")
    try:
        thread = await segue.get_thread(thread_id)
    except NotFoundError:
        raise missing from None
    if thread.user_id != caller.user_id or NESTING in thread.id:
        raise missing
    bind_contextvars(thread_id=thread.id)  # for the request's log lines
    return thread


async def get_own_turn(segue: Segue, thread: Thread, turn_id: str) -> Turn:
    """A turn of a thread. Another thread's turn gives the same error as a missing one."""
    missing = NotFoundError(f"Turn {turn_id!r:.60} does not exist in this thread.")
    try:
        turn = await segue.get_turn(parse(turn_id))
    except NotFoundError:
        raise missing from None
    if turn.thread_id != thread.id:
        raise missing
    return turn


async def _thread_of(connection: HTTPConnection, caller: CallerDep, thread_id: str) -> Thread:
    return await get_own_thread(segue_of(connection), caller, thread_id)


def _check_local(connection: HTTPConnection, *, may_be_cross_site: bool = False) -> None:
    """Without keys, only this machine may call, not through a proxy, and not a web page in the
    user's browser: neither from its own origin, nor under a host name that resolves to here.
    """
    settings = settings_of(connection)
    if not _is_local(connection) and not settings.allowed_hosts:
        raise ApiError(403, "host", "Without keys, this server answers only to this machine.")
    names = _LOCAL_NAMES | set(settings.allowed_hosts)
    if _host_in(f"//{connection.headers.get('host', '')}") not in names:
        detail = "Without keys, this server answers only to names of this machine."
        raise ApiError(403, "host", detail)
    _check_origin(connection, may_be_cross_site=may_be_cross_site)


def _check_origin(connection: HTTPConnection, *, may_be_cross_site: bool = False) -> None:
    """`ApiError` if a browser reports that a page of another origin calls.

    An origin is a scheme, a host and a port: another port of this machine is another origin.
    Requests without `Origin`, such as for a picture or by a link, have `Sec-Fetch-Site`.
    """
    headers, origin = connection.headers, connection.headers.get("origin")
    if origin is not None and origin in settings_of(connection).cors_origins:
        return
    scheme = "https" if connection.url.scheme in {"https", "wss"} else "http"
    own = f"{scheme}://{headers.get('host', '')}".lower()
    is_other = origin is not None and origin.lower() != own
    is_same_site = headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    if is_other or not (is_same_site or may_be_cross_site):
        raise ApiError(403, "origin", "A page of another origin may not call this server.")


def _host_in(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # an invalid IPv6 address
        return None


def _is_local(connection: HTTPConnection) -> bool:
    """Whether the call comes from this machine itself and not from a proxy on it."""
    if any(name in connection.headers for name in _FORWARDED):
        return False
    try:
        return connection.client is None or ip_address(connection.client.host).is_loopback
    except ValueError:  # a test client has a name
        return True


def slot_of(
    connection: HTTPConnection, caller: Caller, kind: str, at_once: int
) -> asyncio.Semaphore:
    """Limits how many operations of a kind run at once for a user; further ones wait."""
    slots: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = connection.app.state.slots
    slot = slots.get((kind, caller.user_id)) or asyncio.Semaphore(at_once)
    slots[kind, caller.user_id] = slot
    return slot


async def _running(connection: HTTPConnection) -> Segue:
    # A coroutine: FastAPI would call a plain function in a thread, for which all requests compete.
    return segue_of(connection)


def _slot(kind: str, at_once: int) -> Any:
    async def hold(connection: HTTPConnection, caller: CallerDep) -> AsyncIterator[None]:
        async with slot_of(connection, caller, kind, at_once):
            yield

    return Depends(hold, scope="request")  # until the response is sent


# Each page may have more than 10 MB, for as long as the client takes to read it.
PAGES: Final = ("pages", 4)
PAGE_SLOT = _slot(*PAGES)
# A search may be slow, and all users share the readers of the database.
SEARCHES: Final = ("searches", 1)
SEARCH_SLOT = _slot(*SEARCHES)
SegueDep = Annotated[Segue, Depends(_running)]
ThreadDep = Annotated[Thread, Depends(_thread_of)]
