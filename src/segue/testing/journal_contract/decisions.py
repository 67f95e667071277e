"""Decisions: why the agent wrote, and why it did not."""

# ruff: noqa: S101 - tests assert

from dataclasses import replace
from datetime import datetime

import pytest

from segue.core.errors import ConflictError
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import Decision
from segue.testing.journal_contract.chat import Chat


def decision(ids: SnowflakeSource, now: datetime, thread_id: str = "chat") -> Decision:
    return Decision(
        id=ids.next(),
        thread_id=thread_id,
        kind="gates",
        outcome="postpone",
        reasons=("quiet hours until 07:00 🙂", "cooldown"),
        facts={"silence": 3.5, "ids": [2**63 - 1], "zone": None},
        timer_id=ids.next(),
        turn_id=None,
        decided_at=now,
    )


async def test_a_decision_is_kept_as_it_was_made(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """Outcome, reasons and facts read back the same."""
    made = decision(ids, now)
    await journal.record_decision(made)
    assert await journal.list_decisions(chat.thread_id) == [made]


async def test_decisions_are_listed_newest_first(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """The last one explains the present, and a list can be cut short."""
    made = [decision(ids, now) for _ in range(3)]
    for each in made:
        await journal.record_decision(each)
    assert await journal.list_decisions(chat.thread_id) == made[::-1]
    assert await journal.list_decisions(chat.thread_id, limit=1) == made[-1:]


async def test_decisions_stay_with_their_thread(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """One conversation does not explain another."""
    await chat.another("second")
    await journal.record_decision(decision(ids, now, "second"))
    assert await journal.list_decisions("chat") == []


async def test_a_decision_is_not_overwritten(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A second decision with the id of the first is refused."""
    made = decision(ids, now)
    await journal.record_decision(made)
    with pytest.raises(ConflictError):
        await journal.record_decision(replace(made, outcome="allow"))
    assert await journal.list_decisions(chat.thread_id) == [made]
