"""A process that is a server: refuses early, says where it is, stops gracefully.

The server answers while the system behind it still opens; if that fails the process ends, since a
server that can never answer helps nobody.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import typer

from segue.agent.local_engine import HONESTLY
from segue.cli.errors import FAILED, tell
from segue.cli.opening import open_journal
from segue.cli.program import program
from segue.core.errors import SegueError
from segue.facade import Segue
from segue.runtime.logs import configure_logging
from segue.server.app import create_app
from segue.server.running import Running
from segue.server.running import __name__ as running_module
from segue.server.serving import check_bind, is_home, open_socket, serving
from segue.server.settings import ServedSettings
from segue.settings import Settings, note_on_first_try
from segue.stores import is_there, place_of


async def serve_until_stopped(settings: ServedSettings) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Turns at work are finished or handed back."""
    server = settings.server
    await _check_bind(settings)
    place = place_of(settings)  # which raises if that is no place
    configure_logging(server.log_level, json=server.log_format == "json")
    bound = open_socket(server)
    over = asyncio.Event()

    @asynccontextmanager
    async def opening() -> AsyncIterator[Segue]:
        try:
            async with Segue.open(settings) as segue:
                yield segue
        finally:
            over.set()

    app = create_app(opening, server)
    if is_home(server.host):  # a path of this machine is of no use to others
        app.state.program = program()
    running: Running = app.state.running
    stop = _stopping_signal()
    with _told_once():
        async with serving(app, bound) as address:
            typer.echo(f"Starting at {address}")
            await _first(running.settled, stop)
            if running.is_ready and not stop.is_set():
                for line in _greeting(settings, place, address):
                    typer.echo(line)
                typer.echo("Ready.")
            await _first(over, stop)
            if stop.is_set():
                typer.echo("Stopping; Ctrl-C again does not wait for what is being written.")
    if running.failure is not None:
        is_told = isinstance(running.failure, SegueError)
        tell(str(running.failure) if is_told else "The system could not be run; see the log.")
        return FAILED
    typer.echo("Stopped.")
    return 0


async def _check_bind(settings: ServedSettings) -> None:
    """Before anything is opened or made: who could reach it, and is there a key?"""
    try:
        check_bind(settings.server, has_keys=False)
    except SegueError:
        check_bind(settings.server, has_keys=await _has_keys(settings))


async def _has_keys(settings: Settings) -> bool:
    if not is_there(settings):
        return False
    async with open_journal(settings) as journal:
        return any(key.revoked_at is None for key in await journal.list_keys())


def _greeting(settings: Settings, place: str, address: str) -> list[str]:
    agents = ", ".join(
        f"{agent.id} ({agent.model if agent.graph is None else 'own graph'})"
        for agent in settings.agents
    )
    # Where it listens to all addresses, one of this machine's own has to be called.
    here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    lines = [
        f"Segue serves at {address}",
        f"  agents   {agents}",
        f"  data     {place}",
        f"  chat     {program()} chat --url {here}",
        f"  routes   {here}/docs",
        "  stop     Ctrl-C",
    ]
    if any(agent.model == "local" and agent.graph is None for agent in settings.agents):
        lines.append(f"The model 'local' is {HONESTLY}.")
    if note := note_on_first_try(settings):
        lines.append(note)
    return lines


def _stopping_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the process as it always would."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def heard() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard)
    return stop


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


@contextmanager
def _told_once() -> Iterator[None]:
    """What Segue raises on purpose is told in one line at the end, and not logged as well."""

    def is_unforeseen(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], SegueError))

    logger = logging.getLogger(running_module)
    logger.addFilter(is_unforeseen)
    try:
        yield
    finally:
        logger.removeFilter(is_unforeseen)
