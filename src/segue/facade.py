"""`Segue`: the running system, as a program uses it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Final, Self

from langchain_core.messages import HumanMessage

from segue.agent.config import AgentConfig
from segue.compose import Composed, Replacements, compose
from segue.core.errors import (
    AnswerNeeded,
    BackendError,
    NotFoundError,
    ReplyCancelled,
    UsageError,
)
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.preferences import check_preferences, check_wishes
from segue.core.snowflake import to_text
from segue.journal.outcomes import WINDOW
from segue.journal.ports import Journal
from segue.journal.records import (
    DROPPED,
    NESTING,
    Accepted,
    Deleted,
    Page,
    Thread,
    ThreadPlace,
    Timer,
    Turn,
    TurnKind,
    TurnState,
)
from segue.journal.tables import THREADS, Whose, all_rows
from segue.noting import count
from segue.runtime.events import Heard
from segue.runtime.initiative import said_in
from segue.runtime.parts import Parts
from segue.runtime.rules import DoubleTexting
from segue.runtime.stats import Stats, Wanted, stats
from segue.runtime.thread_service import check_limit
from segue.runtime.why import Reason, why
from segue.settings import Settings
from segue.transfer.importing import Imported, Manner, import_file
from segue.transfer.lines import Writing
from segue.transfer.writing import Scope, export_all, export_user

# Wishes that put a follow-up off; it may be sent sooner when they change.
_WAITS: Final = frozenset({"time_zone", "quiet_hours", "snoozed_until"})


class Segue:
    """Conversations with agents that speak first. Made by `open`."""

    def __init__(self, composed: Composed) -> None:
        self._composed = composed
        self._is_closed = False

    @property
    def composed(self) -> Composed:
        """Its parts, for who builds on it."""
        return self._composed

    @property
    def _running(self) -> Composed:
        if self._is_closed:
            raise BackendError(
                "This Segue is closed: its `async with` block was left. Use it inside of the "
                "block, or open another one."
            )
        return self._composed

    @property
    def _parts(self) -> Parts:
        return self._running.parts

    @property
    def _journal(self) -> Journal:
        return self._parts.journal

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings | None = None, given: Replacements | None = None
    ) -> AsyncIterator[Self]:
        """Run the system until the block is left.

        Turns at work are finished then, or handed back for the next process to go on with.
        """
        segue: Self | None = None
        try:
            async with compose(settings or Settings(), given or Replacements()) as composed:
                segue = cls(composed)
                yield segue
        finally:
            if segue is not None:
                segue._is_closed = True

    def agent(self, agent_id: str | None = None) -> AgentConfig:
        """An agent of the settings: the first one, if none is named."""
        composed = self._composed
        return composed.parts.agent_of(agent_id or composed.settings.agents[0].id).config

    async def create_thread(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        thread_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Thread:
        """Begin a conversation of a user with an agent: the first one, if none is named."""
        now = self._parts.clock.now()
        return await self._journal.create_thread(
            _thread_name(thread_id) if thread_id else to_text(self._parts.ids.next()),
            agent_id=self.agent(agent_id).id,
            user_id=_name(user_id, "user_id"),
            now=now,
            settings=check_preferences(settings or {}, now),
        )

    async def thread(self, thread_id: str) -> Thread:
        """One conversation, as it is now."""
        return await self._journal.get_thread(_id(thread_id))

    async def threads(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        limit: int = 50,
        before: ThreadPlace | None = None,
    ) -> list[Thread]:
        """A user's conversations, the one written to last first; with all agents, or with one.

        `before` is the `place` of the last one of the page before. Where agents ask each other is
        not among them.
        """
        return await self._running.threads.list_threads(
            _name(user_id, "user_id"), agent_id, limit=limit, before=before
        )

    async def delete_thread(self, thread: Thread | str) -> Deleted:
        """Delete a thread and all that belongs to it, and say what; memories belong to the user.

        What the agent is doing in it is stopped.
        """
        await self.cancel(thread)
        turns = await self._journal.list_turns(_id(thread))
        deleted = await self._journal.delete_thread(_id(thread))
        await self._parts.bus.stored(_id(thread))  # whoever listens hears that it is gone
        await self._running.runtime.sweeper.drop({turn.batch for turn in turns})
        return deleted

    async def delete_user(self, user_id: str) -> Deleted:
        """Delete all that is stored of a user, and say what: threads, memories and wishes.

        What agents are doing for them is stopped. Keys that speak for them open nothing any more.
        """
        whose = Whose(user_id=_name(user_id, "user_id"))
        threads = [row["id"] async for row in all_rows(self._journal, THREADS, whose)]
        for thread in threads:
            with suppress(NotFoundError):  # somebody deleted it meanwhile
                await self.cancel(thread)
        deleted = await self._journal.delete_user(user_id)
        for thread in threads:
            await self._parts.bus.stored(thread)  # whoever listens hears that it is gone
        await self._running.runtime.sweeper.step()
        return deleted

    def export(self, user_id: str, *threads: str) -> AsyncGenerator[bytes]:
        """What a user may keep, line by line: the threads that are named, or all they have with
        memories and wishes. docs/export.md has the format.
        """
        scope = Scope(threads=threads, user_id=_name(user_id, "user_id"))
        now = self._parts.clock.now()
        return export_user(self._journal, scope, Writing(), created_at=now)

    def export_all(self, scope: Scope | None = None) -> AsyncGenerator[bytes]:
        """Everything, or some of it, line by line, for an operator: triggers too."""
        now = self._parts.clock.now()
        return export_all(self._journal, scope or Scope(), Writing(), created_at=now)

    async def import_file(
        self,
        file: BinaryIO,
        *,
        remap: bool = False,
        skip_existing: bool = False,
        dry_run: bool = False,
    ) -> Imported:
        """Take in a full export: all of it or nothing. With `remap` everything gets new ids."""
        ids = self._parts.ids if remap else None
        manner = Manner(ids=ids, skip_existing=skip_existing, dry_run=dry_run)
        now = self._parts.clock.now()
        imported = await import_file(self._journal, file, manner, now=now)
        agendas = self._parts.agendas
        for agenda in (agendas.turns, agendas.timers, agendas.effects):
            agenda.at_once()
        return imported

    async def send(
        self,
        thread: Thread | str,
        content: str | list[Any] | HumanMessage,
        *,
        client_message_id: str | None = None,
        strategy: DoubleTexting | None = None,
    ) -> Accepted:
        """Store a user's message; the answer comes by `listen`, or with `reply`."""
        if client_message_id is not None:
            _name(client_message_id, "client_message_id")
        return await self._running.inbox.accept(
            _id(thread),
            content,
            client_message_id=client_message_id,
            strategy=_strategy(strategy),
        )

    async def reply(self, thread: Thread | str, content: str | list[Any]) -> str:
        """Send a message and wait for the agent's words. Raises what `said` raises."""
        return await self.said((await self.send(thread, content)).turn)

    async def said(self, turn: Turn) -> str:
        """Wait for the agent's words in a turn that `send` or `answer` began.

        `AnswerNeeded` if it asks something first, `ReplyCancelled` if somebody stopped it,
        `BackendError` if it failed.
        """
        ended = await self.finished(turn)
        if ended.state is not TurnState.DONE:
            raise BackendError(ended.error or f"The turn ended {ended.state.value}.")
        words = await self._words(ended)
        end = ended.ending or {}
        if end.get("kind") == "question":
            raise AnswerNeeded(
                f"The agent asks something before it goes on; answer({ended.id}, …) tells it.",
                turn_id=ended.id,
                questions=end.get("questions"),
            )
        if end.get("kind") == "cancelled":
            raise ReplyCancelled(
                f"Turn {ended.id} was stopped before the agent had answered; send the message "
                "again for a whole answer.",
                turn_id=ended.id,
                seen=words,
            )
        return words

    async def _words(self, turn: Turn) -> str:
        batch = await self._journal.load_batch(turn.thread_id, turn.batch)
        return "\n".join(message.text for message in said_in(turn, batch))

    async def finished(self, turn: Turn) -> Turn:
        """Wait until a turn is over, in whichever process."""
        with self._parts.clock.working():
            return await self._running.runtime.turns.ended(turn)

    async def end_of(self, turn: Turn) -> int:
        """The position of the last thing that a listener hears of a turn that is over."""
        batch = await self._journal.load_batch(turn.thread_id, turn.batch)
        seen = [MessageMetadata.of(m).position or 0 for m in visible_messages(batch.messages)]
        return max([*seen, turn.end_position or 0])

    def listen(self, thread: Thread | str, since: str | None = None) -> AsyncGenerator[Heard]:
        """Everything that happens in a thread, from a cursor on, or from now on."""
        if since is not None:
            _name(since, "since")
        return self._parts.bus.listen(_id(thread), since)

    async def history(
        self,
        thread: Thread | str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        """What a person sees of the conversation."""
        threads = self._running.threads
        return await threads.history(_id(thread), limit=limit, before=before, after=after)

    async def cancel(self, thread: Thread | str) -> list[Turn]:
        """Stop what the agent is doing, and what it planned to go on with by itself.

        What was seen of its reply is kept. Returned are the turns that are being stopped.
        """
        return await self._running.inbox.cancel(_id(thread))

    async def answer(self, turn: Turn | int, answer: Any) -> Turn:
        """Answer a question that the agent waits with."""
        if not isinstance(turn, Turn | int):
            raise NotFoundError(f"A turn is named by its id, not by {type(turn).__name__}.")
        return await self._running.inbox.answer(turn if isinstance(turn, int) else turn.id, answer)

    async def typing(self, thread: Thread | str) -> None:
        """The user is typing; no follow-up comes in between."""
        await self._journal.note_typing(_id(thread), now=self._parts.clock.now())

    async def follow_ups(self, thread: Thread | str, *, limit: int = 50) -> list[Timer]:
        """Planned and past follow-ups, newest first, with what became of them."""
        timers = await self._journal.list_timers(_id(thread), limit=check_limit(limit))
        # What an agent says to itself when it goes on is not for the user.
        return [timer for timer in timers if timer.kind is TurnKind.FOLLOW_UP]

    async def cancel_follow_ups(self, thread: Thread | str) -> list[Timer]:
        """Drop what is planned, continuations too, and what is being written and not seen yet.

        Returned are the planned follow-ups.
        """
        parts = self._parts
        ended = await self._journal.cancel_timers(
            _id(thread), DROPPED, ids=parts.ids, now=parts.clock.now()
        )
        dropped = [timer for timer in ended if timer.kind is TurnKind.FOLLOW_UP]
        await self._running.runtime.turns.look_after(_id(thread))
        self._parts.agendas.turns.at_once()
        for timer in dropped:
            names = {"agent_id": timer.agent_id, "trigger_type": timer.trigger_type}
            count("follow_up_held_back", outcome=timer.state.value, **names)
        return dropped

    async def set_user(self, user_id: str, **wishes: Any) -> Mapping[str, Any]:
        """What a user wants of all agents: time_zone, quiet_hours, muted, snoozed_until,
        opted_out; None takes one back. Follow-ups that were put off are considered anew.
        """
        now = self._parts.clock.now()
        stored = await self._journal.update_user_settings(
            _name(user_id, "user_id"),
            check_wishes(wishes, now),
            now=now,
            reconsider_at=now if _WAITS & wishes.keys() else None,
        )
        self._parts.agendas.timers.at_once()
        return stored

    async def set_thread(self, thread: Thread | str, **wishes: Any) -> Thread:
        """The same for one thread, where it differs."""
        now = self._parts.clock.now()
        stored = await self._journal.update_thread(
            _id(thread),
            settings=check_wishes(wishes, now),
            reconsider_at=now if _WAITS & wishes.keys() else None,
        )
        self._parts.agendas.timers.at_once()
        return stored

    async def snooze(self, thread: Thread | str, until: datetime) -> Thread:
        """No follow-ups in a thread until a time, which is still to come."""
        return await self.set_thread(thread, snoozed_until=until)

    async def why(self, thread: Thread | str, *, limit: int = 50) -> list[Reason]:
        """Why the agent wrote, and why it did not; oldest first."""
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
        """What became of follow-ups, of all users, and which way to follow up does better."""
        wanted = Wanted(
            since=since, until=until, agent_id=agent, trigger_type=trigger, window=window
        )
        return await stats(self._journal, wanted, self._parts.clock.now())


def _id(thread: Thread | str) -> str:
    if isinstance(thread, Thread):
        return thread.id
    if not isinstance(thread, str):
        raise NotFoundError(f"A thread is named by its id, not by {type(thread).__name__}.")
    return thread


def _name(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given:
        raise UsageError(f"{what} is {given!r:.80}; expected text.")
    return given


def _thread_name(given: Any) -> str:
    """A slash is for the threads in which agents talk among themselves."""
    if NESTING in (name := _name(given, "thread_id")):
        raise UsageError(f"thread_id is {name!r:.80}; it must not hold a slash.")
    return name


def _strategy(given: DoubleTexting | None) -> DoubleTexting | None:
    """A text is taken by its value: passed on as it is, it would silently mean another."""
    try:
        return None if given is None else DoubleTexting(given)
    except ValueError:
        valid = ", ".join(DoubleTexting)
        raise UsageError(f"strategy is {given!r:.80}; expected one of: {valid}.") from None
