"""The app: all routes over one `Segue`, for `segue serve` or mounted in another app."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.convertors import PathConvertor
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from segue.errors import UsageError
from segue.facade import Segue
from segue.server import ag_ui, completions, langgraph, mcp, socket
from segue.server.auth import Authenticate, RateLimit
from segue.server.chats import NO_RETRY
from segue.server.metrics import Metrics
from segue.server.middleware import REQUEST_ID, BodyLimit, RequestMiddleware
from segue.server.problems import install, path_of
from segue.server.routes import (
    follow_ups,
    hooks,
    messages,
    operators,
    pages,
    threads,
    transfers,
    users,
    web,
)
from segue.server.routes.transfers import IMPORT
from segue.server.serving import Lifespan, SegueFactory
from segue.server.settings import ServerSettings
from segue.telemetry import observed_by

if TYPE_CHECKING:
    from segue.server.tracing import Tracing

# Bytes of a body without pictures and files.
_WITHOUT_MEDIA: Final = 1_000_000
_OF_HOOK: Final = 100_000
# The ends of paths that take messages, which may have pictures and files.
_WITH_MESSAGES: Final = (
    *("/messages", "/chat/completions", "/run", "/connect"),
    *langgraph.MESSAGE_PATHS,
)
_ROUTERS: Final = {
    "own": (
        users.router,
        threads.router,
        messages.router,
        messages.user_router,
        follow_ups.router,
        follow_ups.reminders,
        hooks.router,
        users.push,
        users.memories,
        operators.router,
        transfers.router,
        transfers.admin,
        pages.health,
        pages.router,
        web.router,
        socket.router,
    ),
    "langgraph": langgraph.ROUTERS,
    "openai": (completions.router,),
    "ag_ui": (ag_ui.router,),
    "mcp": (mcp.router,),
}
# Response headers that pages of other origins may read: clients obey those about trying again.
_EXPOSED: Final = ("Retry-After", completions.THREAD_HEADER, *NO_RETRY)
# The depth of routes whose last name is the rest of the path.
_ANY_DEPTH: Final = -1
# Environment variables with the address of a collector of traces.
_COLLECTORS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def create_app(
    source: Segue | SegueFactory,
    settings: ServerSettings | None = None,
    tracing: "Tracing | None" = None,
    *,
    authenticate: Authenticate | None = None,
) -> FastAPI:
    """An app over a running `Segue`, or over one that it opens and closes itself.

    In the second case all routes but `/healthz` answer 503 until migrations and the self-test are
    done. Without `tracing`, the settings choose the collector. `authenticate` finds the user of
    a request, in place of keys and tokens.
    """
    chosen = settings or ServerSettings()
    lifespan, metrics = Lifespan(source), Metrics()
    chosen_tracing = tracing or _tracing(chosen)

    @asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        traces: AbstractAsyncContextManager[None]
        traces = chosen_tracing.running() if chosen_tracing else nullcontext()
        with observed_by(metrics.observe):
            async with traces, lifespan.run():
                yield

    app = FastAPI(
        title="Segue",
        summary="Agents that speak first.",
        version=version("segue"),
        lifespan=run,
        # FastAPI's own pages load scripts from another host.
        docs_url=None,
        redoc_url=None,
    )
    app.state.authenticate = authenticate
    app.state.lifespan = lifespan
    _add_state(app, chosen, metrics)
    install(app)
    _add_routes(app)
    _add_middleware(app)
    return app


def _add_state(app: FastAPI, settings: ServerSettings, metrics: Metrics) -> None:
    """What requests share: limits, counters and tasks."""
    app.state.settings = settings
    app.state.error_bodies = {}
    app.state.metrics = metrics
    app.state.rate = RateLimit(settings.rate_per_minute)
    app.state.authenticator = None
    app.state.connections = {"socket": Counter(), "stream": Counter()}
    app.state.credential_checks = {}
    app.state.windows = WeakValueDictionary[str, langgraph.SharedWindow]()
    app.state.background = set[asyncio.Task[object]]()
    app.state.simulating = asyncio.Lock()
    app.state.slots = WeakValueDictionary[tuple[str, str], asyncio.Semaphore]()
    metrics.sockets.set_function(app.state.connections["socket"].total)


def _add_routes(app: FastAPI) -> None:
    """Our own, and those of other protocols, with errors in their form."""
    settings: ServerSettings = app.state.settings
    routes = [*_routes_of("own")]
    if settings.langgraph is not None:
        routes += _routes_of("langgraph", settings.langgraph.rstrip("/"))
    if settings.openai:
        routes += _routes_of("openai")
        app.state.error_bodies[completions.PREFIX] = completions.error_body
    if settings.ag_ui:
        routes += _routes_of("ag_ui")
    if settings.mcp:
        routes += _routes_of("mcp")
        app.state.error_bodies[mcp.PATH] = mcp.error_body
    app.router.routes += [RouteIndex(routes), *routes]


@cache
def _routes_of(protocol: str, prefix: str = "") -> tuple[BaseRoute, ...]:
    """All apps of a process share them: FastAPI takes half a second to prepare them.

    A router that is included is matched as a whole, and then once more inside.
    """
    if not prefix:
        return tuple(route for router in _ROUTERS[protocol] for route in router.routes)
    together = APIRouter()
    for router in _ROUTERS[protocol]:
        together.include_router(router, prefix=prefix)
    return tuple(together.routes)


class RouteIndex(BaseRoute):
    """The first of all routes: finds the right one by the method, the first name of the path and
    its number of names, since matching a request against 130 patterns costs more than many answers.

    Other requests, such as a path with a wrong method, are left to the routes themselves.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes: dict[tuple[str, str, int], list[BaseRoute]] = {}
        for route in routes:
            if not isinstance(route, APIRoute | APIWebSocketRoute):
                continue
            is_deep = any(isinstance(c, PathConvertor) for c in route.param_convertors.values())
            for method in getattr(route, "methods", ("",)):
                first, depth = _beginning(route.path_format)
                key = (method, first, _ANY_DEPTH if is_deep else depth)
                self._routes.setdefault(key, []).append(route)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        method, (first, depth) = scope.get("method", ""), _beginning(path_of(scope))
        for each in (depth, _ANY_DEPTH):
            for route in self._routes.get((method, first, each), ()):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    return match, found
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)


