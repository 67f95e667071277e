"""Timers with what became of those that fired: a follow-up may be stopped before it is seen."""

from dataclasses import dataclass
from typing import Any, Final

from segue.core.errors import NotFoundError
from segue.core.plain import exact_json
from segue.journal.ports import Journal
from segue.journal.records import Timer, TimerState, Turn, TurnState

# Of each timer there are a few: the plan, the gates, and what was found before it spoke.
_DECISIONS: Final = 10
_ENDS: Final = {
    TurnState.QUEUED: "under way",
    TurnState.RUNNING: "under way",
    TurnState.FAILED: "failed",
    TurnState.VOID: "stopped",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """A timer, and the turn that it led to if that is known."""

    timer: Timer
    turn: Turn | None

    @property
    def became(self) -> str | None:
        """Whether what fired was sent; None if it did not fire, or nobody knows any more."""
        if self.turn is None:
            return None
        said = "sent" if self.turn.shown_at is not None else "nothing said"
        return _ENDS.get(self.turn.state, said)

    @property
    def why(self) -> str:
        ended = None if self.turn is None else self.turn.error
        return ended or self.timer.state_reason or self.timer.reason or ""

    def as_json(self) -> dict[str, Any]:
        return {**exact_json(self.timer), "became": self.became}


async def load_fates(journal: Journal, thread_id: str, *, limit: int) -> list[Fate]:
    """A thread's timers, newest first. The gates' decision knows which turn a timer led to."""
    timers = await journal.list_timers(thread_id, limit=limit)
    decisions = await journal.list_decisions(thread_id, limit=limit * _DECISIONS)
    led_to = {d.timer_id: d.turn_id for d in decisions if d.timer_id and d.turn_id}
    return [
        Fate(timer, await _turn(journal, led_to.get(timer.id)))
        if timer.state is TimerState.FIRED
        else Fate(timer, None)
        for timer in timers
    ]


async def _turn(journal: Journal, turn_id: int | None) -> Turn | None:
    try:
        return None if turn_id is None else await journal.get_turn(turn_id)
    except NotFoundError:
        return None
