"""A server on a thread and a loop of its own, watched while a test does its worst to it."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from langchain_core.messages import BaseMessage

from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides, compose
from segue.facade import Segue
from segue.runtime.turn_failures import __name__ as endings
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.testing.watchdog import Stall, Watchdog
from tests.server.clients import PATIENCE, Site

Speak = Callable[[list[BaseMessage]], str]


class Faults(logging.Handler):
    """What the log says of errors that were not foreseen."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # That a turn failed, such as for a message that no context has room for, is foreseen.
        is_error = record.levelno >= logging.ERROR and record.name != endings
        if is_error or record.exc_info:
            self.found.append(f"{record.name}: {record.getMessage()} {record.exc_info}")


@dataclass
class Watched:
    """What was seen of the server: where its loop was held, and what its log says of errors."""

    site: Site
    watchdog: Watchdog
    faults: list[str]

    def take_held(self) -> list[Stall]:
        """Where the loop was held since this was asked last."""
        held, self.watchdog.held = self.watchdog.held, []
        return held


@dataclass
class _Server:
    """Runs on its own thread until it is told to stop."""

    database: str
    agent: AgentConfig
    speak: Speak
    ready: threading.Event = field(default_factory=threading.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""
    watchdog: Watchdog | None = None
    loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        self.loop, self.watchdog = asyncio.get_running_loop(), Watchdog()
        settings = Settings(database=self.database, agents=(self.agent,))
        model = ScriptedChatModel(script=self.speak, keep=0)
        chosen = ServerSettings(rate_per_minute=None, port=0)
        async with (
            compose(settings, Overrides(models={self.agent.id: model})) as system,
            serving(create_app(Segue(system), chosen), open_socket(chosen)) as self.address,
        ):
            self.watchdog.start()
            self.ready.set()
            try:
                await self.stop.wait()
            finally:
                self.watchdog.stop()


@asynccontextmanager
async def watched_site(database: str, agent: AgentConfig, speak: Speak) -> AsyncIterator[Watched]:
    """Serve on a free port, on the real clock, until the block is left."""
    server, faults = _Server(database, agent, speak), Faults()
    thread = threading.Thread(target=server.run, name="server")
    logging.root.addHandler(faults)
    thread.start()
    try:
        await asyncio.to_thread(server.ready.wait)
        gc.freeze()  # what pytest and its plugins hold is no part of a server
        assert server.watchdog is not None
        assert server.address
        async with httpx.AsyncClient(base_url=server.address, timeout=PATIENCE) as client:
            yield Watched(Site(server.address, client), server.watchdog, faults.found)
    finally:
        if server.loop is not None and not server.loop.is_closed():
            server.loop.call_soon_threadsafe(server.stop.set)
        await asyncio.to_thread(thread.join)
        gc.unfreeze()
        logging.root.removeHandler(faults)
