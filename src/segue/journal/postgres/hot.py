"""The two most frequent steps as one PostgreSQL statement each: claiming turns, and a window."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from segue.core.batch import Batch
from segue.errors import ConflictError, NotFoundError
from segue.journal import messages, turns
from segue.journal.messages import Tail
from segue.journal.records import Claimed, Turn, TurnLease
from segue.journal.rows import CLOCK_SKEW, aware, lease_end, readable
from segue.journal.threads import lock_thread
from segue.journal.tx import Row, Tx, reads, single_read, single_write, writes

# What a clock that was ahead left counts from now on, which the next claim sees. A locked thread is
# skipped; `next_at` still includes it. The weaker lock does not skip
# threads whose row is only locked by a foreign key. There is always a row, without a turn if none
# was taken: it has the time of the next claim.
_CLAIM: Final = f"""
    WITH ahead AS (
        SELECT id FROM turns WHERE {turns.AHEAD} FOR NO KEY UPDATE SKIP LOCKED
    ), pulled_back AS (
        UPDATE turns SET {turns.PULLED_BACK}
        FROM ahead WHERE turns.id = ahead.id RETURNING turns.wake_at
    ), next AS (
        SELECT turns.id, turns.thread_id, turns.wake_at AS waited_since
        FROM turns JOIN threads ON threads.id = turns.thread_id
        WHERE turns.wake_at <= :now ORDER BY turns.wake_at, turns.id LIMIT :limit
        FOR NO KEY UPDATE SKIP LOCKED
    ), served AS (
        UPDATE threads SET served_at = :now FROM next WHERE threads.id = next.thread_id
    ), taken AS (
        UPDATE turns SET state = 'running', owner = :owner, token = token + 1,
            wake_at = :until, held_at = :now, begun_at = :now, attempts = attempts + 1,
            worked = worked + CASE WHEN state = 'running'
                THEN greatest(held_at - begun_at, interval '0') ELSE interval '0' END,
            partial_id = NULL, partial_text = NULL
        FROM next WHERE turns.id = next.id RETURNING turns.*, next.waited_since
    ), others AS (
        SELECT least((SELECT min(wake_at) FROM pulled_back), (
            SELECT wake_at FROM turns WHERE wake_at IS NOT NULL AND id NOT IN (SELECT id FROM next)
            ORDER BY wake_at LIMIT 1)) AS next_at, EXISTS (SELECT 1 FROM pulled_back) AS was_ahead
    )
    SELECT others.next_at, others.was_ahead, taken.* FROM others LEFT JOIN taken ON true
