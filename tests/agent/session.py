"""A conversation with one agent on a real journal, with the moves that stories are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

from segue import Batch, SnowflakeGenerator, synthetic_message, user_message
from segue.agent.build import build_graph
from segue.agent.checkpoints import Checkpoints
from segue.agent.config import AgentConfig
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.retrieval import MemorySource
from segue.agent.run import Run, Token
from segue.journal.ports import Journal
from segue.journal.records import NewTimer, Turn, TurnLease
from segue.runtime.processor import Failed, SessionProcessor, TurnEvent
from segue.testing.journal_contract.fixtures import ticking_ids

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
THREAD = "chat"


@dataclass
class Session:
    journal: Journal
    agent: LangGraphAgent
    ids: SnowflakeGenerator = field(default_factory=ticking_ids)
    now: datetime = START
    events: list[TurnEvent] = field(default_factory=list)

    @classmethod
    async def begin(
        cls,
        journal: Journal,
        checkpoints: Checkpoints,
        model: BaseChatModel | None = None,
        *,
        memories: MemorySource | None = None,
        tools: Sequence[BaseTool] = (),
        **config: Any,
    ) -> "Session":
        settings = AgentConfig(id="guide", **config)
        built = build_graph(settings, model=model, memories=memories, tools=tools)
        session = cls(journal, LangGraphAgent(settings, built, checkpoints))
        await journal.create_thread(THREAD, agent_id="guide", user_id="ada", now=START)
        return session

    async def say(self, text: str) -> list[TurnEvent]:
        """The user writes, and the turn runs to its end."""
        await self.journal.accept_message(THREAD, user_message(text), ids=self.ids, now=self.tick())
        return await self.work()

    async def nudge(self, trigger: str = "check_in", reason: str | None = None) -> list[TurnEvent]:
        """A timer fires, and the follow-up runs to its end."""
        now = self.tick()
        await self.journal.arm_timer(NewTimer(THREAD, now, trigger), ids=self.ids, now=now)
        [lease] = await self.journal.claim_due_timers("test", now=now, lease_for=LEASE)
        message = synthetic_message(trigger, reason)
        assert await self.journal.fire_timer(lease, message, ids=self.ids, now=now)
        return await self.work()

    async def claim(self) -> TurnLease:
        lease = await self.journal.claim_turn("test", now=self.tick(), lease_for=LEASE)
        assert lease is not None
        return lease

    async def work(self) -> list[TurnEvent]:
        self.events = []
        await self.processor.process(await self.claim())
        return self.events

    @property
    def processor(self) -> SessionProcessor:
        return SessionProcessor(self.journal, lambda _: self.agent, self.ids, self.tick, self.hear)

    def run_of(self, batch: Batch, answer: Any = None) -> Run:
        """A run of a batch as it is stored, without the journal at its side."""
        return Run(THREAD, "guide", "ada", batch, answer=answer)

    def hear(self, _turn: Turn, event: TurnEvent) -> None:
        self.events.append(event)

    def tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    async def history(self) -> list[str]:
        return [m.text for m in (await self.journal.history(THREAD)).messages]

    async def batches(self) -> list[Batch]:
        """All of the thread's batches, oldest first."""
        return (await self.journal.tail(THREAD, max_tokens=1_000_000))[::-1]

    async def last_batch(self) -> Batch:
        return (await self.batches())[-1]


def streamed(events: Sequence[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


def failure(events: Sequence[TurnEvent]) -> Failed:
    [failed] = [event for event in events if isinstance(event, Failed)]
    return failed


def kinds(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.type for message in messages]
