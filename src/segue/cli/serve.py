"""`segue serve`: runs the server of the settings until it is stopped."""

import asyncio
import ctypes
import gc
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from segue.cli.output import FAILED, print_error, program
from segue.cli.reload import (
    child_command,
    inherited_listener,
    look_at,
    serve_with_reload,
    stop_without_parent,
    wait_for_any,
    watched_folders,
)
from segue.cli.target import Place
from segue.errors import SegueError
from segue.facade import Segue
from segue.offline import open_offline
from segue.server.app import create_app
from segue.server.serving import EventLoop, Lifespan, check_bind, is_loopback, open_socket, serving
from segue.server.settings import ServedSettings
from segue.settings import Settings, load_settings, note_on_first_try
from segue.settings.loading import FILE
from segue.settings.settings import LOCAL_MODEL_NOTE
from segue.stores import describe_location, is_there
from segue.telemetry import configure_logging

# M_ARENA_MAX of malloc.h.
_ARENA_MAX: Final = -8
_HEAPS: Final = 2


async def serve_until_stopped(settings: ServedSettings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Turns finish or are released."""
    server = settings.server
    if not is_loopback(server.host):  # refused before anything is opened or created
        check_bind(server, has_keys=await _has_keys(settings))
    place = describe_location(settings)  # raises if the address is invalid
    configure_logging(server.log_level, json=server.log_format == "json")
    descriptor = inherited_listener()
    bound = open_socket(server, descriptor)
    app = create_app(partial(Segue.open, settings), server)
    lifespan: Lifespan = app.state.lifespan
    lifespan.logs_segue_errors = False
    stop = _handle_stop_signals()
    if descriptor is not None:
        lifespan.opens_first = True
        stop_without_parent(stop)
    async with serving(app, bound) as address:
        typer.echo(f"Starting at {address}")
        await wait_for_any(lifespan.started, stop)
        if lifespan.is_ready and not stop.is_set():
            await _warm_up(app)
            for line in _greeting(settings, place, address):
                typer.echo(line)
            typer.echo("Ready.")
        await wait_for_any(lifespan.closed, stop)
        if stop.is_set():
            typer.echo("Stopping; Ctrl-C again stops at once.")
    if lifespan.failure is not None:
        is_ours = isinstance(lifespan.failure, SegueError)
        print_error(
            str(lifespan.failure) if is_ours else "The system failed to start; see the log."
        )
        return FAILED
    typer.echo("Stopped.")
    return 0


async def _warm_up(app: FastAPI) -> None:
    """Do now what would block the event loop later on."""
    # Builds the routes, otherwise with the first request, and loads the backend of event streams.
    await run_in_threadpool(app.openapi)
    # A full garbage collection visits all that was loaded, unless it is frozen.
    gc.collect()
    gc.freeze()


def _limit_heaps() -> None:
    """Glibc gives each thread its own heap, which keeps the memory of past large messages."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _HEAPS)


async def _has_keys(settings: Settings) -> bool:
    if not is_there(settings):
        return False
    async with open_offline(settings) as segue:
        return any(key.revoked_at is None for key in await segue.list_keys())


def _greeting(settings: Settings, place: str, address: str) -> list[str]:
    agents = ", ".join(
        f"{agent.id} ({agent.model if agent.graph is None else 'own graph'})"
        for agent in settings.agents
    )
    # A server on all addresses is called by one of this machine.
    here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    lines = [
        f"Segue serves at {address}",
        f"  agents   {agents}",
        f"  data     {place}",
        f"  page     {here}/",
        f"  chat     {program()} chat --url {here}",
        f"  routes   {here}/docs",
        "  stop     Ctrl-C",
    ]
    if (deleted := settings.retention.deleted) is not None:
        lines.insert(3, f"  deletes  {deleted}; at each start and once a day")
    if any(agent.model == "local" and agent.graph is None for agent in settings.agents):
        lines.append(f"The model 'local' is {LOCAL_MODEL_NOTE}.")
    if note := note_on_first_try(settings):
        lines.append(note)
    return lines


def _handle_stop_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the process as usual."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def handle() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
    return stop


def serve(
    *,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; overrides server.host.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Overrides server.port; 0 takes any free port.", min=0, max=65_535),
    ] = None,
    verbose: Annotated[bool, "Also log each request and each turn."] = False,
    reload: Annotated[bool, "Restart when code or settings change; for development."] = False,
    place: Place,
) -> None:
    """Serve the agents of the settings over REST, WebSocket and server-sent events.

    Without settings: one agent with the local model, or a scripted one if that is not installed,
    on SQLite, for this machine only.
    """
    settings = load_settings(
        place.config,
        kind=ServedSettings,
        database=place.database,
        server__host=host,
        server__port=port,
        server__log_level="info" if verbose else None,
    )
    _limit_heaps()
    run = _reload(settings, place.config) if reload else serve_until_stopped(settings)
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        raise typer.Exit(runner.run(run))


async def _reload(settings: ServedSettings, config: Path | None) -> int:
    with open_socket(settings.server) as bound:
        bound.listen()  # clients that connect before the first child is ready wait
        look = partial(look_at, config or Path(FILE), watched_folders(settings))
        stop = _handle_stop_signals()
        return await serve_with_reload(bound.fileno(), stop, look, child_command())
