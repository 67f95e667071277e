"""What the stories share: agents that grow impatient, models that can be held up, and questions
about what came of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import PrivateAttr

from segue.agent.scripted import Line, ScriptedChatModel
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.events import Payload, ProgressReported, ToolActivity, TurnEnded, TurnStarted
from segue.journal.records import NewTimer, Timer, TurnKind
from segue.runtime.bus import Bus
from segue.runtime.clock import sleep
from segue.settings.agents import AgentConfig
from segue.simulate.world import VirtualClock, World, plain_agent
from tests.runtime.scenes import lines

PATIENCE = timedelta(seconds=30)
TOLD = "I've added Oslo to your list."
_END = ProgressReported("heard all")


def eager_agent(id: str = "guide", **autonomy: Any) -> AgentConfig:
    """An agent that speaks first after 30 s of silence, whatever was said before."""
    delays = {trigger.value: PATIENCE.total_seconds() for trigger in TriggerType}
    policy = {"cooldown": 0, **autonomy.pop("policy", {})}
    chosen = {"delays": delays, "policy": policy, **autonomy}
    return plain_agent(id, autonomy=chosen)


def model_of(*given: Line, then: str = TOLD) -> ScriptedChatModel:
    """A model that says these lines, and after them the same for ever."""
    return lines(*given, then=then)


def slowly(clock: VirtualClock, span: timedelta, text: str) -> Line:
    """A line that takes the model so much time."""

    async def think(messages: list[BaseMessage]) -> str:
        del messages
        await sleep(clock, span)
        return text

    return think


@asynccontextmanager
async def passing(world: World, span: timedelta) -> AsyncIterator[None]:
    """Time passes in the background, as far as a held model lets it."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.pass_time(span))
        yield


class Halting(ScriptedChatModel):
    """A model that stops in the middle of a reply, once it is told to, until the test lets it."""

    _stops: bool = PrivateAttr(default=False)
    _go: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def stop_after_a_word(self) -> None:
        self._stops = True

    def go_on(self) -> None:
        self._go.set()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in super()._astream(*args, **kwargs):
            yield piece
            if self._stops:
                await self._go.wait()


class Unhurried(ScriptedChatModel):
    """A model that takes its time for each word, by the clock of the world that it is to follow."""

    pace: timedelta = timedelta(seconds=1)
    _world: World | None = PrivateAttr(default=None)

    def follow(self, world: World) -> None:
        self._world = world

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        assert self._world is not None
        written = ""
        async for piece in super()._astream(*args, **kwargs):
            yield piece
            if piece.text:
                written += piece.text
                await self._until_told(self._world.system.deps.bus, written)
                await sleep(self._world.clock, self.pace)

    async def _until_told(self, bus: Bus, text: str) -> None:
        """The clock does not see that a word is on its way from the model to the listeners."""

        def drafts() -> Iterator[str]:
            for run in chain.from_iterable(bus._own.values()):
                yield from run.texts.values()

        while text not in drafts():  # noqa: ASYNC110 - a bus tells nobody who listens
            await asyncio.sleep(0.001)


class Listener:
    """A tab that is open: all that it was told."""

    def __init__(self) -> None:
        self.events: list[Payload] = []
        self._new = asyncio.Event()

    async def until(self, kind: type[Payload]) -> None:
        await self._until(lambda: any(isinstance(event, kind) for event in self.events))

    async def until_end(self) -> None:
        """Wait for the mark behind all that was told, and remove it."""
        await self._until(lambda: _END in self.events)
        self.events.remove(_END)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._new.clear()
            await self._new.wait()

    async def listen(self, world: World, thread: str) -> None:
        async for heard in world.segue.listen(thread, "0"):
            if not isinstance(heard.payload, TurnStarted | TurnEnded | ToolActivity):
                self.events.append(heard.payload)
            self._new.set()


@asynccontextmanager
async def doing_at(world: World, moment: datetime, action: Awaitable[Any]) -> AsyncIterator[None]:
    """Something is done at a moment, before all that others have to do at the same one."""

    async def wait_and_do() -> None:
        with world.clock.working():
            await world.clock.wait(moment, asyncio.Event())
            await action

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(wait_and_do())
        await asyncio.sleep(0)  # who waits first is woken first
        yield


@asynccontextmanager
async def listening(world: World, thread: str) -> AsyncIterator[Listener]:
    """Somebody listens to a thread from its beginning, and has heard all when the block is left."""
    bus, listener = world.system.deps.bus, Listener()
    task = asyncio.create_task(listener.listen(world, thread))
    try:
        while thread not in bus._threads:  # noqa: ASYNC110 - a bus tells nobody who listens
            await asyncio.sleep(0)
        yield listener
        await world.clock.settle()
        bus.tell(thread, _END)
        await listener.until_end()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def arm(
    world: World, thread: str, due_at: datetime, trigger: str = "check_in", **more: Any
) -> Timer:
    """Arm a timer by hand, past all that plans."""
    parts = world.system.deps
    timer = await parts.journal.timers.arm(
        NewTimer(thread, due_at, trigger, **more), ids=parts.ids, now=parts.clock.now()
    )
    parts.wakeups.timers.at(due_at)
    return timer


async def sent_at(world: World, thread: str) -> list[datetime]:
    """When the user saw follow-ups, oldest first."""
    turns = await world.journal.turns.list_of(thread, limit=10_000)
    return sorted(
        turn.shown_at
        for turn in turns
        if turn.kind is TurnKind.FOLLOW_UP and turn.shown_at is not None
    )


async def told(world: World, thread: str, what: str) -> list[str]:
    """What `why` gives as reasons for one kind of thing, oldest first, as `outcome: why`."""
    reasons = await world.segue.why(thread, limit=1_000)
    return [f"{reason.outcome}: {reason.why}" for reason in reasons if what in reason.what]


def asked_by(request: Sequence[BaseMessage]) -> TriggerType | None:
    """The trigger whose words end a request to the model."""
    known = {text: TriggerType(name) for name, text in TRIGGER_PROMPTS.items()}
    return known.get(request[-1].text)


async def new_thread(
    world: World, user: str = "ann", agent: str | None = None, **wishes: Any
) -> str:
    """A new conversation's id."""
    return (await world.segue.create_thread(user, agent, settings=wishes)).id
