"""Reading what a storm has left: by the journal where it has the words, else from its tables."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import BaseMessage

from segue.journal.journal import Journal
from segue.journal.rows import decode_message
from tests.chaos.aftermath import Aftermath
from tests.chaos.driver import Spoken
from tests.chaos.ledger import Ledger
from tests.journal.stores import ask

_ALL = 1_000_000
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


async def read_aftermath(
    journal: Journal, address: str, now: datetime, spoken: Spoken, ledger: Ledger
) -> Aftermath:
    rows = ask(address, "SELECT thread_id, created_at, body FROM messages ORDER BY position")
    names = [name for (name,) in ask(address, "SELECT id FROM threads ORDER BY id")]
    return Aftermath(
        now=now,
        threads=[await journal.threads.get(name) for name in names],
        messages=[(name, _moment(at), decode_message(body)) for name, at, body in rows],
        turns=[turn for name in names for turn in await journal.turns.list_of(name, limit=_ALL)],
        timers=[
            timer for name in names for timer in await journal.timers.list_of(name, limit=_ALL)
        ],
        decisions=[
            one for name in names for one in await journal.decisions.list_of(name, limit=_ALL)
        ],
        history={name: await _history(journal, name) for name in names},
        spoken=spoken,
        tools=ledger.tools(),
        lives=ledger.lives(),
    )


async def sweep(journal: Journal, address: str) -> int:
    """Delete what starts that were killed left of their self-test; how many there were.

    They have a user and an agent of their own, so that nobody ever sees them.
    """
    left = ask(address, "SELECT id FROM threads WHERE id LIKE 'segue-self-test-%'")
    for (name,) in left:
        await journal.threads.delete(name)
    return len(left)


async def is_quiet(address: str) -> bool:
    """Whether nothing is left to do, now or later."""
    live: Sequence[tuple[Any, ...]] = ask(
        address,
        "SELECT id FROM turns WHERE state IN ('queued', 'running') UNION ALL "
        "SELECT id FROM timers WHERE state IN ('pending', 'postponed', 'claimed') LIMIT 1",
    )
    return not live


async def has_tried_again(address: str) -> bool:
    """Whether a turn was taken up that somebody else had begun."""
    sql = (
        "SELECT id FROM turns WHERE attempts > 1 AND thread_id NOT LIKE 'segue-self-test-%' LIMIT 1"
    )
    return bool(ask(address, sql))


async def _history(journal: Journal, thread_id: str) -> list[BaseMessage]:
    """All of it, page by page as a person scrolls back."""
    messages: list[BaseMessage] = []
    before = None
    while True:
        page = await journal.messages.history(thread_id, limit=50, before=before)
        messages = page.messages + messages
        if (before := page.before) is None:
            return messages


def _moment(stored: Any) -> datetime:
    """SQLite holds microseconds."""
    return stored if isinstance(stored, datetime) else _UNIX + timedelta(microseconds=stored)
