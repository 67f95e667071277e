"""Gates: whether a follow-up that is due may be sent, and if not, why and for how long.

Pure: the caller collects the facts and acts on the decision. Every gate is asked every time and
each answer is recorded, so that one record explains why the agent wrote and why it did not. The
arithmetic of the user's clock is `segue.core.quiet`'s.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from segue.core.durations import show_duration
from segue.core.policy import NO_TIME, Facts, Policy
from segue.core.quiet import LAST_MOMENT, after, local_day, next_day

_WITHIN: Final = re.compile(r"run_if_within:(\d+(?:\.\d+)?)", re.ASCII)
_EVER: Final = 1e13  # seconds, near the longest time that can be counted


class Gate(StrEnum):
    """The gates in the order in which they are asked; the first that refuses names the reason."""

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
    QUIET_HOURS = "quiet_hours"


class Outcome(StrEnum):
    """What a gate, or all of them together, say."""

    ALLOW = "allow"
    POSTPONE = "postpone"
    SUPPRESS = "suppress"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's answer, with a sentence for people that holds nothing of what anyone said."""

    gate: Gate
    outcome: Outcome
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What all gates say together: one verdict each, in order. `until` is set if postponed."""

    outcome: Outcome
    until: datetime | None
    verdicts: tuple[Verdict, ...]

    @property
    def decisive(self) -> Verdict | None:
        """The verdict to give as the reason: the first refusal, or the longest wait."""
        if self.outcome is Outcome.ALLOW:
            return None
        against = [v for v in self.verdicts if v.outcome is self.outcome]
        return max(against, key=lambda v: v.until or LAST_MOMENT)

    @property
    def reason(self) -> str:
        return self.decisive.reason if self.decisive else "All gates are open."

    @property
    def timer_state(self) -> str:
        """The journal's word for what becomes of the timer."""
        if self.decisive is None:
            return "fired"
        if self.outcome is Outcome.POSTPONE:
            return "postponed"
        return _CLOSED_AS.get(self.decisive.gate, "suppressed")


_CLOSED_AS: Final[Mapping[Gate, str]] = MappingProxyType(
    {Gate.SUPERSEDED: "cancelled", Gate.STALE: "expired", Gate.MISSED: "missed"}
)


@dataclass(frozen=True, slots=True)
class PolicyGates:
    """All gates under one policy."""

    policy: Policy = field(default_factory=Policy)

    def check(self, facts: Facts) -> GateDecision:
        """Ask every gate. A refusal beats a wait, and of several waits the longest counts.

        The time at which the longest wait ends is checked in turn, since it may lie in the
        quiet hours or past the timer's expiry: `until` is a time at which all gates are open.
        """
        moment = facts.checked_at
        asked = recorded = self._ask(facts, moment)
        while (outcome := _together(asked)) is Outcome.POSTPONE and moment < LAST_MOMENT:
            moment = max(v.until for v in asked.values() if v.until)
            asked = self._ask(facts, moment)
            recorded |= {g: v for g, v in asked.items() if v.outcome is not Outcome.ALLOW}
        if outcome is Outcome.ALLOW and moment > facts.checked_at:
            outcome = Outcome.POSTPONE
        until = moment if outcome is Outcome.POSTPONE else None
        return GateDecision(outcome, until, tuple(recorded.values()))

    def _ask(self, facts: Facts, moment: datetime) -> dict[Gate, Verdict]:
        case = _Case(self.policy, facts, moment)
        return {gate: Verdict(gate, *ask(case)) for gate, ask in _GATES.items()}


def refuse_continuation(facts: Facts) -> str | None:
    """Why a due continuation may not go on; None if it may.

    It is work that the user asked for, so only a user who wants to hear nothing stands in its way.
    """
    against = (
        verdict.reason
        for verdict in PolicyGates().check(facts).verdicts
        if verdict.gate in (Gate.OPTED_OUT, Gate.MUTED) and verdict.outcome is Outcome.SUPPRESS
    )
    return next(against, None)


def _together(verdicts: Mapping[Gate, Verdict]) -> Outcome:
    outcomes = {verdict.outcome for verdict in verdicts.values()}
    by_weight = (Outcome.SUPPRESS, Outcome.POSTPONE)
    return next((outcome for outcome in by_weight if outcome in outcomes), Outcome.ALLOW)


@dataclass(frozen=True, slots=True)
class _Case:
    """What a gate is asked: may this be sent at this moment, which may lie ahead?"""

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
        # Another process's clock may run ahead; that must not make the wait any longer.
        until = after(min(since, self.facts.checked_at), hold)
        return until if self.moment < until else None


_Answer = tuple[Outcome, str, datetime | None]


def _allow(reason: str) -> _Answer:
    return Outcome.ALLOW, reason, None


