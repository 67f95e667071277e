"""Promises to remind that a reply made without the tool: kept, or corrected by a question.

Both are stored with the end of the turn. If the time is clear, a reminder is armed; if not, a
follow-up soon asks the user for it.
"""

import logging
from datetime import UTC, timedelta
from typing import Final

from langchain_core.messages import HumanMessage, ToolMessage

from segue.core.autonomy.local_time import find_zone
from segue.core.autonomy.policy import Preferences
from segue.core.autonomy.schedule import Schedule, parse_schedule
from segue.core.batch import Batch
from segue.core.metadata import is_synthetic
from segue.core.snowflake import to_text
from segue.core.speech.promises import Promise, find_promise, may_promise
from segue.core.triggers import TriggerType
from segue.errors import UsageError
from segue.journal.records import NESTING, Decision, Ending, NewTimer, Turn
from segue.runtime.deps import Deps
from segue.runtime.reminders import new_reminder
from segue.settings.agents import Autonomy
from segue.telemetry import log_event

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
