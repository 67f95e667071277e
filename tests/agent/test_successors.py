"""A run whose lease was lost goes on for a moment, beside the one that took its turn over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from segue import Batch, SnowflakeGenerator, user_message
from segue.agent.build import build_graph
from segue.agent.checkpoints.store import Checkpoints, MemoryCheckpoints
from segue.agent.current import current_run
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.scripted import ScriptedChatModel
from segue.errors import BackendError
from segue.journal.journal import Journal
from segue.journal.messages import Messages
from segue.journal.records import TurnState
from segue.journal.sqlite import SqliteJournal
from segue.runtime.run import MessageFinished, Question, Run
from segue.settings.agents import AgentConfig
from tests.agent.session import LEASE, THREAD, Session, failure

pytestmark = pytest.mark.anyio


class SlowSaver(InMemorySaver):
    """Something happens right after the first look at an attempt's own checkpoints."""

    then: Callable[[], Awaitable[object]] | None = None

    async def alist(
        self, config: RunnableConfig | None, **how: Any
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in super().alist(config, **how):
            yield found
        is_own = config is not None and "checkpoint_ns" in config["configurable"]
        if is_own and (then := self.then) is not None:
            self.then = None
            await then()


async def said_by(agent: LangGraphAgent, run: Run) -> list[str]:
    return [
        event.message.text async for event in agent.run(run) if isinstance(event, MessageFinished)
    ]


async def test_a_lost_run_that_ends_late_adds_nothing_to_its_successor() -> None:
    """The successor found no checkpoint and begins anew; what the lost run then leaves behind is
    not taken for its own words, so that there is one reply and not two.
    """
    config = AgentConfig.parse(
        {"id": "guide", "model": "scripted", "memory": {"enabled": False}}, "agent"
    )
    lines = iter(["Said by the lost one.", "Said by its successor."])
    model = ScriptedChatModel(script=lambda _: next(lines))
    checkpoints = MemoryCheckpoints()
    checkpoints._saver = saver = SlowSaver()
    agent = LangGraphAgent(config, build_graph(config, model=model), checkpoints)
    # A second try: nothing is known of the first.
    run = replace(Run.of("Hello?", SnowflakeGenerator(node=1), agent_id="guide"), is_new=False)
    lost, successor = replace(run, attempt=(1, 1)), replace(run, attempt=(1, 2))
    saver.then = lambda: said_by(agent, lost)
    assert await said_by(agent, successor) == ["Said by its successor."]


CALLING = AIMessage(
    "", id="calling", tool_calls=[{"name": "work", "args": {}, "id": "w", "type": "tool_call"}]
)


def answer(messages: list[BaseMessage]) -> AIMessage:
    results = [message for message in messages if isinstance(message, ToolMessage)]
    return AIMessage(f"It is {results[-1].text}.") if results else CALLING.model_copy()


class Rivals:
    """A turn that is lost while its tool works, and taken over by one that ends it first."""

    def __init__(self, session: Session, attempts: list[tuple[int, ...]]) -> None:
        self._session = session
        self.attempts = attempts

    @classmethod
    async def begin(
        cls, journal: Journal, checkpoints: Checkpoints, second: Callable[[], str]
    ) -> "Rivals":
        has_begun, may_end = asyncio.Event(), asyncio.Event()
        attempts: list[tuple[int, ...]] = []

        @tool
        async def work() -> str:
            """Work."""
            run = current_run()
            assert run is not None
            attempts.append(run.attempt)
            if has_begun.is_set():
                return second()
            has_begun.set()
            await may_end.wait()
            return "done by the lost one"

        model = ScriptedChatModel(script=answer)
        session = await Session.begin(journal, checkpoints, model, tools=[work])
        await journal.inbox.accept(THREAD, user_message("Go!"), ids=session.ids, now=session.tick())
        lost = asyncio.create_task(session.processor.process(await session.claim()))
        await has_begun.wait()
        session.now += 2 * LEASE
        await session.work()
        may_end.set()
        await lost
        return cls(session, attempts)

    async def turns(self) -> list[Any]:
        return await self._session.journal.turns.list_of(THREAD)

    async def answered(self) -> list[Any]:
        run = self._session.run_of(await self._session.last_batch(), answer="yes")
        return [event async for event in self._session.agent.run(run)]


async def test_a_lost_run_cleans_up_after_itself(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """Its successor has dropped the batch's checkpoints before it stored its last ones."""
    rivals = await Rivals.begin(journal, checkpoints, lambda: "done")
    [turn] = await rivals.turns()
    assert turn.state is TurnState.DONE
    assert [kept async for kept in checkpoints.saver().alist(None)] == []


async def test_a_lost_run_leaves_its_successors_question_alone(
    journal: Journal, checkpoints: Checkpoints
) -> None:
    """The turn is over and its checkpoint waits for a person: it is still there for the answer,
    with what the successor stored and not what the lost run did.
    """
    rivals = await Rivals.begin(journal, checkpoints, lambda: f"done: {interrupt('Really?')}")
    [turn] = await rivals.turns()
    assert turn.is_waiting
    heard = await rivals.answered()
    assert not any(isinstance(event, Question) for event in heard)
    texts = [event.message.text for event in heard if isinstance(event, MessageFinished)]
    assert texts == ["done: yes", "It is done: yes."]


async def test_each_attempt_is_another(journal: Journal, checkpoints: Checkpoints) -> None:
    """A run knows which one it is, and the one that took its turn over comes later in order."""
    rivals = await Rivals.begin(journal, checkpoints, lambda: "done")
    lost, successor = rivals.attempts
    assert lost < successor


class Stumbling(Messages):
    """Away for a moment when a batch is loaded."""

    is_away = False

    async def load_batch(self, thread_id: str, batch: int) -> Batch:
        if self.is_away:
            self.is_away = False
            raise BackendError("The server is starting.")
        return await super().load_batch(thread_id, batch)


async def test_a_turn_does_not_end_with_its_batch_open_because_the_journal_was_away(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    """What closes a batch that failed follows from what is in it; who cannot look leaves the end
    to the next attempt.
    """
    async with AsyncExitStack() as stack:
        journal = SqliteJournal(tmp_path / "journal.db")
        journal.messages = stumbling = Stumbling(journal.db)
        await journal.open()
        stack.push_async_callback(journal.close)
        model = ScriptedChatModel(script=[ValueError("broken"), ValueError("broken")])
        session = await Session.begin(journal, checkpoints, model)
        stumbling.is_away = True
        with pytest.raises(BackendError, match="starting"):
            await session.say("Is it open?")
        [turn] = await journal.turns.list_of(THREAD)
        assert turn.state is TurnState.RUNNING
        session.now += 2 * LEASE
        failure(await session.work())
        assert (await session.last_batch()).is_complete
