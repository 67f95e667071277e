"""Reminders: what a user asked to be reminded of, as timers of a kind of their own.

A thread may have many; a reply does not void them, and no cap counts them. `Reminders` makes, lists
and cancels them. `plan_firing` says what the model is asked at a due time, and when a recurring one
comes again. `keep_promise` sets one that a reply promised without the tool.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Self

from langchain_core.messages import HumanMessage, ToolMessage

from segue.core.autonomy.local_time import find_zone
from segue.core.autonomy.policy import Preferences
from segue.core.autonomy.schedule import Schedule, in_words, parse_schedule
from segue.core.batch import Batch
from segue.core.metadata import is_synthetic
from segue.core.snowflake import SnowflakeSource, to_text
from segue.core.speech.promises import Promise, find_promise, may_promise
from segue.core.text import storable
from segue.core.triggers import REMINDER, REMINDER_ASK_PROMPT, TriggerType
from segue.errors import NotFoundError, OptedOut, UsageError
from segue.journal.journal import Journal
from segue.journal.records import (
    DROPPED,
    NESTING,
    Decision,
    Ending,
    NewTimer,
    NextTime,
    Thread,
    Timer,
    TimerKind,
    Turn,
)
from segue.runtime.clock import Clock, Wakeup
from segue.runtime.deps import Deps
from segue.settings.agents import Autonomy, ReminderConfig
from segue.telemetry import log_event

LONGEST_TEXT: Final = 1_000
MOST: Final = 100
MOST_OF_USER: Final = 200
# More than that: some come from an import, or of promises that a reply made.
_LISTED: Final = 1_000
WORN_OUT: Final = "The user answered neither the last reminders nor whether to go on with them."
# Read by users, on the page and in problems of the server.
_OPTED_OUT: Final = (
    "No reminder was set, because the preferences say that agents do not write first. Allow it "
    "there, then set the reminder again."
)


@dataclass(frozen=True, slots=True)
class Reminder:
    """A reminder that waits for its next time; `description` says when it comes, in words."""

    id: int
    thread_id: str
    agent_id: str
    text: str
    due_at: datetime
    every: str | None
    until: datetime | None
    time_zone: str
    description: str
    created_at: datetime

    @classmethod
    def of(cls, timer: Timer) -> Self:
        schedule = schedule_of(timer)
        return cls(
            timer.id,
            timer.thread_id,
            timer.agent_id,
            reminder_text(timer),
            timer.due_at,
            schedule.every,
            schedule.until,
            schedule.zone,
            schedule.describe(timer.due_at),
            timer.created_at,
        )


class Reminders:
    """`zone` is that of users who have not set theirs; the rest is as for `Requests`."""

    def __init__(
        self,
        journal: Journal,
        ids: SnowflakeSource,
        clock: Clock,
        autonomy_of: Callable[[str], Autonomy],
        wakeup: Wakeup | None = None,
        *,
        zone: str = "UTC",
    ) -> None:
        self._journal = journal
        self._ids = ids
        self._now = clock.now
        self._autonomy_of = autonomy_of
        self._wakeup = wakeup
        self._zone = zone

    async def remind(
        self, thread: Thread, text: str, *, key: str | None = None, **when: Any
    ) -> Reminder:
        """Arm a reminder at `after`, `at` or `every` with `until`, as `parse_schedule` reads them.

        The same text at the same time is one reminder, and so is the same `key`. `UsageError` for
        what cannot be; `OptedOut` if the user wants none; `ConflictError` if there are too many.
        """
        if unknown := sorted(when.keys() - {"after", "at", "every", "until"}):
            raise UsageError(f"Unknown argument {unknown[0]!r}; expected after, at, every, until.")
        text = _check_text(text)
        user = await self._journal.users.get_settings(thread.user_id)
        preferences = Preferences.of(user, thread.settings, self._zone)
        if preferences.opted_out or preferences.muted:
            raise OptedOut(_OPTED_OUT)
        # In a thread: to find the times of a strange rule takes a quarter of a second.
        parse = partial(parse_schedule, now=self._now(), zone=preferences.time_zone, **when)
        schedule = await asyncio.to_thread(parse)
        settings = self._autonomy_of(thread.agent_id).reminders
        new = new_reminder(thread.id, text, schedule, settings, key or self._key())
        timer = await self._journal.timers.arm(
            new, ids=self._ids, now=self._now(), most=(MOST, MOST_OF_USER)
        )
        if self._wakeup is not None:
            self._wakeup.at(timer.due_at)
        return Reminder.of(timer)

    async def list_of_thread(self, thread: Thread) -> list[Reminder]:
        """The thread's live reminders, in the order of their next time."""
        return [*map(Reminder.of, await self._live(thread))]

    async def list_of_user(self, user_id: str, *, limit: int = _LISTED) -> list[Reminder]:
        """The user's live reminders with all agents, in the order of their next time."""
        found = await self._journal.timers.list_reminders(user_id, limit=limit)
        return [*map(Reminder.of, found)]

    async def cancel(self, reminder_id: int, **owner: str | None) -> Reminder:
        """Cancel a live reminder, of a `user_id` or `thread_id` if one is given; `NotFoundError`
        if it is not there, or another's.
        """
        missing = NotFoundError(f"There is no reminder {to_text(reminder_id)} that still waits.")
        timer = await self._journal.timers.find(reminder_id)
        if any(each and getattr(timer, name, None) != each for name, each in owner.items()):
            raise missing
        cancelled = await self._journal.timers.cancel_reminder(
            reminder_id, DROPPED, now=self._now()
        )
        if cancelled is None:
            raise missing
        return Reminder.of(cancelled)

    async def _live(self, thread: Thread) -> list[Timer]:
        return await self._journal.timers.list_reminders(thread.user_id, thread_id=thread.id)

    def _key(self) -> str:
        return f"reminder:{to_text(self._ids.next())}"


