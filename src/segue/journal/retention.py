"""What retention reads and removes, for both databases."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from segue.core.metadata import BatchType
from segue.core.retention import KeptBatch
from segue.journal.records import NESTING, Deleted
from segue.journal.rows import preview_of, read_time, readable, title_of, to_json
from segue.journal.threads import OWNED, lock_thread
from segue.journal.tx import Part, Row, Tx, find, get, reads, writes

# A worker has a batch, will go on with it, or it waits for a person.
_UNFINISHED: Final = """
    EXISTS (SELECT 1 FROM turns AS t WHERE t.thread_id = :thread {turn}
        AND (t.state IN ('queued', 'running') OR t.left_open OR t.is_waiting))
    OR EXISTS (SELECT 1 FROM timers AS t WHERE t.thread_id = :thread {timer}
        AND t.state IN ('pending', 'postponed', 'claimed'))
"""
_OF_BATCH: Final = _UNFINISHED.format(turn="AND t.batch = m.batch", timer="AND t.batch = m.batch")
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
_SEEN: Final = "FROM messages WHERE thread_id = :thread AND visible = true"


@dataclass(frozen=True, slots=True)
class ThreadBatches:
    """All batches of a thread."""

    thread_id: str
    user_id: str
    agent_id: str
    batches: Sequence[KeptBatch]


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed of a thread; of batches that agents asked each other in, the messages."""

    batches: int = 0
    messages: int = 0


def asked_from(thread_id: str) -> str | None:
    """The conversation that a thread belongs to in which agents ask each other."""
    root, is_nested, _ = thread_id.partition(NESTING)
    return root if is_nested else None


def held(batches: Iterable[KeptBatch]) -> list[KeptBatch]:
    """Batches that somebody may still need: who goes on with a batch looks for what it asked."""
    return [replace(batch, is_unfinished=True) for batch in batches]


def removable(stored: Sequence[KeptBatch], wanted: Collection[int]) -> list[int]:
    """Of the batches that somebody wants gone, those that may go. Asked again by the step that
    removes them: since they were chosen, the thread may have gone on.
    """
    may_go = {batch.id for batch in stored[:-1] if not batch.is_unfinished}
    return sorted(may_go & set(wanted))


def nested_in(
    batches: Collection[int], nested: Iterable[tuple[str, int, int]]
) -> list[tuple[str, int]]:
    """Of nested batches, each a thread, its batch and that one's parent, those that were asked for
    in some batches, however deep.
    """
    children: dict[int, set[tuple[str, int]]] = {}
    for thread_id, batch, parent in nested:
        children.setdefault(parent, set()).add((thread_id, batch))
    found: list[tuple[str, int]] = []
    parents = list(batches)
    while parents:
        inner = sorted(children.pop(parents.pop(), ()))
        found += inner
        parents += [batch for _, batch in inner]
    return found


class Removal(Part):
    """The only steps that take something out of the journal and leave the thread."""

    @reads
    async def list_stored(
        self, tx: Tx, *, after: str = "", limit: int = 100, nested: bool = False
    ) -> list[ThreadBatches]:
        """The batches of the next threads behind a name, in order of their names.

        Those in which agents ask each other are left out: what is in them belongs to the batch
        that asked. With `nested`, these are listed instead; while anything in the conversation that
        they belong to is unfinished, so are all of their batches.
        """
        rows = await tx.all(
            'SELECT id, user_id, agent_id FROM threads WHERE id COLLATE "C" > :after '
            'AND (strpos(id, :nesting) > 0) = :nested ORDER BY id COLLATE "C" LIMIT :limit',
            after=after,
            nesting=NESTING,
            nested=nested,
            limit=limit,
        )
        return [
            ThreadBatches(
                row["id"], row["user_id"], row["agent_id"], await _batches_of(tx, row["id"])
            )
            for row in rows
        ]

    @writes
    async def remove_batches(self, tx: Tx, thread_id: str, batches: Collection[int]) -> Removed:
        """Remove whole batches, archived or not, with what agents asked each other in them.

        The thread's newest batch and any that somebody works on, will go on with or waits for are
        left alone, and so is one that is not there. Title, preview and count follow what is left.
        Turns, decisions, summaries and memories stay; of a turn, what a person answered goes.
        Call `wipe` after the last call.
        """
        thread = await lock_thread(tx, thread_id)
        chosen = removable(await _batches_of(tx, thread_id), batches)
        gone = [(thread_id, batch) for batch in chosen]
        gone += nested_in(chosen, await _nested(tx, thread.user_id, thread_id))
        messages = sum([await _remove(tx, name, batch) for name, batch in gone])
        for changed in sorted({name for name, _ in gone}):
            await _follow_in_thread(tx, changed)
        return Removed(len(chosen), messages)

    async def wipe(self) -> None:
        """Leave nothing of removed batches in files of the store, as far as its database can.

        It takes longer the more is stored, so it is a step of its own; `threads.delete`,
        `delete_user` and `memories.delete` need none after them.
        """
        await self.db.wipe()

    async def delete_user(self, user_id: str) -> Deleted:
        """Delete all that is stored of a user, and say what: threads, nested ones too, memories,
        and wishes. Keys that speak for the user open nothing any more, and name nobody.
        """
        deleted = await self._delete_user(user_id)
        await self.db.wipe()
        return deleted

    @writes
    async def _delete_user(self, tx: Tx, user_id: str) -> Deleted:
        locked = await tx.all(
            "SELECT id, NOTIFY(id) FROM threads WHERE user_id = :user ORDER BY id FOR UPDATE",
            user=user_id,
        )
        threads = [row["id"] for row in locked]
        rows: dict[str, int] = {}
        for table in OWNED:
            sql = f"DELETE FROM {table} WHERE thread_id = ANY(:threads)"
            rows[table] = await tx.run(sql, threads=threads)
        for table in ("threads", "memories", "users"):
            sql = f"DELETE FROM {table} WHERE user_id = :user"
            rows[table] = await tx.run(sql, user=user_id)
        await tx.forget_user(user_id)
        # Not deleted: a server without any key lets every caller in.
        rows["api_keys"] = await tx.run(
            "UPDATE api_keys SET name = 'a deleted user', user_id = '', is_operator = false, "
            "digest = :nothing WHERE user_id = :user",
            nothing=b"",
            user=user_id,
        )
        return Deleted(rows)


