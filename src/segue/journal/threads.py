"""Threads: conversations and the list of them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from segue.core.text import storable
from segue.errors import ConflictError, NotFoundError
from segue.journal.records import NESTING, Deleted, Thread, ThreadPlace
from segue.journal.rows import merge_settings, to_json
from segue.journal.tx import Part, Row, Tx, find, get, insertion, looks, writes

OWNED: Final = ("messages", "turns", "timers", "effects", "decisions", "summaries")
_NEWEST_FIRST: Final = " ORDER BY updated_at DESC, id DESC LIMIT :limit"


class Threads(Part):
    """Conversations and the list of them."""

    @writes
    async def create(
        self,
        tx: Tx,
        thread_id: str,
        *,
        agent_id: str,
        user_id: str,
        now: datetime,
        settings: Mapping[str, Any] | None = None,
    ) -> Thread:
        """Begin a conversation. Again with the same agent and user: the thread as it is;
        with others: `ConflictError`.
        """
        new = insertion(
            "threads",
            "ON CONFLICT (id) DO NOTHING",
            id=thread_id,
            agent_id=agent_id,
            user_id=user_id,
            settings=to_json(dict(settings or {})),
            served_at=now,
            created_at=now,
            updated_at=now,
        )
        await tx.together(new)
        # Locked, so that a deletion comes before or after, not in between.
        thread = await lock_thread(tx, thread_id)
        if (thread.agent_id, thread.user_id) != (agent_id, user_id):
            raise ConflictError(f"Thread {thread_id!r} belongs to another agent or user.")
        return thread

    @looks
    async def get(self, tx: Tx, thread_id: str) -> Thread:
        return await thread_of(tx, thread_id)

    @looks
    async def list_of(
        self,
        tx: Tx,
        user_id: str,
        *,
        agent_id: str | None = None,
        limit: int = 50,
        before: ThreadPlace | None = None,
        with_nested: bool = False,
    ) -> list[Thread]:
        """A user's threads, the one written to last first; `before` is the place of the last one of
        the page before. Those in which agents ask each other are no conversations of the user's,
        and come only with `with_nested`. Cost follows the limit, not the number of messages.
        """
        sql = "SELECT * FROM threads WHERE user_id = :user"
        values: dict[str, Any] = {"user": user_id, "limit": limit}
        if agent_id is not None:
            sql += " AND agent_id = :agent"
            values["agent"] = agent_id
        if before is not None:
            sql += " AND (updated_at, id) < (:updated_at, :id)"
            values |= {"updated_at": before.updated_at, "id": before.id}
        if not with_nested:
            sql += " AND strpos(id, :nesting) = 0"
            values["nesting"] = NESTING
        return [*map(Thread.of, await tx.all(sql + _NEWEST_FIRST, **values))]

    @looks
    async def list_newest(self, tx: Tx, *, limit: int = 50) -> list[Thread]:
        """Threads of all users, the one written to last first, for who may see everybody's.

        Those in which agents ask each other are not among them. Every thread is looked at, and no
        more than the limit kept.
        """
        sql = "SELECT * FROM threads WHERE strpos(id, :nesting) = 0" + _NEWEST_FIRST
        return [*map(Thread.of, await tx.all(sql, nesting=NESTING, limit=limit))]

    @writes
    async def update(
        self,
        tx: Tx,
        thread_id: str,
        *,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        reconsider_at: datetime | None = None,
    ) -> Thread:
        """Set what is given: the title, or settings merged into those that are there (null
        removes one). A title set here is no longer taken from the first message. With
        `reconsider_at`, the thread's follow-up that was put off can be claimed from then on.
        """
        thread = await lock_thread(tx, thread_id)
        row = await get(
            tx,
            "UPDATE threads SET title = coalesce(:title, title), settings = :settings, "
            "title_is_set = CASE WHEN :is_titled THEN true ELSE title_is_set END "
            "WHERE id = :id RETURNING *",
            title=None if title is None else storable(title),
            is_titled=title is not None,
            settings=to_json(merge_settings(thread.settings, settings or {})),
            id=thread_id,
        )
        if reconsider_at is not None:
            await reconsider(tx, "thread_id = :whose", thread_id, reconsider_at)
        return Thread.of(row)

    @writes
    async def note_typing(self, tx: Tx, thread_id: str, *, now: datetime) -> None:
        """The user is typing; nothing else of the thread changes."""
        sql = "UPDATE threads SET typing_at = :now WHERE id = :id"
        if not await tx.run(sql, now=now, id=thread_id):
            raise NotFoundError(f"There is no thread {thread_id!r}.")

    async def delete(self, thread_id: str) -> Deleted:
        """Delete a thread and all that belongs to it, nested threads too, and say what. Memories
        belong to the user.
        """
        deleted = await self._delete(thread_id)
        await self.db.wipe()
        return deleted

    @writes
    async def _delete(self, tx: Tx, thread_id: str) -> Deleted:
        thread = await lock_thread(tx, thread_id)
        nested = await tx.all(
            "SELECT id FROM threads WHERE user_id = :user "
            "AND substr(id, 1, length(:prefix)) = :prefix ORDER BY id FOR UPDATE",
            user=thread.user_id,
            prefix=thread_id + NESTING,
        )
        doomed = [thread_id, *(row["id"] for row in nested)]
        rows = {}
        for table in OWNED:
            sql = f"DELETE FROM {table} WHERE thread_id = ANY(:doomed)"
            rows[table] = await tx.run(sql, doomed=doomed)
        rows["threads"] = await tx.run("DELETE FROM threads WHERE id = ANY(:ids)", ids=doomed)
        return Deleted(rows)


async def thread_of(tx: Tx, thread_id: str) -> Thread:
    row = await find(tx, "SELECT * FROM threads WHERE id = :id", id=thread_id)
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return Thread.of(row)


async def newest_of_thread(tx: Tx, table: str, thread_id: str, limit: int) -> list[Row]:
    """A thread's rows in a table, newest first."""
    await thread_of(tx, thread_id)
    sql = f"SELECT * FROM {table} WHERE thread_id = :thread ORDER BY id DESC LIMIT :limit"
    return await tx.all(sql, thread=thread_id, limit=limit)


async def lock_thread(tx: Tx, thread_id: str) -> Thread:
    """The thread, kept from all other steps that change its messages, turns or timers.

    Always the first lock of a step: turns and timers are locked after their thread, so two steps
    never wait for each other. Watchers are notified of the thread when the step commits; here,
    because a statement of its own would cost every step a round trip.
    """
    sql = "SELECT *, NOTIFY(id) FROM threads WHERE id = :id FOR UPDATE"
    row = await find(tx, sql, id=thread_id)
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}. Nothing was written.")
    return Thread.of(row)


async def reconsider(tx: Tx, condition: str, whose: str, at: datetime) -> None:
    """Let postponed follow-ups be claimed from a time on, if not sooner.

    Locks timers of many threads, but waits for none: one that is locked is being decided about.
    """
    await tx.run(
        "UPDATE timers SET wake_at = least(wake_at, :at) WHERE id IN ("
        "SELECT id FROM timers WHERE kind = 'follow_up' AND state = 'postponed' "
        f"AND {condition} FOR UPDATE SKIP LOCKED)",
        at=at,
        whose=whose,
    )
