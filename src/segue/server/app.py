"""The app: all routes over one `Segue`, to be served by `segue serve` or inside another app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from segue.facade import Segue
from segue.runtime.noting import observed_by
from segue.server import admin, follow_ups, health, memories, socket, talk, threads
from segue.server.access import SHOWN
from segue.server.auth import USER_HEADER, RateLimit
from segue.server.entrance import REQUEST_ID, Entrance
from segue.server.metrics import Metrics
from segue.server.problems import install
from segue.server.running import Opening, Running
from segue.server.settings import ServerSettings


def create_app(source: Segue | Opening, settings: ServerSettings | None = None) -> FastAPI:
    """An app over a running `Segue`, or over one that it opens and closes itself.

    In the second case it answers at once, `/readyz` says 503, and everything else too, until
    migrations and the self-test are done.
    """
    chosen = settings or ServerSettings()
    running, metrics = Running(source), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        with observed_by(metrics.observe):
            async with running.lifespan():
                yield

    app = FastAPI(
        title="Segue",
        summary="Agents that speak first.",
        version=version("segue"),
        lifespan=lifespan,
    )
    app.state.settings = chosen
    app.state.running = running
    app.state.metrics = metrics
    app.state.rate = RateLimit(chosen.rate_per_minute)
    app.state.doorkeeper = None
    app.state.sockets = {}
    install(app)
    for module in (threads, talk, follow_ups, memories, admin):
        app.include_router(module.router, dependencies=[Depends(SHOWN)])
    for module in (health, socket):
        app.include_router(module.router)
    if chosen.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[*chosen.cors_origins],
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", USER_HEADER],
            expose_headers=[REQUEST_ID],
        )
    app.add_middleware(
        Entrance, max_body_bytes=chosen.max_body_bytes, observe=metrics.observe_request
    )
    return app
