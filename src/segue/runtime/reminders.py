"""Reminders that users ask for, as a separate kind of timer.

A thread may have many; a reply does not void them, and no cap counts them. `Reminders` makes, lists
and cancels them. `plan_firing` builds the model's input at a due time, and the next time of a
recurring one. `keep_promise` sets a reminder that a reply promised without the tool.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from langchain_core.messages import HumanMessage, ToolMessage

from segue.core.autonomy.policy import Preferences
from segue.core.autonomy.schedule import Schedule, in_words, parse_schedule
from segue.core.batch import Batch
from segue.core.metadata import is_synthetic
from segue.core.snowflake import to_text
from segue.core.speech.reminders import (
    LONGEST_TEXT,
    Promise,
    find_agreement,
    find_promise,
    may_promise,
)
from segue.core.text import check_name, check_storable
from segue.core.triggers import REMINDER, REMINDER_ASK_PROMPT, TriggerType
from segue.errors import NotFoundError, OptedOut, UsageError
from segue.journal.records import (
    DROPPED,
    NESTING,
    Ending,
    NewTimer,
    NextTime,
    Thread,
    Timer,
    TimerKind,
    TimerState,
    Turn,
)
from segue.runtime.deps import Deps, log_about, read_preferences
from segue.runtime.requests import TimerArmer
from segue.settings.agents import Autonomy, ReminderConfig

MOST: Final = 100
MOST_OF_USER: Final = 200
# More than a user may set: some come from imports or from promises in replies.
_LISTED: Final = 1_000
WORN_OUT: Final = (
    "The user answered neither the last reminders nor the question whether to continue."
)
_MOVED: Final = "The user's clock is now that of {}."
# Read by users, on the page and in problems of the server.
_OPTED_OUT: Final = (
    "No reminder was set, because the preferences say that agents do not write first. Allow it "
    "there, then set the reminder again."
)


@dataclass(frozen=True, slots=True)
class Reminder:
    """A pending reminder; `description` is its time in words."""

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


class Reminders(TimerArmer):
    """The reminders of users."""

    async def remind(
        self, thread: Thread, text: str, *, key: str | None = None, **when: Any
    ) -> Reminder:
        """Arm a reminder at `after`, `at` or `every` with `until`, as `parse_schedule` reads them.

        The same text at the same time is one reminder, also `after` the same time if it is asked
        for again within a minute; and so is the same `key`. `UsageError` for an impossible time;
        `OptedOut` if the user wants none; `ConflictError` if there are too many.
        """
        if unknown := sorted(when.keys() - {"after", "at", "every", "until"}):
            raise UsageError(f"Unknown argument {unknown[0]!r}; expected after, at, every, until.")
        text = _check_text(text)
        preferences = await read_preferences(self.journal, thread, self.zone)
        if preferences.opted_out or preferences.muted:
            raise OptedOut(_OPTED_OUT)
        # In a thread: computing the times of an unusual rule takes a quarter of a second.
        zone, now = preferences.time_zone, self.clock.now()
        schedule = await asyncio.to_thread(parse_schedule, now=now, zone=zone, **when)
        settings = self.autonomy_of(thread.agent_id).reminders
        key = key or requested_key(to_text(self.ids.next()))
        new = new_reminder(thread.id, text, schedule, settings, key)
        return Reminder.of(await self.arm(new, most=(MOST, MOST_OF_USER)))

    async def list_of_thread(self, thread: Thread) -> list[Reminder]:
        """The thread's live reminders, in the order of their next time."""
        found = await self.journal.timers.list_reminders(thread.user_id, thread_id=thread.id)
        return [*map(Reminder.of, found)]

    async def list_of_user(self, user_id: str) -> list[Reminder]:
        """The user's live reminders with all agents, in the order of their next time."""
        found = await self.journal.timers.list_reminders(user_id, limit=_LISTED)
        return [*map(Reminder.of, found)]

    async def cancel(
        self, reminder_id: int, *, but_turn: int | None = None, **owner: str | None
    ) -> Reminder:
        """Cancel a reminder that waits or was not seen yet, with its turn unless that is
        `but_turn`; `NotFoundError` if it is gone, or not of the given `owner`.
        """
        missing = NotFoundError(f"There is no reminder {to_text(reminder_id)} that still waits.")
        timers, now = self.journal.timers, self.clock.now()
        timer = await timers.find(reminder_id)
        if any(each and getattr(timer, name, None) != each for name, each in owner.items()):
            raise missing
        cancelled = await timers.cancel_reminder(reminder_id, DROPPED, now=now, but_turn=but_turn)
        if cancelled is None:
            raise missing
        return Reminder.of(cancelled)

    async def follow_clock(self, user_id: str) -> None:
        """Move recurring reminders to the user's current zone: daily at 9 means 9 in that zone.

        A reminder that is due or postponed is not moved: the next time after it is in that zone.
        """
        timers, now = self.journal.timers, self.clock.now()
        for timer in await timers.list_reminders(user_id, limit=_LISTED):
            if timer.state is TimerState.POSTPONED or timer.due_at <= now:
                continue
            thread = await self.journal.threads.get(timer.thread_id)
            zone = (await read_preferences(self.journal, thread, self.zone)).time_zone
            before, payload = schedule_of(timer), timer.payload
            schedule = before.moved_to(zone)
            if schedule == before or (next_at := schedule.next_after(now)) is None:
                continue
            moved = NextTime(next_at, {**payload, "schedule": schedule.as_json()})
            await timers.move(timer, moved, _MOVED.format(zone), now=now)
            if self.wakeup is not None:
                self.wakeup.at(next_at)


