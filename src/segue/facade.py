"""`Segue`: the running system, as a program uses it."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Final, Self

from langchain_core.messages import HumanMessage

from segue.agent.memory import MemoryBook
from segue.compose import Overrides, System, compose
from segue.core.autonomy.policy import POSTPONING, check_preferences, check_settings
from segue.core.durations import parse_duration
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import to_text
from segue.core.text import check_name
from segue.core.turn_rules import DoubleTexting
from segue.errors import (
    AnswerNeeded,
    BackendError,
    NotFoundError,
    ReplyCancelled,
    UsageError,
)
from segue.events import Event, OutsideEvent, cursor_at
from segue.insight.stats import Stats, build_query, stats
from segue.insight.views import Inspector
from segue.insight.why import Reason, why
from segue.journal.effects import Effect
from segue.journal.journal import Journal
from segue.journal.memories import FoundMemory, Memory
from segue.journal.records import (
    DROPPED,
    NESTING,
    Accepted,
    ApiKey,
    Deleted,
    Found,
    Page,
    Thread,
    ThreadPlace,
    Timer,
    TimerKind,
    Turn,
    TurnState,
)
from segue.journal.stats import WINDOW
from segue.journal.tables import THREADS, Whose, all_rows
from segue.runtime.after_turn import visible_replies
from segue.runtime.deps import Deps
from segue.runtime.reminders import Reminder
from segue.runtime.requests import FollowUpRequest
from segue.runtime.thread_service import check_limit
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.telemetry import count
from segue.transfer.export import Scope, export_all, export_user
from segue.transfer.imports import ImportOptions, ImportResult, import_file
from segue.transfer.lines import ExportWriter

_FOLLOW_UPS: Final = (TimerKind.FOLLOW_UP, TimerKind.EVENT)
# Reminders have their own list.
_LISTED: Final = (*_FOLLOW_UPS, TimerKind.CONTINUATION)
_OWN_WISH: Final = "The agent itself wanted to go on later."


class Segue:
    """Conversations with agents that speak first. Made by `open`."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._is_closed = False

    @property
    def system(self) -> System:
        """Its parts, for code that extends Segue."""
        return self._system

    @property
    def _open_system(self) -> System:
        if self._is_closed:
            raise BackendError(
                "This Segue is closed because its `async with` block was left. Use it inside the "
                "block, or open another one."
            )
        return self._system

    @property
    def _deps(self) -> Deps:
        return self._open_system.deps

    @property
    def _journal(self) -> Journal:
        return self._deps.journal

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings | None = None, overrides: Overrides | None = None
    ) -> AsyncIterator[Self]:
        """Run the system until the block is left.

        Running turns are then finished, or released for the next process to resume.
        """
        segue: Self | None = None
        try:
            async with compose(settings or Settings(), overrides or Overrides()) as system:
                segue = cls(system)
                yield segue
        finally:
            if segue is not None:
                segue._is_closed = True

    @property
    def agents(self) -> Sequence[AgentConfig]:
        """The agents of the settings."""
        return self._system.settings.agents

    def get_agent(self, agent_id: str | None = None) -> AgentConfig:
        """The settings of an agent; by default, of the first one."""
        system = self._system
        return system.deps.agent_of(agent_id or system.settings.agents[0].id).config

    async def create_thread(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        thread_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Thread:
        """Start a conversation of a user with an agent; by default, with the first one."""
        now = self._deps.clock.now()
        created = await self._journal.threads.create(
            _check_thread_id(thread_id) if thread_id else to_text(self._deps.ids.next()),
            agent_id=self.get_agent(agent_id).id,
            user_id=check_name(user_id, "user_id"),
            now=now,
            settings=check_settings(settings or {}, now),
        )
        return await self._told(created)

    async def rename_thread(self, thread: Thread | str, title: str) -> Thread:
        return await self._told(await self._journal.threads.update(_id(thread), title=title))

    async def mark_read(self, thread: Thread | str, position: int) -> Thread:
        """The user has read everything up to a message's position; never moves back."""
        return await self._told(await self._journal.threads.mark_read(_id(thread), position))

    async def _told(self, thread: Thread) -> Thread:
        """A thread whose list entry changed, after the listeners of its user were told."""
        await self._deps.bus.stored(thread.id, thread.user_id)
        return thread

    async def get_thread(self, thread_id: str) -> Thread:
        return await self._journal.threads.get(_id(thread_id))

    async def list_threads(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        limit: int = 50,
        before: ThreadPlace | None = None,
    ) -> list[Thread]:
        """A user's threads, the most recently updated first.

        `before` is the `place` of the previous page's last thread. Threads in which agents ask
        each other are left out.
        """
        return await self._open_system.threads.list_threads(
            _check_text(user_id, "user_id"), agent_id, limit=limit, before=before
        )

    async def delete_thread(self, thread: Thread | str) -> Deleted:
        """Cancel a thread's turns and delete all its rows. Memories belong to the user and stay."""
        owner = (await self.get_thread(_id(thread))).user_id
        await self.cancel(thread)
        turns = await self._journal.turns.list_of(_id(thread))
        deleted = await self._journal.threads.delete(_id(thread))
        self._deps.bus.deleted(_id(thread), owner)
        await self._deps.bus.stored(_id(thread), owner)  # tells listeners that the thread is gone
        await self._open_system.runtime.sweeper.drop({turn.batch for turn in turns})
        return deleted

    async def delete_user(self, user_id: str) -> Deleted:
        """Cancel a user's turns and delete their threads, memories and preferences; revoke their
        keys.
        """
        whose = Whose(user_id=_check_text(user_id, "user_id"))
        threads = [row["id"] async for row in all_rows(self._journal.transfer, THREADS, whose)]
        for thread in threads:
            with suppress(NotFoundError):  # deleted in the meantime
                await self.cancel(thread)
        deleted = await self._journal.removal.delete_user(user_id)
        for thread in threads:
            # Tells listeners that the thread is gone.
            await self._deps.bus.stored(thread, user_id)
        await self._open_system.runtime.sweeper.step()
        return deleted

    def export(self, user_id: str, *threads: str) -> AsyncGenerator[bytes]:
        """A user's own data, line by line: the named threads, or all threads with memories and
        preferences. docs/export.md describes the format.
        """
        scope = Scope(threads=threads, user_id=_check_text(user_id, "user_id"))
        now = self._deps.clock.now()
        return export_user(self._journal, scope, ExportWriter(), created_at=now)

    def export_all(self, scope: Scope | None = None) -> AsyncGenerator[bytes]:
        """All data, or a part of it, line by line, for an operator: including triggers."""
        now = self._deps.clock.now()
        return export_all(self._journal, scope or Scope(), ExportWriter(), created_at=now)

    async def import_file(
        self,
        file: BinaryIO,
        *,
        remap: bool = False,
        skip_existing: bool = False,
        dry_run: bool = False,
        trusted: bool = False,
    ) -> ImportResult:
        """Import a full export, all of it or nothing. `remap` gives every row a new id.

        `trusted` also accepts what no user could send: system messages, addresses and file ids.
        """
        ids = self._deps.ids if remap else None
        options = ImportOptions(ids, skip_existing=skip_existing, dry_run=dry_run, trusted=trusted)
        now = self._deps.clock.now()
        imported = await import_file(self._journal, file, options, now=now)
        self._deps.wakeups.all_at(now)
        return imported

    async def send(
        self,
        thread: Thread | str,
        content: str | list[Any] | HumanMessage,
        *,
        client_message_id: str | None = None,
        strategy: DoubleTexting | None = None,
    ) -> Accepted:
        """Store a user's message. `listen` or `wait_reply` gives the reply."""
        if client_message_id is not None:
            check_name(client_message_id, "client_message_id")
        return await self._open_system.inbox.accept(
            _id(thread),
            content,
            client_message_id=client_message_id,
            strategy=_parse_strategy(strategy),
        )

    async def reply(self, thread: Thread | str, content: str | list[Any]) -> str:
        """Send a message and wait for the reply's text. Raises what `wait_reply` raises."""
        return await self.wait_reply((await self.send(thread, content)).turn)

    async def wait_reply(self, turn: Turn) -> str:
        """Wait for the agent's text in a turn that `send` or `answer` started.

        `AnswerNeeded` if the agent asks a question first, `ReplyCancelled` if the turn was
        cancelled, `BackendError` if it failed.
        """
        ended = await self.wait_turn(turn)
        if ended.state is not TurnState.DONE:
            raise BackendError(ended.error or f"The turn ended {ended.state.value}.")
        batch = await self._journal.messages.load_batch(ended.thread_id, ended.batch)
        text = "\n".join(message.text for message in visible_replies(ended, batch))
        ending = ended.ending or {}
        if ending.get("kind") == "question":
            raise AnswerNeeded(
                f"The agent asks a question first; answer({ended.id}, …) resumes it.",
                turn_id=ended.id,
                questions=ending.get("questions"),
            )
        if ending.get("kind") == "cancelled":
            raise ReplyCancelled(
                f"Turn {ended.id} was cancelled before its reply was complete; send the message "
                "again for a full reply.",
                turn_id=ended.id,
                seen=text,
            )
        return text

    async def wait_turn(self, turn: Turn) -> Turn:
        """Wait until a turn has ended, in any process."""
        with self._deps.clock.working():
            return await self._open_system.runtime.turns.wait_until_ended(turn)

    async def last_position(self, turn: Turn) -> int:
        """The position of the last event that a listener gets of a turn that has ended."""
        batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        seen = [MessageMetadata.of(m).position or 0 for m in visible_messages(batch.messages)]
        return max([*seen, turn.end_position or 0])

    def listen(self, thread: Thread | str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events of a thread, from a cursor on; by default, from now on."""
        if since is not None:
            _check_text(since, "since")
        return self._deps.bus.listen(_id(thread), since)

    def listen_user(self, user_id: str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events of all threads of a user, with changes of the threads themselves."""
        if since is not None:
            _check_text(since, "since")
        return self._deps.bus.listen_user(_check_text(user_id, "user_id"), since)

    async def user_cursor(self, user_id: str) -> str:
        """The cursor after everything that is stored for a user now."""
        last = await self._journal.feed.last_position(_check_text(user_id, "user_id"))
        return cursor_at(last)

    async def history(
        self,
        thread: Thread | str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        """A page of the visible messages. It may have fewer than `limit`: a page ends at about
        1 MB, and its cursors continue from there.
        """
        threads = self._open_system.threads
        return await threads.history(_id(thread), limit=limit, before=before, after=after)

    async def list_turns(self, thread: Thread | str, page: Page, *, limit: int) -> list[Turn]:
        """The turns that wrote the messages of a page of history, newest first."""
        return await self._open_system.threads.turns_of(_id(thread), page, limit=limit)

    async def get_turn(self, turn_id: int) -> Turn:
        """`NotFoundError` if there is no such turn."""
        return await self._journal.turns.get(turn_id)

    async def search(self, user_id: str, text: str, *, limit: int = 20) -> list[Found]:
        """A user's visible messages that match a text, best first; with an excerpt of each."""
        return await self._journal.search.find(_check_text(user_id, "user_id"), text, limit=limit)

    async def cancel(self, thread: Thread | str) -> list[Turn]:
        """Cancel the thread's turns and continuations; return the turns that are being stopped.

        The part of a reply that the user has seen is kept.
        """
        return await self._open_system.inbox.cancel(_id(thread))

    async def answer(self, turn: Turn | int, answer: Any) -> Turn:
        """Answer the question that a turn waits with."""
        if not isinstance(turn, Turn | int):
            raise NotFoundError(f"A turn is named by its id, not by {type(turn).__name__}.")
        turn_id = turn if isinstance(turn, int) else turn.id
        return await self._open_system.inbox.answer(turn_id, answer)

    async def report_typing(self, thread: Thread | str) -> None:
        """The user is typing: follow-ups wait."""
        await self._journal.threads.note_typing(_id(thread), now=self._deps.clock.now())

    async def list_follow_ups(self, thread: Thread | str, *, limit: int = 50) -> list[Timer]:
        """Planned and past follow-ups, events and continuations with their outcomes, newest first;
        without prompts and data.
        """
        timers = await self._journal.timers.list_of(_id(thread), limit=check_limit(limit))
        return [_as_shown(timer) for timer in timers if timer.kind in _LISTED]

    async def follow_up(self, thread: Thread | str, **request: Any) -> Timer:
        """Let the agent write first, also in a thread without a message.

        `at` or `after` say when, `trigger`, `prompt` and `data` what the model is asked and given,
        `reason` is for operators; the same `key` again returns the first. The gates decide when it
        is due, and a message of the user voids it.
        """
        found, wanted = await self.get_thread(_id(thread)), _parse_request(request)
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

        For a `user_id`, in the thread that was updated last, or in a new one. Several events that
        come close together become one message; while the user is talking, they wait.
        """
        requests = self._open_system.requests
        if (thread is None) is (user_id is None):
            raise UsageError("An event is for a thread or for a user_id; give one of them.")
        if thread is None:
            requests.check(event, self.get_agent(agent_id).id)  # before a thread is made for it
            owner = check_name(user_id, "user_id")
            if known := await self._journal.timers.find_by_key(owner, event.key):
                return known  # another thread may have become the newest since
            found = await self._thread_for(owner, agent_id)
        else:
            found = await self.get_thread(_id(thread))
        return await requests.wake(found, event)

    async def _thread_for(self, user_id: str, agent_id: str | None) -> Thread:
        """The user's newest thread with the agent; two events at once find or make the same one."""
        agent = self.get_agent(agent_id).id
        found = await self.list_threads(user_id, agent, limit=1)
        if found:
            return found[0]
        digest = hashlib.sha256(f"{agent}\0{user_id}".encode()).hexdigest()[:24]
        return await self.create_thread(user_id, agent, thread_id=f"news-{digest}")

    async def remind(self, thread: Thread | str, text: str, **when: Any) -> Reminder:
        """Remind the user `after` a duration, `at` a local time, or by the rule `every`, which may
        end `until` a local time. `UsageError` says what is wrong.
        """
        found = await self.get_thread(_id(thread))
        return await self._open_system.reminders.remind(found, text, **when)

    async def list_reminders(
        self, user_id: str | None = None, *, thread: Thread | str | None = None
    ) -> list[Reminder]:
        """The reminders of a user or of a thread that still wait, in the order of their times."""
        reminders = self._open_system.reminders
        if thread is not None:
            return await reminders.list_of_thread(await self.get_thread(_id(thread)))
        return await reminders.list_of_user(_check_text(user_id, "user_id"))

    async def cancel_reminder(self, reminder_id: int, *, user_id: str | None = None) -> Reminder:
        """`NotFoundError` if none waits with this id, or, if a user is given, it is another's."""
        return await self._open_system.reminders.cancel(reminder_id, user_id=user_id)

    async def cancel_follow_ups(self, thread: Thread | str) -> list[Timer]:
        """Cancel planned follow-ups and continuations, and replies to triggers that were not shown
        yet; return those that were planned.
        """
        deps = self._deps
        ended = await self._journal.timers.cancel(
            _id(thread), DROPPED, ids=deps.ids, now=deps.clock.now()
        )
        await self._open_system.runtime.turns.recheck(_id(thread))
        deps.wakeups.turns.now()
        for timer in ended:
            if timer.kind in _FOLLOW_UPS:
                names = {"agent_id": timer.agent_id, "trigger_type": timer.trigger_type}
                count("follow_up_held_back", outcome=timer.state.value, **names)
        return [_as_shown(timer) for timer in ended if timer.kind in _LISTED]

    async def get_user_preferences(self, user_id: str) -> Mapping[str, Any]:
        """What `set_user_preferences` stored."""
        return await self._journal.users.get_settings(_check_text(user_id, "user_id"))

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
        self._deps.wakeups.timers.now()
        return stored

    async def set_thread_preferences(self, thread: Thread | str, **preferences: Any) -> Thread:
        """Override the user's preferences in one thread."""
        now = self._deps.clock.now()
        stored = await self._journal.threads.update(
            _id(thread),
            settings=check_preferences(preferences, now),
            reconsider_at=now if POSTPONING & preferences.keys() else None,
        )
        self._deps.wakeups.timers.now()
        return await self._told(stored)

    async def snooze(self, thread: Thread | str, until: datetime) -> Thread:
        """Postpone the thread's follow-ups to a future time."""
        return await self.set_thread_preferences(thread, snoozed_until=until)

    async def list_memories(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Memory]:
        """What an agent knows about a user, newest first; `before` is the id of a memory."""
        return await self._journal.memories.list_of(
            self.get_agent(agent_id).id, user_id, limit=limit, before=before
        )

    async def search_memories(
        self, user_id: str, text: str, agent_id: str | None = None
    ) -> list[FoundMemory]:
        """Memories that relate to a text, best first, as the agent would find them."""
        agent, book = self._memory_book(agent_id)
        return await book.search(agent, user_id, text)

    async def remember(
        self, user_id: str, content: str, agent_id: str | None = None, *, key: str | None = None
    ) -> Memory:
        """Store a fact about a user; a memory with the same content is updated instead."""
        agent, book = self._memory_book(agent_id)
        return (await book.remember(agent, user_id, content, key)).memory

    async def forget(self, user_id: str, key: str, agent_id: str | None = None) -> bool:
        """Delete a memory; False if there is none with this key."""
        return await self._journal.memories.delete(self.get_agent(agent_id).id, user_id, key)

    def _memory_book(self, agent_id: str | None) -> tuple[str, MemoryBook]:
        agent = self.get_agent(agent_id).id
        book = self._open_system.books.get(agent)
        if book is None:
            raise NotFoundError(f"Agent {agent!r:.60} keeps no memories.")
        return agent, book

    async def find_key(self, key_id: str) -> ApiKey | None:
        """An API key of the server, revoked ones included."""
        return await self._journal.keys.find(key_id)

    async def list_keys(self) -> list[ApiKey]:
        """All API keys of the server, oldest first, revoked ones included."""
        return await self._journal.keys.list_all()

    @property
    def inspector(self) -> Inspector:
        """What operators see of all users."""
        deps = self._deps
        return Inspector(deps.journal, self._system.settings.agents, deps.clock, deps.zone)

    async def retry_effect(self, effect_id: int) -> Effect:
        """Try an effect again that was given up, at once."""
        effect = await self._journal.effects.revive(effect_id, now=self._deps.clock.now())
        self._deps.wakeups.effects.now()
        return effect

    async def check_writable(self) -> None:
        """Raises if the database takes no writes: a full disk can still be read."""
        await self._open_system.runtime.ids.renew()

    async def why(self, thread: Thread | str, *, limit: int = 50) -> list[Reason]:
        """Why the agent wrote or did not write, oldest first."""
        return await why(self._journal, _id(thread), limit=check_limit(limit))

    async def stats(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        agent: str | None = None,
        trigger: str | None = None,
        window: timedelta = WINDOW,
    ) -> Stats:
        """The outcomes of all users' follow-ups, compared with the hold-out."""
        now = self._deps.clock.now()
        query = build_query(
            now, since=since, until=until, agent=agent, trigger=trigger, window=window
        )
        return await stats(self._journal, query)


def _id(thread: Thread | str) -> str:
    if isinstance(thread, Thread):
        return thread.id
    if not isinstance(thread, str):
        raise NotFoundError(f"A thread is named by its id, not by {type(thread).__name__}.")
    return thread


def _as_shown(timer: Timer) -> Timer:
    """Without prompt and data, and without the reason of a request or of an agent's own wish to go
    on, which are for operators: the inspector shows them.
    """
    shown = replace(timer, payload={}, reason=None if timer.key else timer.reason)
    if timer.kind is not TimerKind.CONTINUATION:
        return shown
    return replace(shown, reason=None, state_reason=timer.state_reason or _OWN_WISH)


def _check_text(given: Any, name: str) -> str:
    """The name of something stored; old names may break the rules that `check_name` enforces."""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{name} is {given!r:.80}; expected text.")
    return given


def _check_thread_id(given: Any) -> str:
    """A slash marks the threads in which agents ask each other."""
    if NESTING in (name := check_name(given, "thread_id")):
        raise UsageError(f"thread_id is {name!r:.80}; it must not hold a slash.")
    return name


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


def _parse_strategy(given: DoubleTexting | None) -> DoubleTexting | None:
    try:
        return None if given is None else DoubleTexting(given)
    except ValueError:
        valid = ", ".join(DoubleTexting)
        raise UsageError(f"strategy is {given!r:.80}; expected one of: {valid}.") from None