def _suppress(reason: str) -> _Answer:
    return Outcome.SUPPRESS, reason, None


def _postpone(until: datetime, reason: str) -> _Answer:
    return Outcome.POSTPONE, reason, until


def _enabled(case: _Case) -> _Answer:
    if case.policy.enabled:
        return _allow("Follow-ups are enabled for this agent.")
    return _suppress("Follow-ups are disabled for this agent.")


def _opted_out(case: _Case) -> _Answer:
    if case.facts.opted_out:
        return _suppress("The user opted out of follow-ups.")
    return _allow("The user has not opted out of follow-ups.")


def _muted(case: _Case) -> _Answer:
    if case.facts.muted:
        everywhere = case.facts.muted_everywhere
        return _suppress("The user muted all threads." if everywhere else "The thread is muted.")
    return _allow("The thread is not muted.")


def _snoozed(case: _Case) -> _Answer:
    until = case.facts.snoozed_until
    if until is not None and case.moment < until:
        whose = "all the user's threads" if case.facts.snoozed_everywhere else "this thread"
        return _postpone(until, f"Follow-ups in {whose} are snoozed until {case.shown(until)}.")
    return _allow("No snooze is running.")


def _superseded(case: _Case) -> _Answer:
    armed, current = case.facts.armed_epoch, case.facts.thread_epoch
    if armed == current:
        return _allow("The user has not written since this was planned.")
    return _suppress(
        f"The user wrote after this was planned: it is of epoch {armed}, the thread of {current}."
    )


def _stale(case: _Case) -> _Answer:
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


def _missed(case: _Case) -> _Answer:
    """Judged by when the timer was found, however long it then has to wait."""
    facts = case.facts
    late = max(facts.checked_at - facts.due_at, NO_TIME)
    within = _WITHIN.fullmatch(facts.missed)
    found = f"Found {show_duration(late)} late"
    if facts.missed == "run":
        return _allow(f"{found}, and to be sent however late it is.")
    allowed = float(within[1]) if within else case.policy.late_after.total_seconds()
    rule = "" if within or facts.missed == "skip" else ", since its own rule cannot be read"
    most = show_duration(timedelta(seconds=min(allowed, _EVER)))
    limit = f"it may be {most} late{rule}"
    if late.total_seconds() <= allowed:
        return _allow(f"{found}; {limit}.")
    return _suppress(f"{found}, after it was missed; {limit}.")


def _consecutive_cap(case: _Case) -> _Answer:
    sent, most = case.facts.consecutive, case.policy.max_consecutive
    count = f"{sent} of {most} follow-ups sent since the user last wrote"
    return _allow(f"{count}.") if sent < most else _suppress(f"{count}; the user is next.")


def _daily_cap(case: _Case) -> _Answer:
    """The cap says how many a day, not which: what is over it waits for the user's next day.

    There the cooldown spreads what has waited, and an expiry ends what should not wait so long.
    Of no follow-ups a day none ever gets its day, so that it is refused.
    """
    facts, most = case.facts, case.policy.max_per_day
    if most == 0:
        return _suppress("No follow-ups a day are allowed.")
    is_later_day = local_day(case.moment, facts.clock) > local_day(facts.checked_at, facts.clock)
    if is_later_day or facts.sent_today < most:
        return _allow(f"{facts.sent_today} of {most} follow-ups sent today {facts.place}.")
    until = next_day(case.moment, facts.clock)
    return _postpone(until, f"All {most} of the day are sent; the next begins {case.shown(until)}.")


def _cooldown(case: _Case) -> _Answer:
    cooldown = case.policy.cooldown
    shown = show_duration(cooldown)
    if until := case.held_until(case.facts.last_follow_up_at, cooldown):
        return _postpone(until, f"The last follow-up was less than {shown} ago.")
    return _allow(f"No follow-up was sent within {shown}.")


def _typing(case: _Case) -> _Answer:
    if until := case.held_until(case.facts.typing_at, case.policy.typing_hold):
        return _postpone(until, "The user is typing.")
    return _allow("The user is not typing.")


def _quiet_hours(case: _Case) -> _Answer:
    quiet, clock = case.policy.quiet_hours, case.facts.clock
    if quiet is None:
        return _allow("No quiet hours are set.")
    if not quiet.is_quiet(case.moment, clock):
        return _allow(f"Quiet hours are {quiet}; {case.shown(case.moment)} is open.")
    until = quiet.next_open(case.moment, clock)
    return _postpone(until, f"Quiet hours are {quiet}; {case.shown(case.moment)} is quiet.")


_GATES: Final[Mapping[Gate, Callable[[_Case], _Answer]]] = MappingProxyType(
    {
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
        Gate.QUIET_HOURS: _quiet_hours,
    }
)
