"""Replays one user's past under other settings: `replay_user`.

Users write when they wrote, agents answer as they answered; planning and gates run again, with the
real rules. Pure: `segue.simulate.past` reads the records, `segue.simulate.replay_report` counts.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, Final

from segue.core.autonomy.gates import FOR_FOLLOW_UPS, GateDecision, GateOutcome, PolicyGates
from segue.core.autonomy.local_time import after, day_began
from segue.core.autonomy.policy import Facts, Preferences
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType, choose_prompt
from segue.journal.stats import WINDOW
from segue.runtime.planning import due_times, refusal
from segue.settings.agents import Autonomy
from segue.simulate.past import PastPlan, PastThread, PastTurn

# The order at one moment: first a follow-up that was sent then, since the user may have answered it
# at once and it may have been the last of its day; then the user; then the rest.
_DUE_AS_THEN: Final = 0
_WROTE: Final = 1
_ANSWERED: Final = 2
_DUE: Final = 3
# Follow-ups in one silence: settings without a delay would never end.
_MOST: Final = 1_000
_FAR: Final = datetime.max.replace(tzinfo=UTC)


class EventKind(StrEnum):
    """An event of the past, or of the replay under other settings."""

    SENT_THEN = "sent_then"
    # The user answered a follow-up that was sent then.
    REPLIED_THEN = "replied_then"
    SENT = "sent"
    POSTPONED = "postponed"
    HELD_BACK = "held_back"
    HELD_OUT = "held_out"
    # The same, and under the other settings no follow-up would have been sent before.
    REPLY_LOST = "reply_lost"


@dataclass(frozen=True, slots=True)
class ReplayEvent:
    """An event of the past or of the replay.

    `gate` is what held it back: a gate, or `decider` if the settings have none. `is_assumed`: it
    follows a follow-up that was never written, and its trigger is assumed to be the same.
    """

    at: datetime
    kind: EventKind
    thread_id: str
    trigger: str | None = None
    gate: str | None = None
    is_assumed: bool = False


@dataclass(slots=True)
class _Silence:
    """From one message of the user to the next: the answer, and the follow-ups after it."""

    answer: PastTurn
    follow_ups: list[PastTurn] = field(default_factory=list)

    @property
    def shown(self) -> list[tuple[datetime, PastTurn]]:
        """The follow-ups that the user saw, and when."""
        return [(turn.shown_at, turn) for turn in self.follow_ups if turn.shown_at is not None]


@dataclass(frozen=True, slots=True, eq=False)
class _Timer:
    due_at: datetime
    expires_at: datetime | None
    plan: PastPlan
    is_assumed: bool = False
    is_postponed: bool = False


class _Thread:
    """The state of a thread during the replay."""

    def __init__(self, past: PastThread, autonomy: Autonomy) -> None:
        self.past = past
        self.autonomy = autonomy
        self.silences: list[_Silence] = []
        # The number of the current silence.
        self.epoch = -1
        self.sent = 0
        self.timer: _Timer | None = None
        self._fired_at = {turn.began_at for turn in past.turns if turn.is_follow_up}
        self._checked_at = [check.at for check in past.checks]
        for turn in past.turns:
            if not turn.is_follow_up:
                self.silences.append(_Silence(turn))
            elif self.silences:  # else the message before it is not stored any more
                self.silences[-1].follow_ups.append(turn)

    @property
    def silence(self) -> _Silence:
        return self.silences[self.epoch]

    def rank_at(self, moment: datetime) -> int:
        return _DUE_AS_THEN if moment in self._fired_at else _DUE

    def preferences_at(self, moment: datetime) -> tuple[Preferences, datetime | None]:
        """Those recorded last before it, else next, else today's; and when the user last typed."""
        checks = self.past.checks
        place = bisect_right(self._checked_at, moment)
        if place:
            return checks[place - 1].preferences, checks[place - 1].typing_at
        return (checks[0].preferences if checks else self.past.preferences), None

    def never_shown(self, moment: datetime) -> PastTurn | None:
        """The recorded follow-up that began at this moment and was never shown."""
        unseen = (turn for turn in self.silence.follow_ups if turn.shown_at is None)
        return next((turn for turn in unseen if turn.began_at == moment), None)

    def counterpart(self) -> PastTurn | None:
        """The recorded follow-up with the same number in this silence as the next one."""
        return next((turn for _, turn in self.silence.shown[self.sent :]), None)


