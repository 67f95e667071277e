"""A user's past, lived through once more under other settings: `relive`.

Users write when they wrote, agents answer as they answered; plans and gates are the new ones. Pure:
what was is `segue.runtime.past`'s, what it comes to is `segue.runtime.replay`'s.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Final

from segue.agent.config import Autonomy
from segue.core.gates import Gate, GateDecision, Outcome, PolicyGates
from segue.core.policy import Facts, next_delay
from segue.core.preferences import Preferences
from segue.core.prompts import choose_prompt
from segue.core.quiet import after, day_began, find_zone
from segue.core.triggers import TriggerType
from segue.journal.outcomes import WINDOW
from segue.runtime.follow_up import refusal
from segue.runtime.past import Cycle, PastThread, Plan


class Kind(StrEnum):
    """What happened then, or would have under the other settings."""

    SENT_THEN = "sent_then"
    # The user answered a follow-up of then.
    REPLIED_THEN = "replied_then"
    SENT = "sent"
    POSTPONED = "postponed"
    HELD_BACK = "held_back"
    HELD_OUT = "held_out"
    # The user answered a follow-up of then, and now there would have been none to answer.
    REPLY_LOST = "reply_lost"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened or would have.

    `gate` is what held it back: a gate, or `decider` where nothing decides about follow-ups.
    `is_assumed`: it follows one that nobody ever wrote, and is taken to be of the same kind.
    """

    at: datetime
    kind: Kind
    thread_id: str
    trigger: str | None = None
    gate: str | None = None
    is_assumed: bool = False


def relive(
    threads: Sequence[PastThread], autonomy_of: Callable[[str], Autonomy], until: datetime
) -> Iterator[Entry]:
    """All that was sent in the threads of one user, and what would have been until a moment."""
    yield from _of_then(threads)
    yield from _Life(threads, autonomy_of, until).lived()


@dataclass(slots=True)
class _Silence:
    """From a message of the user's to the next one: what was answered, and what came of itself."""

    asked: Cycle
    follow_ups: list[Cycle] = field(default_factory=list)

    @property
    def shown(self) -> list[tuple[datetime, Cycle]]:
        """The follow-ups that the user saw, and when."""
        return [(c.shown_at, c) for c in self.follow_ups if c.shown_at is not None]

    def answered(self, wrote_at: datetime) -> tuple[datetime, Cycle] | None:
        """The follow-up that the user's next message answers."""
        last = self.shown[-1] if self.shown else None
        return last if last is not None and wrote_at - last[0] <= WINDOW else None


def _silences(thread: PastThread) -> list[_Silence]:
    """What came before the first message that is still known is left out."""
    silences: list[_Silence] = []
    for cycle in thread.cycles:
        if not cycle.is_follow_up:
            silences.append(_Silence(cycle))
        elif silences:
            silences[-1].follow_ups.append(cycle)
    return silences


def _of_then(threads: Iterable[PastThread]) -> Iterator[Entry]:
    for thread in threads:
        for silence in _silences(thread):
            for at, cycle in silence.shown:
                yield Entry(at, Kind.SENT_THEN, thread.id, cycle.trigger)


# What comes first at one moment: what was sent at it then, which the user may have answered at once
# and which may have taken the last place of the day; and of all else, the user.
_DUE_AS_THEN: Final = 0
_WROTE: Final = 1
_ANSWERED: Final = 2
_DUE: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Timer:
    due_at: datetime
    expires_at: datetime | None
    trigger: TriggerType
    is_assumed: bool = False
    is_put_off: bool = False


