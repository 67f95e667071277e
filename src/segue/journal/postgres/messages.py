"""The journal of messages on PostgreSQL: appending and reading."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, LiteralString

from langchain_core.messages import BaseMessage
from psycopg.rows import DictRow

from segue.core.batch import Batch
from segue.core.errors import BackendError
from segue.core.snowflake import MAX_ID, SnowflakeSource, time_of
from segue.journal.places import batches_of, edges_of, ids_above, importable, span_of
from segue.journal.postgres.batches import (
    append_to_batch,
    batch_of,
    batches_among,
    bring_back,
    insert_message,
    message_values,
)
from segue.journal.postgres.database import Connection, Database, fetch_all, fetch_row
from segue.journal.postgres.summaries import NEWEST_SUMMARY, summary_of
from segue.journal.postgres.threads import lock_thread, thread_of
from segue.journal.postgres.turns import clear_partial
from segue.journal.postgres.words import asked_words, ranked, to_query
from segue.journal.records import Found, Page, Thread, TurnLease, Window
from segue.journal.rows import (
    decode_batch,
    decode_message,
    encode_message,
    note_hidden,
    readable,
)

logger = logging.getLogger(__name__)

_BATCHES_PER_READ = 256
# Whether a person sees anything before and after a page.
_AROUND: LiteralString = (
    "SELECT EXISTS (SELECT FROM messages WHERE thread_id = %s AND visible AND position < %s) "
    "AS older, EXISTS (SELECT FROM messages WHERE thread_id = %s AND visible AND position > %s) "
    "AS newer"
)
# The next older batches, whole, as long as those before them leave room. No more than a number of
# them is looked at: a thread that was never archived has no end.
_PAGE: LiteralString = """
    SELECT batch, sequence_num, tokens, body FROM (
        SELECT batch, sequence_num, tokens, body, sum(tokens) OVER (
            ORDER BY batch DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM messages WHERE thread_id = %(thread_id)s AND NOT archived AND batch < %(below)s
        AND batch >= (SELECT min(batch) FROM (
            SELECT DISTINCT batch FROM messages
            WHERE thread_id = %(thread_id)s AND NOT archived AND batch < %(below)s
            ORDER BY batch DESC LIMIT %(limit)s) AS newest)
    ) AS counted WHERE coalesce(before, 0) < %(room)s
"""
_ORDERED_PAGE: LiteralString = f"{_PAGE} ORDER BY batch DESC, sequence_num"
# The first row has the newest summary, or nothing if there is none; the others are the page.
_WINDOW: LiteralString = f"""
    WITH head AS ({NEWEST_SUMMARY}), page AS ({_PAGE})
    SELECT page.*, head.* FROM head FULL JOIN page ON false
    ORDER BY page.batch DESC NULLS FIRST, page.sequence_num
"""  # noqa: S608 - our own words
_FOUND: LiteralString = "".join(
    (
        "SELECT messages.thread_id, messages.body, best.score FROM (",
        ranked(
            hits="SELECT messages.id, words, word_count FROM messages "
            "JOIN threads ON threads.id = messages.thread_id "
            "WHERE words @@ %(query)s::tsquery AND threads.user_id = %(user_id)s "
            "AND CASE WHEN %(thread_id)s::text IS NULL THEN strpos(threads.id, '/') = 0 "
            "ELSE threads.id = %(thread_id)s END",
            scope="SELECT (SELECT sum(message_count) FROM threads WHERE user_id = %(user_id)s) "
            "AS total, avg(word_count) AS average FROM hits",
        ),
        ") AS best JOIN messages USING (id) ORDER BY best.score DESC, messages.position DESC",
    )
)


class MessageSteps:
    _db: Database

    async def append(
        self,
        lease: TurnLease,
        messages: Sequence[BaseMessage],
        *,
        ids: SnowflakeSource,
        now: datetime,
    ) -> list[BaseMessage]:
        async def step(db: Connection) -> list[BaseMessage]:
            thread = await lock_thread(db, lease.turn.thread_id)
            # What is stored is no longer being written; a listener must not see it twice.
            await clear_partial(db, lease)
            return await append_to_batch(db, lease.turn, messages, ids_above(thread, ids, now), now)

        return await self._db.write(step)

    async def import_messages(self, thread_id: str, messages: Iterable[BaseMessage]) -> int:
        given = importable(messages)

        async def step(db: Connection) -> int:
            await lock_thread(db, thread_id)
            rows = await fetch_all(
                db,
                "SELECT message_id FROM messages WHERE thread_id = %s AND message_id = ANY(%s)",
                (thread_id, [message.id for message in given]),
            )
            known = {row["message_id"] for row in rows}
            new = [message for message in given if message.id not in known]
            for message in new:
                row = encode_message(message)
                await insert_message(db, message_values(thread_id, row, time_of(row.position)))
            for batch in batches_of(new):
                await bring_back(db, thread_id, batch)
            return len(new)

        return await self._db.write(step)

    async def load_batch(self, thread_id: str, batch: int) -> Batch:
        return await self._db.read(lambda db: batch_of(db, thread_id, batch, keep=False))

    async def load_batches(self, thread_id: str, batches: Collection[int]) -> list[Batch]:
        return await self._db.look(lambda db: batches_among(db, thread_id, batches))

    async def tail(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> list[Batch]:
        async def step(db: Connection) -> list[Batch]:
            await thread_of(db, thread_id)
            tail = _Tail(thread_id, max_tokens, _above(current_batch))
            await tail.read_on(db)
            return tail.batches

        return await self._db.read(step)

    async def window(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> Window:
        async def begin(db: Connection) -> tuple[Window, _Tail]:
            tail = _Tail(thread_id, max_tokens, _above(current_batch))
            rows = await fetch_all(db, _WINDOW, tail.wanted())
            summary = summary_of(rows[0] if rows else None, thread_id)
            tail.add(rows[1:])
            return Window(tail.batches, summary), tail

        async def step(db: Connection) -> Window:
            window, tail = await begin(db)
            await tail.read_on(db)
            return window

        # Most often the first statement reads all of it. If not, all is read again as of one
        # moment.
        window, tail = await self._db.look(begin)
        return window if tail.is_done else await self._db.read(step)

    async def list_live_batches(
        self, thread_id: str, *, after: int = 0, limit: int = 100
    ) -> list[int]:
        sql = (
            "SELECT DISTINCT batch FROM messages "
            "WHERE thread_id = %s AND NOT archived AND batch > %s ORDER BY batch LIMIT %s"
        )

        async def step(db: Connection) -> list[int]:
            await thread_of(db, thread_id)
            return [row["batch"] for row in await fetch_all(db, sql, (thread_id, after, limit))]

        return await self._db.read(step)

    async def history(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        newest: LiteralString = (
            "SELECT position, body FROM messages WHERE thread_id = %s AND visible "
            "AND position < %s AND position > %s ORDER BY position DESC LIMIT %s"
        )
        oldest = newest.replace("DESC", "ASC")
        above, below = after or 0, MAX_ID if before is None else before

        async def step(db: Connection) -> Page:
            thread = await thread_of(db, thread_id)
            sql = newest if after is None else oldest
            rows = await fetch_all(db, sql, (thread_id, below, above, limit))
            found = sorted(rows, key=lambda row: row["position"])
            seen = [row["position"] for row in found]
            await _log_hidden(db, thread, *span_of(seen, limit, before=before, after=after))
            first, last = edges_of(seen, before=before, after=after)
            around = await fetch_row(db, _AROUND, (thread_id, first, thread_id, last))
            return Page(
                messages=readable(lambda row: decode_message(row["body"]), found),
                before=first if around["older"] else None,
                after=last if around["newer"] else None,
            )

        return await self._db.read(step)

    async def search(
        self, user_id: str, text: str, *, thread_id: str | None = None, limit: int = 20
    ) -> list[Found]:
        words = asked_words(text)
        if not words:
            return []
        values = {
            "words": words,
            "query": to_query(words),
            "user_id": user_id,
            "thread_id": thread_id,
            "limit": limit,
        }

        async def step(db: Connection) -> list[Found]:
            if thread_id is not None:
                await thread_of(db, thread_id)
            return readable(_to_found, await fetch_all(db, _FOUND, values))

        return await self._db.read(step)

    async def list_batch(self, agent_id: str, batch: int) -> list[BaseMessage]:
        sql: LiteralString = (
            "SELECT body FROM messages WHERE agent_id = %s AND batch = %s ORDER BY sequence_num"
        )

        async def step(db: Connection) -> list[BaseMessage]:
            return [decode_message(r["body"]) for r in await fetch_all(db, sql, (agent_id, batch))]

        return await self._db.read(step)

    async def list_incomplete_batches(
        self, agent_id: str, *, limit: int = 100
    ) -> list[tuple[str, Batch]]:
        async def step(db: Connection) -> list[tuple[str, Batch]]:
            rows = await fetch_all(
                db,
                "SELECT DISTINCT thread_id, batch FROM turns "
                "WHERE agent_id = %s AND (state IN ('queued', 'running') OR left_open) "
                "ORDER BY batch",
                (agent_id,),
            )
            found: list[tuple[str, Batch]] = []
            for row in rows:
                try:
                    batch = await batch_of(db, row["thread_id"], row["batch"])
                except BackendError as error:
                    logger.error("%s It is left out.", error)  # noqa: TRY400 - the row is the fault
                    continue
                if not batch.is_complete:
                    found.append((row["thread_id"], batch))
                if len(found) >= limit:
                    break
            return found

        return await self._db.read(step)


@dataclass(slots=True)
class _Tail:
    """The newest batches below an id, whole and newest first, until their tokens fill the room."""

    thread_id: str
    room: int
    # Below which batch there may be more; 0 if there are none.
    below: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.room <= 0 or not self.below

    def wanted(self) -> dict[str, Any]:
        """The values of the statement that reads the next page."""
        return {
            "thread_id": self.thread_id,
            "below": self.below,
            "room": self.room,
            "limit": _BATCHES_PER_READ,
        }

    def add(self, rows: list[DictRow]) -> None:
        groups = [list(members) for _, members in groupby(rows, key=lambda row: row["batch"])]
        # Those that cannot be read take no room, so there may be more even if it was filled.
        is_cut = len(groups) == _BATCHES_PER_READ or sum(r["tokens"] for r in rows) >= self.room
        self.below = rows[-1]["batch"] if rows and is_cut else 0
        for batch, tokens in readable(_batch_with_tokens, groups):
            self.batches.append(batch)
            self.room -= tokens
            if self.room <= 0:
                break

    async def read_on(self, db: Connection) -> None:
        while not self.is_done:
            self.add(await fetch_all(db, _ORDERED_PAGE, self.wanted()))


def _above(batch: int | None) -> int:
    return MAX_ID if batch is None else min(batch + 1, MAX_ID)


def _to_found(row: DictRow) -> Found:
    return Found(row["thread_id"], decode_message(row["body"]), row["score"])


def _batch_with_tokens(rows: list[DictRow]) -> tuple[Batch, int]:
    batch = decode_batch(rows[0]["batch"], (row["body"] for row in rows))
    return batch, sum(row["tokens"] for row in rows)


async def _log_hidden(db: Connection, thread: Thread, first: int, last: int) -> None:
    """Say what a page of history left out: a line each for tracing, one for operators."""
    hidden = await fetch_all(
        db,
        "SELECT message_id, trigger_type FROM messages "
        "WHERE thread_id = %s AND position BETWEEN %s AND %s AND synthetic",
        (thread.id, first, last),
    )
    note_hidden(logger, thread.id, thread.agent_id, hidden)