def requested_key(given: str | None) -> str | None:
    """The key of a reminder that a program named."""
    return None if given is None else f"reminder:{check_name(given, 'key')}"


def new_reminder(
    thread_id: str, text: str, schedule: Schedule, settings: ReminderConfig, key: str | None
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
    """The model's input at a due time; `again` is the next time of a recurring reminder.

    `prompt` replaces the trigger's; `is_over` if the user let the reminder lapse.
    """

    data: dict[str, str]
    prompt: str | None = None
    again: NextTime | None = None
    is_over: bool = False


def plan_firing(
    timer: Timer, autonomy: Autonomy, epoch: int, now: datetime, zone: str | None = None
) -> Firing:
    """The thread's present `epoch` shows whether the user wrote since the last time; a series goes
    on in the user's present `zone`.
    """
    schedule, payload = schedule_of(timer).moved_to(zone), timer.payload
    data = {"reminder": reminder_text(timer)}
    if now - timer.due_at > autonomy.policy.late_after:
        data["meant_for"] = in_words(timer.due_at, schedule.zone)
    unanswered = int(payload.get("unanswered", 0)) if timer.epoch == epoch else 0
    next_at = schedule.next_after(now)
    if schedule.every is None:
        return Firing(data)
    asks = unanswered >= autonomy.reminders.shelf_life
    kept = {**payload, "schedule": schedule.as_json(), "unanswered": unanswered + 1}
    return Firing(
        data,
        REMINDER_ASK_PROMPT if asks else None,
        None if next_at is None else NextTime(next_at, kept),
        is_over=unanswered > autonomy.reminders.shelf_life,
    )


def at_newer_time(timer: Timer, autonomy: Autonomy, now: datetime) -> Timer:
    """The reminder; if it is too late for its time and came due again since, as due then."""
    within = autonomy.reminders.late_again
    if not is_recurring(timer) or now - timer.due_at <= within:
        return timer
    newer = schedule_of(timer).next_after(now - within)
    return timer if newer is None or newer > now else replace(timer, due_at=newer)


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
    check_storable(text, "The text")
    return text.strip()


logger = logging.getLogger(__name__)

# The user may still be reading the reply.
_ASKED_AFTER: Final = timedelta(minutes=1)
_ASK_PROMPT: Final = "You said you would remind me, but no time is set. Ask me when."
_REASONS: Final = {
    "kept": "A reminder was requested or promised but not set; it was set for the named time.",
    "not_set": "The user asked for a reminder, but the reply did not take it on clearly.",
    "corrected": "The reply promised a reminder without a clear time; the user is asked for it.",
    "unwanted": "The reply promised a reminder, but agents may not write to the user first.",
}


async def keep_promise(
    deps: Deps, turn: Turn, batch: Batch, reply: str, autonomy: Autonomy
) -> Ending:
    """The timer and the decision about a promise of the reply, or the decision about a request that
    it does not take on; nothing if there is none.
    """
    is_wanted = autonomy.enabled and autonomy.reminders.enabled and NESTING not in turn.thread_id
    if not is_wanted or _has_reminded(batch):
        return Ending()
    promise = _find_promise(batch, reply)
    if promise is None:
        return Ending()
    if not promise.is_made:
        reason = _REASONS["not_set"]
        return Ending(decisions=[deps.new_decision(turn, "promise", "not_set", reason)])
    thread = await deps.journal.threads.get(turn.thread_id)
    preferences = await read_preferences(deps.journal, thread, deps.zone)
    schedule = _schedule(deps, turn, promise, preferences)
    if schedule is not None and await _is_set(deps, turn, schedule):
        return Ending()
    outcome, key = "kept" if schedule else "corrected", f"promise:{to_text(turn.id)}"
    if preferences.opted_out or preferences.muted:
        outcome, timers = "unwanted", []
    elif schedule is not None:
        timers = [new_reminder(turn.thread_id, promise.text, schedule, autonomy.reminders, key)]
    else:
        timers = [
            NewTimer(
                turn.thread_id,
                deps.clock.now() + _ASKED_AFTER,
                TriggerType.CHECK_IN.value,
                reason=_REASONS[outcome],
                payload={"prompt": _ASK_PROMPT},
                missed=autonomy.missed,
                key=key,
            )
        ]
    noticed = "A reply of thread {thread_id} promised a reminder without setting one: {outcome}"
    log_about(logger, turn, "promise_noticed", noticed, outcome=outcome)
    due_at = timers[0].due_at.isoformat() if timers else None
    decision = deps.new_decision(turn, "promise", outcome, _REASONS[outcome], due_at=due_at)
    return Ending(timers=timers, decisions=[decision])


def _find_promise(batch: Batch, reply: str) -> Promise | None:
    request = _request(batch)
    promise = find_promise(reply, request) if may_promise(reply) else None
    if promise is None and not any(isinstance(m, ToolMessage) for m in batch.messages):
        return find_agreement(reply, request)
    return promise


def _schedule(
    deps: Deps, turn: Turn, promise: Promise, preferences: Preferences
) -> Schedule | None:
    """When the promise is due on the user's clock; None if that is not clear."""
    if promise.time is None:
        return None
    # Durations count from the user's message.
    now = turn.queued_at
    arguments = promise.time.arguments(now, preferences.clock)
    zone = preferences.time_zone
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
