"""Counting outcomes past the journal's own steps: with lost marks, and by the indices alone."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.journal.outcomes import OutcomeQuery
from segue.journal.postgres import outcomes as on_postgres
from segue.journal.sqlite import outcomes as on_sqlite
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, ticking_ids
from tests.journal.stores import change, is_file, journal_at, raw

pytestmark = pytest.mark.anyio

ALL = OutcomeQuery(
    now=START + timedelta(days=9),
    since=datetime(2020, 1, 1, tzinfo=UTC),
    until=datetime(2030, 1, 1, tzinfo=UTC),
)
FIRED = {"turns_follow_ups", "decisions_of_turns"}
ENDED = {"timers_ended", "decisions_of_timers"}
# Each count with what it is found by.
COUNTS = {
    "_OUTCOMES": FIRED | ENDED,
    "_ARMS": FIRED | ENDED,
    "_SEARCHES": FIRED,
    "_UNMARKED": {"turns_follow_ups"},
}


@pytest.mark.parametrize(
    "loss",
    ["UPDATE messages SET trigger_type = NULL WHERE trigger_type IS NOT NULL", "flag"],
    ids=["trigger", "flag"],
)
async def test_a_trigger_that_lost_its_mark_is_counted(address: str, loss: str) -> None:
    """A store that loses metadata would show triggers; an operator has to hear of it."""
    no = "0" if is_file(address) else "false"
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await chat.follow_up()
    await chat.finish(await chat.take_turn(), AIMessage("Still there?"))
    assert await journal.count_unmarked(ALL) == 0
    change(address, f"UPDATE messages SET synthetic = {no}" if loss == "flag" else loss)  # noqa: S608 - ours
    assert await journal.count_unmarked(ALL) == 1
    await journal.close()


@pytest.mark.parametrize("name", COUNTS)
async def test_no_count_reads_a_whole_table(address: str, name: str) -> None:
    """What is asked for is found by the indices, however much else there is."""
    journal = journal_at(address)
    await journal.open()
    await journal.close()
    plan = "\n".join(str(line) for line in explained(address, name))
    assert {index for index in FIRED | ENDED if index in plan} >= COUNTS[name], plan
    # A table that is read from its beginning to its end costs more with every message.
    assert not re.search(r"Seq Scan|SCAN (turns|timers|decisions|messages|later|gates)\b", plan)


def explained(address: str, name: str) -> list[Any]:
    with raw(address) as connection:
        if is_file(address):
            sql = f"EXPLAIN QUERY PLAN {getattr(on_sqlite, name)}"
            return [row[3] for row in connection.execute(sql, on_sqlite._values(ALL))]
        # With nothing in the tables, reading them whole would be the quickest.
        connection.execute("SET enable_seqscan = off")
        sql = f"EXPLAIN {getattr(on_postgres, name)}"
        return [row[0] for row in connection.execute(sql, on_postgres._values(ALL))]
