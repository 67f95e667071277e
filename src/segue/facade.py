"""`Segue`: the running system, as a program uses it."""

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata

from segue.agent.memory import MemoryBook
from segue.compose import Overrides, compose
from segue.conversations import check_lasting, check_text, id_of
from segue.core.messages import spoken_text, visible_messages
from segue.core.metadata import MessageMetadata
from segue.core.text import check_name
from segue.core.turn_rules import DoubleTexting
from segue.errors import AnswerNeeded, BackendError, NotFoundError, ReplyCancelled, UsageError
from segue.events import Event, cursor_at
from segue.initiative import Initiative
from segue.insight.stats import Stats, build_query, stats
from segue.insight.views import Inspector
from segue.insight.why import Reason, why
from segue.journal.effects import Effect
from segue.journal.memories import FoundMemory, Memory
from segue.journal.records import Accepted, ApiKey, Deleted, Thread, Turn, TurnKind, TurnState
from segue.journal.stats import WINDOW
from segue.journal.tables import STATES, SUMMARIES, TURNS, Row, Table
from segue.runtime.run import visible_replies
from segue.runtime.thread_service import check_limit
from segue.settings import Settings
from segue.transfer.export import Scope, export_all, export_user
from segue.transfer.imports import ImportOptions, ImportResult, import_file
from segue.transfer.lines import ExportWriter

if TYPE_CHECKING:
    from segue.runtime.notifier import Notifier


