"""Gates: whether a due follow-up may be sent, and if not, why and for how long.

Pure: the caller collects the facts and acts on the decision. Every gate is checked every time and
each verdict is recorded, so one record explains why the agent wrote or did not.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from segue.core.autonomy.local_time import LAST_MOMENT, after, local_day, next_day
from segue.core.autonomy.policy import NO_TIME, Facts, Policy
from segue.core.durations import show_duration

_WITHIN: Final = re.compile(r"run_if_within:(\d+(?:\.\d+)?)", re.ASCII)
_LONGEST_SECONDS: Final = 1e13  # near the limit of a timedelta


class Gate(StrEnum):
    """The gates in the order of checking; the first that refuses gives the reason."""

    ENABLED = "enabled"
    OPTED_OUT = "opted_out"
    MUTED = "muted"
    SNOOZED = "snoozed"
    SUPERSEDED = "superseded"
    STALE = "stale"
    MISSED = "missed"
    CONSECUTIVE_CAP = "consecutive_cap"
    DAILY_CAP = "daily_cap"
    COOLDOWN = "cooldown"
    TYPING = "typing"
    TALKING = "talking"
    QUIET_HOURS = "quiet_hours"


# The user's next message voids a follow-up; an event waits until the conversation pauses.
FOR_FOLLOW_UPS: Final = frozenset(Gate) - {Gate.TALKING}
FOR_EVENTS: Final = frozenset(Gate) - {Gate.SUPERSEDED}
# A reminder is sent when the user wanted it, unless the user has opted out.
FOR_CONTINUATIONS: Final = frozenset({Gate.OPTED_OUT, Gate.MUTED})
FOR_REMINDERS: Final = FOR_CONTINUATIONS | {Gate.STALE, Gate.MISSED}
# The owner's own triggers may leave out the others.
NEVER_LEFT_OUT: Final = frozenset({Gate.OPTED_OUT, Gate.MUTED, Gate.SNOOZED, Gate.SUPERSEDED})


class GateOutcome(StrEnum):
    """The outcome of one gate, or of all together; the last of several counts."""

    ALLOW = "allow"
    POSTPONE = "postpone"
    SUPPRESS = "suppress"


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The outcome of one gate, with a reason that quotes no message."""

    gate: Gate
    outcome: GateOutcome
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The outcome of all gates, with one verdict each, in order; `until` is set if postponed."""

    outcome: GateOutcome
    until: datetime | None
    verdicts: tuple[GateVerdict, ...]

    @property
    def decisive(self) -> GateVerdict | None:
        """The verdict that gives the reason: the first refusal, or the longest wait."""
        if self.outcome is GateOutcome.ALLOW:
            return None
        against = [v for v in self.verdicts if v.outcome is self.outcome]
        return max(against, key=lambda v: v.until or LAST_MOMENT)

    @property
    def reason(self) -> str:
        return self.decisive.reason if self.decisive else "All gates are open."

    @property
    def timer_state(self) -> str:
        if self.decisive is None:
            return "fired"
        if self.outcome is GateOutcome.POSTPONE:
            return "postponed"
        return _CLOSED_AS.get(self.decisive.gate, "suppressed")


_CLOSED_AS: Final = {
    Gate.SUPERSEDED: "cancelled",
    Gate.STALE: "expired",
    Gate.MISSED: "missed",
}


@dataclass(frozen=True, slots=True)
class PolicyGates:
    """The gates of a policy; `gates` are those that count for the kind of timer."""

    policy: Policy = field(default_factory=Policy)
    gates: frozenset[Gate] = FOR_FOLLOW_UPS

    def check(self, facts: Facts) -> GateDecision:
        """Check the gates. A refusal beats a wait, and of several waits the longest counts.

        The end of the longest wait is checked in turn, since it may be in the quiet hours or after
        the timer's expiry: at `until` all gates are open.
        """
        moment = facts.checked_at
        verdicts = recorded = self._check_at(facts, moment)
        while (outcome := _combine(verdicts)) is GateOutcome.POSTPONE and moment < LAST_MOMENT:
            moment = max(v.until for v in verdicts.values() if v.until)
            verdicts = self._check_at(facts, moment)
            recorded |= {g: v for g, v in verdicts.items() if v.outcome is not GateOutcome.ALLOW}
        if outcome is GateOutcome.ALLOW and moment > facts.checked_at:
            outcome = GateOutcome.POSTPONE
        until = moment if outcome is GateOutcome.POSTPONE else None
        return GateDecision(outcome, until, tuple(recorded.values()))

    def _check_at(self, facts: Facts, moment: datetime) -> dict[Gate, GateVerdict]:
        case = _Case(self.policy, facts, moment)
        checks = ((gate, check) for gate, check in _GATES.items() if gate in self.gates)
        return {gate: GateVerdict(gate, *check(case)) for gate, check in checks}


def _combine(verdicts: Mapping[Gate, GateVerdict]) -> GateOutcome:
    return max((verdict.outcome for verdict in verdicts.values()), key=[*GateOutcome].index)


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of a gate: may this be sent at `moment`, which may be in the future?"""

    policy: Policy
    facts: Facts
    moment: datetime

    def shown(self, moment: datetime) -> str:
        local = moment.astimezone(self.facts.clock)
        return f"{local:%Y-%m-%d %H:%M} {self.facts.place}"

    def held_until(self, since: datetime | None, hold: timedelta) -> datetime | None:
        """The end of a hold, if it is still ahead."""
        if since is None:
            return None
        # A clock that is ahead in another process must not prolong the wait.
        until = after(min(since, self.facts.checked_at), hold)
        return until if self.moment < until else None


