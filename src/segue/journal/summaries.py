"""Summaries: text that replaces archived batches. Archiving and summary are one step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from segue.core.batch import Batch
from segue.core.compression import cut_at_sentence
from segue.core.snowflake import SnowflakeSource
from segue.core.text import storable
from segue.errors import ConflictError, NotFoundError, UsageError
from segue.journal.batches import RisingIds, bring_back, last_id_update
from segue.journal.records import Summary
from segue.journal.rows import to_json
from segue.journal.threads import lock_thread, thread_of
from segue.journal.tx import Part, Tx, insertion, reads, writes

_TO_ARCHIVE: Final = """
    SELECT batch, max(CASE WHEN archived THEN 1 ELSE 0 END) AS is_archived, EXISTS (
        SELECT 1 FROM turns WHERE thread_id = :thread AND turns.batch = messages.batch
        AND state IN ('queued', 'running')) AS is_live
    FROM messages WHERE thread_id = :thread AND batch = ANY(:batches) GROUP BY batch
"""


@dataclass(frozen=True, slots=True)
class Window:
    """A thread's newest batches, newest first, and the summary of those before them."""

    batches: list[Batch]
    summary: Summary | None
    # Preferences among other settings; read with the window, so that a turn needs no more queries.
    thread_settings: Mapping[str, Any] = field(default_factory=dict)
    user_settings: Mapping[str, Any] = field(default_factory=dict)

    def told(self, max_tokens: int) -> str | None:
        """The summary's text, cut to a third of a model's window: a summary made for a larger
        window would leave no room for the conversation.
        """
        if self.summary is None:
            return None
        return cut_at_sentence(self.summary.text, max_tokens // 3)


class Summaries(Part):
    @writes
    async def save(
        self,
        tx: Tx,
        thread_id: str,
        text: str,
        batches: Sequence[int],
        *,
        ids: SnowflakeSource,
        now: datetime,
        follows: int | None = None,
    ) -> Summary:
        """Archive the batches and store their summary; a batch that is continued is unarchived.

        `ConflictError` if a batch is archived already or has a live turn, or if `follows`, the
        summary that the text was made from (0: none), is not the newest any more; `NotFoundError`
        if a batch is missing.
        """
        if not batches:
            raise UsageError("A summary must replace at least one batch.")
        thread = await lock_thread(tx, thread_id)
        previous = await newest_summary(tx, thread_id)
        if follows is not None and follows != (previous.id if previous else 0):
            raise ConflictError(
                f"The summary of thread {thread_id!r} has changed; read it again. "
                "Nothing was written."
            )
        await _archive(tx, thread_id, batches)
        rising = RisingIds(thread, ids, now)
        new = insertion(
            "summaries",
            "RETURNING *",
            id=rising.next(),
            thread_id=thread_id,
            text=storable(text),
            first_batch=min(batches),
            last_batch=max(batches),
            batches=to_json(sorted(batches)),
            previous_id=previous.id if previous else None,
            created_at=now,
        )
        [row] = await tx.together(last_id_update(thread_id, rising), new)
        return Summary.of(row)

    @reads
    async def find(self, tx: Tx, thread_id: str) -> Summary | None:
        """The newest summary, if there is one."""
        await thread_of(tx, thread_id)
        return await newest_summary(tx, thread_id)

    @writes
    async def undo(self, tx: Tx, summary: Summary) -> None:
        """Remove the newest summary and return its batches to the tail."""
        await lock_thread(tx, summary.thread_id, alone=True)
        newest = await newest_summary(tx, summary.thread_id)
        if newest is None or newest.id != summary.id:
            raise ConflictError(
                f"Summary {summary.id} is not the newest of thread {summary.thread_id!r}; "
                "undo the newer ones first. Nothing was written."
            )
        await bring_back(tx, summary.thread_id, newest.batches)
        await tx.run("DELETE FROM summaries WHERE id = :id", id=summary.id)


async def newest_summary(tx: Tx, thread_id: str) -> Summary | None:
    sql = "SELECT * FROM summaries WHERE thread_id = :thread ORDER BY id DESC LIMIT 1"
    row = await tx.find(sql, thread=thread_id)
    return None if row is None else Summary.of(row)


async def _archive(tx: Tx, thread_id: str, batches: Sequence[int]) -> None:
    values = {"thread": thread_id, "batches": [*batches]}
    rows = {row["batch"]: row for row in await tx.all(_TO_ARCHIVE, **values)}
    seen: set[int] = set()
    for batch in batches:
        if batch not in rows:
            raise NotFoundError(
                f"There is no batch {batch} in thread {thread_id!r}. Nothing was written."
            )
        if rows[batch]["is_archived"] or batch in seen:
            raise ConflictError(f"Batch {batch} is archived already. Nothing was written.")
        if rows[batch]["is_live"]:
            raise ConflictError(f"Batch {batch} is still being processed. Nothing was written.")
        seen.add(batch)
    sql = "UPDATE messages SET archived = true WHERE thread_id = :thread AND batch = ANY(:batches)"
    await tx.run(sql, **values)
