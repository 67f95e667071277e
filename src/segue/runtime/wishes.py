"""Requests about follow-ups, as preferences of the user and the decision that explains them.

A request comes from the user's message, from a promise in the agent's reply, or from the agent's
tool. The callers store both in one step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from segue.core.autonomy.policy import Preferences, apply_request
from segue.core.speech.reminders import names_reminder
from segue.core.speech.stops import UserRequest, Wish
from segue.journal.records import Decision, Thread, Turn
from segue.runtime.deps import Deps
from segue.runtime.reminders import is_recurring, reminder_text

ASKED: Final[Mapping[Wish, str]] = {
    Wish.STOP: "The user asked not to be written to any more.",
    Wish.STOP_REMINDERS: "The user asked not to be reminded any more.",
    Wish.LATER: "The user asked to be written to later.",
    Wish.RESUME: "The user asked to be written to again.",
}
PROMISED: Final = "The agent promised not to write on its own any more."


@dataclass(frozen=True, slots=True)
class Granted:
    """The changes, if any: preferences of the user, reminders that end, and the record."""

    preferences: Mapping[str, Any] = field(default_factory=dict)
    reminders: tuple[int, ...] = ()
    decisions: tuple[Decision, ...] = ()


async def grant(
    deps: Deps, thread_id: str, request: UserRequest, reason: str, turn: Turn | None = None
) -> Granted:
    """The changes of the user's preferences for all agents, and the reminders of this thread that
    end.
    """
    thread = await deps.journal.threads.get(thread_id)
    reminders = await _unwanted_reminders(deps, thread, request)
    if request.may_be_stop and not reminders:
        # By reminders, the user means the agent's own follow-ups.
        request, reason = UserRequest(Wish.STOP), ASKED[Wish.STOP]
    settings = await deps.journal.users.get_settings(thread.user_id)
    clock = Preferences.of(settings, thread.settings, deps.zone).clock
    wanted = apply_request(request, settings, deps.clock.now(), clock) or {}
    if not wanted and not reminders:
        return Granted()
    facts = {**wanted, "reminders": len(reminders)} if reminders else wanted
    decision = deps.new_decision(turn or thread, "request", request.wish.value, reason, **facts)
    return Granted(wanted, reminders, (decision,))


async def _unwanted_reminders(deps: Deps, thread: Thread, request: UserRequest) -> tuple[int, ...]:
    """The reminders of the thread that the request names; if it names none, those that recur."""
    if request.wish is not Wish.STOP_REMINDERS:
        return ()
    found = await deps.journal.timers.list_endable(thread.user_id, thread.id)
    if request.about is None:
        return tuple(timer.id for timer in found if is_recurring(timer))
    return tuple(timer.id for timer in found if names_reminder(request.about, reminder_text(timer)))