def new_reminder(
    thread_id: str, text: str, schedule: Schedule, settings: ReminderConfig, key: str
) -> NewTimer:
    within = settings.late_again if schedule.every else settings.late
    return NewTimer(
        thread_id,
        schedule.first,
        REMINDER,
        kind=TimerKind.REMINDER,
        missed=f"run_if_within:{round(within.total_seconds())}",
        payload={"text": text, "schedule": schedule.as_json()},
        key=key,
    )


@dataclass(frozen=True, slots=True)
class Firing:
    """What the model gets at a due time; `again` is the next time of a recurring reminder.

    `prompt` replaces the trigger's; `is_over` if the user let the reminder lapse.
    """

    data: dict[str, str]
    prompt: str | None = None
    again: NextTime | None = None
    is_over: bool = False


def plan_firing(timer: Timer, autonomy: Autonomy, epoch: int, now: datetime) -> Firing:
    """The thread's present `epoch` shows whether the user wrote since the last time."""
    schedule, payload = schedule_of(timer), timer.payload
    data = {"reminder": reminder_text(timer)}
    if now - timer.due_at > autonomy.policy.late_after:
        data["meant_for"] = in_words(timer.due_at, schedule.zone)
    unanswered = int(payload.get("unanswered", 0)) if timer.epoch == epoch else 0
    next_at = schedule.next_after(now)
    if schedule.every is None:
        return Firing(data)
    asks = unanswered >= autonomy.reminders.shelf_life
    kept = {**payload, "unanswered": unanswered + 1}
    return Firing(
        data,
        REMINDER_ASK_PROMPT if asks else None,
        None if next_at is None else NextTime(next_at, kept),
        is_over=unanswered > autonomy.reminders.shelf_life,
    )


def skip_to(timer: Timer, now: datetime) -> datetime | None:
    """The next time of a recurring reminder that may not come now; None if there is none."""
    return schedule_of(timer).next_after(now) if is_recurring(timer) else None


def is_recurring(timer: Timer) -> bool:
    return timer.kind is TimerKind.REMINDER and schedule_of(timer).every is not None


def reminder_text(timer: Timer) -> str:
    return str(timer.payload.get("text") or "")


def schedule_of(timer: Timer) -> Schedule:
    """The schedule of a reminder; one that is damaged, as after an import, comes once."""
    try:
        return Schedule.from_json(timer.payload["schedule"])
    except (KeyError, TypeError, UsageError):
        return Schedule(timer.due_at, "UTC")


