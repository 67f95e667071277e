"""Deletion of batches by retention, and of users."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch
from segue.core.text import one_line
from segue.journal.records import NESTING, Deleted, Thread
from segue.journal.rows import PREVIEW_LENGTH, TITLE_LENGTH, read_time, to_json
from segue.journal.tables import OF_THREAD
from segue.journal.threads import delete_threads, lock_thread
from segue.journal.tx import Part, Row, Tx, reads, writes

# A turn's webhook repeats what the agent said; `webhook_effects` gives it this key.
_WEBHOOKS: Final = "turns AS t JOIN effects ON effects.dedupe_key = 'webhook:' || t.id"
# Batches that a worker processes or will continue, and those that wait for a person.
_UNFINISHED: Final = """
    EXISTS (SELECT 1 FROM turns AS t WHERE t.thread_id = :thread {turn}
        AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting))
    OR EXISTS (SELECT 1 FROM timers AS t WHERE t.thread_id = :thread {timer}
        AND t.state IN ('pending', 'postponed', 'claimed'))
"""
_OF_BATCH: Final = f"""
    {_UNFINISHED.format(turn="AND t.batch = m.batch", timer="AND t.batch = m.batch")}
    OR EXISTS (SELECT 1 FROM {_WEBHOOKS} WHERE t.thread_id = :thread AND t.batch = m.batch
        AND effects.wake_at IS NOT NULL)
"""
_BUSY: Final = f"SELECT {_UNFINISHED.format(turn='', timer='AND t.batch IS NOT NULL')} AS is_busy"
# The type of a batch is that of its first message: a continuation does not relabel it.
_BATCHES: Final = f"""
    SELECT m.*, {_OF_BATCH} AS is_unfinished, (
        SELECT batch_type FROM messages AS f WHERE f.thread_id = :thread AND f.batch = m.batch
        ORDER BY sequence_num LIMIT 1) AS batch_type
    FROM (
        SELECT batch, count(*) AS messages, max(created_at) AS last_at
        FROM messages WHERE thread_id = :thread GROUP BY batch
    ) AS m ORDER BY batch
"""
_NESTED: Final = """
    SELECT DISTINCT m.thread_id, m.batch, m.parent_batch
    FROM threads JOIN messages AS m ON m.thread_id = threads.id
    WHERE threads.user_id = :user AND substr(threads.id, 1, length(:prefix)) = :prefix
    AND m.parent_batch IS NOT NULL
