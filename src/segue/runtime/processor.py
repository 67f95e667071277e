"""`SessionProcessor`: takes a turn through the agent, and stores each message as it comes.

`process` is the life of a turn. `TurnWorker` claims turns and extends their leases; `TurnFailures`
ends turns that get no reply; `AfterTurn` plans what comes next.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from segue.core.batch import Batch, BatchState, interrupted_results
from segue.core.calls import calls_of
from segue.core.messages import visible_messages
from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, ConflictError
from segue.journal.records import Turn, TurnKind, TurnLease
from segue.runtime.after_turn import AfterTurn
from segue.runtime.cancellation import CancelScope, StopReason
from segue.runtime.deps import Agent, Deps
from segue.runtime.output import DraftSaver, TurnOutput
from segue.runtime.run import AgentEvent, MessageFinished, Question, Run, Token, read_window
from segue.runtime.turn_failures import (
    FollowUpWithdrawn,
    TurnFailures,
    journal_errors,
    log_turn,
)
from segue.telemetry import REQUEST_ID, count, read_trace_context, span

# Re-check the gates if a follow-up waited in the queue longer than this.
_FRESH: Final = timedelta(minutes=1)


class SessionProcessor:
    """Answers the batches of turns; any number at a time."""

    def __init__(self, deps: Deps, after_turn: AfterTurn, rules: TurnRules | None = None) -> None:
        self._journal = deps.journal
        self._agent_of = deps.agent_of
        self._ids = deps.ids
        self._clock = deps.clock.now
        self._working = deps.clock.working
        self._bus = deps.bus
        self._wakeups = deps.wakeups
        self._after_turn = after_turn
        self._rules = rules or TurnRules()
        self._failures = TurnFailures(deps, self._rules)

    async def process(self, lease: TurnLease, scope: CancelScope | None = None) -> None:
        """The life of a turn. Whatever fails, its batch ends whole, or another try resumes it."""
        turn, scope = lease.turn, scope or CancelScope()
        if turn.cancel_requested:
            scope.stop(StopReason.CANCELLED, turn.error)
        with self._bus.running(lease), _log_fields(turn):
            try:
                async with scope:
                    agent = self._agent_of(turn.agent_id)
                    self._check_attempts(turn)
                    run = await self._build_run(lease, agent)
                    output = TurnOutput(run, is_shown=not _is_hidden(turn))
                    draft = DraftSaver(self._journal, lease)
                    await self._recheck_gates(turn, output)
                    async with aclosing(_events_of(agent, run)) as events:
                        async for event in events:
                            scope.check()
                            await self._handle(lease, output, draft, event)
                await self._finish(lease, output)
            except Exception as error:  # noqa: BLE001 - the edge of a turn
                await self._failures.end(lease, error)
            await self._bus.stored(turn.thread_id)

    async def _build_run(self, lease: TurnLease, agent: Agent) -> Run:
        """The turn's batch with its context: the batches before it and the summary."""
        turn, max_tokens = lease.turn, agent.config.context_tokens
        with journal_errors():
            window = await read_window(
                self._journal, turn.thread_id, max_tokens=max_tokens, current_batch=turn.batch
            )
            current = next((batch for batch in window.batches if batch.id == turn.batch), None)
            if current is None:  # the window leaves out a damaged batch; loading it raises why
                current = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        run = Run(
            turn.thread_id,
            turn.agent_id,
            turn.user_id,
            current,
            window.batches,
            window.told(max_tokens),
            answer=turn.payload.get("answer"),
            asked=turn.payload.get("asked"),
            is_new=turn.attempts == 1 and len(current.messages) == 1,
            attempt=(turn.id, lease.token),
            notes=dict(turn.payload),  # tools read there which agent waits for this run
        )
        if turn.kind is not TurnKind.REPLY:
            bind_contextvars(trigger_type=run.trigger.value if run.trigger else turn.kind.value)
        return run

    async def _recheck_gates(self, turn: Turn, output: TurnOutput) -> None:
        """Before the model is called for a follow-up that waited, for a process that was down."""
        if output.is_shown or self._clock() - turn.queued_at < _FRESH:
            return
        with journal_errors():
            if ending := await self._after_turn.refuse(turn, output.run.batch, has_waited=True):
                raise FollowUpWithdrawn(ending)

    async def _handle(
        self, lease: TurnLease, output: TurnOutput, draft: DraftSaver, event: AgentEvent
    ) -> None:
        # The agent may wait by the clock in a task of its own while this one works.
        with self._working():
            if isinstance(event, Token):
                await self._show(lease, output)
                output.first_token_at = output.first_token_at or self._clock()
                await draft.save(self._bus.write(lease, event.message_id, event.text))
            elif isinstance(event, MessageFinished):
                await self._take(lease, output, event.message)
            elif isinstance(event, Question):
                output.questions[event.id] = event.value
            else:
                output.reports.append(event)
                self._send_reports(lease, output)

    async def _take(self, lease: TurnLease, output: TurnOutput, message: BaseMessage) -> None:
        """Store the message that was held back; hold the new one back if it may be the reply."""
        if visible_messages([message]):
            await self._show(lease, output)
        may_be_reply = isinstance(message, AIMessage) and not calls_of(message)
        await self._store(lease, output, output.last if may_be_reply else [*output.last, message])
        output.last = [message] if may_be_reply else []

    async def _show(self, lease: TurnLease, output: TurnOutput) -> None:
        """Before the user sees the first token of a follow-up, check all gates once more."""
        if output.is_shown:
            return
        with journal_errors():
            if ending := await self._after_turn.refuse(lease.turn, output.run.batch):
                raise FollowUpWithdrawn(ending)
            await self._journal.turns.show(lease, now=self._clock())
        output.is_shown = True
        count("follow_up_shown")
        self._send_reports(lease, output)

    def _send_reports(self, lease: TurnLease, output: TurnOutput) -> None:
        if output.is_shown:
            for event in output.reports:
                self._bus.report(lease, event)
            output.reports = []

    async def _store(
        self, lease: TurnLease, output: TurnOutput, messages: Sequence[BaseMessage]
    ) -> None:
        if not messages:
            return
        with journal_errors():
            stored = await _uninterrupted(
                self._journal.messages.append(lease, messages, ids=self._ids, now=self._clock())
            )
        output.stored += stored
        self._bus.finish(lease, stored)
        await self._bus.stored(lease.turn.thread_id)

    async def _finish(self, lease: TurnLease, output: TurnOutput) -> None:
        """Store the reply together with what follows from it: plans, decisions, effects."""
        turn = lease.turn
        if output.questions:
            await self._show(lease, output)
        else:
            output.last = _completed(output)
        with journal_errors():
            ending = await self._after_turn.build_ending(turn, output)
            stored = await self._journal.turns.finish(
                lease, output.last, ids=self._ids, now=self._clock(), ending=ending
            )
        self._bus.finish(lease, stored)
        self._wakeups.expect(ending, self._clock())
        log_turn(
            turn,
            "turn_done",
            "Turn {turn_id} is stored: {messages} messages",
            messages=len(output.batch.messages),
            seconds=_seconds(turn, self._clock()),
            first_token_seconds=_seconds(turn, output.first_token_at),
            is_waiting=bool(output.questions),
        )
        if not output.questions:  # a graph that waits for an answer needs its checkpoint
            await self._failures.drop_checkpoints(turn)

    def _check_attempts(self, turn: Turn) -> None:
        if self._rules.is_hopeless(turn.faults, turn.interruptions):
            raise BackendError(
                f"The reply was begun {turn.attempts - 1} times and never finished; "
                "it is not tried again."
            )


