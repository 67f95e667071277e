"""Counting follow-ups on SQLite. Called inside the steps of the timers."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from segue.core.errors import ConflictError
from segue.journal.records import FollowUpCounts
from segue.journal.rows import from_micros, to_micros
from segue.journal.sqlite.threads import thread_of

# As the indices say it, word for word: else they are not used.
_COUNTED: Final = "kind = 'follow_up' AND (state IN ('queued', 'running') OR shown_at IS NOT NULL)"
# A follow-up is shown soon after it was queued, so the newest ones hold the last one shown.
_NEWEST: Final = 20
_LONGEST_WAY: Final = timedelta(days=1)


def count_follow_ups(
    db: sqlite3.Connection, thread_id: str, day_began: datetime, leaving_out: int | None
) -> FollowUpCounts:
    """Cost follows what is counted, not how many follow-ups the user ever got."""
    thread = thread_of(db, thread_id)
    values = {
        "thread": thread.id,
        "epoch": thread.epoch,
        "user": thread.user_id,
        "day": to_micros(day_began),
        "since": max(to_micros(day_began) - _LONGEST_WAY // timedelta(microseconds=1), 0),
        "newest": _NEWEST,
        "but": leaving_out or 0,
    }
    (consecutive,) = db.execute(
        f"SELECT count(*) FROM turns WHERE thread_id = :thread AND epoch = :epoch AND {_COUNTED} "  # noqa: S608  # our own words
        "AND id != :but",
        values,
    ).fetchone()
    (sent_today,) = db.execute(
        f"SELECT count(*) FROM turns WHERE user_id = :user AND queued_at >= :since AND {_COUNTED} "  # noqa: S608  # same
        "AND coalesce(shown_at, queued_at) >= :day AND id != :but",
        values,
    ).fetchone()
    (last_at,) = db.execute(
        "SELECT max(coalesce(shown_at, queued_at)) FROM (SELECT shown_at, queued_at FROM turns "  # noqa: S608  # same
        f"WHERE user_id = :user AND {_COUNTED} AND id != :but "
        "ORDER BY queued_at DESC LIMIT :newest)",
        values,
    ).fetchone()
    return FollowUpCounts(
        thread_id=thread_id,
        day_began=day_began,
        consecutive=consecutive,
        sent_today=sent_today,
        last_at=None if last_at is None else from_micros(last_at),
        leaving_out=leaving_out,
    )


def check_counts(db: sqlite3.Connection, thread_id: str, counted: FollowUpCounts) -> None:
    """Raise unless the user got no follow-up since they were counted."""
    present = count_follow_ups(db, thread_id, counted.day_began, counted.leaving_out)
    if _numbers(present) != _numbers(counted):
        raise ConflictError(
            f"The user of thread {thread_id!r} got a follow-up since they were counted; ask the "
            "gates again. Nothing was written."
        )


def _numbers(counts: FollowUpCounts) -> tuple[int, int, datetime | None]:
    return counts.consecutive, counts.sent_today, counts.last_at