class _Thread:
    """A thread as it is while the past goes by again."""

    def __init__(self, past: PastThread, autonomy: Autonomy) -> None:
        self.past = past
        self.autonomy = autonomy
        self.silences = _silences(past)
        self.silence = -1
        self.sent = 0
        self.timer: _Timer | None = None
        self._fired_at = {cycle.began_at for cycle in past.cycles if cycle.is_follow_up}
        self._checked_at = [check.at for check in past.checks]

    def rank_at(self, moment: datetime) -> int:
        """Of what is due at one moment, that comes first which was sent then."""
        return _DUE_AS_THEN if moment in self._fired_at else _DUE

    def held_at(self, moment: datetime) -> tuple[Preferences, datetime | None]:
        """The wishes at a moment and when the user was last seen typing, as far as known: what was
        recorded last, else what was recorded next, else today's.
        """
        checks = self.past.checks
        place = bisect_right(self._checked_at, moment)
        if place:
            return checks[place - 1].wishes, checks[place - 1].typing_at
        return (checks[0].wishes if checks else self.past.wishes), None

    def plan(self, plan: Plan, answered_at: datetime, *, is_assumed: bool = False) -> _Timer:
        autonomy = self.autonomy
        delay = autonomy.delays.of(plan.trigger) if plan.delay is None else plan.delay
        due_at = after(answered_at, next_delay(autonomy.policy, delay, self.sent))
        expires_at = after(due_at, autonomy.expires_after) if autonomy.expires_after else None
        return _Timer(due_at, expires_at, plan.trigger, is_assumed)

    def never_seen(self, moment: datetime) -> Cycle | None:
        """The follow-up of then that began at this moment and that nobody got to see."""
        began = (c for c in self.silences[self.silence].follow_ups if c.began_at == moment)
        return next((cycle for cycle in began if cycle.shown_at is None), None)

    def like(self) -> Cycle | None:
        """The follow-up of then that is the next one's counterpart."""
        shown = self.silences[self.silence].shown
        return shown[self.sent][1] if self.sent < len(shown) else None


# Whatever the settings allow, no silence is replayed further: without delays it would have no end.
_MOST: Final = 1_000
Act = Callable[[datetime], Iterator[Entry]]


