"""A long story with canaries in all that is said behind the user's back: none of them ever sings.

Four agents follow up for all four reasons, go on by themselves, ask each other, fail, are stopped,
overtaken, withdrawn and restarted; then every place from which a user or a log can learn anything
is searched. That the canaries are where they belong, with the model and in the journal, is checked
too: a story in which they were nowhere would show nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain

import pytest
import structlog
from langchain_core.messages import BaseMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.triggers import TriggerType
from segue.journal.records import Decision, MemorySearch, TurnKind, TurnState
from segue.runtime.events import Asked, Cancelled, Failed, Said
from segue.runtime.logs import configure_logging
from segue.testing.world import Stage, World
from tests.agent.meanings import Meanings
from tests.runtime.receiver import Receiver, status
from tests.stories.canaries import (
    CANARY,
    DECISION,
    GOING_ON,
    PROMPTS,
    REASON,
    WORDS,
    Actor,
    calling,
    cast,
    deciding,
    failing,
)
from tests.stories.scenes import PATIENCE, Held, Listener, arm, listening, passing

pytestmark = pytest.mark.anyio

FACT = "Ann likes to ski."


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Receiver() as running:
        yield running


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Logging is the whole process's; the test leaves it as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    clients = {name: logging.getLogger(name).level for name in ("httpx", "httpcore")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in clients.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memories are found without the weights of a real embedder."""
    monkeypatch.setattr("segue.compose.load_embedder", lambda _: Meanings())