"""
_OF_USER: Final = ("memories", "users", "push_subscriptions")
_SEEN: Final = "FROM messages WHERE thread_id = :thread AND visible = true"


@dataclass(frozen=True, slots=True)
class ThreadBatches:
    thread_id: str
    user_id: str
    agent_id: str
    batches: Sequence[KeptBatch]


@dataclass(frozen=True, slots=True)
class Removed:
    """The removed batches of a thread, and all removed messages, nested ones too."""

    batches: int = 0
    messages: int = 0


class Removal(Part):
    @reads
    async def list_stored(
        self, tx: Tx, *, after: str = "", limit: int = 100, nested: bool = False
    ) -> list[ThreadBatches]:
        """The batches of the next threads by name, or of the next `nested` threads.

        A nested thread belongs to the batch that asked; its batches count as unfinished while
        anything in its conversation is.
        """
        sql = (
            'SELECT id, user_id, agent_id FROM threads WHERE id COLLATE "C" > :after '
            'AND (strpos(id, :nesting) > 0) = :nested ORDER BY id COLLATE "C" LIMIT :limit'
        )
        rows = await tx.all(sql, after=after, nesting=NESTING, nested=nested, limit=limit)
        return [
            ThreadBatches(
                row["id"], row["user_id"], row["agent_id"], await _batches_of(tx, row["id"])
            )
            for row in rows
        ]

    @writes
    async def remove_batches(self, tx: Tx, thread_id: str, batches: Collection[int]) -> Removed:
        """Remove whole batches, archived or not, with the nested batches that they asked for.

        The thread's newest batch and unfinished ones stay. Title, preview and count follow what is
        left. Turns, timers, effects, decisions, summaries and memories stay; a question to a person
        and the answer go from a turn, and so do the texts of a webhook, the words of a decision
        about a removed batch, and what was to be said by ended timers that began a removed batch,
        or none and are older than what is left. Call `wipe` after the last call.
        """
        thread = await lock_thread(tx, thread_id, alone=True)
        # Checked again: the thread may have new messages since the batches were chosen.
        stored = await _batches_of(tx, thread_id)
        removable = {batch.id for batch in stored[:-1] if not batch.is_unfinished}
        if not (chosen := sorted(removable & set(batches))):
            return Removed()
        gone = {thread_id: chosen, **await _nested_in(tx, thread, chosen)}
        messages = 0
        for name, removed in sorted(gone.items()):
            await lock_thread(tx, name, alone=True)
            messages += await _remove(tx, name, removed)
            await _follow_in_thread(tx, name)
        return Removed(len(chosen), messages)

    async def wipe(self) -> None:
        """Remove deleted data from the database's files, as far as it can. The cost grows with all
        that is stored, so `remove_batches` leaves it to the caller; other deletions do it.
        """
        await self.db.wipe()

    @reads
    async def count_user(self, tx: Tx, user_id: str) -> Deleted:
        """What `delete_user` would delete now."""
        of_thread = "thread_id IN (SELECT id FROM threads WHERE user_id = :user)"
        conditions = {table.name: of_thread for table in OF_THREAD}
        conditions |= dict.fromkeys(("threads", *_OF_USER, "api_keys"), "user_id = :user")
        rows = {}
        for table, condition in conditions.items():
            sql = f"SELECT count(*) AS count FROM {table} WHERE {condition}"
            rows[table] = int((await tx.get(sql, user=user_id))["count"])
        return Deleted(rows)

    async def delete_user(self, user_id: str) -> Deleted:
        """Delete a user's threads, memories, preferences and push subscriptions; the user's API
        keys are emptied.
        """
        deleted = await self._delete_user(user_id)
        await self.db.wipe()
        return deleted

    @writes
    async def _delete_user(self, tx: Tx, user_id: str) -> Deleted:
        sql = (
            "SELECT id, NOTIFY(id, user_id) FROM threads WHERE user_id = :user "
            "ORDER BY id FOR UPDATE"
        )
        locked = await tx.all(sql, user=user_id)
        rows = await delete_threads(tx, [row["id"] for row in locked])
        for table in _OF_USER:
            sql = f"DELETE FROM {table} WHERE user_id = :user"
            rows[table] = await tx.run(sql, user=user_id)
        # A thread that was begun meanwhile keeps its feed, which its step has locked until it is
        # committed: a statement that waits for the lock would not see the thread.
        await tx.all("SELECT 1 AS yes FROM feeds WHERE user_id = :user FOR UPDATE", user=user_id)
        sql = (
            "DELETE FROM feeds WHERE user_id = :user "
            "AND NOT EXISTS (SELECT 1 FROM threads WHERE user_id = :user)"
        )
        await tx.run(sql, user=user_id)
        await tx.forget_user(user_id)
        # Not deleted: a server without any key lets every caller in.
        sql = (
            "UPDATE api_keys SET name = 'a deleted user', user_id = '', is_operator = false, "
            "digest = :nothing WHERE user_id = :user"
        )
        rows["api_keys"] = await tx.run(sql, nothing=b"", user=user_id)
        return Deleted(rows)


async def _batches_of(tx: Tx, thread_id: str) -> list[KeptBatch]:
    batches = [*map(_to_kept, await tx.all(_BATCHES, thread=thread_id))]
    root, is_nested, _ = thread_id.partition(NESTING)
    if is_nested and (await tx.get(_BUSY, thread=root))["is_busy"]:
        # The turn that asked may still look for the answer.
        return [replace(batch, is_unfinished=True) for batch in batches]
    return batches


def _to_kept(row: Row) -> KeptBatch:
    return KeptBatch(
        id=row["batch"],
        type=BatchType(row["batch_type"]),
        messages=row["messages"],
        last_at=read_time(row["last_at"]),
        is_unfinished=bool(row["is_unfinished"]),
    )


async def _remove(tx: Tx, thread_id: str, batches: Sequence[int]) -> int:
    """Returns the number of messages."""
    place = {"thread": thread_id, "batches": batches}
    # A person's answer to the agent's question is stored with the turn that it resumed.
    of_batches = "WHERE thread_id = :thread AND batch = ANY(:batches)"
    sql = f"SELECT id, payload FROM turns {of_batches} AND payload LIKE '%answer%'"
    for row in await tx.all(sql, **place):
        payload = {k: v for k, v in _json_of(row["payload"]).items() if k != "answer"}
        await tx.change("turns", row["id"], payload=to_json(payload))
    sql = f"""UPDATE turns SET ending = NULL {of_batches} AND ending LIKE '%"questions"%'"""
    await tx.run(sql, **place)
    sql = f"""
        SELECT effects.id, effects.payload FROM {_WEBHOOKS}
        WHERE t.thread_id = :thread AND t.batch = ANY(:batches)
    """
    for row in await tx.all(sql, **place):
        payload = _json_of(row["payload"]) | {"messages": []}
        await tx.change("effects", row["id"], payload=to_json(payload))
    of_turns = f"turn_id IN (SELECT id FROM turns {of_batches})"
    sql = (
        "SELECT id, facts FROM decisions "
        f"""WHERE thread_id = :thread AND {of_turns} AND facts LIKE '%"words"%'"""
    )
    for row in await tx.all(sql, **place):
        facts = {k: v for k, v in _json_of(row["facts"]).items() if k != "words"}
        await tx.change("decisions", row["id"], facts=to_json(facts))
    removed = await tx.run(f"DELETE FROM messages {of_batches}", **place)
    # The key stays, so that a request is still made once. The reason of a continuation is the
    # agent's own.
    sql = f"""
        UPDATE timers SET payload = '{{}}',
            reason = CASE WHEN kind = 'continuation' THEN NULL ELSE reason END
        WHERE thread_id = :thread AND wake_at IS NULL AND ({of_turns} OR batch = ANY(:batches)
            OR turn_id IS NULL AND id < (SELECT min(batch) FROM messages WHERE thread_id = :thread))
    """
    await tx.run(sql, **place)
    return removed


def _json_of(text: str) -> dict[str, Any]:
    """Empty if it cannot be read: what it holds has to leave as well."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _nested_in(tx: Tx, thread: Thread, batches: Collection[int]) -> dict[str, list[int]]:
    """The nested batches, by thread, that were asked for in some batches, at any depth."""
    rows = await tx.all(_NESTED, user=thread.user_id, prefix=thread.id + NESTING)
    children: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        children.setdefault(row["parent_batch"], []).append((row["thread_id"], row["batch"]))
    found: dict[str, list[int]] = {}
    parents = list(batches)
    while parents:
        for name, batch in children.pop(parents.pop(), ()):
            found.setdefault(name, []).append(batch)
            parents.append(batch)
    return found