Action = Callable[[datetime], None]


def replay_user(
    threads: Sequence[PastThread], autonomy_of: Callable[[str], Autonomy], until: datetime
) -> list[ReplayEvent]:
    """What was sent in the threads of one user, and what would have been sent until a moment."""
    return _Replay([_Thread(past, autonomy_of(past.agent_id)) for past in threads]).run(until)


class _Replay:
    """All threads of one user: their caps and cooldown are shared."""

    def __init__(self, threads: Sequence[_Thread]) -> None:
        self._threads = threads
        self._numbers = count()
        self._agenda: list[tuple[datetime, int, int, Action]] = []
        self._events: list[ReplayEvent] = []
        self._sent_at: list[datetime] = []
        self._unattended = _merge(span for thread in threads for span in thread.past.unattended)

    def run(self, until: datetime) -> list[ReplayEvent]:
        for thread in self._threads:
            self._recall(thread)
        # Recorded events have happened, even if this machine's clock is behind.
        until = max([until, *(turn.began_at for t in self._threads for turn in t.past.turns)])
        while self._agenda and self._agenda[0][0] <= until:
            moment, _, _, act = heapq.heappop(self._agenda)
            act(moment)
        return self._events

    def _recall(self, thread: _Thread) -> None:
        """Put the recorded events of a thread on the agenda."""
        for cancelled_at in thread.past.cancelled_at:
            self._at(cancelled_at, _WROTE, partial(self._cancel, thread))
        for check in thread.past.checks:
            if check.at < check.due_at:
                self._at(check.at, thread.rank_at(check.at), partial(self._recheck, thread))
        for number, silence in enumerate(thread.silences):
            answer = silence.answer
            self._at(answer.began_at, _WROTE, partial(self._user_wrote, thread, number))
            if answer.ended_at is not None:
                self._at(answer.ended_at, _ANSWERED, partial(self._answered, thread, number))
            for at, follow_up in silence.shown:
                self._add(thread, at, EventKind.SENT_THEN, follow_up.trigger)

    def _at(self, moment: datetime, rank: int, act: Action) -> None:
        heapq.heappush(self._agenda, (moment, rank, next(self._numbers), act))

    def _add(
        self, thread: _Thread, at: datetime, kind: EventKind, trigger: str | None, **more: Any
    ) -> None:
        self._events.append(ReplayEvent(at, kind, thread.past.id, trigger, **more))

    def _user_wrote(self, thread: _Thread, number: int, moment: datetime) -> None:
        shown = thread.silences[number - 1].shown if number else []
        if shown and moment - shown[-1][0] <= WINDOW:
            at, follow_up = shown[-1]
            self._add(thread, at, EventKind.REPLIED_THEN, follow_up.trigger)
            if not thread.sent:
                self._add(thread, at, EventKind.REPLY_LOST, follow_up.trigger)
        thread.epoch, thread.sent, thread.timer = number, 0, None

    def _cancel(self, thread: _Thread, _moment: datetime) -> None:
        thread.timer = None

    def _answered(self, thread: _Thread, number: int, moment: datetime) -> None:
        if thread.epoch == number:  # else the user wrote again before the answer
            self._plan(thread, thread.silence.answer.plan, moment)

    def _plan(
        self, thread: _Thread, plan: PastPlan | None, moment: datetime, *, is_assumed: bool = False
    ) -> None:
        if plan is None or thread.sent >= _MOST:
            return
        autonomy, delay = thread.autonomy, plan.delay
        if gate := _refused_by(thread.sent, plan.trigger, autonomy):
            self._add(thread, moment, EventKind.HELD_BACK, plan.trigger, gate=gate)
            return
        if delay is None:
            delay = autonomy.delays.of(TriggerType(plan.trigger))
        due_at, expires_at = due_times(delay, thread.sent, autonomy, moment)
        self._arm(thread, _Timer(due_at, expires_at, plan, is_assumed), due_at)

    def _arm(self, thread: _Thread, timer: _Timer, moment: datetime) -> None:
        thread.timer = timer
        self._at(moment, thread.rank_at(moment), partial(self._due, thread, timer))

    def _due(self, thread: _Thread, timer: _Timer, moment: datetime) -> None:
        if thread.timer is not timer:
            return
        if (attended_at := self._attended_at(moment)) > moment:
            self._arm(thread, timer, attended_at)
        else:
            self._check(thread, timer, moment)

    def _recheck(self, thread: _Thread, moment: datetime) -> None:
        """The user's preferences changed here: a postponed follow-up was checked again."""
        if thread.timer is not None and thread.timer.is_postponed:
            self._check(thread, thread.timer, moment)

    def _check(self, thread: _Thread, timer: _Timer, moment: datetime) -> None:
        decision = self._ask_gates(thread, timer, moment)
        thread.timer = None
        if decision.outcome is GateOutcome.ALLOW:
            self._fire(thread, timer, moment)
            return
        kind = EventKind.HELD_BACK if decision.until is None else EventKind.POSTPONED
        gate = decision.decisive and decision.decisive.gate
        self._add(thread, moment, kind, timer.plan.trigger, gate=gate)
        if decision.until is not None:
            self._postpone(thread, timer, decision.until)

    def _postpone(self, thread: _Thread, timer: _Timer, until: datetime) -> None:
        self._arm(thread, replace(timer, due_at=until, is_postponed=True), until)

    def _ask_gates(self, thread: _Thread, timer: _Timer, moment: datetime) -> GateDecision:
        preferences, typing_at = thread.preferences_at(moment)
        began = day_began(moment, preferences.clock)
        facts = Facts(
            checked_at=moment,
            due_at=timer.due_at,
            armed_epoch=thread.epoch,
            thread_epoch=thread.epoch,
            expires_at=timer.expires_at,
            missed=thread.autonomy.missed,
            consecutive=thread.sent,
            sent_today=len(self._sent_at) - bisect_left(self._sent_at, began),
            last_follow_up_at=self._sent_at[-1] if self._sent_at else None,
            typing_at=typing_at,
            **preferences.as_facts(),
        )
        gates = FOR_FOLLOW_UPS - thread.autonomy.left_out_gates(timer.plan.trigger)
        return PolicyGates(preferences.apply_to(thread.autonomy.policy), gates).check(facts)

    def _fire(self, thread: _Thread, timer: _Timer, moment: datetime) -> None:
        autonomy, trigger = thread.autonomy, timer.plan.trigger
        if choose_prompt(autonomy.all_prompts, autonomy.holdout, trigger, thread.past.id) is None:
            self._add(thread, moment, EventKind.HELD_OUT, trigger)
            return
        if (unseen := thread.never_shown(moment)) is not None:  # what ended it then, ends it now
            if unseen.postponed_until is not None and unseen.postponed_until > moment:
                self._postpone(thread, timer, unseen.postponed_until)
            return
        like = thread.counterpart()
        shown_at, ended_at = _times_of(like, moment)
        self._add(thread, shown_at, EventKind.SENT, trigger, is_assumed=timer.is_assumed)
        insort(self._sent_at, shown_at)
        thread.sent += 1
        plan = timer.plan if like is None else like.plan
        self._plan(thread, plan, ended_at, is_assumed=like is None)

    def _attended_at(self, due_at: datetime) -> datetime:
        """When a process looked at timers: while none did then, none does now."""
        place = bisect_right(self._unattended, (due_at, _FAR))
        return max(due_at, self._unattended[place - 1][1]) if place else due_at


def _refused_by(consecutive: int, trigger: str, autonomy: Autonomy) -> str | None:
    """The gate that refuses every such plan, or `decider`; None if there is none."""
    if refused := refusal(consecutive, autonomy):
        return refused.gate
    return None if trigger in TRIGGER_PROMPTS or trigger in autonomy.triggers else "decider"


def _merge(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """The spans, sorted, with those that overlap as one."""
    merged: list[tuple[datetime, datetime]] = []
    for began, ended in sorted(spans):
        if merged and began < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], ended)
        else:
            merged.append((began, ended))
    return merged


def _times_of(like: PastTurn | None, moment: datetime) -> tuple[datetime, datetime]:
    """When a follow-up is shown and when it ends: after as long as its counterpart took."""
    if like is None:
        return moment, moment
    shown = like.shown_at - like.began_at if like.shown_at else timedelta()
    ended = like.ended_at - like.began_at if like.ended_at else shown
    return after(moment, shown), after(moment, ended)
