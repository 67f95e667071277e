"""Cursors: where a page begins, as a client hands it back."""

import base64
import binascii
from datetime import UTC, datetime

from segue.core.errors import UsageError
from segue.core.snowflake import parse
from segue.journal.records import Thread, ThreadPlace


def position_of(cursor: str | None) -> int | None:
    """The position behind a cursor; `UsageError` if it is none."""
    return None if cursor is None else parse(cursor)


def thread_cursor(thread: Thread) -> str:
    """The cursor of the page that begins behind a thread."""
    words = f"{thread.updated_at.astimezone(UTC).isoformat()} {thread.id}"
    return base64.urlsafe_b64encode(words.encode()).decode().rstrip("=")


def place_of_thread(cursor: str | None) -> ThreadPlace | None:
    """Behind which place a page of threads begins; `UsageError` if it is no cursor."""
    if cursor is None:
        return None
    try:
        words = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, thread_id = words.partition(" ")
        updated_at = datetime.fromisoformat(moment)
        if updated_at.tzinfo is None:
            raise ValueError("a time without its zone is no place")
    except (ValueError, binascii.Error) as error:
        raise UsageError(f"{cursor!r:.60} is no cursor; take `next` of a page.") from error
    return ThreadPlace(updated_at, thread_id)
