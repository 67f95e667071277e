"""Follow-ups that a program requests, and outside events that the agent reports to the user.

Both become timers and pass the gates when they are due; for a user who wants none they end at once
as suppressed. A reply voids a requested follow-up like any other; an event waits until the
conversation rests. A key makes each of them once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from segue.core.autonomy.gates import Gate, GateVerdict, PolicyGates
from segue.core.autonomy.local_time import after as later
from segue.core.autonomy.local_time import as_utc
from segue.core.autonomy.policy import Facts, Preferences
from segue.core.messages import check_request
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.text import check_name, check_storable
from segue.core.triggers import EVENT, TriggerType
from segue.errors import UnknownTrigger, UsageError
from segue.events import OutsideEvent
from segue.journal.journal import Journal
from segue.journal.records import Decision, Ending, NewTimer, Thread, Timer, TimerKind, Turn
from segue.runtime.clock import Clock, Wakeup
from segue.runtime.deps import Deps, read_preferences
from segue.settings.agents import Autonomy

# Longest time until a requested follow-up: after a year, the conversation is forgotten.
FARTHEST: Final = timedelta(days=366)
# Events that come within this time become one message.
GATHERED: Final = timedelta(seconds=10)
# When events whose turn failed are tried again first, and for how long.
_TOLD_AGAIN_AFTER: Final = timedelta(minutes=10)
_TOLD_WITHIN: Final = timedelta(days=1)
_AGAIN: Final = "; it is retried later."
_GIVEN_UP: Final = ", and is not retried any more."
_LONGEST_REASON: Final = 500
_OF_THE_USER: Final = frozenset({Gate.OPTED_OUT, Gate.MUTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpRequest:
    """A program's request: the time, and the prompt and data for the model.

    Without `at` and `after` the trigger's own delay counts. `reason` is for operators.
    """

    at: datetime | None = None
    after: timedelta | None = None
    trigger: str = TriggerType.CHECK_IN.value
    prompt: str | None = None
    reason: str | None = None
    data: Any = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TimerArmer:
    """Arms timers for users and programs; the command line has no worker to wake up.

    `zone` is that of users who have not set theirs.
    """

    journal: Journal
    ids: SnowflakeSource
    clock: Clock
    autonomy_of: Callable[[str], Autonomy]
    zone: str
    wakeup: Wakeup | None = None

    async def arm(self, timer: NewTimer, **limits: Any) -> Timer:
        armed = await self.journal.timers.arm(timer, ids=self.ids, now=self.clock.now(), **limits)
        if self.wakeup is not None:
            self.wakeup.at(armed.due_at)
        return armed


class Requests(TimerArmer):
    """Follow-ups of programs, and events."""

    async def follow_up(self, thread: Thread, request: FollowUpRequest) -> Timer:
        """Arm a follow-up; the same key again returns the first one."""
        autonomy = self.autonomy_of(thread.agent_id)
        _check_trigger(request.trigger, autonomy)
        check_request(request.prompt, request.data)
        if request.reason is not None and len(request.reason) > _LONGEST_REASON:
            raise UsageError(f"A reason has at most {_LONGEST_REASON} characters.")
        check_storable(request.reason, "The reason")
        own = {"prompt": request.prompt, "data": request.data}
        key = to_text(self.ids.next()) if request.key is None else check_name(request.key, "key")
        return await self._arm_for(
            thread,
            _due_at(request, autonomy, self.clock.now()),
            trigger_type=request.trigger,
            reason=request.reason,
            payload={name: value for name, value in own.items() if value is not None},
            key=f"program:{key}",
        )

    def check(self, event: OutsideEvent, agent_id: str) -> None:
        """`UsageError` if the agent cannot report such an event."""
        for name in ("id", "type", "source"):
            check_name(getattr(event, name), f"The event's {name}")
        _check_trigger(event.trigger, self.autonomy_of(agent_id), EVENT)
        check_request(None, event.data)

    async def wake(self, thread: Thread, event: OutsideEvent) -> Timer:
        """Let the agent report an event to the user; a repeated event returns the first timer."""
        self.check(event, thread.agent_id)
        own, now = self.autonomy_of(thread.agent_id).triggers.get(event.trigger), self.clock.now()
        told = {"type": event.type, "at": now.isoformat(timespec="seconds"), "data": event.data}
        return await self._arm_for(
            thread,
            later(now, max((own and own.delay) or GATHERED, GATHERED)),
            kind=TimerKind.EVENT,
            trigger_type=event.trigger,
            reason=f"{event.source}: {event.type}",
            payload=told,
            key=event.key,
        )

    async def _arm_for(self, thread: Thread, due_at: datetime, **fields: Any) -> Timer:
        autonomy = self.autonomy_of(thread.agent_id)
        own = autonomy.triggers.get(fields["trigger_type"])
        lasts = own.expires_after if own else autonomy.expires_after
        timer = NewTimer(
            thread.id,
            due_at,
            expires_at=later(due_at, lasts) if lasts else None,
            missed=(own.missed if own else None) or autonomy.missed,
            **fields,
        )
        return await self.arm(timer, refused=await self._refusal(thread, timer))

    async def _refusal(self, thread: Thread, timer: NewTimer) -> Decision | None:
        """The present verdict of the gates that only the user can open, to report a refusal to the
        caller.
        """
        preferences = await read_preferences(self.journal, thread, self.zone)
        now = self.clock.now()
        decisive = refused_by_user(preferences, now)
        if decisive is None:
            return None
        new_id, outcome, reasons = self.ids.next(), decisive.outcome.value, (decisive.reason,)
        because = {"trigger": timer.trigger_type, "gate": decisive.gate.value}
        return Decision(new_id, thread.id, "gates", outcome, reasons, because, None, None, now)


def refused_by_user(preferences: Preferences, now: datetime) -> GateVerdict | None:
    """The verdict of a gate that only the user can open; None if these are open."""
    facts = Facts(
        checked_at=now, due_at=now, armed_epoch=0, thread_epoch=0, **preferences.as_facts()
    )
    return PolicyGates(gates=_OF_THE_USER).check(facts).decisive


async def tell_later(deps: Deps, turn: Turn, fault: str) -> Ending:
    """How a failed turn about events ends; a turn without events ends like any other.

    Unless the user saw some of it, the events are tried again, each time twice as long after they
    were reported, for a day.
    """
    journal, now = deps.journal, deps.clock.now()
    timers = await journal.timers.list_of_turn(turn.id)
    events = [timer for timer in timers if timer.kind is TimerKind.EVENT]
    if not events or (await journal.turns.get(turn.id)).shown_at is not None:
        return Ending()
    reported_at = max(event.created_at for event in events)
    again_at = now + max(now - reported_at, _TOLD_AGAIN_AFTER)
    until = again_at if again_at <= reported_at + _TOLD_WITHIN else None
    outcome, what_next = ("postponed", _AGAIN) if until else ("given_up", _GIVEN_UP)
    reason = f"The agent could not report it ({fault}){what_next}"
    facts = {"events": len(events), "until": until and until.isoformat()}
    decision = deps.new_decision(turn, "event", outcome, reason, **facts)
    return Ending(decisions=[decision], postponed_until=until)


def _check_trigger(trigger: str, autonomy: Autonomy, *also: str) -> None:
    if trigger not in {*TriggerType, *autonomy.triggers, *also}:
        known = ", ".join([*TriggerType, *autonomy.triggers])
        raise UnknownTrigger(
            f"Unknown trigger type {trigger!r:.80}; this agent has: {known}. Declare others in its "
            "settings, under autonomy.triggers."
        )


def _due_at(request: FollowUpRequest, autonomy: Autonomy, now: datetime) -> datetime:
    at, after = request.at, request.after
    if at is not None and after is not None:
        raise UsageError("Give `at` or `after`, not both. Nothing was written.")
    if at is None:
        own = autonomy.triggers.get(request.trigger)
        at = later(now, after if after is not None else (own and own.delay) or timedelta(0))
    at = as_utc(at)
    if not now <= at <= now + FARTHEST:
        raise UsageError(
            f"A follow-up is for a time from now to {FARTHEST.days} days ahead, not for "
            f"{at.isoformat()}. Nothing was written."
        )
    return at