@dataclass
class Tale:
    """The story over several processes: its threads, its models, and what listeners heard."""

    stage: Stage
    receiver: Receiver
    actor: Actor = field(default_factory=Actor)
    heard: list[Listener] = field(default_factory=list)
    threads: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.models = {
            "guide": ScriptedChatModel(script=self.actor),
            "coach": ScriptedChatModel(script=deciding()),
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
            await self.fail(world)
            await self.stop(world)
            await self.let_others_decide(world)
        await self.restart()
        async with self.process("guide", "waiter") as world:
            await self.ask(world)
            await self.wait(world)

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
            await world.segue.set_thread(guide, muted=True)

        for interfere in (lambda: world.segue.cancel(guide), overtake, mute):
            held = Held("Never to be seen.")
            await world.say(guide, "And now?")
            self.actor.acts.append(held)
            async with passing(world, PATIENCE):
                await held.asked.wait()
                await interfere()
                held.go.set()
        await world.segue.set_thread(guide, muted=None)

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
        [*_, asking] = await world.journal.list_turns(waiter)
        await world.segue.answer(asking, "yes")
        await world.pass_time(PATIENCE)

    async def wait(self, world: World) -> None:
        """A follow-up that has to wait for a typing user, and one in a thread without a word."""
        await world.say(self.threads["guide"], "Wait a moment.")
        await world.pass_time(PATIENCE - timedelta(seconds=5))
        await world.segue.typing(self.threads["guide"])
        await world.pass_time(minutes=2)
        empty = await world.segue.create_thread("ann", "atlas", thread_id="atlas-1")
        self.threads["atlas"] = empty.id
        await arm(world, empty.id, world.clock.now())
        await world.pass_time(minutes=1)


async def pages(world: World, thread: str) -> list[object]:
    """All of a history, page by page, from the end to the beginning."""
    found: list[object] = []
    page = await world.segue.history(thread, limit=3)
    while page.messages:
        found.append(page)
        page = await world.segue.history(thread, limit=3, before=page.before)
    return found


def without_words(decision: Decision) -> Decision:
    """A decision but for what the decider itself said, which is for operators."""
    return replace(decision, facts={k: v for k, v in decision.facts.items() if k != "words"})


async def all_threads(world: World) -> list[str]:
    return [thread.id for thread in await world.journal.list_threads("ann", limit=100)]


async def shown(tale: Tale, world: World) -> dict[str, str]:
    """Every place from which a user can learn something, as one text each."""
    journal, segue = world.journal, world.segue
    threads = await all_threads(world)
    queries = [CANARY, WORDS, "hello again kindly", "fine", *chain(*PROMPTS.values())]
    replays = []
    for thread in threads:
        async with listening(world, thread) as listener:
            pass
        replays.append(listener)
    events = [event for listener in (*tale.heard, *replays) for event in listener.events]
    search = MemorySearch("guide", "ann", CANARY, limit=100, threshold=0.0)
    places: dict[str, object] = {
        "events": events,
        "messages as JSON": [e.message.model_dump_json() for e in events if isinstance(e, Said)],
        "replays": [listener.events for listener in replays],
        "stored events": [await journal.events(thread, limit=10_000) for thread in threads],
        "history": [await pages(world, thread) for thread in threads],
        "search": [await journal.search("ann", query, limit=100) for query in queries],
        "thread list": await journal.list_threads("ann", limit=100),
        "why": [await segue.why(thread, limit=10_000) for thread in threads],
        "why in words": [
            str(reason) for thread in threads for reason in await segue.why(thread, limit=10_000)
        ],
        "follow-ups": [await segue.follow_ups(thread, limit=10_000) for thread in threads],
        "turns": [await journal.list_turns(thread, limit=10_000) for thread in threads],
        "effects": [await journal.list_effects(thread, limit=10_000) for thread in threads],
        "decisions": [
            without_words(decision)
            for thread in threads
            for decision in await journal.list_decisions(thread, limit=10_000)
        ],
        "memories": [
            await journal.list_memories("guide", "ann"),
            await journal.search_memories(search),
        ],
        "summaries": [await journal.find_summary(thread) for thread in threads],
        "user": await journal.get_user_settings("ann"),
        "webhooks": [(path, str(headers), body) for path, headers, body in tale.receiver.got],
    }
    return {
        name: found if isinstance(found, str) else repr(found) for name, found in places.items()
    }


async def test_no_canary_is_ever_seen(
    stage: Stage,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No event, replay, page, find, title, reason, webhook, memory, error or log line holds one."""
    configure_logging("INFO", json=True)
    tale = Tale(stage, receiver)
    await tale.tell()
    async with tale.process() as world:
        places = await shown(tale, world)
        assert_the_story_was_told(tale, places)
        await assert_canaries_are_where_they_belong(tale, world)
    records = [record for record in caplog.records if record.levelno >= logging.INFO]
    places["log"] = "\n".join(map(logging.Formatter().format, records))
    places["fields of the log"] = repr([vars(record) for record in records])
    places["log as JSON"] = capsys.readouterr().err
    assert all("follow_up_fired" in places[log] for log in ("fields of the log", "log as JSON"))
    leaks = {name: _around(text) for name, text in places.items() if CANARY in text}
    assert leaks == {}


def _around(text: str) -> str:
    place = text.index(CANARY)
    return text[max(place - 150, 0) : place + 100]


def assert_the_story_was_told(tale: Tale, places: dict[str, str]) -> None:
    """What the story is about did happen, and every place shows some of it."""
    empty = {name for name, text in places.items() if not text.strip("[](){}, None")}
    assert empty <= {"summaries", "user"}
    for event in (Said, Asked, Cancelled, Failed):
        seen = [e for listener in tale.heard for e in listener.events if isinstance(e, event)]
        assert bool(seen) is (event is not Failed), event
    assert "Never to be seen." not in repr(places)
    for place, words in (
        ("history", "Here I am again."),
        ("history", "I looked again."),
        ("history", "Fifty-nine degrees."),
        ("history", "Booked: yes"),
        ("memories", FACT),
        ("webhooks", "How is it going?"),
        ("why", "The agent's own decider chose"),
        ("why", "The deciding model chose check_in."),
        ("why", "answer cannot be used"),
        ("why", "delivered"),
        ("why", "The thread is muted."),
        ("why", "The user is typing."),
        ("turns", "The user wrote."),
        ("turns", "The reply failed (ValueError)."),
    ):
        assert words in places[place], (place, words)


async def assert_canaries_are_where_they_belong(tale: Tale, world: World) -> None:
    """The model was asked with them, and an operator finds them: the story could have leaked."""
    asked = repr([request[-1].text for model in tale.models.values() for request in model.seen])
    raw: list[BaseMessage] = []
    for thread in await all_threads(world):
        tail = await world.journal.tail(thread, max_tokens=10_000_000)
        raw += [message for batch in tail for message in batch.messages]
    for trigger in TriggerType:
        canary = f"{CANARY}_{trigger.value}"
        assert canary in asked
        assert canary in repr(raw)
    assert GOING_ON in repr(raw)
    turns = await world.journal.list_turns(tale.threads["guide"], limit=10_000)
    sent = [turn for turn in turns if turn.kind is TurnKind.FOLLOW_UP]
    assert {TurnState.DONE, TurnState.VOID, TurnState.FAILED} <= {turn.state for turn in sent}
    decisions = [
        decision
        for thread in (tale.threads["guide"], tale.threads["coach"])
        for decision in await world.journal.list_decisions(thread, limit=10_000)
    ]
    words = repr([decision.facts.get("words") for decision in decisions])
    assert all(canary in words for canary in (REASON, WORDS, DECISION))
    kept = [await world.journal.list_timers(t, limit=10_000) for t in tale.threads.values()]
    assert GOING_ON in repr(kept)
