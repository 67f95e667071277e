"""`SessionProcessor`: takes a turn through the agent, and stores what comes out as it comes.

The story of a turn is `process`. Claiming turns and keeping their leases is the caller's.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, cast

from langchain_core.messages import AIMessage, BaseMessage
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from segue.agent.faults import describe_fault, place_of
from segue.agent.models import explain_model_error, is_retryable
from segue.agent.run import AgentEvent, NewMessage, Progress, Question, Recalled, Run, Token
from segue.core.batch import BATCH_TIMEOUT, Batch, BatchState
from segue.core.calls import calls_of
from segue.core.errors import BackendError, ConflictError, SegueError
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.settle import interrupted_results, settle
from segue.journal.ports import Journal
from segue.journal.records import Ending, Partial, Turn, TurnKind, TurnLease, TurnState
from segue.journal.rows import DamagedError
from segue.runtime.leash import Leash, Stopped, Why
from segue.runtime.noting import note
from segue.runtime.parts import Agent, Parts

logger = logging.getLogger(__name__)

# How often the text so far is kept, for those who listen elsewhere or come back after a crash.
_KEEP_DRAFT_SECONDS: Final = 0.25
# What the drivers of both databases raise when they cannot reach theirs.
_OUTAGES: Final = frozenset({"OperationalError", "InterfaceError", "PoolTimeout"})
# How long the gates' word counts for a follow-up that nobody began with.
_FRESH: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TurnRules:
    """How often a turn is tried, and how long its batch may take."""

    # Claims in all, those included that ended with their process.
    max_attempts: int = 5
    # Of a model that failed for a moment.
    retries: int = 2
    first_pause: timedelta = timedelta(seconds=1)
    batch_time: timedelta = BATCH_TIMEOUT

    def pause_after(self, attempts: int) -> timedelta:
        return self.first_pause * float(4 ** max(attempts - 1, 0))


@dataclass
class Conversed:
    """What a run has said so far: the batch as it is stored, and what is left to store."""

    run: Run
    stored: list[BaseMessage]
    last: list[BaseMessage] = field(default_factory=list)
    questions: dict[str, Any] = field(default_factory=dict)
    is_shown: bool = False
    # What it reported of its work before the user may hear of it.
    unheard: list[Recalled | Progress] = field(default_factory=list)

    @property
    def batch(self) -> Batch:
        return Batch(self.run.batch.id, [*self.stored, *self.last])


class Autonomous(Protocol):
    """What has a say in whether and when the agent speaks first."""

    async def may_begin(self, turn: Turn, batch: Batch) -> Ending | None:
        """The same for a follow-up that waited before anybody began with it."""
        ...

    async def may_show(self, turn: Turn, batch: Batch) -> Ending | None:
        """None if the user may see it; else what is recorded of its withdrawal."""
        ...

    async def ending(self, turn: Turn, said: Conversed) -> Ending:
        """What is stored with the end of a turn: plans, decisions, effects."""
        ...


class SessionProcessor:
    """Answers the batches of turns, one at a time or many."""

    def __init__(self, parts: Parts, autonomy: Autonomous, rules: TurnRules | None = None) -> None:
        self._journal = parts.journal
        self._agent_of = parts.agent_of
        self._ids = parts.ids
        self._clock = parts.clock.now
        self._bus = parts.bus
        self._agendas = parts.agendas
        self._autonomy = autonomy
        self._rules = rules or TurnRules()

    async def process(self, lease: TurnLease, leash: Leash | None = None) -> None:
        """Answer the turn's batch. Whatever fails, the batch is closed and the user is told."""
        turn = lease.turn
        with self._bus.running(lease), _named(turn):
            try:
                await self._answer(lease, leash or Leash())
            except ConflictError as error:
                # The user wrote, or somebody else has the turn: nothing of it is ours any more.
                _note(
                    turn,
                    "turn_given_up",
                    "Turn {turn_id} was given up: {reason}",
                    reason=str(error),
                )
                self._bus.retract(lease)
                if not await self._is_gone_on_with(turn):
                    await self._forget(turn)
            await self._bus.stored(turn.thread_id)

    async def _answer(self, lease: TurnLease, leash: Leash) -> None:
        turn = lease.turn
        if turn.cancel_requested:
            leash.stop(Why.CANCELLED)
        try:
            async with leash:
                agent = self._agent_of(turn.agent_id)
                self._refuse_hopeless(turn)
                said = await self._converse(lease, agent, leash)
            await self._finish(lease, said)
            if said.questions:
                return  # the graph waits in its checkpoint
        except _Withdrawn as withdrawn:
            await self._withdraw(lease, withdrawn.ending)
        except Stopped as stopped:
            if not await self._stop(lease, stopped.why):
                return
        except _JournalAway as away:
            await self._hand_back(lease, away.error)
            return
        except ConflictError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a turn: it ends, others go on
            if await self._is_tried_again(lease, error):
                return
            await self._fail(lease, error)
        await self._forget(turn)

    async def _converse(self, lease: TurnLease, agent: Agent, leash: Leash) -> Conversed:
        """Run the agent and store each message; the reply is left for the turn's end."""
        turn = lease.turn
        run = await self._prepare(lease, agent)
        if turn.kind is not TurnKind.REPLY:
            bind_contextvars(trigger_type=run.trigger.value if run.trigger else turn.kind.value)
        said = Conversed(run, list(run.batch.messages), is_shown=turn.shown_at is not None)
        draft = _Draft(self._journal, lease)
        await self._reconsider(turn, said)
        async with aclosing(_events_of(agent, run)) as events:
            async for event in events:
                leash.check()
                if isinstance(event, Token):
                    await self._show(lease, said)
                    partial = self._bus.write(lease, event.message_id, event.text)
                    await draft.keep(partial)
                elif isinstance(event, NewMessage):
                    await self._hear(lease, said, event.message)
                elif isinstance(event, Question):
                    said.questions[event.id] = event.value
                else:
                    said.unheard.append(event)
                    self._report(turn, said)
        return said

    async def _hear(self, lease: TurnLease, said: Conversed, message: BaseMessage) -> None:
        """Store what was held back; the newest is held back in turn if it may be the reply."""
        if visible_messages([message]):
            await self._show(lease, said)
        await self._store(lease, said, said.last)
        said.last = [message]
        if not _may_be_last(message):
            await self._store(lease, said, said.last)
            said.last = []

    async def _reconsider(self, turn: Turn, said: Conversed) -> None:
        """The gates spoke when a follow-up was queued: if it waited since then, for a process
        that was down, they are asked again before the model is.
        """
        is_fresh = self._clock() - turn.queued_at < _FRESH
        if said.is_shown or turn.kind is not TurnKind.FOLLOW_UP or is_fresh:
            return
        with _only_the_journal_fails():
            if ending := await self._autonomy.may_begin(turn, said.run.batch):
                raise _Withdrawn(ending)

    async def _show(self, lease: TurnLease, said: Conversed) -> None:
        """Before the user sees the first word of a follow-up, all gates are asked once more."""
        turn = lease.turn
        if said.is_shown or turn.kind is not TurnKind.FOLLOW_UP:
            return
        with _only_the_journal_fails():
            if ending := await self._autonomy.may_show(turn, said.run.batch):
                raise _Withdrawn(ending)
            await self._journal.show_turn(lease, now=self._clock())
        said.is_shown = True
        self._report(turn, said)

    def _report(self, turn: Turn, said: Conversed) -> None:
        """Tell what the agent reports of its work; of a follow-up not before it is shown."""
        if said.is_shown or turn.kind is not TurnKind.FOLLOW_UP:
            for event in said.unheard:
                self._bus.tell(turn.thread_id, event)
            said.unheard = []

    async def _finish(self, lease: TurnLease, said: Conversed) -> None:
        turn = lease.turn
        if said.questions:
            await self._show(lease, said)
        else:
            said.last = _completed(said)
        with _only_the_journal_fails():
            ending = await self._autonomy.ending(turn, said)
            stored = await self._journal.finish_turn(
                lease, said.last, ids=self._ids, now=self._clock(), ending=ending
            )
        self._bus.finish(lease, stored)
        self._agendas.expect(ending, self._clock())
        count = len(said.stored) + len(stored)
        _note(turn, "turn_done", "Turn {turn_id} is stored: {messages} messages", messages=count)

    async def _prepare(self, lease: TurnLease, agent: Agent) -> Run:
        turn = lease.turn
        with _only_the_journal_fails():
            window = await self._journal.window(
                turn.thread_id, max_tokens=agent.config.context_tokens, current_batch=turn.batch
            )
            # The window leaves out a batch that cannot be read; loading it says why.
            found = (batch for batch in window.batches if batch.id == turn.batch)
            current = next(found, None) or await self._journal.load_batch(
                turn.thread_id, turn.batch
            )
        return Run(
            turn.thread_id,
            turn.agent_id,
            turn.user_id,
            current,
            window.batches,
            window.summary.text if window.summary else None,
            answer=turn.payload.get("answer"),
            is_new=turn.attempts == 1 and len(current.messages) == 1,
            attempt=(turn.id, lease.token),
            # Such as who waits for this run: its tools look there.
            notes=dict(turn.payload),
        )

    async def _store(
        self, lease: TurnLease, said: Conversed, messages: Sequence[BaseMessage]
    ) -> None:
        if not messages:
            return
        with _only_the_journal_fails():
            stored = await _to_its_end(
                self._journal.append(lease, messages, ids=self._ids, now=self._clock())
            )
        said.stored += stored
        self._bus.finish(lease, stored)
        await self._bus.stored(lease.turn.thread_id)

    def _refuse_hopeless(self, turn: Turn) -> None:
        if turn.attempts > self._rules.max_attempts:
            raise BackendError(
                f"The reply was begun {turn.attempts - 1} times and never finished; "
                "it is not tried again."
            )

    async def _is_tried_again(self, lease: TurnLease, error: Exception) -> bool:
        """Give the turn back if the next try may do better; whether it was."""
        if self._is_outage(lease.turn, error):
            await self._hand_back(lease, error)
            return True
        if self._is_worth_a_retry(lease.turn, error):
            await self._retry(lease, error)
            return True
        return False

    def _is_worth_a_retry(self, turn: Turn, error: Exception) -> bool:
        return turn.attempts <= self._rules.retries and is_retryable(error)

    def _is_outage(self, turn: Turn, error: Exception) -> bool:
        """Whether the checkpoints were away for a moment; they fail in their driver's words."""
        names = {parent.__name__ for parent in type(error).__mro__}
        return turn.attempts < self._rules.max_attempts and bool(names & _OUTAGES)

    async def _retry(self, lease: TurnLease, error: Exception) -> None:
        """Try again a little later, from where the run stopped."""
        turn, now = lease.turn, self._clock()
        pause = self._rules.pause_after(turn.attempts)
        _note(
            turn,
            "turn_retried",
            "Turn {turn_id} is tried again in {pause}: {reason}",
            logging.WARNING,
            pause=str(pause),
            error=type(error).__name__,
            reason=describe_fault(error),
        )
        _detail(turn, error)
        self._bus.retract(lease)
        await self._journal.release_turn(lease, now=now, retry_at=now + pause)

    async def _stop(self, lease: TurnLease, why: Why) -> bool:
        """End a turn that was stopped; whether it is over."""
        turn = lease.turn
        if why is Why.SHUTDOWN:
            self._bus.retract(lease)
            await self._journal.release_turn(lease, now=self._clock())
            return False
        if why is Why.CANCELLED:
            await self._cancel(lease)
            return True
        if why is Why.TIME_UP:
            limit = self._rules.batch_time.total_seconds()
            await self._fail(lease, BackendError(f"The reply took longer than {limit:g} s."))
            return True
        raise ConflictError(f"Turn {turn.id} was stopped: the user wrote or it was taken over.")

    async def _cancel(self, lease: TurnLease) -> None:
        """Keep what the user has seen of the reply, and close the batch."""
        turn = lease.turn
        batch = await self._journal.load_batch(turn.thread_id, turn.batch)
        # One that was stored just before the stop is no draft any more.
        stored = {message.id for message in batch.messages}
        drafts = [d for d in self._bus.drafts_of(lease) if d.message_id not in stored]
        if drafts := [draft for draft in drafts if draft.text.strip()]:
            # Settled: with a continuation that was asked for before, nobody goes on.
            settled = MessageMetadata(settled=True)
            seen = [settled.onto(AIMessage(draft.text, id=draft.message_id)) for draft in drafts]
            closing = [*interrupted_results(batch), *seen]
        else:
            closing = settle(batch, self._ids).messages[len(batch.messages) :]
        says = {"kind": "cancelled"}
        kept = await self._journal.finish_turn(
            lease, closing, ids=self._ids, now=self._clock(), ending=Ending(says=says)
        )
        self._bus.finish(lease, kept)  # what is left of its drafts is taken back

    async def _withdraw(self, lease: TurnLease, ending: Ending) -> None:
        reason = next((r for d in ending.decisions for r in d.reasons), "A gate refused it.")
        await self._journal.withdraw_turn(
            lease, reason, ids=self._ids, now=self._clock(), ending=ending
        )
        self._agendas.expect(ending, self._clock())
        _note(
            lease.turn,
            "follow_up_withdrawn",
            "Follow-up {turn_id} was withdrawn: {reason}",
            reason=reason,
        )

    async def _fail(self, lease: TurnLease, error: Exception) -> None:
        """Close the batch so that the next message works, and say honestly what happened."""
        turn = lease.turn
        known = error if isinstance(error, SegueError) else explain_model_error(error)
        _note(
            turn,
            "turn_failed",
            "Turn {turn_id} failed: {reason}",
            logging.ERROR,
            error=type(error).__name__,
            reason=_reason(error),
        )
        _detail(turn, error)
        self._bus.retract(lease)
        # Of a follow-up that never spoke, nobody wants to hear that it failed.
        is_heard = turn.kind is not TurnKind.FOLLOW_UP
        says = {"kind": "error", "code": known.code, "reason": str(known)} if is_heard else None
        await self._journal.fail_turn(
            lease,
            str(known),
            ids=self._ids,
            now=self._clock(),
            messages=await self._closing(turn),
            ending=Ending(says=says),
        )

    async def _closing(self, turn: Turn) -> list[BaseMessage]:
        try:
            batch = await self._journal.load_batch(turn.thread_id, turn.batch)
        except DamagedError:  # nothing can be added that fits
            return []
        return settle(batch, self._ids).messages[len(batch.messages) :]

    async def _hand_back(self, lease: TurnLease, error: Exception) -> None:
        """The journal is away: whoever finds it again goes on. Else the lease runs out."""
        turn, now = lease.turn, self._clock()
        _note(
            turn,
            "turn_broke_off",
            "Turn {turn_id} broke off: {reason}",
            logging.WARNING,
            reason=_reason(error),
        )
        _detail(turn, error)
        self._bus.retract(lease)
        await self._journal.release_turn(lease, now=now, retry_at=now + self._rules.first_pause)

    async def _is_gone_on_with(self, turn: Turn) -> bool:
        """Whether somebody works on the batch or will: then its checkpoints are theirs to drop."""
        turns = [
            await self._journal.get_turn(turn.id),
            *await self._journal.list_turns(turn.thread_id),
        ]
        live = (TurnState.QUEUED, TurnState.RUNNING)
        own = (each for each in turns if each.batch == turn.batch)
        return any(each.state in live or each.is_waiting for each in own)

    async def _forget(self, turn: Turn) -> None:
        """Drop what the run left; it is stored, so a leftover costs room and nothing else."""
        try:
            await self._agent_of(turn.agent_id).forget(turn.batch)
        except Exception as error:  # noqa: BLE001 - the turn is over, and well
            logger.warning(
                "The checkpoints of batch %s were not dropped: %s", turn.batch, type(error).__name__
            )
            _detail(turn, error)


