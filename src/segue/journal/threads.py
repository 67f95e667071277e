"""Threads: conversations, the list of them, and the state of a graph between their turns.

The state has a value for each channel. It is written with the end of a turn, in `turns.finish`; the
journal does not look into values.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from segue.core.snowflake import millis_of, next_snowflake
from segue.core.text import storable
from segue.errors import ConflictError
from segue.journal.records import (
    NESTING,
    TEMPORARY,
    Deleted,
    LockedThread,
    StateValue,
    Thread,
    ThreadPlace,
)
from segue.journal.rows import aware, merge_settings, readable, to_json
from segue.journal.tables import OF_THREAD
from segue.journal.tx import Part, Row, Statement, Tx, insertion, reads, single_read, writes

_NEWEST_FIRST: Final = " ORDER BY updated_at DESC, id DESC LIMIT :limit"
_LOCK: Final = """
    SELECT threads.*, feeds.last_position AS feed_position, NOTIFY(threads.id, threads.user_id)
    FROM threads JOIN feeds ON feeds.user_id = threads.user_id WHERE threads.id = :id FOR UPDATE"""


class Threads(Part):
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
        only_new: bool = False,
    ) -> Thread:
        """Create a thread. If it exists with the same agent and user, it is returned; with others,
        or if it must be new, `ConflictError`.
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
        if not thread.changed_position:  # new: its user's listeners are notified
            first = next_snowflake(thread.feed_position, millis_of(aware(now)), 0)
            return Thread.of(await tx.change("threads", thread_id, changed_position=first))
        if only_new:
            raise ConflictError(f"Thread {thread_id!r:.60} already exists.")
        return await thread_of(tx, thread_id)

    @single_read
    async def get(self, tx: Tx, thread_id: str) -> Thread:
        return await thread_of(tx, thread_id)

    @single_read
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
        the previous page. Threads in which agents ask each other come only `with_nested`.
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

    @single_read
    async def list_names(self, tx: Tx, user_id: str) -> list[str]:
        """The ids of all threads of a user, nested ones too, in their order."""
        sql = "SELECT id FROM threads WHERE user_id = :user ORDER BY id"
        return [row["id"] for row in await tx.all(sql, user=user_id)]

    @single_read
    async def list_newest(self, tx: Tx, *, limit: int = 50) -> list[Thread]:
        """Threads of all users without nested ones, the one written to last first. Reads every
        thread.
        """
        sql = "SELECT * FROM threads WHERE strpos(id, :nesting) = 0" + _NEWEST_FIRST
        return [*map(Thread.of, await tx.all(sql, nesting=NESTING, limit=limit))]

    @single_read
    async def list_temporary(self, tx: Tx, *, limit: int = 100) -> list[Thread]:
        """Threads whose first setting is `temporary`, by id. Reads every thread."""
        # The first one, because notes of clients inside of others may look like it.
        sql = "SELECT * FROM threads WHERE settings LIKE :mark ORDER BY id LIMIT :limit"
        rows = await tx.all(sql, mark=f'{{"{TEMPORARY}":true%', limit=limit)
        return readable(Thread.of, rows)

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
        """Set the title, or merge settings into the stored ones (null removes one).

        A title set here is no longer taken from the first message. With `reconsider_at`, the
        thread's postponed follow-up can be claimed from then on.
        """
        thread = await lock_thread(tx, thread_id)
        new: dict[str, Any] = {
            "settings": to_json(merge_settings(thread.settings, settings or {})),
            "changed_position": thread.feed_position + 1,
        }
        if title is not None:
            new |= {"title": storable(title), "title_is_set": True}
        row = await tx.change("threads", thread_id, **new)
        if reconsider_at is not None:
            await reconsider(tx, "thread_id = :whose", thread_id, reconsider_at)
        return Thread.of(row)

    @writes
    async def assign(self, tx: Tx, thread_id: str, agent_id: str) -> Thread:
        """Assign an empty thread to another agent; `ConflictError` if it is not empty."""
        thread = await lock_thread(tx, thread_id)
        if thread.agent_id != agent_id:
            begun = "SELECT id FROM timers WHERE thread_id = :id LIMIT 1"
            if thread.last_position or await tx.all(begun, id=thread_id):
                raise ConflictError(f"This thread is with the agent {thread.agent_id!r}.")
            changed = {"agent_id": agent_id, "changed_position": thread.feed_position + 1}
            return Thread.of(await tx.change("threads", thread_id, **changed))
        return await thread_of(tx, thread_id)

    @writes
    async def mark_read(self, tx: Tx, thread_id: str, position: int) -> Thread:
        """The user has read everything up to a position; never back to an earlier one."""
        thread = await lock_thread(tx, thread_id)
        if not thread.unread or position <= thread.read_position:
            return await thread_of(tx, thread_id)
        sql = (
            "UPDATE threads SET changed_position = :changed, "
            "read_position = least(:position, preview_position), unread = ("
            "SELECT count(*) FROM messages WHERE thread_id = :id AND visible = true "
            "AND role <> 'human' AND position > :position) WHERE id = :id RETURNING *"
        )
        changed = thread.feed_position + 1
        return Thread.of(await tx.get(sql, changed=changed, position=position, id=thread_id))

    @writes
    async def note_typing(self, tx: Tx, thread_id: str, *, now: datetime) -> None:
        """The user is typing; nothing else of the thread changes."""
        sql = "UPDATE threads SET typing_at = :now WHERE id = :id RETURNING id"
        await tx.get(sql, f"There is no thread {thread_id!r}.", now=now, id=thread_id)

    async def delete(self, thread_id: str) -> Deleted:
        """Delete a thread with its rows and nested threads. Memories stay: they are the user's."""
        deleted = await self._delete(thread_id)
        await self.db.wipe()
        return deleted

    @writes
    async def _delete(self, tx: Tx, thread_id: str) -> Deleted:
        thread = await lock_thread(tx, thread_id, alone=True)
        sql = (
            "SELECT id FROM threads WHERE user_id = :user "
            "AND substr(id, 1, length(:prefix)) = :prefix ORDER BY id FOR UPDATE"
        )
        nested = await tx.all(sql, user=thread.user_id, prefix=thread_id + NESTING)
        return Deleted(await delete_threads(tx, [thread_id, *(row["id"] for row in nested)]))