class Segue(Initiative):
    """Conversations with agents that speak first. Made by `open`."""

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

    async def delete_thread(self, thread: Thread | str) -> Deleted:
        """Cancel a thread's turns and delete all its rows. Memories belong to the user and stay."""
        stored = await self.get_thread(id_of(thread))
        await self.cancel(stored)
        return await self._open_system.runtime.discarder.delete(stored)

    async def delete_user(self, user_id: str) -> Deleted:
        """Cancel a user's turns and delete their threads, memories and preferences; revoke their
        keys.
        """
        threads = await self._journal.threads.list_names(check_text(user_id, "user_id"))
        for thread in threads:
            with suppress(NotFoundError):  # deleted in the meantime
                await self.cancel(thread)
        deleted = await self._journal.removal.delete_user(user_id)
        for thread in threads:
            # Tells listeners that the thread is gone.
            await self._deps.bus.notify_stored(thread, user_id)
        await self._open_system.runtime.sweeper.step()
        return deleted

    def export(self, user_id: str, *threads: str) -> AsyncGenerator[bytes]:
        """A user's own data, line by line: the named threads, or all threads with memories and
        preferences. docs/export.md describes the format.
        """
        scope = Scope(threads=threads, user_id=check_text(user_id, "user_id"))
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

        `trusted` also accepts content that no user could send: system messages, URLs and file ids.
        """
        ids = self._deps.ids if remap else None
        options = ImportOptions(ids, skip_existing=skip_existing, dry_run=dry_run, trusted=trusted)
        now = self._deps.clock.now()
        imported = await import_file(self._journal, file, options, now=now)
        self._deps.wakeups.all_at(now)
        return imported

    async def copy_thread(self, thread: Thread | str) -> Thread:
        """A new thread with the messages, the summary and the graph's state of this one.

        Pending reminders and follow-ups stay with the original: none is sent or counted twice.
        """
        original, now = check_lasting(await self.get_thread(id_of(thread))), self._deps.clock.now()
        scope = Scope(threads=[original.id], user_id=original.user_id)
        with tempfile.TemporaryFile() as file:
            async for line in export_all(
                self._journal, scope, ExportWriter(), created_at=now, holds=_is_copied
            ):
                file.write(line)
            copied = await self.import_file(file, remap=True, trusted=True)
        made = await self._journal.threads.update(copied.renamed[original.id])
        return await self._notified(made)  # tells the user's listeners

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
            id_of(thread),
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
        text = "\n".join(map(spoken_text, visible_replies(ended, batch)))
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

    async def token_usage(self, turn: Turn) -> UsageMetadata:
        """The tokens of a turn's model calls, as far as the provider reported them."""
        batch = await self._journal.messages.load_batch(turn.thread_id, turn.batch)
        used = [
            message.usage_metadata
            for message in batch.messages
            if isinstance(message, AIMessage)
            and message.usage_metadata is not None
            # Earlier positions belong to earlier turns of the batch.
            and (MessageMetadata.of(message).position or 0) >= turn.id
        ]
        tokens_in = sum(each["input_tokens"] for each in used)
        tokens_out = sum(each["output_tokens"] for each in used)
        return UsageMetadata(
            input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out
        )

    def listen(self, thread: Thread | str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events of a thread, from a cursor on; by default, from now on."""
        if since is not None:
            check_text(since, "since")
        return self._deps.bus.listen(id_of(thread), since)

    def listen_user(self, user_id: str, since: str | None = None) -> AsyncGenerator[Event]:
        """The events of all threads of a user, with changes of the threads themselves."""
        if since is not None:
            check_text(since, "since")
        return self._deps.bus.listen_user(check_text(user_id, "user_id"), since)

    async def user_cursor(self, user_id: str) -> str:
        """The cursor after everything that is stored for a user now."""
        last = await self._journal.feed.last_position(check_text(user_id, "user_id"))
        return cursor_at(last)

    async def cancel(self, thread: Thread | str, *, only: Turn | None = None) -> list[Turn]:
        """Cancel the thread's turns and continuations, or `only` one turn; return the turns that
        are being stopped.

        The part of a reply that the user has seen is kept.
        """
        turn_id = None if only is None else only.id
        return await self._open_system.inbox.cancel(id_of(thread), only=turn_id)

    async def answer(
        self, turn: Turn | int, answer: Any, *, client_message_id: str | None = None
    ) -> Turn:
        """Answer a turn's question."""
        if not isinstance(turn, Turn | int):
            raise NotFoundError(f"A turn is named by its id, not by {type(turn).__name__}.")
        turn_id = turn if isinstance(turn, int) else turn.id
        if client_message_id is not None:
            check_name(client_message_id, "client_message_id")
        return await self._open_system.inbox.answer(
            turn_id, answer, client_message_id=client_message_id
        )

    async def list_memories(
        self,
        user_id: str,
        agent_id: str | None = None,
        *,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Memory]:
        """An agent's memories of a user, newest first; `before` is the id of a memory."""
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

    async def find_memory(
        self, user_id: str, key: str, agent_id: str | None = None
    ) -> Memory | None:
        """A memory by its key."""
        return await self._journal.memories.find(self.get_agent(agent_id).id, user_id, key)

    async def forget(self, user_id: str, key: str, agent_id: str | None = None) -> bool:
        """Delete a memory; False if no memory has this key."""
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
        """The operators' view of all users."""
        deps = self._deps
        return Inspector(deps.journal, self._system.settings.agents, deps.clock, deps.zone)

    @property
    def notifier(self) -> "Notifier":
        """Notifications that browsers show while the page is closed."""
        if (notifier := self._open_system.notifier) is None:
            raise UsageError("Notifications need cryptography; pip install 'segue[server]'.")
        return notifier

    async def settle_batch(self, thread: Thread | str, batch: int) -> None:
        """Close an open batch; its question or continuation is dropped.

        `ConflictError` if it is complete, or a turn is working on it.
        """
        found, deps = await self.get_thread(id_of(thread)), self._deps
        await self._journal.turns.settle(found.id, batch, ids=deps.ids, now=deps.clock.now())
        await self._notified(found)
        await self._open_system.runtime.sweeper.drop({batch})

    async def retry_effect(self, effect_id: int) -> Effect:
        """Retry a dead effect at once."""
        effect = await self._journal.effects.revive(effect_id, now=self._deps.clock.now())
        self._deps.wakeups.effects.now()
        return effect

    async def check_writable(self) -> None:
        """Raises if the database takes no writes: a full disk can still be read."""
        await self._open_system.runtime.ids.renew()

    async def why(self, thread: Thread | str, *, limit: int = 50) -> list[Reason]:
        """Why the agent wrote or did not write, oldest first."""
        return await why(self._journal, id_of(thread), limit=check_limit(limit))

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


def _is_copied(table: Table, row: Row) -> bool:
    """Turns that replied are copied: they record which reply answered a message."""
    if table is not TURNS:
        return table in (SUMMARIES, STATES)
    is_over = row["finished_at"] is not None and not row["is_waiting"]
    return is_over and row["kind"] in (TurnKind.REPLY, TurnKind.CONTINUATION)


def _parse_strategy(given: DoubleTexting | None) -> DoubleTexting | None:
    try:
        return None if given is None else DoubleTexting(given)
    except ValueError:
        valid = ", ".join(DoubleTexting)
        raise UsageError(f"strategy is {given!r:.80}; expected one of: {valid}.") from None
