"""`SessionProcessor`: takes a turn through the agent, and stores each message as it arrives.

`process` is the life of a turn. `TurnWorker` claims turns and extends their leases; `TurnFailures`
ends turns that get no reply; `AfterTurn` plans what comes next.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from segue.core.batch import Batch, BatchState, interrupted_results
from segue.core.calls import calls_of
from segue.core.messages import spoken_text, visible_messages
from segue.core.speech.guard import can_be_judged, find_machinery
from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, ConflictError
from segue.events import ToolActivity
from segue.journal.feed import Partial
from segue.journal.records import Turn, TurnKind, TurnLease
from segue.runtime.after_turn import AfterTurn
from segue.runtime.deps import Agent, Deps, finish_turn, log_about
from segue.runtime.run import (
    AgentEvent,
    MessageFinished,
    Question,
    Run,
    StateChanged,
    Token,
    TurnOutput,
    clock_of,
    read_window,
)
from segue.runtime.turn_failures import (
    CancelScope,
    FollowUpWithdrawn,
    StopReason,
    TurnFailures,
    journal_errors,
)
from segue.telemetry import REQUEST_ID, count, read_trace_context, span

logger = logging.getLogger(__name__)

# Re-check the gates if a follow-up waited in the queue longer than this.
_FRESH: Final = timedelta(minutes=1)
_SAVE_EVERY_SECONDS: Final = 0.25
# Wait at least 10 times the duration of the last draft save before saving again.
_SAVE_SPACING: Final = 10


class SessionProcessor:
    """Answers the batches of turns; any number at a time."""

    def __init__(self, deps: Deps, after_turn: AfterTurn, rules: TurnRules | None = None) -> None:
        self._deps = deps
        self._journal = deps.journal
        self._now = deps.clock.now
        self._bus = deps.bus
        self._after_turn = after_turn
        self._rules = rules or TurnRules()
        self._failures = TurnFailures(deps, self._rules, after_turn)

    async def process(self, lease: TurnLease, scope: CancelScope | None = None) -> None:
        """The life of a turn. If anything fails, its batch ends whole, or another attempt resumes
        it.
        """
        turn, scope = lease.turn, scope or CancelScope()
        if turn.cancel_requested:
            scope.stop(StopReason.CANCELLED, turn.error)
        with self._bus.running(lease), _log_fields(turn):
            try:
                await self._bus.begin(lease)
                async with scope:
                    agent = self._deps.agent_of(turn.agent_id)
                    self._check_attempts(turn)
                    output = _new_output(lease, await self._build_run(lease, agent))
                    await self._recheck_gates(output)
                    async with aclosing(_events_of(agent, output.run)) as events:
                        async for event in events:
                            scope.check()
                            await self._handle(output, event)
                await self._finish(output)
            except Exception as error:  # noqa: BLE001 - the edge of a turn
                await self._failures.end(lease, error)
            await self._bus.notify_stored(turn.thread_id, turn.user_id)

    def _check_attempts(self, turn: Turn) -> None:
        if self._rules.is_hopeless(turn.faults, turn.interruptions):
            raise BackendError(
                f"The reply was started {turn.attempts - 1} times and never finished; "
                "it is not retried."
            )

    async def _build_run(self, lease: TurnLease, agent: Agent) -> Run:
        """The turn's batch with its context: the batches before it, the summary and the time."""
        turn, max_tokens = lease.turn, agent.config.context_tokens
        with journal_errors():
            window = await read_window(
                self._journal, turn.thread_id, max_tokens=max_tokens, current_batch=turn.batch
            )
            current = next((batch for batch in window.batches if batch.id == turn.batch), None)
            if current is None:  # the window leaves out a damaged batch; loading it raises why
                current = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
            has_state = agent.config.graph is not None
            state = await self._journal.states.load(turn.thread_id) if has_state else {}
        run = Run(
            turn.thread_id,
            turn.agent_id,
            turn.user_id,
            current,
            window.batches,
            window.told(max_tokens),
            clock_of(window, agent.config.autonomy, self._now(), self._deps.zone, current),
            answer=turn.payload.get("answer"),
            asked=turn.payload.get("asked"),
            is_new=turn.attempts == 1 and len(current.messages) == 1,
            attempt=(turn.id, lease.token),
            state=state,
            notes=dict(turn.payload),  # tools read there which agent waits for this run
        )
        if turn.kind is not TurnKind.REPLY:
            bind_contextvars(trigger_type=str(run.trigger or turn.kind))
        return run

    async def _recheck_gates(self, output: TurnOutput) -> None:
        """Before the model is called, if a follow-up waited in the queue for a minute or more."""
        if not output.is_shown and self._now() - output.turn.queued_at >= _FRESH:
            await self._check_gates(output.turn, has_waited=True)

    async def _check_gates(self, turn: Turn, *, has_waited: bool = False) -> None:
        with journal_errors():
            if ending := await self._after_turn.refuse(turn, has_waited=has_waited):
                raise FollowUpWithdrawn(ending)

    async def _handle(self, output: TurnOutput, event: AgentEvent) -> None:
        # The agent may wait by the clock in a task of its own while this one works.
        with self._deps.clock.working():
            if isinstance(event, Token):
                output.opening.append(event)
                await self._write(output)
            elif isinstance(event, MessageFinished):
                await self._take_message(output, event.message)
            elif isinstance(event, Question):
                output.questions[event.id] = event.value
            elif isinstance(event, StateChanged):
                output.state = event.changes
            else:
                output.reports.append(event)
                self._send_reports(output)

    async def _write(self, output: TurnOutput) -> None:
        """Send the text to listeners; that of a follow-up once enough of it can be judged."""
        if not output.is_shown:
            text = "".join(token.text for token in output.opening)
            if not can_be_judged(text):
                return
            await self._let_through(output, text)
        output.first_token_at = output.first_token_at or self._now()
        drafts = [self._bus.write(output.lease, t.message_id, t.text) for t in output.opening]
        output.opening = []
        await self._save_draft(output, drafts[-1])

    async def _save_draft(self, output: TurnOutput, draft: Partial) -> None:
        """For listeners in other processes, and for those that resume after a crash."""
        started = asyncio.get_running_loop().time()
        if started < output.save_at:
            return
        try:
            await self._journal.turns.save_draft(output.lease, draft.message_id, draft.text)
        except BackendError as error:  # the reply does not depend on its drafts
            logger.debug("The draft of turn %s was not saved: %s", draft.turn_id, error)
        ended = asyncio.get_running_loop().time()
        output.save_at = ended + max(_SAVE_EVERY_SECONDS, _SAVE_SPACING * (ended - started))

    async def _take_message(self, output: TurnOutput, message: BaseMessage) -> None:
        """Store the message, unless it may be the reply, which is stored with the turn's end."""
        if visible_messages([message]):
            await self._let_through(output, spoken_text(message), whole=True)
        if output.opening:
            await self._write(output)
        may_be_reply = isinstance(message, AIMessage) and not calls_of(message)
        to_store = output.held_reply if may_be_reply else [*output.held_reply, message]
        await self._store(output, to_store)
        output.held_reply = [message] if may_be_reply else []
        output.reports += tool_activity(output.turn.id, message)
        self._send_reports(output)

    async def _let_through(
        self, output: TurnOutput, opening: str = "", *, whole: bool = False
    ) -> None:
        """Before the user sees the first word of a follow-up, read it and check all gates again."""
        if output.is_shown:
            return
        if opening and (machinery := find_machinery(opening, whole=whole)):
            ending = self._after_turn.withhold(output.turn, machinery, opening)
            raise FollowUpWithdrawn(ending, is_withheld=True)
        await self._check_gates(output.turn)
        with journal_errors():
            await self._journal.turns.show(output.lease, now=self._now())
        output.is_shown = True
        count("follow_up_shown")
        self._bus.announce_turn(output.lease)
        self._send_reports(output)

    def _send_reports(self, output: TurnOutput) -> None:
        if output.is_shown:
            for event in output.reports:
                self._bus.report(output.lease, event)
            output.reports = []

    async def _store(self, output: TurnOutput, messages: Sequence[BaseMessage]) -> None:
        if not messages:
            return
        ids, now = self._deps.ids, self._now()
        step = self._journal.messages.append(output.lease, messages, ids=ids, now=now)
        with journal_errors():
            stored = await _uninterrupted(step)
        output.stored += stored
        self._bus.forget_drafts(output.lease, stored)
        await self._bus.notify_stored(output.turn.thread_id, output.turn.user_id)

    async def _finish(self, output: TurnOutput) -> None:
        """Store the reply together with its plans, decisions and effects."""
        turn = output.turn
        if output.questions:
            await self._let_through(output)
        else:
            _complete(output)
        with journal_errors():
            ending = replace(await self._after_turn.build_ending(output), state=output.state)
            await finish_turn(self._deps, output.lease, output.held_reply, ending)
        log_about(
            logger,
            turn,
            "turn_done",
            "Turn {turn_id} is stored: {messages} messages",
            messages=len(output.batch.messages),
            seconds=_seconds(turn, self._now()),
            first_token_seconds=_seconds(turn, output.first_token_at),
            is_waiting=bool(output.questions),
        )
        if not output.questions:  # a graph that waits for an answer needs its checkpoint
            await self._failures.drop_checkpoints(turn)