async def _batches_of(tx: Tx, thread_id: str) -> list[KeptBatch]:
    batches = readable(_to_kept, await tx.all(_BATCHES, thread=thread_id))
    root = asked_from(thread_id)
    if root is not None and (await get(tx, _BUSY, thread=root))["is_busy"]:
        return held(batches)
    return batches


def _to_kept(row: Row) -> KeptBatch:
    return KeptBatch(
        id=row["batch"],
        type=BatchType(row["batch_type"]),
        messages=row["messages"],
        last_at=read_time(row["last_at"]),
        is_unfinished=bool(row["is_unfinished"]),
    )


async def _remove(tx: Tx, thread_id: str, batch: int) -> int:
    place = {"thread": thread_id, "batch": batch}
    # A person's answer to the agent's question is kept with the turn that it let go on.
    of_batch = "FROM turns WHERE thread_id = :thread AND batch = :batch"
    for row in await tx.all(f"SELECT id, payload {of_batch} AND payload LIKE '%answer%'", **place):
        payload = {k: v for k, v in json.loads(row["payload"]).items() if k != "answer"}
        sql = "UPDATE turns SET payload = :payload WHERE id = :id"
        await tx.run(sql, payload=to_json(payload), id=row["id"])
    return await tx.run(
        "DELETE FROM messages WHERE thread_id = :thread AND batch = :batch", **place
    )


async def _nested(tx: Tx, user_id: str, thread_id: str) -> list[tuple[str, int, int]]:
    """What agents asked each other for a thread: where, in which batch, and for which."""
    rows = await tx.all(
        "SELECT DISTINCT m.thread_id, m.batch, m.parent_batch "
        "FROM threads JOIN messages AS m ON m.thread_id = threads.id "
        "WHERE threads.user_id = :user AND substr(threads.id, 1, length(:prefix)) = :prefix "
        "AND m.parent_batch IS NOT NULL",
        user=user_id,
        prefix=thread_id + NESTING,
    )
    return [(row["thread_id"], row["batch"], row["parent_batch"]) for row in rows]


async def _follow_in_thread(tx: Tx, thread_id: str) -> None:
    """Title, preview and count of the thread list, from what is left."""
    count = await get(tx, f"SELECT count(*) AS count {_SEEN}", thread=thread_id)
    last = await find(
        tx,
        f"SELECT position, role, text {_SEEN} ORDER BY position DESC LIMIT 1",
        thread=thread_id,
    )
    first = await find(
        tx,
        f"SELECT text {_SEEN} AND role = 'human' AND trim(text) <> '' ORDER BY position LIMIT 1",
        thread=thread_id,
    )
    await tx.run(
        "UPDATE threads SET message_count = :count, preview = :preview, preview_role = :role, "
        "preview_position = :position, "
        "title = CASE WHEN title_is_set THEN title ELSE :title END WHERE id = :id",
        count=count["count"],
        preview=preview_of(last["text"]) if last else None,
        role=last["role"] if last else None,
        position=last["position"] if last else 0,
        title=title_of(first["text"]) if first else None,
        id=thread_id,
    )
