"""What the runtime's tests share: models that write as far as they are let, clients with a screen,
and whole processes on the real clock.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import PrivateAttr

from segue.agent.scripted import Line, ScriptedChatModel
from segue.compose import Overrides, System, compose
from segue.core.batch import Batch
from segue.events import (
    Event,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    Payload,
    ToolActivity,
    TurnEnded,
    TurnStarted,
)
from segue.facade import Segue
from segue.journal.records import Thread
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.simulate.world import World, plain_agent

# Far longer than anything takes; a test that waits so long has failed.
PATIENCE = 60.0
HELLO = "Hello there my friend"
EAGER = plain_agent(
    autonomy={
        "delays": {"check_in": 30, "question_unanswered": 30},
        "policy": {"cooldown": 0},
    }
)


class Paced(ScriptedChatModel):
    """A model that writes as many words as it is let, and then waits."""

    _permits: asyncio.Semaphore = PrivateAttr(default_factory=lambda: asyncio.Semaphore(0))
    _is_free: bool = PrivateAttr(default=False)
    _stopped: int = PrivateAttr(default=0)
    _begun: int = PrivateAttr(default=0)

    def let(self, words: int) -> None:
        for _ in range(words):
            self._permits.release()

    def finish(self) -> None:
        """Write on without a stop, now and later."""
        self._is_free = True
        self.let(1)

    @property
    def begun(self) -> int:
        """How often it began to write."""
        return self._begun

    @property
    def stopped(self) -> int:
        """How often it was stopped while it wrote."""
        return self._stopped

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self._begun += 1
        async for piece in super()._astream(*args, **kwargs):
            try:
                if not self._is_free:
                    await self._permits.acquire()
            except asyncio.CancelledError:
                self._stopped += 1
                raise
            yield piece


class Breaking(ScriptedChatModel):
    """A model whose connection breaks after some words, so many times."""

    words: int = 2
    times: int = 1

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        left = self.words if self.times else None
        self.times -= left is not None
        async for piece in super()._astream(*args, **kwargs):
            if left == 0:
                raise ConnectionError("gone")
            left = None if left is None else left - 1
            yield piece


def always(text: str) -> ScriptedChatModel:
    return ScriptedChatModel(script=lambda _: text)


def echo(messages: list[BaseMessage]) -> str:
    """A script: an answer that says what it answers."""
    return f"You said: {messages[-1].text}"


class Held:
    """A line of a script that is not spoken before the test says so."""

    def __init__(self, text: Any = "Here I am.") -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.is_stopped = False
        self._text = text

    async def __call__(self, messages: list[BaseMessage]) -> Any:
        del messages
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.is_stopped = True
            raise
        return self._text


def lines(*given: Line, then: str = "Fine.") -> ScriptedChatModel:
    """A model that says these lines, and after them the same for ever."""
    left = list(given)

    def speak(messages: list[BaseMessage]) -> Any:
        line = left.pop(0) if left else then
        return line(messages) if callable(line) else line

    return ScriptedChatModel(script=speak)


class Tab:
    """A client that listens to a thread, and what is on its screen."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        # When turns began and ended, and their tools.
        self.activity: list[TurnStarted | TurnEnded | ToolActivity] = []
        self.said: list[BaseMessage] = []
        # What is being written, by message.
        self.drafts: dict[str, str] = {}
        self._new = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def events(self) -> list[Payload]:
        return [heard.payload for heard in self.heard]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.said]

    @property
    def draft(self) -> str:
        """The one message that is being written."""
        [text] = self.drafts.values()
        return text

    def count(self, kind: type[Payload]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def see(self, heard: Event) -> None:
        """Put an event on the screen; what no client could make sense of is a failed test."""
        event = heard.payload
        if isinstance(event, TurnStarted | TurnEnded | ToolActivity):
            self.activity.append(event)
            self._new.set()
            return
        self.heard.append(heard)
        if isinstance(event, MessageDelta):
            before = self.drafts.get(event.message_id, "")
            assert event.offset <= len(before), "a piece without what came before it"
            assert event.message_id not in {m.id for m in self.said}, "a piece after its message"
            self.drafts[event.message_id] = before[: event.offset] + event.text
        elif isinstance(event, MessageRetracted):
            assert event.message_id in self.drafts, "there is nothing to take back"
            del self.drafts[event.message_id]
        elif isinstance(event, MessageStored):
            assert event.message.id not in {m.id for m in self.said}, "a message twice"
            assert event.message.id is not None
            self.drafts.pop(event.message.id, None)
            self.said.append(event.message)
        self._new.set()

    async def until(self, is_so: Callable[["Tab"], bool]) -> None:
        """Wait until the screen is so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so(self):
                if self._task is not None and self._task.done():
                    await self._task
                self._new.clear()
                await self._new.wait()

    async def ended(self) -> None:
        """Wait until there is nothing more to hear."""
        assert self._task is not None
        await self._task

    async def until_said(self, text: str) -> None:
        await self.until(lambda tab: text in tab.texts)

    async def until_draft(self, text: str) -> None:
        await self.until(lambda tab: text in tab.drafts.values())

    async def until_heard(self, kind: type[Payload]) -> None:
        await self.until(lambda tab: tab.count(kind) > 0)

    async def read(self, heard: AsyncGenerator[Event], is_so: Callable[["Tab"], bool]) -> None:
        """Read on, one by one, until the screen is so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so(self):
                self.see(await anext(heard))

    async def listen(self, segue: Segue, thread: str, since: str | None) -> None:
        self._task = asyncio.current_task()
        try:
            async with aclosing(pages(segue, thread, since)) as heard:
                async for each in heard:
                    self.see(each)
        finally:
            self._new.set()


def pages(segue: Segue, thread: str, since: str | None = None) -> AsyncGenerator[Event]:
    """The events of a thread, to be closed by whoever asks for them."""
    return segue.listen(thread, since)


def listeners_of(segue: Segue, thread: str) -> int:
    listeners = segue._deps.bus._threads.get(thread)
    return len(listeners.queues) if listeners else 0


@asynccontextmanager
async def tab(segue: Segue, thread: str, since: str | None = "0") -> AsyncIterator[Tab]:
    """A client that listens until the block is left."""
    opened = Tab()
    before = listeners_of(segue, thread)
    task = asyncio.create_task(opened.listen(segue, thread, since))
    try:
        # The bus tells nobody that one more listens.
        while not task.done() and listeners_of(segue, thread) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        yield opened
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class Process:
    """One process on the real clock."""

    segue: Segue
    system: System

    async def only_listen(self) -> None:
        """Leave all turns to others."""
        await self.system.runtime.turns.close(timedelta(0))


@asynccontextmanager
async def process(
    database: str, model: BaseChatModel, agent: AgentConfig | None = None, **settings: Any
) -> AsyncIterator[Process]:
    """A process that works until the block is left.

    It looks so seldom by itself that it hears of others by their word, or not in time.
    """
    seldom = {"poll": timedelta(minutes=1), "patience": timedelta(0)}
    agent = agent or plain_agent()
    chosen = Settings(database=database, agents=(agent,), **{**seldom, **settings})
    async with compose(chosen, Overrides(models={agent.id: model})) as system:
        yield Process(Segue(system), system)


async def new_thread(segue: Segue, user: str = "ann") -> str:
    thread: Thread = await segue.create_thread(user)
    return thread.id


def stored(events: Iterable[Payload]) -> list[str]:
    """The stored things among events, in words."""
    return [
        event.message.text if isinstance(event, MessageStored) else type(event).__name__
        for event in events
        if not isinstance(event, MessageDelta | MessageRetracted)
    ]


def place(cursor: str) -> tuple[int, int]:
    """A cursor as something that can be compared."""
    position, _, number = cursor.partition(".")
    return int(position), int(number or 0)


def calling(name: str, call_id: str = "call-1", text: str = "", **args: Any) -> AIMessage:
    """A line of a script that calls a tool."""
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": call_id}])


async def batches_of(world: World, thread: str) -> list[Batch]:
    """A thread's batches, oldest first."""
    return (await world.journal.messages.tail(thread, max_tokens=1_000_000))[::-1]