def _check_text(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise UsageError("A reminder needs a text: what to remind the user of.")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"The text has {len(text):,} characters; shorten it to {LONGEST_TEXT:,}.")
    return storable(text.strip())


logger = logging.getLogger(__name__)

# The user may still be reading the reply.
_ASKED_AFTER: Final = timedelta(minutes=1)
_ASK_PROMPT: Final = "You said you would remind me, but no time is set. Ask me when."
_REASONS: Final = {
    "kept": "The reply promised a reminder and set none; it was set for the time that was named.",
    "corrected": "The reply promised a reminder without a clear time; the user is asked for it.",
}


async def keep_promise(
    deps: Deps, turn: Turn, batch: Batch, reply: str, autonomy: Autonomy
) -> Ending:
    """The timer and the decision about a promise of the reply; nothing if there is none."""
    is_wanted = autonomy.enabled and autonomy.reminders.enabled and NESTING not in turn.thread_id
    if not is_wanted or not may_promise(reply) or _has_reminded(batch):
        return Ending()
    promise = find_promise(reply, _request(batch))
    if promise is None:
        return Ending()
    schedule = await _schedule(deps, turn, promise)
    if schedule is not None and await _is_set(deps, turn, schedule):
        return Ending()
    key, now = f"promise:{to_text(turn.id)}", deps.clock.now()
    if schedule is not None:
        timer = new_reminder(turn.thread_id, promise.text, schedule, autonomy.reminders, key)
    else:
        timer = NewTimer(
            turn.thread_id,
            now + _ASKED_AFTER,
            TriggerType.CHECK_IN.value,
            reason=_REASONS["corrected"],
            payload={"prompt": _ASK_PROMPT},
            missed=autonomy.missed,
            key=key,
        )
    outcome = "kept" if schedule is not None else "corrected"
    log_event(
        logger,
        "promise_noticed",
        "A reply of thread {thread_id} promised a reminder without setting one: {outcome}",
        thread_id=turn.thread_id,
        agent_id=turn.agent_id,
        turn_id=turn.id,
        outcome=outcome,
    )
    facts = {"due_at": timer.due_at.isoformat()}
    decision = Decision(
        deps.ids.next(),
        turn.thread_id,
        "promise",
        outcome,
        (_REASONS[outcome],),
        facts,
        None,
        turn.id,
        now,
    )
    return Ending(timers=[timer], decisions=[decision])


async def _schedule(deps: Deps, turn: Turn, promise: Promise) -> Schedule | None:
    """When the promise is due on the user's clock; None if that is not clear."""
    if promise.time is None:
        return None
    thread = await deps.journal.threads.get(turn.thread_id)
    user = await deps.journal.users.get_settings(turn.user_id)
    zone = Preferences.of(user, thread.settings, deps.zone).time_zone
    # Durations count from the user's message.
    now = turn.queued_at
    arguments = promise.time.arguments(now, find_zone(zone) or UTC)
    try:
        schedule = parse_schedule(now=now, zone=zone, **arguments) if arguments else None
    except UsageError:
        return None
    return schedule if schedule and schedule.first > deps.clock.now() else None


async def _is_set(deps: Deps, turn: Turn, schedule: Schedule) -> bool:
    """Whether a reminder of the thread comes at that minute: the reply may speak of it."""
    live = await deps.journal.timers.list_reminders(turn.user_id, thread_id=turn.thread_id)
    minute = timedelta(minutes=1)
    return any(abs(timer.due_at - schedule.first) < minute for timer in live)


def _has_reminded(batch: Batch) -> bool:
    """Whether the model set a reminder, with the tool of that name, in this batch."""
    results = [m for m in batch.messages if isinstance(m, ToolMessage) and m.name == "remind"]
    return any(result.status != "error" for result in results)


def _request(batch: Batch) -> str:
    """What the user wrote in this batch."""
    asked = [m for m in batch.messages if isinstance(m, HumanMessage) and not is_synthetic(m)]
    return "\n".join(message.text for message in asked)