async def _follow_in_thread(tx: Tx, thread_id: str) -> None:
    """Title, preview and count of the thread list, from what is left."""
    count = await tx.get(f"SELECT count(*) AS count {_SEEN}", thread=thread_id)
    sql = f"SELECT position, role, text {_SEEN} ORDER BY position DESC LIMIT 1"
    last = await tx.find(sql, thread=thread_id)
    sql = (
        f"SELECT count(*) AS count {_SEEN} AND role <> 'human' "
        "AND position > (SELECT read_position FROM threads WHERE id = :thread)"
    )
    unread = await tx.get(sql, thread=thread_id)
    sql = f"SELECT text {_SEEN} AND role = 'human' AND trim(text) <> '' ORDER BY position LIMIT 1"
    first = await tx.find(sql, thread=thread_id)
    await tx.run(
        "UPDATE threads SET message_count = :count, preview = :preview, preview_role = :role, "
        "preview_position = :position, unread = :unread, "
        "title = CASE WHEN title_is_set THEN title ELSE :title END WHERE id = :id",
        count=count["count"],
        unread=unread["count"],
        preview=one_line(last["text"], PREVIEW_LENGTH) if last else None,
        role=last["role"] if last else None,
        position=last["position"] if last else 0,
        title=one_line(first["text"], TITLE_LENGTH) if first else None,
        id=thread_id,
    )
