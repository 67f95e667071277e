"""`Conversations`: the part of `Segue` that creates, lists and reads threads.

`Segue` is `Conversations`, `Initiative` on top of it, and the rest on top of both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from segue.compose import System
from segue.core.autonomy.policy import check_settings
from segue.core.client_metadata import metadata_of, metadata_settings
from segue.core.snowflake import to_text
from segue.core.text import check_name
from segue.errors import BackendError, ConflictError, NotFoundError, UsageError
from segue.journal.journal import Journal
from segue.journal.records import NESTING, TEMPORARY, Found, Page, Thread, ThreadPlace, Turn
from segue.runtime.deps import Deps
from segue.settings.agents import AgentConfig

# More than the stateless runs that a client has at a time.
_NEWEST: Final = 100


def check_lasting(thread: Thread) -> Thread:
    """The thread; `ConflictError` if it is temporary, so that everything in it will be deleted."""
    if TEMPORARY in thread.settings:
        raise ConflictError(
            f"Thread {thread.id!r:.60} is deleted when its run ends, so it takes nothing else; "
            "create a thread for a conversation."
        )
    return thread


class Conversations:
    """Threads of users with agents, over an open system."""

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
        only_new: bool = False,
    ) -> Thread:
        """Start a conversation of a user with an agent; by default, with the first one.

        With the id of a thread of theirs it is that thread; `ConflictError` if it must be new.
        """
        now = self._deps.clock.now()
        created = await self._journal.threads.create(
            _check_thread_id(thread_id) if thread_id else to_text(self._deps.ids.next()),
            agent_id=self.get_agent(agent_id).id,
            user_id=check_name(user_id, "user_id"),
            now=now,
            settings=check_settings(settings or {}, now),
            only_new=only_new,
        )
        return await self._notified(created)

    async def assign_thread(self, thread: Thread | str, agent_id: str) -> Thread:
        """Assign an empty thread to another agent; `ConflictError` if it is not empty."""
        agent = self.get_agent(agent_id).id
        return await self._notified(await self._journal.threads.assign(id_of(thread), agent))

    async def rename_thread(self, thread: Thread | str, title: str) -> Thread:
        return await self._notified(await self._journal.threads.update(id_of(thread), title=title))

    async def set_thread_metadata(
        self, thread: Thread | str, metadata: Mapping[str, Any]
    ) -> Thread:
        """Merge a client's metadata into a thread's; None removes a key."""
        known = metadata_of((await self.get_thread(id_of(thread))).settings)
        settings = metadata_settings(metadata, known)
        updated = await self._journal.threads.update(id_of(thread), settings=settings)
        return await self._notified(updated)

    async def mark_read(self, thread: Thread | str, position: int) -> Thread:
        """The user has read everything up to a message's position; never moves back."""
        return await self._notified(await self._journal.threads.mark_read(id_of(thread), position))

    async def _notified(self, thread: Thread) -> Thread:
        """The thread, after its user's listeners were notified that it changed."""
        await self._deps.bus.notify_stored(thread.id, thread.user_id)
        return thread

    async def get_thread(self, thread_id: str) -> Thread:
        return await self._journal.threads.get(id_of(thread_id))

    async def find_newest_thread(self, user_id: str, agent_id: str | None = None) -> Thread | None:
        """The thread that was updated last, except temporary ones."""
        newest = await self.list_threads(user_id, agent_id, limit=_NEWEST)
        return next((thread for thread in newest if TEMPORARY not in thread.settings), None)

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
            check_text(user_id, "user_id"), agent_id, limit=limit, before=before
        )

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
        return await threads.history(id_of(thread), limit=limit, before=before, after=after)

    async def list_turns(
        self,
        thread: Thread | str,
        page: Page | None = None,
        *,
        limit: int,
        only_waiting: bool = False,
    ) -> list[Turn]:
        """A thread's turns, newest first: those of the messages of a history page, all turns, or
        those that wait for an answer.
        """
        if page is not None:
            return await self._open_system.threads.turns_of(id_of(thread), page, limit=limit)
        turns = self._journal.turns
        return await turns.list_of(id_of(thread), limit=limit, only_waiting=only_waiting)

    async def get_turn(self, turn_id: int) -> Turn:
        """`NotFoundError` if it does not exist."""
        return await self._journal.turns.get(turn_id)

    async def find_sent(self, thread: Thread | str, client_message_id: str) -> Turn | None:
        """The turn of a message, or of a recent answer, that was sent before with this id."""
        return await self._journal.inbox.find_sent(id_of(thread), client_message_id)

    async def search(self, user_id: str, text: str, *, limit: int = 20) -> list[Found]:
        """A user's visible messages that match a text, best first; with an excerpt of each."""
        return await self._journal.search.find(check_text(user_id, "user_id"), text, limit=limit)


def id_of(thread: Thread | str) -> str:
    if isinstance(thread, Thread):
        return thread.id
    if not isinstance(thread, str):
        raise NotFoundError(f"A thread is named by its id, not by {type(thread).__name__}.")
    return thread


def check_text(given: Any, name: str) -> str:
    """The name of something stored; old names may break the rules that `check_name` enforces."""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{name} is {given!r:.80}; expected text.")
    return given


def _check_thread_id(given: Any) -> str:
    """A slash marks the threads in which agents ask each other."""
    if NESTING in (name := check_name(given, "thread_id")):
        raise UsageError(f"thread_id is {name!r:.80}; it must not hold a slash.")
    return name