class _Withdrawn(Exception):
    """A gate refused at the last moment."""

    def __init__(self, ending: Ending) -> None:
        super().__init__("withdrawn")
        self.ending = ending


class _JournalAway(Exception):
    """The journal failed, and nothing else: the turn is as good as before."""

    def __init__(self, error: SegueError) -> None:
        super().__init__(str(error))
        self.error = error


async def _to_its_end(step: Coroutine[Any, Any, list[BaseMessage]]) -> list[BaseMessage]:
    """What a step stores, also if the turn is stopped meanwhile.

    SQLite goes on with it in any case, and whoever closes the batch has to know what is in it.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


@contextmanager
def _only_the_journal_fails() -> Iterator[None]:
    """Around steps of the journal, and what does nothing but ask it."""
    try:
        yield
    except DamagedError:  # waiting does not help
        raise
    except BackendError as error:
        raise _JournalAway(error) from error


class _Draft:
    """Keeps the text so far in the journal, now and then."""

    def __init__(self, journal: Journal, lease: TurnLease) -> None:
        self._journal = journal
        self._lease = lease
        self._next_at = asyncio.get_running_loop().time() + _KEEP_DRAFT_SECONDS

    async def keep(self, partial: Partial) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            return
        self._next_at = now + _KEEP_DRAFT_SECONDS
        try:
            await self._journal.save_partial(self._lease, partial.message_id, partial.text)
        except BackendError as error:  # a convenience; the reply goes on without
            logger.debug("The text so far of turn %s was not kept: %s", partial.turn_id, error)


@contextmanager
def _named(turn: Turn) -> Iterator[None]:
    """Each line that is logged meanwhile, by whomever, says whose it is, and why it speaks."""
    with bound_contextvars(thread_id=turn.thread_id, agent_id=turn.agent_id):
        try:
            yield
        finally:
            unbind_contextvars("trigger_type")


def _note(turn: Turn, kind: str, text: str, level: int = logging.INFO, **fields: Any) -> None:
    note(
        logger,
        kind,
        text,
        level,
        turn_id=turn.id,
        thread_id=turn.thread_id,
        agent_id=turn.agent_id,
        turn_kind=turn.kind.value,
        **fields,
    )


def _reason(error: Exception) -> str:
    """Only our own texts: another's may quote anything."""
    if isinstance(error, SegueError) and place_of(error) is None:
        return str(error)
    return describe_fault(error)


def _detail(turn: Turn, error: Exception) -> None:
    logger.debug("The error in turn %s", turn.id, exc_info=error)


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


def _completed(said: Conversed) -> list[BaseMessage]:
    """What ends the batch so that the next turn is told of it.

    A call that a lost checkpoint or a careless tool left without a result gets one.
    """
    batch = said.batch
    last = said.last
    if batch.state is BatchState.AWAITING_TOOLS:
        last = [*interrupted_results(batch), *last]
        batch = Batch(batch.id, [*said.stored, *last])
    if batch.state is BatchState.OPEN:
        raise BackendError("The agent ended without an answer.")
    return last


def _may_be_last(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and not calls_of(message)
