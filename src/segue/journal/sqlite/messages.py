"""The journal of messages on SQLite: appending and reading."""

import logging
import re
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from langchain_core.messages import BaseMessage

from segue.core.batch import Batch
from segue.core.errors import BackendError
from segue.core.snowflake import MAX_ID, SnowflakeSource, time_of
from segue.journal.places import batches_of, edges_of, ids_above, importable, place_of, span_of
from segue.journal.records import Found, Page, TurnLease, Window
from segue.journal.rows import decode_batch, decode_message, note_hidden, readable
from segue.journal.sqlite.batches import (
    append_to_batch,
    batch_of,
    batches_among,
    bring_back,
    find_message,
    insert_message,
)
from segue.journal.sqlite.database import Database
from segue.journal.sqlite.summaries import newest_summary
from segue.journal.sqlite.threads import thread_of
from segue.journal.sqlite.turns import check_turn

logger = logging.getLogger(__name__)

_BATCHES_PER_READ = 16
# Whether a person sees anything before and after a page.
_AROUND: Final = (
    "SELECT EXISTS (SELECT 1 FROM messages WHERE thread_id = ? AND visible = 1 AND position < ?), "
    "EXISTS (SELECT 1 FROM messages WHERE thread_id = ? AND visible = 1 AND position > ?)"
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
        def step(db: sqlite3.Connection) -> list[BaseMessage]:
            check_turn(db, lease)
            # What is stored is no longer being written; a listener must not see it twice.
            db.execute(
                "UPDATE turns SET partial_id = NULL, partial_text = NULL WHERE id = ?",
                (lease.turn.id,),
            )
            thread = thread_of(db, lease.turn.thread_id)
            return append_to_batch(db, lease.turn, messages, ids_above(thread, ids, now), now)

        return await self._db.write(step)

    async def import_messages(self, thread_id: str, messages: Iterable[BaseMessage]) -> int:
        given = importable(messages)

        def step(db: sqlite3.Connection) -> int:
            thread_of(db, thread_id)
            new = [m for m in given if find_message(db, thread_id, m.id) is None]
            for message in new:
                insert_message(db, thread_id, message, time_of(place_of(message)))
            for batch in batches_of(new):
                bring_back(db, thread_id, batch)
            return len(new)

        return await self._db.write(step)

    async def load_batch(self, thread_id: str, batch: int) -> Batch:
        return await self._db.read(lambda db: batch_of(db, thread_id, batch, keep=False))

    async def load_batches(self, thread_id: str, batches: Collection[int]) -> list[Batch]:
        return await self._db.read(lambda db: batches_among(db, thread_id, batches))

    async def tail(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> list[Batch]:
        def step(db: sqlite3.Connection) -> list[Batch]:
            thread_of(db, thread_id)
            return _tail(db, thread_id, max_tokens, current_batch)

        return await self._db.read(step)

    async def window(
        self, thread_id: str, *, max_tokens: int, current_batch: int | None = None
    ) -> Window:
        def step(db: sqlite3.Connection) -> Window:
            thread_of(db, thread_id)
            batches = _tail(db, thread_id, max_tokens, current_batch)
            return Window(batches, newest_summary(db, thread_id))

        return await self._db.read(step)

    async def list_live_batches(
        self, thread_id: str, *, after: int = 0, limit: int = 100
    ) -> list[int]:
        sql = (
            "SELECT DISTINCT batch FROM messages INDEXED BY messages_live "
            "WHERE thread_id = ? AND archived = 0 AND batch > ? ORDER BY batch LIMIT ?"
        )

        def step(db: sqlite3.Connection) -> list[int]:
            thread_of(db, thread_id)
            return [row["batch"] for row in db.execute(sql, (thread_id, after, limit))]

        return await self._db.read(step)

    async def history(
        self,
        thread_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
    ) -> Page:
        def step(db: sqlite3.Connection) -> Page:
            thread = thread_of(db, thread_id)
            sql = "SELECT position, body FROM messages WHERE thread_id = ? AND visible = 1"
            values: list[Any] = [thread_id]
            for bound, sign in ((before, "<"), (after, ">")):
                if bound is not None:
                    sql += f" AND position {sign} ?"
                    values.append(bound)
            order = "DESC" if after is None else "ASC"
            rows = db.execute(f"{sql} ORDER BY position {order} LIMIT ?", [*values, limit])
            found = sorted(rows.fetchall(), key=lambda row: row["position"])
            seen = [row["position"] for row in found]
            span = span_of(seen, limit, before=before, after=after)
            _log_hidden(db, thread_id, thread.agent_id, span)
            first, last = edges_of(seen, before=before, after=after)
            is_older, is_newer = db.execute(_AROUND, (thread_id, first, thread_id, last)).fetchone()
            return Page(
                messages=readable(lambda row: decode_message(row["body"]), found),
                before=first if is_older else None,
                after=last if is_newer else None,
            )

        return await self._db.read(step)

    async def search(
        self, user_id: str, text: str, *, thread_id: str | None = None, limit: int = 20
    ) -> list[Found]:
        query = match_any(text)
        sql = (
            "SELECT messages.thread_id, messages.body, -bm25(messages_words) AS score "
            "FROM messages_words JOIN messages ON messages.rowid = messages_words.rowid "
            "JOIN threads ON threads.id = messages.thread_id "
            "WHERE messages_words MATCH ? AND threads.user_id = ? "
            "AND CASE WHEN ? IS NULL THEN instr(threads.id, '/') = 0 ELSE threads.id = ? END "
            "ORDER BY score DESC, messages.position DESC LIMIT ?"
        )
        values = (query, user_id, thread_id, thread_id, limit)

        def step(db: sqlite3.Connection) -> list[Found]:
            if thread_id is not None:
                thread_of(db, thread_id)
            rows = db.execute(sql, values) if query else []
            return readable(_to_found, rows)

        return await self._db.read(step)

    async def list_batch(self, agent_id: str, batch: int) -> list[BaseMessage]:
        sql = "SELECT body FROM messages WHERE agent_id = ? AND batch = ? ORDER BY sequence_num"
        return await self._db.read(
            lambda db: [decode_message(row["body"]) for row in db.execute(sql, (agent_id, batch))]
        )

    async def list_incomplete_batches(
        self, agent_id: str, *, limit: int = 100
    ) -> list[tuple[str, Batch]]:
        def step(db: sqlite3.Connection) -> list[tuple[str, Batch]]:
            sql = (
                "SELECT DISTINCT thread_id, batch FROM turns "
                "WHERE agent_id = ? AND (state IN ('queued', 'running') OR left_open) "
                "ORDER BY batch"
            )
            found: list[tuple[str, Batch]] = []
            for row in db.execute(sql, (agent_id,)).fetchall():
                try:
                    batch = batch_of(db, row["thread_id"], row["batch"])
                except BackendError as error:
                    logger.error("%s It is left out.", error)  # noqa: TRY400 - the row is the fault
                    continue
                if not batch.is_complete:
                    found.append((row["thread_id"], batch))
                if len(found) >= limit:
                    break
            return found

        return await self._db.read(step)


def match_any(text: str) -> str:
    """A query that finds any of the words; quotes keep FTS5 from reading signs as commands."""
    return " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))


def _tail(
    db: sqlite3.Connection, thread_id: str, max_tokens: int, current_batch: int | None
) -> list[Batch]:
    batches: list[Batch] = []
    below = MAX_ID if current_batch is None else min(current_batch + 1, MAX_ID)
    left = max_tokens
    while left > 0 and below:
        page, below = _batches_below(db, thread_id, below)
        for batch, tokens in page:
            batches.append(batch)
            left -= tokens
            if left <= 0:
                break
    return batches


def _batches_below(
    db: sqlite3.Connection, thread_id: str, below: int
) -> tuple[list[tuple[Batch, int]], int]:
    """The next older batches, whole and newest first, with their estimated tokens; and below
    which one there may be more, 0 if there are none.
    """
    ids = db.execute(
        # By name: the other index would walk through everything archived.
        "SELECT DISTINCT batch FROM messages INDEXED BY messages_live "
        "WHERE thread_id = ? AND archived = 0 "
        "AND batch < ? ORDER BY batch DESC LIMIT ?",
        (thread_id, below, _BATCHES_PER_READ),
    ).fetchall()
    if not ids:
        return [], 0
    rows = db.execute(
        "SELECT batch, tokens, body FROM messages WHERE thread_id = ? "
        "AND batch BETWEEN ? AND ? AND archived = 0 ORDER BY batch DESC, sequence_num",
        (thread_id, ids[-1]["batch"], ids[0]["batch"]),
    ).fetchall()
    groups = [list(members) for _, members in groupby(rows, key=lambda row: row["batch"])]
    more = ids[-1]["batch"] if len(ids) == _BATCHES_PER_READ else 0
    return readable(_batch_with_tokens, groups), more


def _to_found(row: sqlite3.Row) -> Found:
    return Found(row["thread_id"], decode_message(row["body"]), row["score"])


def _batch_with_tokens(rows: list[sqlite3.Row]) -> tuple[Batch, int]:
    batch = decode_batch(rows[0]["batch"], (row["body"] for row in rows))
    return batch, sum(row["tokens"] for row in rows)


def _log_hidden(
    db: sqlite3.Connection, thread_id: str, agent_id: str, span: tuple[int, int]
) -> None:
    """Say what a page of history left out: a line each for tracing, one for operators."""
    hidden = db.execute(
        "SELECT message_id, trigger_type FROM messages "
        "WHERE thread_id = ? AND position BETWEEN ? AND ? AND synthetic = 1",
        (thread_id, *span),
    ).fetchall()
    note_hidden(logger, thread_id, agent_id, [*map(dict, hidden)])