class _Life:
    """All threads of one user, lived through again."""

    def __init__(
        self,
        threads: Sequence[PastThread],
        autonomy_of: Callable[[str], Autonomy],
        until: datetime,
    ) -> None:
        # What is recorded has happened, whatever this machine's clock says.
        self._until = max([until, *(c.began_at for past in threads for c in past.cycles)])
        self._numbers = count()
        self._agenda: list[tuple[datetime, int, int, Act]] = []
        self._sent_at: list[datetime] = []
        self._late = _late_spans(threads)
        for past in threads:
            thread = _Thread(past, autonomy_of(past.agent_id))
            for moment in past.dropped_at:
                self._at(moment, _WROTE, partial(self._dropped, thread))
            for check in past.checks:
                if check.at < check.due_at:
                    self._at(check.at, thread.rank_at(check.at), partial(self._wished, thread))
            for number, silence in enumerate(thread.silences):
                asked = silence.asked
                self._at(asked.began_at, _WROTE, partial(self._wrote, thread, number))
                if asked.ended_at is not None:
                    self._at(asked.ended_at, _ANSWERED, partial(self._answered, thread, number))

    def lived(self) -> Iterator[Entry]:
        while self._agenda and self._agenda[0][0] <= self._until:
            moment, _, _, act = heapq.heappop(self._agenda)
            yield from act(moment)

    def _at(self, moment: datetime, rank: int, act: Act) -> None:
        heapq.heappush(self._agenda, (moment, rank, next(self._numbers), act))

    def _wrote(self, thread: _Thread, number: int, moment: datetime) -> Iterator[Entry]:
        if number:
            answered = thread.silences[number - 1].answered(moment)
            if answered is not None:
                at, follow_up = answered
                yield Entry(at, Kind.REPLIED_THEN, thread.past.id, follow_up.trigger)
                if not thread.sent:
                    yield Entry(at, Kind.REPLY_LOST, thread.past.id, follow_up.trigger)
        thread.silence, thread.sent, thread.timer = number, 0, None

    def _dropped(self, thread: _Thread, moment: datetime) -> Iterator[Entry]:
        del moment
        thread.timer = None
        return iter(())

    def _answered(self, thread: _Thread, number: int, moment: datetime) -> Iterator[Entry]:
        if thread.silence == number:  # else the user wrote again before the answer was there
            yield from self._plan(thread, thread.silences[number].asked.plan, moment)

    def _plan(
        self, thread: _Thread, plan: Plan | None, moment: datetime, *, is_assumed: bool = False
    ) -> Iterator[Entry]:
        if plan is None or thread.sent >= _MOST:
            return
        if refusal(thread.sent, thread.autonomy):
            gate = _refused_by(thread)
            yield Entry(moment, Kind.HELD_BACK, thread.past.id, plan.trigger.value, gate)
            return
        self._arm(thread, thread.plan(plan, moment, is_assumed=is_assumed))

    def _arm(self, thread: _Thread, timer: _Timer) -> None:
        thread.timer = timer
        self._look(thread, timer, timer.due_at)

    def _look(self, thread: _Thread, timer: _Timer, moment: datetime) -> None:
        self._at(moment, thread.rank_at(moment), partial(self._due, thread, timer))

    def _due(self, thread: _Thread, timer: _Timer, moment: datetime) -> Iterator[Entry]:
        if thread.timer is not timer:
            return
        found_at = self._found_at(moment)
        if found_at > moment:
            self._look(thread, timer, found_at)
        else:
            yield from self._consider(thread, timer, moment)

    def _wished(self, thread: _Thread, moment: datetime) -> Iterator[Entry]:
        """The user's wishes were others from here on: what was put off was looked at again."""
        if thread.timer is not None and thread.timer.is_put_off:
            yield from self._consider(thread, thread.timer, moment)

    def _consider(self, thread: _Thread, timer: _Timer, moment: datetime) -> Iterator[Entry]:
        decision = self._asked(thread, timer, moment)
        thread.timer = None
        if decision.outcome is Outcome.ALLOW:
            yield from self._fire(thread, timer, moment)
            return
        kind = Kind.HELD_BACK if decision.until is None else Kind.POSTPONED
        gate = next(v.gate for v in decision.verdicts if v.outcome is decision.outcome)
        yield Entry(moment, kind, thread.past.id, timer.trigger.value, gate)
        if decision.until is not None:
            self._put_off(thread, timer, decision.until)

    def _put_off(self, thread: _Thread, timer: _Timer, until: datetime) -> None:
        self._arm(thread, replace(timer, due_at=until, is_put_off=True))

    def _asked(self, thread: _Thread, timer: _Timer, moment: datetime) -> GateDecision:
        wishes, typing_at = thread.held_at(moment)
        began = day_began(moment, find_zone(wishes.time_zone) or UTC)
        facts = Facts(
            checked_at=moment,
            due_at=timer.due_at,
            armed_epoch=thread.silence,
            thread_epoch=thread.silence,
            expires_at=timer.expires_at,
            missed=thread.autonomy.missed,
            consecutive=thread.sent,
            sent_today=len(self._sent_at) - bisect_left(self._sent_at, began),
            last_follow_up_at=self._sent_at[-1] if self._sent_at else None,
            typing_at=typing_at,
            **wishes.as_facts(),
        )
        return PolicyGates(wishes.over(thread.autonomy.policy)).check(facts)

    def _fire(self, thread: _Thread, timer: _Timer, moment: datetime) -> Iterator[Entry]:
        autonomy, thread_id = thread.autonomy, thread.past.id
        told = (thread_id, timer.trigger.value)
        if choose_prompt(autonomy.prompts, autonomy.holdout, timer.trigger, thread_id) is None:
            yield Entry(moment, Kind.HELD_OUT, *told)
            return
        if (unseen := thread.never_seen(moment)) is not None:  # what ended it then, ends it now
            if unseen.put_off_until is not None and unseen.put_off_until > moment:
                self._put_off(thread, timer, unseen.put_off_until)
            return
        like = thread.like()
        shown_at, ended_at = _times_of(like, moment)
        yield Entry(shown_at, Kind.SENT, *told, is_assumed=timer.is_assumed)
        insort(self._sent_at, shown_at)
        thread.sent += 1
        plan = Plan(timer.trigger) if like is None else like.plan
        yield from self._plan(thread, plan, ended_at, is_assumed=like is None)

    def _found_at(self, due_at: datetime) -> datetime:
        """When somebody was there to look: while nobody looked then, nobody looks now."""
        place = bisect_right(self._late, (due_at, _FAR))
        if place and due_at < self._late[place - 1][1]:
            return self._late[place - 1][1]
        return due_at


def _refused_by(thread: _Thread) -> str:
    """What stands in the way of any plan, whatever was said."""
    if not (thread.autonomy.enabled and thread.autonomy.policy.enabled):
        return Gate.ENABLED
    return "decider" if thread.autonomy.decider == "none" else Gate.CONSECUTIVE_CAP


_FAR: Final = datetime.max.replace(tzinfo=UTC)


def _late_spans(threads: Iterable[PastThread]) -> list[tuple[datetime, datetime]]:
    """When nobody looked at what was due; spans that touch are one."""
    spans: list[tuple[datetime, datetime]] = []
    for began, ended in sorted(span for thread in threads for span in thread.unattended):
        if spans and began < spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], ended)
        else:
            spans.append((began, ended))
    return spans


def _times_of(like: Cycle | None, moment: datetime) -> tuple[datetime, datetime]:
    """When a follow-up is seen and when it ends: after as long as its counterpart took."""
    if like is None:
        return moment, moment
    shown = like.shown_at - like.began_at if like.shown_at else timedelta()
    ended = like.ended_at - like.began_at if like.ended_at else shown
    return after(moment, shown), after(moment, ended)
