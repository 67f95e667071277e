"""A long story over several processes, with canaries in all that is said behind the user's back.

Four agents follow up for all four reasons, go on by themselves, ask each other, fail, are stopped,
overtaken, withdrawn and restarted; a fifth does what programs, events and the user ask for. Those
who hear it search what a user or a log can learn.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from segue.agent.scripted import ScriptedChatModel
from segue.events import OutsideEvent
from segue.simulate.world import Stage, World
from tests.runtime.receiver import Receiver, status
from tests.runtime.scenes import Held
from tests.stories.canaries import (
    CANARY,
    EVENT_DATA,
    GOING_ON,
    HIDDEN,
    REQUEST,
    Act,
    Actor,
    calling,
    cast,
    deciding,
    failing,
    quoting,
)
from tests.stories.scenes import PATIENCE, Listener, arm, listening, passing

FACT = "Ann likes to ski."


@dataclass
class Tale:
    """The story over several processes: its threads, its models, and what listeners heard."""

    stage: Stage
    receiver: Receiver
    actor: Actor = field(default_factory=Actor)
    clerk: Actor = field(default_factory=Actor)
    heard: list[Listener] = field(default_factory=list)
    threads: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.models = {
            "guide": ScriptedChatModel(script=self.actor),
            "coach": ScriptedChatModel(script=deciding()),
            "clerk": ScriptedChatModel(script=self.clerk),
            "atlas": ScriptedChatModel(script=lambda _: "Fifty-nine degrees."),
        }

    @asynccontextmanager
    async def process(self, *names: str) -> AsyncIterator[World]:
        """A process, with a tab open on the user's threads with these agents."""
        agents = cast(self.receiver.target)
        patience = timedelta(0)
        async with (
            self.stage.world(*agents, models=self.models, patience=patience) as world,
            AsyncExitStack() as tabs,
        ):
            for name in names:
                thread = await world.segue.create_thread("ann", name, thread_id=f"{name}-1")
                self.threads[name] = thread.id
                self.heard.append(await tabs.enter_async_context(listening(world, thread.id)))
            yield world

    async def tell(self) -> None:
        async with self.process("guide", "coach") as world:
            await self.speak_first(world)
            await self.quote(world)
            await self.fail(world)
            await self.stop(world)
            await self.let_others_decide(world)
        await self.restart()
        async with self.process("guide", "waiter") as world:
            await self.ask(world)
            await self.wait(world)
        async with self.process("clerk") as world:
            await self.request(world)

    async def speak_first(self, world: World) -> None:
        """All four triggers, with tools, an agent that is asked, and work that goes on."""
        guide = self.threads["guide"]
        self.actor.acts += [
            "How is it going?",
            calling("remember", {"content": FACT}),
            calling("ask_agent", {"name": "atlas", "text": "Where is Oslo?"}),
            calling("continue_later", {"after_seconds": 5, "reason": GOING_ON}),
            "Anything new?",
        ]
        await world.say(guide, "Hello, I am Ann.")
        self.receiver.answer = status(500)
        await world.pass_time(PATIENCE * 5)
        self.receiver.answer = status(200)
        await world.say(guide, "Please look into it.")
        await world.pass_time(PATIENCE / 2)

    async def quote(self, world: World) -> None:
        """A model that takes the trigger for the user's words, and passes them on."""
        guide = self.threads["guide"]
        self.actor.acts += [
            quoting("remember", lambda text: {"content": f"Ann said: {text}"}),
            quoting("remember", lambda text: {"content": text.upper().replace(",", " -")}),
            quoting("remember", lambda text: {"content": "A wish.", "key": text}),
            quoting("ask_agent", lambda text: {"name": "atlas", "text": f"Please answer: {text}"}),
        ]
        await world.say(guide, "I am reading now.")
        await world.pass_time(PATIENCE * 5)
        assert not self.actor.acts

    async def fail(self, world: World) -> None:
        """Models that fail in the middle of a follow-up, and say what they were asked."""
        for act in (failing("ValueError"), failing("RateLimitError"), failing("OperationalError")):
            await world.say(self.threads["guide"], "I am back.")
            self.actor.acts.append(act)
            await world.pass_time(PATIENCE)
            assert not self.actor.acts
        await world.pass_time(PATIENCE)

    async def stop(self, world: World) -> None:
        """A follow-up that is stopped, one that is overtaken, and one that is withdrawn."""
        guide = self.threads["guide"]

        async def overtake() -> None:
            await world.segue.send(guide, "I was faster.")

        async def mute() -> None:
            await world.segue.set_thread_preferences(guide, muted=True)

        for interfere in (lambda: world.segue.cancel(guide), overtake, mute):
            held = Held("Never to be seen.")
            await world.say(guide, "And now?")
            self.actor.acts.append(held)
            async with passing(world, PATIENCE):
                await held.asked.wait()
                await interfere()
                held.go.set()
        await world.segue.set_thread_preferences(guide, muted=None)

    async def let_others_decide(self, world: World) -> None:
        """A model that decides, and talks about it."""
        for _ in range(3):
            await world.say(self.threads["coach"], "I went for a run.")
            await world.pass_time(minutes=2)

    async def restart(self) -> None:
        """A process that ends while its model thinks of a follow-up."""
        held = Held("Never to be seen.")
        async with self.process() as world:
            await world.say(self.threads["guide"], "One more thing.")
            self.actor.acts.append(held)
            time = asyncio.create_task(world.pass_time(PATIENCE))
            await held.asked.wait()
        time.cancel()
        self.actor.acts.append("Here I am again.")

    async def ask(self, world: World) -> None:
        """A question, a follow-up on it that breaks, and the answer."""
        waiter = self.threads["waiter"]
        await world.say(waiter, "A table, please.")
        await world.pass_time(PATIENCE)
        [*_, asking] = await world.journal.turns.list_of(waiter)
        await world.segue.answer(asking, "yes")
        await world.pass_time(PATIENCE)

    async def wait(self, world: World) -> None:
        """A follow-up that has to wait for a typing user, and one in a thread without a word."""
        await world.say(self.threads["guide"], "Wait a moment.")
        await world.pass_time(PATIENCE - timedelta(seconds=5))
        await world.segue.report_typing(self.threads["guide"])
        await world.pass_time(minutes=2)
        empty = await world.segue.create_thread("ann", "atlas", thread_id="atlas-1")
        self.threads["atlas"] = empty.id
        await arm(world, empty.id, world.clock.now())
        await world.pass_time(minutes=1)

    async def request(self, world: World) -> None:
        """What programs, events and the user ask for: told, failed, refused, and still waiting."""
        segue, clerk = world.segue, self.threads["clerk"]
        soon, later = timedelta(seconds=1), timedelta(days=300)
        for other in {*self.threads.values()} - {clerk}:
            await segue.set_thread_preferences(other, muted=True)
        news = OutsideEvent(id="", type="parcel.shipped", data=EVENT_DATA, source="shop")
        acts: tuple[Act, ...] = (
            "It is about your parcel.",
            quoting("remember", lambda text: {"content": f"Ann said: {text}"}),
            quoting("remind", lambda text: {"text": text, "after": "20d"}),
            failing("ValueError"),
        )
        for n, act in enumerate(acts):
            for ask in (
                segue.follow_up(clerk, after=soon, key=f"soon-{n}", **REQUEST),
                segue.follow_up(clerk, trigger="parcel", data=EVENT_DATA, key=f"own-{n}"),
                segue.wake(replace(news, id=f"{n}"), thread=clerk),
                segue.wake(replace(news, id=f"own-{n}", trigger="parcel"), thread=clerk),
                segue.remind(clerk, f"water the plants {n}", after="1s"),
            ):
                await ask
                self.clerk.acts.clear()
                self.clerk.acts.append(act)
                await world.pass_time(minutes=5)
        await segue.remind(clerk, "stand up", every="FREQ=HOURLY")
        await world.pass_time(hours=4)
        await segue.set_user_preferences("ann", opted_out=True)
        await segue.follow_up(clerk, key="refused", **REQUEST)
        await segue.set_user_preferences("ann", opted_out=None)
        await segue.follow_up(clerk, after=later, key="cancelled", **REQUEST)
        await segue.cancel_follow_ups(clerk)
        await segue.follow_up(clerk, after=later, key="later", **REQUEST)
        await segue.wake(replace(news, id="waits"), thread=clerk)
        await segue.remind(clerk, "see the dentist", after="90d")
        for other in {*self.threads.values()} - {clerk}:
            await segue.set_thread_preferences(other, muted=None)


def logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Every form in which the log can be read, as one text each."""
    records = [record for record in caplog.records if record.levelno >= logging.INFO]
    return {
        "log": "\n".join(map(logging.Formatter().format, records)),
        "fields of the log": repr([vars(record) for record in records]),
        "log as JSON": capsys.readouterr().err,
    }


def leaks(places: Mapping[str, str]) -> dict[str, str]:
    """The places where a hidden text is, with the words around the first one."""
    found = {
        name: text.index(words)
        for words in (CANARY, *HIDDEN)
        for name, text in places.items()
        if words in text
    }
    return {name: places[name][max(at - 150, 0) : at + 100] for name, at in found.items()}
