"""How a turn ends that does not end with its reply: stopped, withdrawn, failed, or given back.

Whatever happened, the batch is whole afterwards, or somebody goes on with it.
"""

import logging
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from segue.agent.faults import describe_fault, place_of
from segue.agent.model_errors import explain_model_error, is_retryable
from segue.core.errors import BackendError, ConflictError, SegueError
from segue.core.metadata import MessageMetadata
from segue.core.settle import interrupted_results, settle
from segue.journal.records import STOPPED, Ending, Turn, TurnKind, TurnLease
from segue.journal.rows import DamagedError
from segue.noting import count, note
from segue.runtime.leash import Stopped, Why
from segue.runtime.parts import Parts
from segue.runtime.rules import TurnRules
from segue.runtime.sweeper import is_gone_on_with

logger = logging.getLogger(__name__)

# What the drivers of both databases raise when they cannot reach theirs.
_OUTAGES: Final = frozenset({"OperationalError", "InterfaceError", "PoolTimeout"})


class Endings:
    """Ends turns that were cut off, for the processor."""

    def __init__(self, parts: Parts, rules: TurnRules) -> None:
        self._journal = parts.journal
        self._agent_of = parts.agent_of
        self._ids = parts.ids
        self._clock = parts.clock.now
        self._bus = parts.bus
        self._agendas = parts.agendas
        self._rules = rules

    async def give_up(self, lease: TurnLease, error: SegueError) -> None:
        """The user wrote, somebody else has the turn, or its thread was deleted: nothing of it is
        ours any more.
        """
        turn = lease.turn
        note_turn(turn, "turn_given_up", "Turn {turn_id} was given up: {reason}", reason=str(error))
        self._bus.retract(lease)
        if not await is_gone_on_with(self._journal, turn.id):
            await self.forget(turn)

    async def is_tried_again(self, lease: TurnLease, error: Exception) -> bool:
        """Give the turn back if the next try may do better; whether it was."""
        if self._is_outage(lease.turn, error):
            await self.hand_back(lease, error)
            return True
        if self._is_worth_a_retry(lease.turn, error):
            await self._retry(lease, error)
            return True
        return False

    def _is_worth_a_retry(self, turn: Turn, error: Exception) -> bool:
        return is_retryable(error) and self._rules.may_retry(turn, self._clock())

    def _is_outage(self, turn: Turn, error: Exception) -> bool:
        """Whether the checkpoints were away for a moment; they fail in their driver's words."""
        names = {parent.__name__ for parent in type(error).__mro__}
        is_patient = turn.interruptions + 1 < self._rules.max_interruptions
        return is_patient and bool(names & _OUTAGES)

    async def _retry(self, lease: TurnLease, error: Exception) -> None:
        """Try again a little later, from where the run stopped."""
        turn, now = lease.turn, self._clock()
        pause = self._rules.pause_after(turn.faults + 1)
        note_turn(
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
        await self._journal.release_turn(lease, now=now, retry_at=now + pause, is_fault=True)

    async def stop(self, lease: TurnLease, stopped: Stopped) -> bool:
        """End a turn that was stopped; whether it is over."""
        turn, why = lease.turn, stopped.why
        if why is Why.SHUTDOWN:
            self._bus.retract(lease)
            await self._journal.release_turn(lease, now=self._clock())
            return False
        if why is Why.CANCELLED:
            await self.cancel(lease, stopped.reason or STOPPED)
            return True
        if why is Why.TIME_UP:
            limit = self._rules.batch_time.total_seconds()
            await self.fail(lease, BackendError(f"The reply took longer than {limit:g} s."))
            return True
        raise ConflictError(f"Turn {turn.id} was stopped: the user wrote or it was taken over.")

    async def cancel(self, lease: TurnLease, reason: str) -> None:
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
            count("batch_settled")
        says = {"kind": "cancelled", "reason": reason}
        kept = await self._journal.finish_turn(
            lease, closing, ids=self._ids, now=self._clock(), ending=Ending(says=says)
        )
        self._bus.finish(lease, kept)  # what is left of its drafts is taken back
        note_turn(turn, "turn_cancelled", "Turn {turn_id} was stopped: {reason}", reason=reason)

    async def withdraw(self, lease: TurnLease, ending: Ending) -> None:
        reason = next((r for d in ending.decisions for r in d.reasons), "A gate refused it.")
        await self._journal.withdraw_turn(
            lease, reason, ids=self._ids, now=self._clock(), ending=ending
        )
        self._agendas.expect(ending, self._clock())
        note_turn(
            lease.turn,
            "follow_up_withdrawn",
            "Follow-up {turn_id} was withdrawn: {reason}",
            reason=reason,
        )

    async def fail(self, lease: TurnLease, error: Exception) -> None:
        """Close the batch so that the next message works, and say honestly what happened."""
        turn = lease.turn
        known = _told(error)
        note_turn(
            turn,
            "turn_failed",
            "Turn {turn_id} failed: {reason}",
            logging.ERROR,
            error=type(error).__name__,
            reason=reason_of(error),
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
        count("batch_settled")
        return settle(batch, self._ids).messages[len(batch.messages) :]

    async def hand_back(self, lease: TurnLease, error: Exception) -> None:
        """The journal is away: whoever finds it again goes on. Else the lease runs out."""
        turn, now = lease.turn, self._clock()
        note_turn(
            turn,
            "turn_broke_off",
            "Turn {turn_id} broke off: {reason}",
            logging.WARNING,
            reason=reason_of(error),
        )
        _detail(turn, error)
        self._bus.retract(lease)
        pause = self._rules.pause_in_outage(turn.interruptions)
        await self._journal.release_turn(lease, now=now, retry_at=now + pause)

    async def forget(self, turn: Turn) -> None:
        """Drop what the run left; it is stored, so a leftover costs room and nothing else."""
        try:
            await self._agent_of(turn.agent_id).forget(turn.batch)
        except Exception as error:  # noqa: BLE001 - the turn is over, and well
            logger.warning(
                "The checkpoints of batch %s were not dropped: %s", turn.batch, type(error).__name__
            )
            _detail(turn, error)


def note_turn(turn: Turn, kind: str, text: str, level: int = logging.INFO, **fields: Any) -> None:
    """Note something of a turn, with its ids."""
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


def reason_of(error: Exception) -> str:
    """Only our own texts: another's may quote anything."""
    return str(error) if _is_own(error) else describe_fault(error)


def _told(error: Exception) -> SegueError:
    """The error for the user, without words of others."""
    if isinstance(error, SegueError) and not _is_own(error):
        return BackendError(f"The agent's own code failed ({type(error).__name__}).")
    return explain_model_error(error)


def _is_own(error: Exception) -> bool:
    """Whether Segue raised it, and not an agent's own code in its name."""
    return isinstance(error, SegueError) and place_of(error) is None


def _detail(turn: Turn, error: Exception) -> None:
    logger.debug("The error in turn %s", turn.id, exc_info=error)
