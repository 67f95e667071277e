"""How a turn ends without its reply: stopped, withdrawn, failed, or released for another try.

In each case the batch is whole afterwards, or a later try resumes it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from segue.core.batch import interrupted_results, settle
from segue.core.metadata import MessageMetadata
from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, ConflictError, NotFoundError, SegueError
from segue.journal.records import STOPPED, Ending, Turn, TurnKind, TurnLease
from segue.journal.rows import DamagedError
from segue.runtime.cancellation import StopReason, TurnStopped
from segue.runtime.deps import Deps
from segue.runtime.housekeeping import is_batch_in_use
from segue.runtime.model_failures import describe_fault, explain_model_error, is_retryable, place_of
from segue.telemetry import count, log_event

logger = logging.getLogger(__name__)

# What the drivers of both databases raise when they cannot reach theirs.
_OUTAGES: Final = frozenset({"OperationalError", "InterfaceError", "PoolTimeout"})


class FollowUpWithdrawn(Exception):
    """A gate refused a follow-up after it was queued."""

    def __init__(self, ending: Ending) -> None:
        super().__init__("withdrawn")
        self.ending = ending


class JournalUnavailable(Exception):
    """A step of the journal failed; the turn itself did not."""

    def __init__(self, error: SegueError) -> None:
        super().__init__(str(error))
        self.error = error


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
        raise JournalUnavailable(error) from error


class TurnFailures:
    """Ends turns for the processor."""

    def __init__(self, deps: Deps, rules: TurnRules) -> None:
        self._journal = deps.journal
        self._agent_of = deps.agent_of
        self._ids = deps.ids
        self._clock = deps.clock.now
        self._bus = deps.bus
        self._wakeups = deps.wakeups
        self._rules = rules

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
            await self._withdraw(lease, error.ending)
        elif isinstance(error, TurnStopped):
            return await self._stop(lease, error)
        elif isinstance(error, JournalUnavailable):
            await self._release(lease, error.error)
            return False
        elif isinstance(error, ConflictError):
            raise error
        elif self._is_outage(turn, error):
            await self._release(lease, error)
            return False
        elif is_retryable(error) and self._may_retry(turn):
            await self._retry(lease, error)
            return False
        else:
            await self._fail(lease, error)
        return True

    async def _give_up(self, lease: TurnLease, error: SegueError) -> None:
        """The user wrote, another process has the turn, or its thread was deleted."""
        turn = lease.turn
        log_turn(turn, "turn_given_up", "Turn {turn_id} was given up: {reason}", reason=str(error))
        self._bus.retract(lease)
        if not await is_batch_in_use(self._journal, turn.id):
            await self.drop_checkpoints(turn)

    def _may_retry(self, turn: Turn) -> bool:
        now = self._clock()
        worked = turn.worked + (now - (turn.begun_at or now))
        return self._rules.may_retry(turn.faults, worked)

    def _is_outage(self, turn: Turn, error: Exception) -> bool:
        """Whether the checkpoints' database was unreachable; they raise their driver's errors."""
        names = {parent.__name__ for parent in type(error).__mro__}
        may_wait = turn.interruptions + 1 < self._rules.max_interruptions
        return may_wait and bool(names & _OUTAGES)

    async def _retry(self, lease: TurnLease, error: Exception) -> None:
        """Release the turn for a later try, which resumes from the last checkpoint."""
        turn, now = lease.turn, self._clock()
        pause = self._rules.pause_after(turn.faults + 1)
        log_turn(
            turn,
            "turn_retried",
            "Turn {turn_id} is tried again in {pause}: {reason}",
            logging.WARNING,
            pause=str(pause),
            error=type(error).__name__,
            reason=describe_fault(error),
        )
        _log_traceback(turn, error)
        self._bus.retract(lease)
        await self._journal.turns.release(lease, now=now, retry_at=now + pause, is_fault=True)

    async def _release(self, lease: TurnLease, error: Exception) -> None:
        """A database is unreachable: try again soon. If this fails too, the lease expires."""
        turn, now = lease.turn, self._clock()
        log_turn(
            turn,
            "turn_broke_off",
            "Turn {turn_id} broke off: {reason}",
            logging.WARNING,
            reason=_log_reason(error),
        )
        _log_traceback(turn, error)
        self._bus.retract(lease)
        pause = self._rules.pause_in_outage(turn.interruptions)
        await self._journal.turns.release(lease, now=now, retry_at=now + pause)

    async def _stop(self, lease: TurnLease, stopped: TurnStopped) -> bool:
        """Returns whether the turn is over."""
        if stopped.reason is StopReason.SHUTDOWN:
            self._bus.retract(lease)
            await self._journal.turns.release(lease, now=self._clock())
            return False
        if stopped.reason is StopReason.CANCELLED:
            await self._cancel(lease, stopped.text or STOPPED)
            return True
        if stopped.reason is StopReason.TIME_UP:
            limit = self._rules.batch_time.total_seconds()
            await self._fail(lease, BackendError(f"The reply took longer than {limit:g} s."))
            return True
        raise ConflictError(
            f"Turn {lease.turn.id} was stopped: the user wrote or it was taken over."
        )

    async def _cancel(self, lease: TurnLease, reason: str) -> None:
        """Keep what the user has seen of the reply, and close the batch."""
        turn = lease.turn
        batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        # A message that was stored just before the stop has no draft.
        stored = {message.id for message in batch.messages}
        drafts = [
            draft
            for draft in self._bus.drafts_of(lease)
            if draft.message_id not in stored and draft.text.strip()
        ]
        if drafts:
            # Settled, so that a continuation requested before does not start.
            settled = MessageMetadata(settled=True)
            seen = [settled.onto(AIMessage(draft.text, id=draft.message_id)) for draft in drafts]
            closing = [*interrupted_results(batch), *seen]
        else:
            closing = settle(batch, self._ids).messages[len(batch.messages) :]
            count("batch_settled")
        says = {"kind": "cancelled", "reason": reason}
        kept = await self._journal.turns.finish(
            lease, closing, ids=self._ids, now=self._clock(), ending=Ending(says=says)
        )
        self._bus.finish(lease, kept)
        log_turn(turn, "turn_cancelled", "Turn {turn_id} was stopped: {reason}", reason=reason)

    async def _withdraw(self, lease: TurnLease, ending: Ending) -> None:
        reason = next((r for d in ending.decisions for r in d.reasons), "A gate refused it.")
        await self._journal.turns.withdraw(
            lease, reason, ids=self._ids, now=self._clock(), ending=ending
        )
        self._wakeups.expect(ending, self._clock())
        log_turn(
            lease.turn,
            "follow_up_withdrawn",
            "Follow-up {turn_id} was withdrawn: {reason}",
            reason=reason,
        )

    async def _fail(self, lease: TurnLease, error: Exception) -> None:
        """Close the batch so that the next message works, and report the error to the user."""
        turn, shown = lease.turn, _shown_error(error)
        log_turn(
            turn,
            "turn_failed",
            "Turn {turn_id} failed: {reason}",
            logging.ERROR,
            error=type(error).__name__,
            reason=_log_reason(error),
        )
        _log_traceback(turn, error)
        self._bus.retract(lease)
        # The user did not ask for a follow-up and is not told that it failed.
        is_told = turn.kind is not TurnKind.FOLLOW_UP
        says = {"kind": "error", "code": shown.code, "reason": str(shown)} if is_told else None
        await self._journal.turns.fail(
            lease,
            str(shown),
            ids=self._ids,
            now=self._clock(),
            messages=await self._closing_messages(turn),
            ending=Ending(says=says),
        )

    async def _closing_messages(self, turn: Turn) -> list[BaseMessage]:
        try:
            batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        except DamagedError:  # a batch that cannot be read cannot be settled
            return []
        count("batch_settled")
        return settle(batch, self._ids).messages[len(batch.messages) :]

    async def drop_checkpoints(self, turn: Turn) -> None:
        """The batch is stored, so checkpoints that cannot be dropped only take up space."""
        try:
            await self._agent_of(turn.agent_id).forget(turn.batch)
        except Exception as error:  # noqa: BLE001 - the turn has ended
            logger.warning(
                "The checkpoints of batch %s were not dropped: %s", turn.batch, type(error).__name__
            )
            _log_traceback(turn, error)


def log_turn(turn: Turn, kind: str, text: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event of a turn, with its ids."""
    log_event(
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


def _log_reason(error: Exception) -> str:
    """Only Segue's own error texts are logged: others may quote users."""
    return str(error) if _is_own(error) else describe_fault(error)


def _shown_error(error: Exception) -> SegueError:
    """The error for the user: with Segue's texts only."""
    if isinstance(error, SegueError) and not _is_own(error):
        return BackendError(f"The agent's own code failed ({type(error).__name__}).")
    return explain_model_error(error)


def _is_own(error: Exception) -> bool:
    """Whether Segue raised it, not an agent's code that uses Segue's error classes."""
    return isinstance(error, SegueError) and place_of(error) is None


def _log_traceback(turn: Turn, error: Exception) -> None:
    logger.debug("The error in turn %s", turn.id, exc_info=error)
