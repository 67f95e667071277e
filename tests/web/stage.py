"""What the tests of the page share: a server with a scripted model, and a real browser.

Waits are for conditions; the clock is real, so a follow-up comes a second after its reply.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt
from playwright.async_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    async_playwright,
    expect,
)

from segue.agent.scripted import Answer, ScriptedChatModel
from segue.compose import Overrides, compose
from segue.core.triggers import TRIGGER_PROMPTS
from segue.facade import Segue
from segue.journal.journal import Journal
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.simulate.world import plain_agent, with_graph

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
    "--disable-dev-shm-usage",
]
# Milliseconds; it only ends a wait that hangs, and a busy machine may take long.
PATIENCE = 150_000.0
expect.set_options(timeout=PATIENCE)
# The id of the conversation that is drawn; the element knows of the next one a frame before.
SHOWN = """(document.querySelector("segue-app")?.shadowRoot
  ?.querySelector("segue-conversation")?.shadowRoot
  ?.querySelector("segue-composer")?.thread ?? null)"""
HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(1)>
[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x) [rel](/api/me) [good](https://example.org)
![p](https://example.org/p.png) ![q](javascript:alert(1))

<iframe src="https://example.org"></iframe><svg onload=alert(1)>"""
FOLLOW_UP = "Did G and C work out?"
SLOW = " ".join(f"word{number}" for number in range(400))
ANSWERS = {
    "chords": "Start with **G**, then `C`. Shall we go on?",
    "hostile": HOSTILE,
    "slow": SLOW,
    "bye": "Good night.",
}


def script(messages: list[BaseMessage]) -> AIMessage | BaseException:
    """Answers by a word of the last message; a trigger gets the follow-up."""
    text = messages[-1].text
    if text in TRIGGER_PROMPTS.values():
        return AIMessage(FOLLOW_UP)
    if "use tools" in text:
        calls = [{"name": "look_up", "args": {"what": each}, "id": each} for each in ("C", "G")]
        return AIMessage("", tool_calls=calls)
    if "fail" in text:
        return ValueError("The model is broken.")
    return AIMessage(next((a for word, a in ANSWERS.items() if word in text), f"You said: {text}"))