_Result = tuple[GateOutcome, str, datetime | None]


def _allow(reason: str) -> _Result:
    return GateOutcome.ALLOW, reason, None


def _suppress(reason: str) -> _Result:
    return GateOutcome.SUPPRESS, reason, None


def _postpone(until: datetime, reason: str) -> _Result:
    return GateOutcome.POSTPONE, reason, until


def _enabled(case: _Case) -> _Result:
    if case.policy.enabled:
        return _allow("Follow-ups are enabled for this agent.")
    return _suppress("Follow-ups are disabled for this agent.")


def _opted_out(case: _Case) -> _Result:
    if case.facts.opted_out:
        return _suppress("The user opted out of follow-ups.")
    return _allow("The user has not opted out of follow-ups.")


def _muted(case: _Case) -> _Result:
    if case.facts.muted:
        everywhere = case.facts.muted_everywhere
        return _suppress("The user muted all threads." if everywhere else "The thread is muted.")
    return _allow("The thread is not muted.")


def _snoozed(case: _Case) -> _Result:
    until = case.facts.snoozed_until
    if until is not None and case.moment < until:
        whose = "all the user's threads" if case.facts.snoozed_everywhere else "this thread"
        return _postpone(until, f"Follow-ups in {whose} are snoozed until {case.shown(until)}.")
    return _allow("No snooze is active.")


def _superseded(case: _Case) -> _Result:
    armed, current = case.facts.armed_epoch, case.facts.thread_epoch
    if armed == current:
        return _allow("The user has not written since this was planned.")
    return _suppress(
        f"The user wrote after this was planned: it is of epoch {armed}, the thread of {current}."
    )


def _stale(case: _Case) -> _Result:
    expires_at = case.facts.expires_at
    if expires_at is None:
        return _allow("This follow-up does not expire.")
    if case.moment < expires_at:
        return _allow(f"It expires only at {case.shown(expires_at)}.")
    if case.moment == case.facts.checked_at:
        return _suppress(f"It expired at {case.shown(expires_at)}.")
    return _suppress(
        f"It expires at {case.shown(expires_at)} and cannot be sent before "
        f"{case.shown(case.moment)}."
    )


