"""`Initiative`: the part of `Segue` about messages that an agent starts.

Follow-ups that programs request, events, reminders, and what users prefer.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from segue.conversations import Conversations, check_lasting, check_text, id_of
from segue.core.autonomy.policy import POSTPONING, check_preferences
from segue.core.durations import parse_duration
from segue.core.text import check_name
from segue.errors import UsageError
from segue.events import OutsideEvent
from segue.journal.records import DROPPED, Thread, Timer, TimerKind
from segue.runtime.reminders import Reminder, requested_key
from segue.runtime.requests import FollowUpRequest
from segue.runtime.thread_service import check_limit
from segue.telemetry import count

_FOLLOW_UPS: Final = (TimerKind.FOLLOW_UP, TimerKind.EVENT)
# Reminders have their own list.
_LISTED: Final = (*_FOLLOW_UPS, TimerKind.CONTINUATION)
_OWN_WISH: Final = "The agent itself wanted to continue later."


class Initiative(Conversations):
    """Follow-ups, events, reminders and preferences."""

    async def list_follow_ups(self, thread: Thread | str, *, limit: int = 50) -> list[Timer]:
        """Planned and past follow-ups, events and continuations with their outcomes, newest first;
        without prompts and data.
        """
        timers = await self._journal.timers.list_of(
            id_of(thread), limit=check_limit(limit), kinds=_LISTED
        )
        return [*map(_as_shown, timers)]

    async def follow_up(self, thread: Thread | str, **request: Any) -> Timer:
        """Let the agent write first, also in a thread without a message.

        `at` or `after` sets the time; the model gets the `prompt`, or that of the `trigger`, and
        the `data`; `reason` is for operators. A second call with the same `key` returns the first
        follow-up. The gates are checked when it is due, and a message of the user voids it.
        """
        wanted, found = _parse_request(request), await self._lasting(thread)
        return await self._open_system.requests.follow_up(found, wanted)

    async def wake(
        self,
        event: OutsideEvent,
        *,
        thread: Thread | str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> Timer:
        """Let the agent tell a user about an event, once for each id of its source.

        For a `user_id`, in the thread that was updated last, or in a new one. Events that arrive
        close together become one message; they wait for a pause in the conversation.
        """
        requests = self._open_system.requests
        if (thread is None) is (user_id is None):
            raise UsageError("An event is for a thread or for a user_id; give one of them.")
        if thread is None:
            requests.check(event, self.get_agent(agent_id).id)  # before a thread is made for it
            owner = check_name(user_id, "user_id")
            if known := await self._journal.timers.find_by_key(owner, event.key):
                return known  # another thread may be the newest now
            found = await self._thread_for(owner, agent_id)
        else:
            found = await self._lasting(thread)
        return await requests.wake(found, event)

    async def _lasting(self, thread: Thread | str) -> Thread:
        return check_lasting(await self.get_thread(id_of(thread)))

    async def _thread_for(self, user_id: str, agent_id: str | None) -> Thread:
        """The user's newest thread with the agent; two events at once find or make the same one."""
        agent = self.get_agent(agent_id).id
        if found := await self.find_newest_thread(user_id, agent):
            return found
        digest = hashlib.sha256(f"{agent}\0{user_id}".encode()).hexdigest()[:24]
        return await self.create_thread(user_id, agent, thread_id=f"news-{digest}")

    async def remind(
        self, thread: Thread | str, text: str, *, key: str | None = None, **when: Any
    ) -> Reminder:
        """Remind the user `after` a duration, `at` a local time, or by the rule `every`, which may
        end `until` a local time. A second call with the same `key` returns the first reminder.
        `UsageError` says what is wrong.
        """
        own, found = requested_key(key), await self._lasting(thread)
        return await self._open_system.reminders.remind(found, text, key=own, **when)

    async def list_reminders(
        self, user_id: str | None = None, *, thread: Thread | str | None = None
    ) -> list[Reminder]:
        """The pending reminders of a user or of a thread, in the order of their times."""
        reminders = self._open_system.reminders
        if thread is not None:
            return await reminders.list_of_thread(await self.get_thread(id_of(thread)))
        return await reminders.list_of_user(check_text(user_id, "user_id"))

    async def cancel_reminder(self, reminder_id: int, *, user_id: str | None = None) -> Reminder:
        """Cancel a reminder that was not sent yet; `NotFoundError` if there is none with this id,
        or if it is not the given user's.
        """
        cancelled = await self._open_system.reminders.cancel(reminder_id, user_id=user_id)
        await self._open_system.runtime.turns.recheck(cancelled.thread_id)
        self._deps.wakeups.turns.now()
        return cancelled

    async def cancel_follow_ups(self, thread: Thread | str) -> list[Timer]:
        """Cancel planned follow-ups and continuations, and replies to triggers that were not shown
        yet; return those that were planned.
        """
        deps = self._deps
        ended = await self._journal.timers.cancel(
            id_of(thread), DROPPED, ids=deps.ids, now=deps.clock.now()
        )
        await self._open_system.runtime.turns.recheck(id_of(thread))
        deps.wakeups.turns.now()
        for timer in ended:
            if timer.kind in _FOLLOW_UPS:
                names = {"agent_id": timer.agent_id, "trigger_type": timer.trigger_type}
                count("follow_up_held_back", outcome=timer.state.value, **names)
        return [_as_shown(timer) for timer in ended if timer.kind in _LISTED]

    async def report_typing(self, thread: Thread | str) -> None:
        """The user is typing: follow-ups wait."""
        await self._journal.threads.note_typing(id_of(thread), now=self._deps.clock.now())

    async def get_user_preferences(self, user_id: str) -> Mapping[str, Any]:
        """What `set_user_preferences` stored."""
        return await self._journal.users.get_settings(check_text(user_id, "user_id"))

    async def set_user_preferences(self, user_id: str, **preferences: Any) -> Mapping[str, Any]:
        """Set a user's preferences for all agents: time_zone, quiet_hours, muted, snoozed_until,
        opted_out; None removes one. Postponed follow-ups are re-checked.
        """
        now = self._deps.clock.now()
        stored = await self._journal.users.update_settings(
            check_name(user_id, "user_id"),
            check_preferences(preferences, now),
            now=now,
            reconsider_at=now if POSTPONING & preferences.keys() else None,
        )
        if "time_zone" in preferences:
            await self._open_system.reminders.follow_clock(user_id)
        self._deps.wakeups.timers.now()
        return stored

    async def set_thread_preferences(self, thread: Thread | str, **preferences: Any) -> Thread:
        """Override the user's preferences in one thread."""
        now = self._deps.clock.now()
        stored = await self._journal.threads.update(
            (await self._lasting(thread)).id,
            settings=check_preferences(preferences, now),
            reconsider_at=now if POSTPONING & preferences.keys() else None,
        )
        if "time_zone" in preferences:
            await self._open_system.reminders.follow_clock(stored.user_id)
        self._deps.wakeups.timers.now()
        return await self._notified(stored)

    async def snooze(self, thread: Thread | str, until: datetime) -> Thread:
        """Postpone the thread's follow-ups to a future time."""
        return await self.set_thread_preferences(thread, snoozed_until=until)


def _as_shown(timer: Timer) -> Timer:
    """Without prompt, data and the reason of a request or continuation, which only operators see,
    in the inspector.
    """
    shown = replace(timer, payload={}, reason=None if timer.key else timer.reason)
    if timer.kind is not TimerKind.CONTINUATION:
        return shown
    return replace(shown, reason=None, state_reason=timer.state_reason or _OWN_WISH)


def _parse_request(given: Mapping[str, Any]) -> FollowUpRequest:
    names = [each.name for each in fields(FollowUpRequest)]
    if unknown := sorted(given.keys() - set(names)):
        raise UsageError(f"Unknown argument {unknown[0]!r}; expected: {', '.join(names)}.")
    after = given.get("after")
    if isinstance(after, str):
        after = parse_duration(after)
    if not isinstance(after, timedelta | None):
        raise UsageError(f"after is {after!r:.60}; expected a timedelta, or a text such as '2h'.")
    if not isinstance(given.get("at"), datetime | None):
        raise UsageError(f"at is {given['at']!r:.60}; expected a datetime with its zone.")
    return FollowUpRequest(**{**given, "after": after})