def _is_hidden(turn: Turn) -> bool:
    """A follow-up is hidden until its first token passed the gates."""
    return turn.kind is TurnKind.FOLLOW_UP and turn.shown_at is None


async def _events_of(agent: Agent, run: Run) -> AsyncGenerator[AgentEvent]:
    """The agent's events. A `ConflictError` of its own code does not concern the turn's lease."""
    # Closing this generator closes the agent's, which stops the model.
    events = cast("AsyncGenerator[AgentEvent]", agent.run(run))
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except ConflictError as error:
        raise BackendError(str(error)) from error


async def _uninterrupted(step: Coroutine[Any, Any, list[BaseMessage]]) -> list[BaseMessage]:
    """Finish a step of the journal even if the turn is stopped meanwhile.

    SQLite finishes it in any case, and closing the batch needs to know its messages.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _completed(output: TurnOutput) -> list[BaseMessage]:
    """The messages that complete the batch.

    A call that a lost checkpoint or a faulty tool left without a result gets one.
    """
    batch, last = output.batch, output.last
    if batch.state is BatchState.AWAITING_TOOLS:
        last = [*interrupted_results(batch), *last]
        kept = len(batch.messages) - len(output.last)
        batch = output.batch = Batch(batch.id, [*batch.messages[:kept], *last])
    if batch.state is BatchState.OPEN:
        raise BackendError("The agent ended without an answer.")
    return last


@contextmanager
def _log_fields(turn: Turn) -> Iterator[None]:
    """Every log line inside names the turn's thread, agent, batch, trigger and request."""
    parent = read_trace_context(turn.payload)
    request = {REQUEST_ID: parent[REQUEST_ID]} if REQUEST_ID in parent else {}
    names = {"thread_id": turn.thread_id, "agent_id": turn.agent_id, "batch": turn.batch}
    with (
        bound_contextvars(**names, **request),
        span("turn", parent, turn_id=turn.id, turn_kind=turn.kind.value, **names),
    ):
        try:
            yield
        finally:
            unbind_contextvars("trigger_type")


def _seconds(turn: Turn, until: datetime | None) -> float | None:
    return None if until is None else (until - turn.queued_at).total_seconds()