"""
_BATCHES_PER_READ: Final = 256
# The next older batches, whole, while the newer ones leave room; at most `limit` batches per page,
# since a thread that was never archived may be very long.
_PAGE: Final = """
    SELECT batch, sequence_num, tokens, body FROM (
        SELECT batch, sequence_num, tokens, body,
            sum(tokens) OVER newer AS before, sum(octet_length(body)) OVER newer AS bytes_before
        FROM messages WHERE thread_id = :thread AND NOT archived AND batch < :below
        AND batch >= (SELECT min(batch) FROM (
            SELECT DISTINCT batch FROM messages
            WHERE thread_id = :thread AND NOT archived AND batch < :below
            ORDER BY batch DESC LIMIT :limit) AS newest)
        WINDOW newer AS (
            ORDER BY batch DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS counted WHERE coalesce(before, 0) < :room AND coalesce(bytes_before, 0) < :bytes
"""
# The first row is that of `HEAD`; the others are the page.
_WINDOW: Final = f"""
    WITH head AS ({messages.HEAD}), page AS ({_PAGE})
    SELECT page.*, head.* FROM head FULL JOIN page ON false
    ORDER BY page.batch DESC NULLS FIRST, page.sequence_num DESC
"""


class PostgresTurns(turns.Turns):
    async def claim(
        self, owner: str, *, now: datetime, lease_for: timedelta, limit: int
    ) -> Claimed:
        while True:
            claimed, is_cleared = await self._take(owner, now, lease_end(now, lease_for), limit)
            if claimed.leases or not is_cleared:
                return claimed

    async def _take(
        self, owner: str, now: datetime, until: datetime, limit: int
    ) -> tuple[Claimed, bool]:
        """A claim, and whether it set turns aside or pulled them back, so that it may find more."""
        try:
            rows = await self._claim(owner, now, until, limit)
        except ConflictError:
            # The index that allows one running turn per thread: another worker was faster.
            return Claimed([], aware(now)), False
        next_at = rows[0]["next_at"]
        taken = [row for row in rows if row["id"] is not None]
        # In the order of the queue, which UPDATE does not keep.
        taken.sort(key=lambda row: (row["waited_since"], row["id"]))
        sound = [row for row in taken if readable(Turn.of, [row])]
        damaged = [row for row in taken if row not in sound]
        for row in damaged:
            with suppress(NotFoundError):  # the thread was deleted
                await self._set_aside(row, now)
        if sound:
            next_at = until if next_at is None else min(next_at, until)
        if next_at is not None:
            next_at = max(next_at, aware(now))
        leases = [TurnLease(Turn.of(row), owner, row["token"], until) for row in sound]
        return Claimed(leases, next_at), bool(damaged) or rows[0]["was_ahead"]

    @single_write
    async def _claim(
        self, tx: Tx, owner: str, now: datetime, until: datetime, limit: int
    ) -> list[Row]:
        ahead = now + CLOCK_SKEW
        return await tx.all(_CLAIM, owner=owner, now=now, until=until, limit=limit, ahead=ahead)

    @writes
    async def _set_aside(self, tx: Tx, row: Row, now: datetime) -> None:
        await lock_thread(tx, row["thread_id"], alone=True)
        await turns.set_aside(tx, row, now)


class PostgresMessages(messages.Messages):
    async def _read(
        self, thread_id: str, max_tokens: int, current_batch: int | None
    ) -> tuple[Row, list[Batch]]:
        """Most often one statement is enough. If not, all is read again on one snapshot."""
        tail = Tail.upto(thread_id, max_tokens, current_batch)
        head = await self._begin(tail)
        if not tail.is_done:
            tail = Tail.upto(thread_id, max_tokens, current_batch)
            head = await self._read_whole(tail)
        return head, tail.batches

    @single_read
    async def _begin(self, tx: Tx, tail: Tail) -> Row:
        return await _begin(tx, tail)

    @reads
    async def _read_whole(self, tx: Tx, tail: Tail) -> Row:
        head = await _begin(tx, tail)
        await self._fill(tx, tail)
        return head

    async def _fill(self, tx: Tx, tail: Tail) -> None:
        while not tail.is_done:
            page = f"{_PAGE} ORDER BY batch DESC, sequence_num DESC"
            _add(tail, await tx.all(page, **_wanted(tail)))


async def _begin(tx: Tx, tail: Tail) -> Row:
    rows = await tx.all(_WINDOW, **_wanted(tail))
    if not rows:
        raise NotFoundError(f"There is no thread {tail.thread_id!r}.")
    _add(tail, rows[1:])
    return rows[0]


def _wanted(tail: Tail) -> dict[str, str | int]:
    """The values of the statement that reads the next page."""
    room = {"room": tail.room, "bytes": tail.bytes, "limit": _BATCHES_PER_READ}
    return {"thread": tail.thread_id, "below": tail.below, **room}


def _add(tail: Tail, rows: list[Row]) -> None:
    # Unreadable batches use no tokens, so there may be more batches even after a full page.
    is_full = sum(row["tokens"] for row in rows) >= tail.room
    is_cut = is_full or len({row["batch"] for row in rows}) == _BATCHES_PER_READ
    tail.add(rows)
    if not is_cut and tail.bytes > 0:
        tail.below = 0
