"""`SessionProcessor`: takes a turn through the agent, and stores what comes out as it comes.

The story of a turn is `process`. Claiming turns and keeping their leases is the caller's.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, cast

from langchain_core.messages import AIMessage, BaseMessage
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from segue.agent.run import AgentEvent, NewMessage, Progress, Question, Recalled, Run, Token
from segue.core.batch import Batch, BatchState
from segue.core.calls import calls_of
from segue.core.errors import BackendError, ConflictError, NotFoundError, SegueError
from segue.core.messages import visible_messages
from segue.core.settle import interrupted_results
from segue.journal.ports import Journal
from segue.journal.records import Ending, Partial, Turn, TurnKind, TurnLease
from segue.journal.rows import DamagedError
from segue.noting import REQUEST_ID, carried_in, count, watched
from segue.runtime.endings import Endings, note_turn
from segue.runtime.leash import Leash, Stopped, Why
from segue.runtime.parts import Agent, Parts
from segue.runtime.rules import TurnRules
from segue.runtime.windows import read_window

logger = logging.getLogger(__name__)

# How often the text so far is kept, for those who listen elsewhere or come back after a crash.
_KEEP_DRAFT_SECONDS: Final = 0.25
# So many times as long as keeping it takes, the reply goes on at least.
_SELDOM: Final = 10
# How long the gates' word counts for a follow-up that nobody began with.
_FRESH: Final = timedelta(minutes=1)


@dataclass
class Conversed:
    """What a run has said so far: the batch as it is stored, and what is left to store."""

    run: Run
    stored: list[BaseMessage]
    last: list[BaseMessage] = field(default_factory=list)
    questions: dict[str, Any] = field(default_factory=dict)
    is_shown: bool = False
    first_token_at: datetime | None = None
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
        self._working = parts.clock.working
        self._bus = parts.bus
        self._agendas = parts.agendas
        self._autonomy = autonomy
        self._rules = rules or TurnRules()
        self._endings = Endings(parts, self._rules)

    async def process(self, lease: TurnLease, leash: Leash | None = None) -> None:
        """Answer the turn's batch. Whatever fails, the batch is closed and the user is told."""
        turn = lease.turn
        with self._bus.running(lease), _named(turn):
            try:
                await self._answer(lease, leash or Leash())
            except (ConflictError, NotFoundError) as error:
                await self._endings.give_up(lease, error)
            await self._bus.stored(turn.thread_id)

    async def _answer(self, lease: TurnLease, leash: Leash) -> None:
        turn = lease.turn
        if turn.cancel_requested:
            leash.stop(Why.CANCELLED, turn.error)
        try:
            async with leash:
                agent = self._agent_of(turn.agent_id)
                self._refuse_hopeless(turn)
                said = await self._converse(lease, agent, leash)
            await self._finish(lease, said)
            if said.questions:
                return  # the graph waits in its checkpoint
        except _Withdrawn as withdrawn:
            await self._endings.withdraw(lease, withdrawn.ending)
        except Stopped as stopped:
            if not await self._endings.stop(lease, stopped):
                return
        except _JournalAway as away:
            await self._endings.hand_back(lease, away.error)
            return
        except ConflictError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a turn: it ends, others go on
            if await self._endings.is_tried_again(lease, error):
                return
            await self._endings.fail(lease, error)
        await self._endings.forget(turn)

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
                # The agent may wait by the clock meanwhile, in a task of its own.
                with self._working():
                    await self._take(lease, said, draft, event)
        return said

    async def _take(
        self, lease: TurnLease, said: Conversed, draft: "_Draft", event: AgentEvent
    ) -> None:
        if isinstance(event, Token):
            await self._show(lease, said)
            said.first_token_at = said.first_token_at or self._clock()
            await draft.keep(self._bus.write(lease, event.message_id, event.text))
        elif isinstance(event, NewMessage):
            await self._hear(lease, said, event.message)
        elif isinstance(event, Question):
            said.questions[event.id] = event.value
        else:
            said.unheard.append(event)
            self._report(lease, said)

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
        count("follow_up_shown")
        self._report(lease, said)

    def _report(self, lease: TurnLease, said: Conversed) -> None:
        """Tell what the agent reports of its work; of a follow-up not before it is shown."""
        if said.is_shown or lease.turn.kind is not TurnKind.FOLLOW_UP:
            for event in said.unheard:
                self._bus.report(lease, event)
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
        note_turn(
            turn,
            "turn_done",
            "Turn {turn_id} is stored: {messages} messages",
            messages=len(said.stored) + len(stored),
            seconds=_seconds(turn, self._clock()),
            first_token_seconds=_seconds(turn, said.first_token_at),
            is_waiting=bool(said.questions),
        )

    async def _prepare(self, lease: TurnLease, agent: Agent) -> Run:
        turn = lease.turn
        with _only_the_journal_fails():
            window = await read_window(
                self._journal,
                turn.thread_id,
                max_tokens=agent.config.context_tokens,
                current_batch=turn.batch,
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
            window.told(agent.config.context_tokens),
            answer=turn.payload.get("answer"),
            asked=turn.payload.get("asked"),
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
        if self._rules.is_hopeless(turn):
            raise BackendError(
                f"The reply was begun {turn.attempts - 1} times and never finished; "
                "it is not tried again."
            )


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
    except NotFoundError as error:  # the thread was deleted
        raise ConflictError(str(error)) from error
    except DamagedError:  # waiting does not help
        raise
    except BackendError as error:
        raise _JournalAway(error) from error


class _Draft:
    """Keeps the text so far in the journal, now and then."""

    def __init__(self, journal: Journal, lease: TurnLease) -> None:
        self._journal = journal
        self._lease = lease
        # The first piece of a follow-up is kept at once: before it is, others have seen nothing.
        wait = 0 if lease.turn.kind is TurnKind.FOLLOW_UP else _KEEP_DRAFT_SECONDS
        self._next_at = asyncio.get_running_loop().time() + wait

    async def keep(self, partial: Partial) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            return
        try:
            await self._journal.save_partial(self._lease, partial.message_id, partial.text)
        except BackendError as error:  # a convenience; the reply goes on without
            logger.debug("The text so far of turn %s was not kept: %s", partial.turn_id, error)
        done = asyncio.get_running_loop().time()
        # A database that is busy is asked more seldom.
        self._next_at = done + max(_KEEP_DRAFT_SECONDS, _SELDOM * (done - now))


@contextmanager
def _named(turn: Turn) -> Iterator[None]:
    """Each line that is logged meanwhile, by whomever, says whose it is, and why it speaks."""
    carried = carried_in(turn.payload)
    asked = {REQUEST_ID: carried[REQUEST_ID]} if REQUEST_ID in carried else {}
    names = {"thread_id": turn.thread_id, "agent_id": turn.agent_id, "batch": turn.batch}
    with (
        bound_contextvars(**names, **asked),
        watched("turn", carried, turn_id=turn.id, turn_kind=turn.kind.value, **names),
    ):
        try:
            yield
        finally:
            unbind_contextvars("trigger_type")


def _seconds(turn: Turn, until: datetime | None) -> float | None:
    """How long it took, as its user sees it; None if it never came to that."""
    return None if until is None else (until - turn.queued_at).total_seconds()


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
