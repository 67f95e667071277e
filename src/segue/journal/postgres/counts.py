"""Counting follow-ups on PostgreSQL. Called inside the steps of the timers."""

from datetime import datetime
from typing import LiteralString

from segue.core.errors import ConflictError, NotFoundError
from segue.journal.postgres.database import Connection, fetch_one
from segue.journal.records import FollowUpCounts, Thread

_USER_LOCK = 0x5E6C
# As the indices say it: else they are not used.
_COUNTED: LiteralString = (
    "kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL) "
    "AND turns.id <> %(but)s"
)
# A follow-up is shown soon after it was queued, so the newest ones hold the last one shown, and
# those of yesterday all that may have been shown today.
_COUNTS: LiteralString = "".join(
    (
        "SELECT (SELECT count(*) FROM turns WHERE thread_id = threads.id ",
        "AND epoch = threads.epoch AND ",
        _COUNTED,
        ") AS consecutive, (SELECT count(*) FROM turns WHERE user_id = threads.user_id ",
        "AND queued_at >= %(day)s::timestamptz - interval '1 day' ",
        "AND coalesce(shown_at, queued_at) >= %(day)s AND ",
        _COUNTED,
        ") AS sent_today, (SELECT max(coalesce(shown_at, queued_at)) FROM (",
        "SELECT shown_at, queued_at FROM turns WHERE user_id = threads.user_id AND ",
        _COUNTED,
        " ORDER BY queued_at DESC LIMIT 20) AS newest) AS last_at ",
        "FROM threads WHERE threads.id = %(thread)s",
    )
)


async def count_follow_ups(
    db: Connection, thread_id: str, day_began: datetime, leaving_out: int | None
) -> FollowUpCounts:
    """Cost follows what is counted, not how many follow-ups the user ever got."""
    values = {"thread": thread_id, "day": day_began, "but": leaving_out or 0}
    row = await fetch_one(db, _COUNTS, values)
    if row is None:
        raise NotFoundError(f"There is no thread {thread_id!r}.")
    return FollowUpCounts(
        thread_id=thread_id,
        day_began=day_began,
        consecutive=row["consecutive"],
        sent_today=row["sent_today"],
        last_at=row["last_at"],
        leaving_out=leaving_out,
    )


async def check_counts(db: Connection, thread: Thread, counted: FollowUpCounts) -> None:
    """Raise unless the user got no follow-up since they were counted; then it stays so.

    Threads of one user have their own locks, so whoever counts waits for the one who counted
    before. Always locked after the thread. Two users of one number only wait needlessly.
    """
    # A statement of its own: one that waits for the lock would not see what it waited for.
    lock: LiteralString = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
    await db.execute(lock, (_USER_LOCK, thread.user_id))
    present = await count_follow_ups(db, thread.id, counted.day_began, counted.leaving_out)
    if _numbers(present) != _numbers(counted):
        raise ConflictError(
            f"The user of thread {thread.id!r} got a follow-up since they were counted; ask the "
            "gates again. Nothing was written."
        )


def _numbers(counts: FollowUpCounts) -> tuple[int, int, datetime | None]:
    return counts.consecutive, counts.sent_today, counts.last_at