def _missed(case: _Case) -> _Result:
    """Lateness is measured when the timer is first checked, not after a wait."""
    facts = case.facts
    late = max(facts.checked_at - facts.due_at, NO_TIME)
    within = _WITHIN.fullmatch(facts.missed)
    found = f"Found {show_duration(late)} late"
    if facts.missed == "run":
        return _allow(f"{found}, and to be sent however late it is.")
    allowed = float(within[1]) if within else case.policy.late_after.total_seconds()
    rule = "" if within or facts.missed == "skip" else ", since its own rule cannot be read"
    most = show_duration(timedelta(seconds=min(allowed, _LONGEST_SECONDS)))
    limit = f"it may be {most} late{rule}"
    if late.total_seconds() <= allowed:
        return _allow(f"{found}; {limit}.")
    return _suppress(f"{found}, after it was missed; {limit}.")


def _consecutive_cap(case: _Case) -> _Result:
    sent, most = case.facts.consecutive, case.policy.max_consecutive
    count = f"{sent} of {most} follow-ups sent since the user last wrote"
    return _allow(f"{count}.") if sent < most else _suppress(f"{count}; the user is next.")


def _daily_cap(case: _Case) -> _Result:
    """Follow-ups over the cap wait for the user's next day, where the cooldown spreads them.

    A cap of 0 refuses them, since no day would ever come.
    """
    facts, most = case.facts, case.policy.max_per_day
    if most == 0:
        return _suppress("No follow-ups per day are allowed.")
    is_later_day = local_day(case.moment, facts.clock) > local_day(facts.checked_at, facts.clock)
    if is_later_day or facts.sent_today < most:
        return _allow(f"{facts.sent_today} of {most} follow-ups sent today {facts.place}.")
    until = next_day(case.moment, facts.clock)
    return _postpone(
        until, f"All {most} of the day are sent; the next day begins {case.shown(until)}."
    )


def _cooldown(case: _Case) -> _Result:
    cooldown = case.policy.cooldown
    shown = show_duration(cooldown)
    if until := case.held_until(case.facts.last_follow_up_at, cooldown):
        return _postpone(until, f"The last follow-up was less than {shown} ago.")
    return _allow(f"No follow-up was sent within {shown}.")


def _typing(case: _Case) -> _Result:
    if until := case.held_until(case.facts.typing_at, case.policy.typing_hold):
        return _postpone(until, "The user is typing.")
    return _allow("The user is not typing.")


def _talking(case: _Case) -> _Result:
    if until := case.held_until(case.facts.talked_at, case.policy.talking_hold):
        return _postpone(until, "The user and the agent are talking.")
    return _allow("The conversation rests.")


def _quiet_hours(case: _Case) -> _Result:
    quiet, clock = case.policy.quiet_hours, case.facts.clock
    if quiet is None:
        return _allow("No quiet hours are set.")
    if not quiet.is_quiet(case.moment, clock):
        return _allow(f"Quiet hours are {quiet}; {case.shown(case.moment)} is open.")
    until = quiet.next_open(case.moment, clock)
    return _postpone(until, f"Quiet hours are {quiet}; {case.shown(case.moment)} is quiet.")


_GATES: Final[Mapping[Gate, Callable[[_Case], _Result]]] = {
    Gate.ENABLED: _enabled,
    Gate.OPTED_OUT: _opted_out,
    Gate.MUTED: _muted,
    Gate.SNOOZED: _snoozed,
    Gate.SUPERSEDED: _superseded,
    Gate.STALE: _stale,
    Gate.MISSED: _missed,
    Gate.CONSECUTIVE_CAP: _consecutive_cap,
    Gate.DAILY_CAP: _daily_cap,
    Gate.COOLDOWN: _cooldown,
    Gate.TYPING: _typing,
    Gate.TALKING: _talking,
    Gate.QUIET_HOURS: _quiet_hours,
}
