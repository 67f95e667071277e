"""How a turn ends without its reply: stopped, withdrawn, failed, or released for another try.

`CancelScope` lets other tasks stop a turn; `TurnFailures` ends it. In each case the batch
is whole afterwards, or a later try resumes it.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from langchain_core.messages import AIMessage, BaseMessage

from segue.core.batch import Batch, interrupted_results, settle
from segue.core.metadata import MessageMetadata
from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, ConflictError, NotFoundError, SegueError
from segue.journal.records import (
    HURRIED,
    STOPPED,
    Decision,
    Ending,
    Turn,
    TurnKind,
    TurnLease,
)
from segue.journal.rows import DamagedError
from segue.runtime.after_turn import AfterTurn
from segue.runtime.deps import Deps, finish_turn, log_about
from segue.runtime.housekeeping import is_batch_in_use
from segue.runtime.model_failures import describe_fault, explain_model_error, is_retryable, place_of
from segue.runtime.requests import tell_later
from segue.telemetry import count

logger = logging.getLogger(__name__)

# What the drivers of both databases raise when they cannot reach theirs.
_OUTAGES: Final = frozenset({"OperationalError", "InterfaceError", "PoolTimeout"})


class StopReason(StrEnum):
    """Why a turn was stopped before its end."""

    CANCELLED = "cancelled"  # by the user
    VOID = "void"  # the user wrote, or another process claimed the turn
    SHUTDOWN = "shutdown"
    TIME_UP = "time_up"


class TurnStopped(Exception):
    """Raised inside a `CancelScope` that was stopped; `text` is the user's reason."""

    def __init__(self, reason: StopReason, text: str | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.text = text


class CancelScope:
    """An async context that `stop` or the time limit ends with `TurnStopped`."""

    def __init__(self, limit: timedelta | None = None) -> None:
        self._limit = limit
        self._reason: StopReason | None = None
        self._text: str | None = None
        self._timeout: asyncio.Timeout | None = None

    def stop(self, reason: StopReason, text: str | None = None) -> None:
        """Stop the block at its next await; the first reason counts."""
        if self._reason is None:
            self._reason, self._text = reason, text
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    @property
    def is_stopped(self) -> bool:
        return self._reason is not None

    def check(self) -> None:
        """Raise if stopped: a driver may have swallowed the cancellation."""
        if self._reason is not None or (self._timeout is not None and self._timeout.expired()):
            raise self._error()

    async def __aenter__(self) -> Self:
        self.check()
        limit = None if self._limit is None else self._limit.total_seconds()
        self._timeout = asyncio.timeout(limit)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timeout, self._timeout = self._timeout, None
        assert timeout is not None  # noqa: S101 - entered
        try:
            await timeout.__aexit__(kind, error, trace)
        except TimeoutError as expired:
            raise self._error() from expired
        if (
            timeout.expired()
            and isinstance(error, Exception)
            and not isinstance(error, TurnStopped)
        ):
            # Some drivers turn a cancellation into an error of their own.
            raise self._error() from error

    def _error(self) -> TurnStopped:
        return TurnStopped(self._reason or StopReason.TIME_UP, self._text)


class FollowUpWithdrawn(Exception):
    """A gate refused a follow-up after it was queued, or its text is withheld."""

    def __init__(self, ending: Ending, *, is_withheld: bool = False) -> None:
        super().__init__("withdrawn")
        self.ending = ending
        self.is_withheld = is_withheld


class JournalUnavailable(BackendError):
    """A step of the journal failed; the turn itself did not."""


@contextmanager
def journal_errors() -> Iterator[None]:
    """Around steps of the journal: tells its outages from errors of the agent."""
    try:
        yield
    except NotFoundError as error:  # the thread was deleted
        raise ConflictError(str(error)) from error
    except DamagedError:  # waiting does not help
        raise
    except BackendError as error:
        raise JournalUnavailable(str(error)) from error


class TurnFailures:
    def __init__(self, deps: Deps, rules: TurnRules, after_turn: AfterTurn) -> None:
        self._deps = deps
        self._journal = deps.journal
        self._now = deps.clock.now
        self._bus = deps.bus
        self._rules = rules
        self._after_turn = after_turn

    async def end(self, lease: TurnLease, error: Exception) -> None:
        """Close the turn's batch, or release the turn for another try."""
        try:
            if await self._close(lease, error):
                await self.drop_checkpoints(lease.turn)
        except (ConflictError, NotFoundError) as conflict:
            await self._give_up(lease, conflict)

    async def _close(self, lease: TurnLease, error: Exception) -> bool:
        """Returns whether the turn is over; `ConflictError` if its lease is lost."""
        turn = lease.turn
        if isinstance(error, FollowUpWithdrawn):
            reason = "The model's text was withheld, so the reminder was sent with its stored text."
            decisions = error.ending.decisions
            if not error.is_withheld or not await self._reminds(lease, reason, decisions):
                await self._withdraw(lease, error.ending)
        elif isinstance(error, TurnStopped):
            return await self._stop(lease, error)
        elif isinstance(error, ConflictError):
            raise error
        elif isinstance(error, JournalUnavailable) or self._is_outage(turn, error):
            await self._release(lease, error, is_fault=False)
            return False
        elif is_retryable(error) and self._may_retry(turn):
            await self._release(lease, error, is_fault=True)
            return False
        else:
            await self._fail(lease, error)
        return True

    async def _give_up(self, lease: TurnLease, error: SegueError) -> None:
        """The user wrote, another process has the turn, or its thread was deleted."""
        turn, text = lease.turn, "Turn {turn_id} was given up: {reason}"
        log_about(logger, turn, "turn_given_up", text, reason=str(error))
        self._bus.retract(lease)
        if not await is_batch_in_use(self._journal, turn.id):
            await self.drop_checkpoints(turn)

    def _may_retry(self, turn: Turn) -> bool:
        now = self._now()
        worked = turn.worked + (now - (turn.begun_at or now))
        return self._rules.may_retry(turn.faults, worked)

    def _is_outage(self, turn: Turn, error: Exception) -> bool:
        """Whether the checkpoints' database was unreachable; they raise their driver's errors."""
        names = {parent.__name__ for parent in type(error).__mro__}
        may_wait = turn.interruptions + 1 < self._rules.max_interruptions
        return may_wait and bool(names & _OUTAGES)

    async def _release(self, lease: TurnLease, error: Exception, *, is_fault: bool) -> None:
        """Release the turn for a later try, which resumes from the last checkpoint.

        `is_fault`: the model failed, not a database. If this fails too, the lease expires.
        """
        turn, now = lease.turn, self._now()
        if is_fault:
            kind, pause = "turn_retried", self._rules.pause_after(turn.faults + 1)
        else:
            kind, pause = "turn_broke_off", self._rules.pause_in_outage(turn.interruptions)
        text = "Turn {turn_id} is tried again in {pause}: {reason}"
        _log_error(turn, kind, text, logging.WARNING, error, pause=str(pause))
        self._bus.retract(lease)
        await self._journal.turns.release(lease, now=now, retry_at=now + pause, is_fault=is_fault)

    async def _stop(self, lease: TurnLease, stopped: TurnStopped) -> bool:
        """Returns whether the turn is over."""
        if stopped.reason is StopReason.SHUTDOWN:
            self._bus.retract(lease)
            await self._journal.turns.release(lease, now=self._now())
            return False
        if stopped.reason is StopReason.VOID:
            raise ConflictError(
                f"Turn {lease.turn.id} was stopped: the user wrote or it was taken over."
            )
        if stopped.reason is StopReason.CANCELLED:
            if stopped.text == HURRIED and await self._reminds(lease, HURRIED):
                return True
            await self._cancel(lease, stopped.text or STOPPED)
        else:
            limit = self._rules.batch_time.total_seconds()
            await self._fail(lease, BackendError(f"The reply took longer than {limit:g} s."))
        return True

    async def _cancel(self, lease: TurnLease, reason: str) -> None:
        """Keep what the user has seen of the reply, and close the batch."""
        turn = lease.turn
        batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        # A message that was stored just before the stop has no draft.
        stored = {message.id for message in batch.messages}
        # Settled, so that a continuation requested before does not start.
        settled = MessageMetadata(settled=True)
        seen = [
            settled.onto(AIMessage(draft.text, id=draft.message_id))
            for draft in self._bus.drafts_of(lease)
            if draft.message_id not in stored and draft.text.strip()
        ]
        closing = [*interrupted_results(batch), *seen] if seen else self._settle(batch)
        ending = Ending(says={"kind": "cancelled", "reason": reason})
        await finish_turn(self._deps, lease, closing, ending)
        text = "Turn {turn_id} was stopped: {reason}"
        log_about(logger, turn, "turn_cancelled", text, reason=reason)

    async def _withdraw(self, lease: TurnLease, ending: Ending) -> None:
        reason = next((r for d in ending.decisions for r in d.reasons), "A gate refused it.")
        await self._journal.turns.withdraw(
            lease, reason, ids=self._deps.ids, now=self._now(), ending=ending
        )
        self._deps.wakeups.expect(ending, self._now())
        text = "Follow-up {turn_id} was withdrawn: {reason}"
        log_about(logger, lease.turn, "follow_up_withdrawn", text, reason=reason)

    async def _reminds(
        self, lease: TurnLease, reason: str, decisions: Sequence[Decision] = ()
    ) -> bool:
        """Send a reminder in the user's own words: it must not be lost because of the model.

        False if the turn is not a reminder, or if it cannot be sent.
        """
        turn = lease.turn
        if turn.kind is not TurnKind.REMINDER:
            return False
        try:
            if refused := await self._after_turn.refuse(turn):
                if (await self._journal.turns.get(turn.id)).shown_at is not None:
                    return False  # what was seen in part cannot be withdrawn
                await self._withdraw(lease, refused)
                return True
            batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
            sent, ending = await self._after_turn.remind_plainly(turn, batch, reason, decisions)
        except (DamagedError, NotFoundError):
            return False
        await self._journal.turns.show(lease, now=self._now())
        await finish_turn(self._deps, lease, [*interrupted_results(batch), sent], ending)
        text = "Reminder {turn_id}: {reason}"
        log_about(logger, turn, "reminder_sent_plainly", text, reason=reason)
        return True

    async def _fail(self, lease: TurnLease, error: Exception) -> None:
        """Close the batch so that the next message works, and report the error to the user."""
        turn, shown = lease.turn, _shown_error(error)
        _log_error(turn, "turn_failed", "Turn {turn_id} failed: {reason}", logging.ERROR, error)
        self._bus.retract(lease)
        if await self._reminds(
            lease, f"The model failed ({shown.code}); it was sent with its stored text."
        ):
            return
        # The user did not ask for a follow-up and is not told that it failed.
        is_told = not turn.kind.speaks_first
        says = {"kind": "error", "code": shown.code, "reason": str(shown)} if is_told else None
        try:
            batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
            closing = self._settle(batch)
        except DamagedError:  # a batch that cannot be read cannot be settled
            closing = []
        now = self._now()
        ending = replace(await tell_later(self._deps, turn, shown.code), says=says)
        await self._journal.turns.fail(
            lease, str(shown), ids=self._deps.ids, now=now, messages=closing, ending=ending
        )
        self._deps.wakeups.expect(ending, now)

    def _settle(self, batch: Batch) -> list[BaseMessage]:
        """The messages that close a batch."""
        count("batch_settled")
        return settle(batch, self._deps.ids).messages[len(batch.messages) :]

    async def drop_checkpoints(self, turn: Turn) -> None:
        """The batch is stored, so checkpoints that cannot be dropped only take up space."""
        try:
            await self._deps.agent_of(turn.agent_id).forget(turn.batch)
        except Exception as error:
            logger.warning(
                "The checkpoints of batch %s were not dropped: %s", turn.batch, type(error).__name__
            )
            logger.debug("The error in turn %s", turn.id, exc_info=error)


def _log_error(
    turn: Turn, kind: str, text: str, level: int, error: Exception, **fields: Any
) -> None:
    """Only Segue's own error texts are logged, and tracebacks at DEBUG: others may quote users."""
    reason = str(error) if _is_own(error) else describe_fault(error)
    log_about(logger, turn, kind, text, level, error=type(error).__name__, reason=reason, **fields)
    logger.debug("The error in turn %s", turn.id, exc_info=error)


def _shown_error(error: Exception) -> SegueError:
    """The error for the user: with Segue's texts only."""
    if isinstance(error, SegueError) and not _is_own(error):
        return BackendError(f"The agent's own code failed ({type(error).__name__}).")
    return explain_model_error(error)


def _is_own(error: Exception) -> bool:
    """Whether Segue raised it, not an agent's code that uses Segue's error classes."""
    return isinstance(error, SegueError) and place_of(error) is None
