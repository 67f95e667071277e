"""Decisions: why the agent wrote, and why it did not."""

from dataclasses import replace
from datetime import datetime

import pytest

from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError
from segue.journal.records import Decision
from segue.testing.journal_contract.chat import NOW, Chat


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


async def test_decisions_are_listed_newest_first(chat: Chat, ids: SnowflakeSource) -> None:
    """As they were made, those of one thread, as many as asked for."""
    await chat.another("second")
    decisions, made = chat.journal.decisions, [decision(ids, NOW) for _ in range(3)]
    for each in (*made, decision(ids, NOW, "second")):
        await decisions.record(each)
    assert await decisions.list_of(chat.thread_id) == made[::-1]
    assert await decisions.list_of(chat.thread_id, limit=1) == made[-1:]


async def test_a_decision_is_not_overwritten(chat: Chat, ids: SnowflakeSource) -> None:
    """A second decision with the id of the first is refused."""
    made = decision(ids, NOW)
    await chat.journal.decisions.record(made)
    with pytest.raises(ConflictError):
        await chat.journal.decisions.record(replace(made, outcome="allow"))
    assert await chat.journal.decisions.list_of(chat.thread_id) == [made]