@tool
async def look_up(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(0.5)
    return f"Found {what}."


def eager(id: str, name: str, seconds: float) -> AgentConfig:
    """An agent that follows up after some seconds, once."""
    kinds = ("question_unanswered", "waiting_for_decision", "check_in", "task_incomplete")
    policy = {
        "min_delay": 0.1,
        "max_consecutive": 1,
        "cooldown": 0,
        "max_per_day": 1_000,
        "typing_hold": 0,
        "talking_hold": 0,
    }
    autonomy = {"delays": dict.fromkeys(kinds, seconds), "policy": policy}
    return plain_agent(id, name=name, autonomy=autonomy, tools=(look_up,))


def asker() -> AgentConfig:
    """An agent that asks back before it answers."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda _: {"messages": [AIMessage(f"So: {interrupt('For eight?')}")]})
    builder.add_edge(BEGIN, "ask")
    return with_graph(plain_agent("asker", name="Asker"), builder)


class Halting(ScriptedChatModel):
    """Writes the second half of the slow answer when its gate is open."""

    gate: asyncio.Event

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **_options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in super()._astream(messages):
            if piece.text.strip() == "word200":
                await self.gate.wait()
            yield piece


@dataclass
class Served:
    """A server that can be stopped and started again on its port."""

    folder: str
    settings: ServerSettings
    agents: Sequence[AgentConfig]
    answer: Answer = script
    delay: float = 0.005
    model: Callable[..., ScriptedChatModel] = ScriptedChatModel
    prepare: Callable[[FastAPI], None] = lambda _: None
    address: str = ""
    segue: Segue = field(init=False)
    journal: Journal = field(init=False)
    _running: AsyncExitStack | None = None

    async def start(self) -> None:
        stack = AsyncExitStack()
        chosen = Settings(database=self.folder, agents=tuple(self.agents), max_attempts=1)
        models = {
            agent.id: self.model(script=self.answer, delay=self.delay, keep=10)
            for agent in self.agents
            if agent.graph is None
        }
        system = await stack.enter_async_context(compose(chosen, Overrides(models=models)))
        self.segue, self.journal = Segue(system), system.deps.journal
        app = create_app(self.segue, self.settings)
        self.prepare(app)
        bound = open_socket(self.settings)
        self.address = await stack.enter_async_context(serving(app, bound))
        port = int(self.address.rpartition(":")[2])
        self.settings = self.settings.model_copy(update={"port": port})
        self._running = stack

    async def stop(self) -> None:
        if self._running is not None:
            await self._running.aclose()
        self._running = None


@asynccontextmanager
async def served(folder: str, *agents: AgentConfig, **settings: Any) -> AsyncIterator[Served]:
    """The slow answer stays in its middle."""
    chosen = ServerSettings(port=0, rate_per_minute=None, **settings)
    model = partial(Halting, gate=asyncio.Event())
    site = Served(folder, chosen, agents or (eager("ada", "Ada", 1.0),), model=model)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


def chromium() -> str:
    """Where it is; without one the tests are skipped, but not where all tests have to run."""
    found = shutil.which("chromium")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is missing; see .ci/run.")
    return found or pytest.skip("Chromium is not installed (Debian: apt-get install chromium).")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Tab:
    """A tab that shows the page, and what went wrong in it."""

    page: Page
    mistakes: list[str]

    async def say(self, text: str) -> None:
        box = self.page.get_by_role("textbox", name="Write to")
        await box.fill(text)
        await box.press("Enter")

    async def begin(self, agent: str | None = None) -> None:
        """A new conversation; until it is drawn, the page shows the one before."""
        before = await self.page.evaluate(SHOWN)
        await self.page.get_by_role("button", name="New", exact=True).click()
        if agent is not None:
            await self.page.get_by_role("button", name=agent, exact=True).click()
        await self.page.wait_for_function(
            f"before => ![null, before].includes({SHOWN})", arg=before
        )
        await self.page.wait_for_url(f"**/#/t/{await self.page.evaluate(SHOWN)}")
        await self.log.wait_for()

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    async def check_shows(self, text: str) -> None:
        """Waits until a text is among the messages, be it still written."""
        await expect(self.log.get_by_text(text).first).to_be_visible()

    async def check_wrote_first(self, text: str) -> None:
        """Waits until a follow-up is stored."""
        await self.check_shows(text)
        await self.log.get_by_role("button", name="why?").first.wait_for()

    async def words(self) -> list[str]:
        """The messages as they are shown, in their order."""
        found: list[str] = await self.page.evaluate(
            """() => {
              const app = document.querySelector("segue-app").shadowRoot;
              const log = app.querySelector("segue-conversation").shadowRoot;
              return [...log.querySelectorAll("segue-message")].map((each) =>
                each.shadowRoot.querySelector(".text, .prose").textContent);
            }"""
        )
        return found


@asynccontextmanager
async def tab_of(browser: Browser, site: Served, **options: Any) -> AsyncIterator[Tab]:
    """A tab of its own profile on the page; it must leave no mistake in the console."""
    context = await browser.new_context(**options)
    try:
        yield (tab := await open_tab(context, site.address))
        assert tab.mistakes == []
    finally:
        await context.close()


async def open_tab(context: BrowserContext, address: str) -> Tab:
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    tab = Tab(page, [])
    page.on("console", lambda said: _note(tab, said.type, said.text))
    page.on("pageerror", lambda error: tab.mistakes.append(str(error)))
    await page.goto(f"{address}/")
    return tab


def _note(tab: Tab, kind: str, text: str) -> None:
    if kind in {"error", "warning"}:
        tab.mistakes.append(text)
