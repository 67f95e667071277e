"""`SessionProcessor`: takes a turn through the agent, and stores what comes out as it comes.

The story of a turn is `process`. Claiming turns and keeping their leases is the caller's; what
listeners see goes through `tell`.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from langchain_core.messages import AIMessage, BaseMessage

from segue.agent.config import AgentConfig
from segue.agent.models import explain_model_error
from segue.agent.run import AgentEvent, NewMessage, Question, Run
from segue.core.batch import Batch, BatchState
from segue.core.calls import calls_of
from segue.core.errors import BackendError, ConflictError, SegueError
from segue.core.settle import interrupted_results, settle
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Turn, TurnLease, TurnState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn that ended without a reply, with words for the user."""

    code: str
    reason: str


TurnEvent = AgentEvent | Failed


@dataclass(frozen=True, slots=True)
class _Said:
    """What is left to store, and whether the batch waits for a person."""

    last: list[BaseMessage]
    waits: bool


class Agent(Protocol):
    """What answers a batch."""

    config: AgentConfig

    def run(self, run: Run) -> AsyncIterator[AgentEvent]: ...

    async def forget(self, batch: int) -> None: ...


class SessionProcessor:
    """Answers the batches of turns, one at a time or many."""

    def __init__(
        self,
        journal: Journal,
        agent_of: Callable[[str], Agent],
        ids: SnowflakeSource,
        clock: Callable[[], datetime],
        tell: Callable[[Turn, TurnEvent], None],
    ) -> None:
        self._journal = journal
        self._agent_of = agent_of
        self._ids = ids
        self._clock = clock
        self._tell = tell

    async def process(self, lease: TurnLease) -> None:
        """Answer the turn's batch. Whatever fails, the batch is closed and the user is told."""
        turn = lease.turn
        try:
            try:
                agent = self._agent_of(turn.agent_id)
                said = await self._converse(lease, agent)
                last = said.last if said.waits else await self._ending(turn, said.last)
                await self._journal.finish_turn(lease, last, ids=self._ids, now=self._clock())
                if said.waits:
                    return
            except ConflictError:
                raise
            except Exception as error:  # noqa: BLE001 - the edge of a turn: it ends, others go on
                await self._fail(lease, error)
            await self._forget(turn)
        except ConflictError as error:
            # The user wrote, or somebody else has the turn: nothing of it is ours any more.
            logger.info("Turn %s of thread %s was given up: %s", turn.id, turn.thread_id, error)
            if (await self._journal.get_turn(turn.id)).state is TurnState.VOID:
                await self._forget(turn)

    async def _converse(self, lease: TurnLease, agent: Agent) -> "_Said":
        """Run the agent and store each message; the reply is left for the turn's end."""
        held: list[BaseMessage] = []
        waits = False
        run = await self._prepare(lease.turn, agent)
        async with aclosing(_events_of(agent, run)) as events:
            async for event in events:
                if isinstance(event, NewMessage):
                    await self._store(lease, held)
                    held = [event.message]
                    if not _may_be_last(event.message):
                        await self._store(lease, held)
                        held = []
                waits = waits or isinstance(event, Question)
                self._tell(lease.turn, event)
        return _Said(held, waits)

    async def _ending(self, turn: Turn, last: list[BaseMessage]) -> list[BaseMessage]:
        """What ends the batch so that the next turn is told of it.

        A call that a lost checkpoint or a careless tool left without a result gets one.
        """
        stored = await self._journal.load_batch(turn.thread_id, turn.batch)
        batch = Batch(turn.batch, [*stored.messages, *last])
        if batch.state is BatchState.AWAITING_TOOLS:
            last = [*interrupted_results(batch), *last]
            batch = Batch(turn.batch, [*stored.messages, *last])
        if batch.state is BatchState.OPEN:
            raise BackendError("The agent ended without an answer.")
        return last

    async def _prepare(self, turn: Turn, agent: Agent) -> Run:
        tail = await self._journal.tail(
            turn.thread_id, max_tokens=agent.config.context_tokens, current_batch=turn.batch
        )
        summary = await self._journal.find_summary(turn.thread_id)
        # The tail leaves out a batch that cannot be read; loading it says why.
        found = (batch for batch in tail if batch.id == turn.batch)
        current = next(found, None) or await self._journal.load_batch(turn.thread_id, turn.batch)
        return Run(
            turn.thread_id,
            turn.agent_id,
            turn.user_id,
            current,
            tail,
            summary.text if summary else None,
            is_new=turn.attempts == 1 and len(current.messages) == 1,
        )

    async def _store(self, lease: TurnLease, messages: list[BaseMessage]) -> None:
        if messages:
            await self._journal.append(lease, messages, ids=self._ids, now=self._clock())

    async def _fail(self, lease: TurnLease, error: Exception) -> None:
        """Close the batch so that the next message works, and say honestly what happened."""
        turn = lease.turn
        known = error if isinstance(error, SegueError) else explain_model_error(error)
        logger.error(
            "Turn %s of thread %s failed: %s", turn.id, turn.thread_id, type(error).__name__
        )
        closing = await self._closing(turn)
        await self._journal.fail_turn(
            lease, str(known), ids=self._ids, now=self._clock(), messages=closing
        )
        self._tell(turn, Failed(known.code, str(known)))

    async def _closing(self, turn: Turn) -> list[BaseMessage]:
        try:
            batch = await self._journal.load_batch(turn.thread_id, turn.batch)
        except BackendError:  # it cannot be read, so nothing can be added that fits
            return []
        return settle(batch, self._ids).messages[len(batch.messages) :]

    async def _forget(self, turn: Turn) -> None:
        """Drop what the run left; it is stored, so a leftover costs room and nothing else."""
        try:
            await self._agent_of(turn.agent_id).forget(turn.batch)
        except Exception as error:  # noqa: BLE001 - the turn is over, and well
            logger.warning(
                "The checkpoints of batch %s were not dropped: %s", turn.batch, type(error).__name__
            )


async def _events_of(agent: Agent, run: Run) -> AsyncGenerator[AgentEvent]:
    """The agent's events. A conflict that its own code runs into says nothing about our lease."""
    # Closed with this one: that is what stops the model.
    events = cast("AsyncGenerator[AgentEvent]", agent.run(run))
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except ConflictError as error:
        raise BackendError(str(error)) from error


def _may_be_last(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and not calls_of(message)
