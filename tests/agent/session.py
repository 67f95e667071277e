"""A conversation with one agent on a real journal, with the moves that stories are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import BaseTool

from segue import Batch, SnowflakeGenerator, synthetic_message, user_message
from segue.agent.build import build_graph
from segue.agent.checkpoints.store import Checkpoints
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.retrieval import MemorySource
from segue.core.turn_rules import TurnRules
from segue.events import Payload, QuestionAsked, ToolActivity, TurnFailed
from segue.journal.feed import Partial
from segue.journal.journal import Journal
from segue.journal.records import Ending, NewTimer, Turn, TurnLease
from segue.runtime.after_turn import AfterTurn
from segue.runtime.bus import Bus, Report
from segue.runtime.clock import SystemClock
from segue.runtime.deps import Agent, Deps
from segue.runtime.listeners import Item, RunItem, StoredItem, ending_payload
from segue.runtime.processor import SessionProcessor
from segue.runtime.run import AgentEvent, MessageFinished, Question, Run, Token, TurnOutput
from segue.settings.agents import AgentConfig
from segue.testing.journal_contract.fixtures import ticking_ids

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(minutes=1)
THREAD = "chat"
Told = AgentEvent | Payload


class Ear(Bus):
    """A bus that keeps all events, and passes on what is stored."""

    def __init__(self, journal: Journal, notice: Callable[[BaseMessage], None]) -> None:
        super().__init__(journal)
        self.heard: list[Told] = []
        self._notice = notice
        self._known: set[str | None] = set()

    def write(self, lease: TurnLease, message_id: str, text: str) -> Partial:
        self.heard.append(Token(message_id, text))
        return super().write(lease, message_id, text)

    def tell(self, thread_id: str, item: Item, user_id: str = "") -> None:
        if not isinstance(item, StoredItem | RunItem):
            self.heard.append(item)
        super().tell(thread_id, item, user_id)

    def report(self, lease: TurnLease, payload: Report) -> None:
        if not isinstance(payload, ToolActivity):
            self.heard.append(payload)
        super().report(lease, payload)

    async def notify_stored(self, thread_id: str, user_id: str = "") -> None:
        [newest, *_] = await self._journal.messages.tail(thread_id, max_tokens=1)
        for message in newest.messages:
            if message.id not in self._known:
                self._known.add(message.id)
                self._notice(message)
                if not isinstance(message, HumanMessage):
                    self.heard.append(MessageFinished(message))
        await super().notify_stored(thread_id, user_id)


class Unplanned(AfterTurn):
    """An agent whose follow-ups are the test's to send."""

    def __init__(self) -> None:
        pass

    async def refuse(self, turn: Turn, *, has_waited: bool = False) -> Ending | None:
        del turn, has_waited
        return None

    async def build_ending(self, output: TurnOutput) -> Ending:
        if not output.questions:
            return Ending()
        says = {"kind": "question", "questions": output.questions}
        return Ending(says=says, is_waiting=True)


class Ticking(SystemClock):
    """A clock that goes on a little whenever it is read."""

    def __init__(self, tick: Callable[[], datetime]) -> None:
        self._tick = tick

    def now(self) -> datetime:
        return self._tick()


def ignore(message: BaseMessage) -> None:
    """What most tests do with a message that was stored."""
    del message


@dataclass
class Session:
    journal: Journal
    agent: LangGraphAgent
    ids: SnowflakeGenerator = field(default_factory=ticking_ids)
    now: datetime = START
    # Told of each message that is stored.
    notice: Callable[[BaseMessage], None] = ignore

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
        built = build_graph(settings, model=model, tools=tools, memories=memories is not None)
        session = cls(journal, LangGraphAgent(settings, built, checkpoints, memories))
        await journal.threads.create(THREAD, agent_id="guide", user_id="ada", now=START)
        return session

    async def say(self, text: str) -> list[Told]:
        """The user writes, and the turn runs to its end."""
        await self.journal.inbox.accept(THREAD, user_message(text), ids=self.ids, now=self.tick())
        return await self.work()

    async def nudge(self, trigger: str = "check_in", reason: str | None = None) -> list[Told]:
        """A timer fires, and the follow-up runs to its end."""
        now = self.tick()
        await self.journal.timers.arm(NewTimer(THREAD, now, trigger), ids=self.ids, now=now)
        [lease] = await self.journal.timers.claim_due("test", now=now, lease_for=LEASE)
        message = synthetic_message(trigger, reason)
        assert await self.journal.timers.fire(lease, message, ids=self.ids, now=now)
        return await self.work()

    async def claim(self) -> TurnLease:
        lease = await self.journal.turns.claim_one("test", now=self.tick(), lease_for=LEASE)
        assert lease is not None
        return lease

    async def work(self) -> list[Told]:
        return await self.work_with(lambda _: self.agent)

    async def work_with(self, agent_of: Callable[[str], Agent]) -> list[Told]:
        lease = await self.claim()
        ear = Ear(self.journal, self.notice)
        await self._processor(agent_of, ear).process(lease)
        turn = await self.journal.turns.get(lease.turn.id)
        return [*ear.heard, *_endings(turn)]

    @property
    def processor(self) -> SessionProcessor:
        return self._processor(lambda _: self.agent, Ear(self.journal, self.notice))

    def _processor(self, agent_of: Callable[[str], Agent], ear: Bus) -> SessionProcessor:
        deps = Deps(self.journal, self.ids, Ticking(self.tick), ear, agent_of, "test")
        return SessionProcessor(deps, Unplanned(), TurnRules(max_attempts=99, retries=0))

    def run_of(self, batch: Batch, answer: Any = None) -> Run:
        """A run of a batch as it is stored, without the journal at its side."""
        return Run(THREAD, "guide", "ada", batch, answer=answer)

    def tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    async def history(self) -> list[str]:
        return [m.text for m in (await self.journal.messages.history(THREAD)).messages]

    async def batches(self) -> list[Batch]:
        """All of the thread's batches, oldest first."""
        return (await self.journal.messages.tail(THREAD, max_tokens=1_000_000))[::-1]

    async def last_batch(self) -> Batch:
        return (await self.batches())[-1]


def _endings(turn: Turn) -> list[Told]:
    if turn.ending is None:
        return []
    ending = ending_payload(turn.id, turn.ending)
    if isinstance(ending, QuestionAsked):
        return [Question(name, value) for name, value in ending.questions.items()]
    return [ending]


def streamed(events: Sequence[Told]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


def failure(events: Sequence[Told]) -> TurnFailed:
    [failed] = [event for event in events if isinstance(event, TurnFailed)]
    return failed


def kinds(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.type for message in messages]