def _beginning(path: str) -> tuple[str, int]:
    """The first name of a path, and the number of all."""
    return path[1 : end if (end := path.find("/", 1)) > 0 else None], path.count("/")


def _add_middleware(app: FastAPI) -> None:
    """The last one added is the outermost."""
    settings: ServerSettings = app.state.settings
    metrics: Metrics = app.state.metrics
    # Inside of CORS, so that pages of other origins can read that a body is too large.
    app.add_middleware(BodyLimit, max_bytes=partial(_max_bytes, settings))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[*settings.cors_origins],
            allow_methods=["*"],
            allow_headers=["*"],  # clients send headers of their own, such as X-Stainless-Lang
            expose_headers=[REQUEST_ID, *_EXPOSED, *langgraph.EXPOSED],
        )
    app.add_middleware(RequestMiddleware, observe=metrics.observe_request)


def _max_bytes(settings: ServerSettings, path: str) -> int:
    """The limit of a body; only messages have pictures and files."""
    if path == IMPORT:
        return settings.max_import_bytes
    if path.startswith("/api/hooks/"):  # read before its sender is known
        return _OF_HOOK
    most = settings.max_body_bytes
    return most if path.endswith(_WITH_MESSAGES) else min(most, _WITHOUT_MEDIA)


def _tracing(settings: ServerSettings) -> "Tracing | None":
    """`UsageError` if `server.traces` is set without the extra."""
    if settings.traces is None and not any(os.environ.get(name) for name in _COLLECTORS):
        return None
    try:
        from segue.server.tracing import Tracing  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if settings.traces is None:  # the environment may be meant for other programs
            return None
        raise UsageError(f"server.traces needs {error.name}; pip install 'segue[otel]'.") from error
    return Tracing.to(settings.traces)
