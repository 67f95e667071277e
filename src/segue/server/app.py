"""The app: all routes over one `Segue`, to be served by `segue serve` or inside another app."""

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from segue.core.errors import UsageError
from segue.facade import Segue
from segue.noting import observed_by
from segue.server import (
    admin,
    follow_ups,
    health,
    memories,
    pages,
    socket,
    stats,
    talk,
    threads,
    transfers,
)
from segue.server.access import SHOWN
from segue.server.auth import USER_HEADER, RateLimit
from segue.server.entrance import REQUEST_ID, Entrance
from segue.server.metrics import Metrics
from segue.server.problems import install
from segue.server.running import Opening, Running
from segue.server.settings import ServerSettings
from segue.server.transfers import IMPORT

if TYPE_CHECKING:
    from segue.server.tracing import Tracing

# How many bytes a body may have that holds no pictures or files.
_WITHOUT_MEDIA: Final = 1_000_000
# By which the environment names a collector of traces.
_COLLECTORS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def create_app(
    source: Segue | Opening,
    settings: ServerSettings | None = None,
    tracing: "Tracing | None" = None,
) -> FastAPI:
    """An app over a running `Segue`, or over one that it opens and closes itself.

    In the second case it answers at once, `/readyz` says 503, and everything else too, until
    migrations and the self-test are done. Without `tracing`, traces go where the settings say.
    """
    chosen = settings or ServerSettings()
    running, metrics = Running(source), Metrics()
    traced = tracing or _tracing(chosen)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        following: AbstractAsyncContextManager[None] = traced.running() if traced else nullcontext()
        with observed_by(metrics.observe):
            async with following, running.lifespan():
                yield

    app = FastAPI(
        title="Segue",
        summary="Agents that speak first.",
        version=version("segue"),
        lifespan=lifespan,
        # FastAPI's own load their files from another host.
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = chosen
    app.state.running = running
    app.state.metrics = metrics
    app.state.rate = RateLimit(chosen.rate_per_minute)
    app.state.doorkeeper = None
    app.state.program = "segue"  # what people type; the command line knows its path
    app.state.visits = {"socket": Counter(), "stream": Counter()}
    app.state.watches = {}
    metrics.sockets.set_function(app.state.visits["socket"].total)
    install(app)
    _add_routes(app)
    _add_middleware(app)
    return app


def _add_routes(app: FastAPI) -> None:
    for module in (threads, talk, follow_ups, memories, admin, stats):
        app.include_router(module.router, dependencies=[Depends(SHOWN)])
    for router in (transfers.router, transfers.admin):
        app.include_router(router, dependencies=[Depends(SHOWN)])
    for module in (health, socket, pages):
        app.include_router(module.router)


def _add_middleware(app: FastAPI) -> None:
    """The last one added is the outermost."""
    settings: ServerSettings = app.state.settings
    metrics: Metrics = app.state.metrics
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[*settings.cors_origins],
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", USER_HEADER],
            expose_headers=[REQUEST_ID],
        )
    app.add_middleware(
        Entrance,
        room_for=partial(_room_for, settings),
        observe=metrics.observe_request,
    )


def _room_for(settings: ServerSettings, path: str) -> int:
    """Only messages have pictures and files."""
    if path == IMPORT:
        return settings.max_import_bytes
    most = settings.max_body_bytes
    return most if path.endswith("/messages") else min(most, _WITHOUT_MEDIA)


def _tracing(settings: ServerSettings) -> "Tracing | None":
    """`UsageError` if traces are set and cannot be made."""
    if settings.traces is None and not any(os.environ.get(name) for name in _COLLECTORS):
        return None
    try:
        from segue.server.tracing import Tracing  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if settings.traces is None:  # the environment may speak to others
            return None
        raise UsageError(f"server.traces needs {error.name}; pip install 'segue[otel]'.") from error
    return Tracing.to(settings.traces)