def _new_output(lease: TurnLease, run: Run) -> TurnOutput:
    """A follow-up is hidden until its first token passed the gates.

    Its first text is saved at once: other processes show it only then.
    """
    turn, is_follow_up = lease.turn, lease.turn.kind.speaks_first
    first_save = 0 if is_follow_up else asyncio.get_running_loop().time() + _SAVE_EVERY_SECONDS
    return TurnOutput(lease, run, not is_follow_up or turn.shown_at is not None, first_save)


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


def tool_activity(turn_id: int, message: BaseMessage) -> list[ToolActivity]:
    """What a message of the agent says about its tools: calls begin, or one has its result."""
    if isinstance(message, ToolMessage):
        state = "failed" if message.status == "error" else "done"
        return [ToolActivity(turn_id, message.tool_call_id, message.name or "", state)]
    return [ToolActivity(turn_id, call.id, call.name, "running") for call in calls_of(message)]


def _complete(output: TurnOutput) -> None:
    """Give a result to a call that a lost checkpoint or a faulty tool left without one."""
    batch = output.batch
    if batch.state is BatchState.AWAITING_TOOLS:
        kept = len(batch.messages) - len(output.held_reply)
        output.held_reply = [*interrupted_results(batch), *output.held_reply]
        batch = output.batch = Batch(batch.id, [*batch.messages[:kept], *output.held_reply])
    if batch.state is BatchState.OPEN:
        raise BackendError("The agent ended without an answer.")


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