async def delete_threads(tx: Tx, threads: list[str]) -> dict[str, int]:
    """Delete threads with all their rows; the number of deleted rows by table."""
    rows = {}
    for table in OF_THREAD:
        sql = f"DELETE FROM {table.name} WHERE thread_id = ANY(:threads)"
        rows[table.name] = await tx.run(sql, threads=threads)
    rows["threads"] = await tx.run("DELETE FROM threads WHERE id = ANY(:ids)", ids=threads)
    return rows


async def thread_of(tx: Tx, thread_id: str) -> Thread:
    sql = "SELECT * FROM threads WHERE id = :id"
    return Thread.of(await tx.get(sql, f"There is no thread {thread_id!r}.", id=thread_id))


async def newest_of_thread(tx: Tx, table: str, thread_id: str, limit: int) -> list[Row]:
    """A thread's rows in a table, newest first."""
    await thread_of(tx, thread_id)
    sql = f"SELECT * FROM {table} WHERE thread_id = :thread ORDER BY id DESC LIMIT :limit"
    return await tx.all(sql, thread=thread_id, limit=limit)


async def lock_thread(tx: Tx, thread_id: str, *, alone: bool = False) -> LockedThread:
    """The thread, kept from all other steps that change its messages, turns or timers.

    Always the first lock of a step: turns and timers are locked after their thread, so two steps
    never wait for each other. The feed of its user is locked with it, so that positions are
    committed in their order over all threads of a user; `alone` without it, for a step that takes
    no position and may lock other threads. Watchers are notified of the thread when the step
    commits; here, because a separate statement would cost every step a round trip.
    """
    sql = _LOCK + (" OF threads" if alone else "")
    missing = f"There is no thread {thread_id!r}. Nothing was written."
    return LockedThread.of(await tx.get(sql, missing, id=thread_id))


async def reconsider(tx: Tx, condition: str, whose: str, at: datetime) -> None:
    """Let postponed follow-ups be claimed from a time on, if not sooner.

    Locks timers of many threads, but waits for none: one that is locked is being decided about.
    """
    sql = (
        "UPDATE timers SET wake_at = least(wake_at, :at) WHERE id IN ("
        "SELECT id FROM timers WHERE kind <> 'continuation' AND state = 'postponed' "
        f"AND {condition} FOR UPDATE SKIP LOCKED)"
    )
    await tx.run(sql, at=at, whose=whose)


_REPLACE = (
    "ON CONFLICT (thread_id, channel) DO UPDATE "
    "SET form = excluded.form, declared = excluded.declared, value = excluded.value"
)
_FORGET = "DELETE FROM states WHERE thread_id = :thread AND channel = ANY(:channels)"


class States(Part):
    @reads
    async def load(self, tx: Tx, thread_id: str) -> dict[str, StateValue]:
        """The values by channel, as the last turn that ended well left them."""
        await thread_of(tx, thread_id)
        sql = "SELECT * FROM states WHERE thread_id = :thread ORDER BY channel"
        rows = await tx.all(sql, thread=thread_id)
        return {row["channel"]: StateValue.of(row) for row in rows}


def state_changes(thread_id: str, changes: Mapping[str, StateValue | None]) -> Iterator[Statement]:
    """Replace the values of channels; None removes one."""
    for channel, new in changes.items():
        if new is not None:
            values = {"form": new.form, "declared": new.declared, "value": new.value}
            yield insertion("states", _REPLACE, thread_id=thread_id, channel=channel, **values)
    if gone := [channel for channel, new in changes.items() if new is None]:
        yield Statement(_FORGET, {"thread": thread_id, "channels": gone})
