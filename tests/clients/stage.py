"""What the tests of stock clients share: a server that records, and apps at their own origin."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from playwright.async_api import Browser, Locator, Page, expect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segue.core.triggers import TRIGGER_PROMPTS
from segue.server.settings import ServerSettings
from segue.settings.agents import AgentConfig
from tests.web.stage import Halting, Served, eager

# Milliseconds; only the limit of the whole test should end a wait on a busy machine.
PATIENCE = 200_000.0
expect.set_options(timeout=PATIENCE)


@dataclass
class Traffic:
    """Every request, and every byte that clients got."""

    requests: list[str] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)

    def check_no_trigger(self, page: str = "") -> None:
        """Neither in a page nor in anything that the server sent."""
        everything = page + self.sent.decode()
        assert [each for each in TRIGGER_PROMPTS.values() if each in everything] == []

    def record(self, app: FastAPI) -> None:
        app.add_middleware(_Recorder, traffic=self)


class _Recorder:
    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            self._traffic.requests.append(f"{scope.get('method', 'WS')} {scope['path']}")

        async def record(message: Message) -> None:
            self._traffic.sent += message.get("body") or message.get("bytes") or b""
            self._traffic.sent += (message.get("text") or "").encode()
            await send(message)

        await self._app(scope, receive, record)


@dataclass
class Site:
    """A server, by default with two agents: Ada follows up after a second, Calm after an hour.

    The slow answer waits in its middle until `gate` is set.
    """

    address: str
    served: Served
    traffic: Traffic
    gate: asyncio.Event


@asynccontextmanager
async def serving(folder: str, *agents: AgentConfig, **settings: Any) -> AsyncIterator[Site]:
    traffic, gate = Traffic(), asyncio.Event()
    agents = agents or (eager("ada", "Ada", 1.0), eager("calm", "Calm", 3_600))
    chosen = ServerSettings(port=0, rate_per_minute=None, **settings)
    model = partial(Halting, gate=gate)
    served = Served(folder, chosen, agents, model=model, prepare=traffic.record)
    await served.start()
    try:
        yield Site(served.address, served, traffic, gate)
    finally:
        await served.stop()


class _Files(SimpleHTTPRequestHandler):
    """Without a line in the output for each request."""

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """Files at an origin of their own, as the server of an app has them."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Tab:
    """A tab with an app, and what went wrong in it."""

    page: Page
    mistakes: list[str] = field(default_factory=list)

    async def say(self, text: str) -> None:
        await self.page.get_by_role("textbox").first.fill(text)
        await self.page.keyboard.press("Enter")

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    async def check_shows(self, text: str) -> None:
        await self.log.get_by_text(text).first.wait_for()

    @property
    def words(self) -> Locator:
        """The messages as they are shown, in their order."""
        return self.log.locator("p")


@asynccontextmanager
async def tab_of(browser: Browser, app: str, site: Site, **query: str) -> AsyncIterator[Tab]:
    """A tab of its own profile; it leaves no error in the console, and never gets a trigger."""
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    tab = Tab(page)
    page.on("pageerror", lambda error: tab.mistakes.append(str(error)))
    page.on("console", lambda said: tab.mistakes.extend([said.text] * (said.type == "error")))
    try:
        await page.goto(f"{app}/?{urlencode(query)}")
        yield tab
        site.traffic.check_no_trigger(await page.content())
        assert tab.mistakes == []
    finally:
        await context.close()
