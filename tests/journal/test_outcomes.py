"""Counting outcomes past the journal's own steps: with lost marks, and by the indices alone."""

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.journal import stats
from segue.journal.journal import Journal
from segue.journal.sqlite.tx import stored
from segue.journal.stats import OutcomeQuery
from segue.journal.tx import for_postgres, for_sqlite
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, ticking_ids
from segue.testing.journal_contract.outcomes import hold_out, speak
from tests.journal.old_schemas import UNMARKED_FILE, UNMARKED_SERVER
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
    "_REMINDERS": {"turns_reminders", "decisions_of_turns"},
}
# Back to the schema before the facts had columns.
BEFORE_COLUMNS = """
DROP INDEX turns_held;
DROP INDEX timers_claimed;
DROP INDEX effects_claimed;
ALTER TABLE turns DROP COLUMN held_at;
ALTER TABLE effects DROP COLUMN held_at;
ALTER TABLE turns DROP COLUMN faults;
ALTER TABLE turns DROP COLUMN worked;
ALTER TABLE turns DROP COLUMN begun_at;
DROP INDEX decisions_of_turns;
DROP INDEX decisions_of_timers;
DROP INDEX memories_of_user;
ALTER TABLE decisions DROP COLUMN trigger_type;
ALTER TABLE decisions DROP COLUMN variant;
ALTER TABLE decisions DROP COLUMN consecutive;
ALTER TABLE decisions DROP COLUMN held_out;
ALTER TABLE decisions DROP COLUMN gate;
ALTER TABLE decisions DROP COLUMN failed;
CREATE INDEX decisions_of_timers ON decisions (timer_id) WHERE kind = 'gates';
CREATE INDEX decisions_of_turns ON decisions (turn_id, kind) WHERE kind <> 'plan';
"""
OLD_FILE = f"{UNMARKED_FILE} {BEFORE_COLUMNS} PRAGMA user_version = 3;"
OLD_SERVER = "\n".join(
    (
        UNMARKED_SERVER,
        BEFORE_COLUMNS,
        "DROP FUNCTION segue_fact; DELETE FROM segue_schema WHERE version > 3;",
    )
)


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
    assert await journal.stats.count_unmarked(ALL) == 0
    change(address, f"UPDATE messages SET synthetic = {no}" if loss == "flag" else loss)  # noqa: S608 - ours
    assert await journal.stats.count_unmarked(ALL) == 1
    await journal.close()


@pytest.mark.parametrize("name", COUNTS)
async def test_no_count_reads_a_whole_table(address: str, name: str) -> None:
    """What is asked for is found by the indices, however much else there is."""
    journal = journal_at(address)
    await journal.open()
    await journal.close()
    plan = "\n".join(str(line) for line in explained(address, name))
    assert {index for index in COUNTS[name] if index in plan} == COUNTS[name], plan
    # A table that is read from its beginning to its end costs more with every message.
    assert not re.search(r"Seq Scan|SCAN (turns|timers|decisions|messages|later|gates)\b", plan)


def explained(address: str, name: str) -> list[Any]:
    with raw(address) as connection:
        if is_file(address):
            sql = f"EXPLAIN QUERY PLAN {for_sqlite(getattr(stats, name))}"
            return [row[3] for row in connection.execute(sql, stored(asdict(ALL)))]
        # With nothing in the tables, reading them whole would be the quickest.
        connection.execute("SET enable_seqscan = off")
        sql = f"EXPLAIN {for_postgres(getattr(stats, name)).decode()}"
        return [row[0] for row in connection.execute(sql, asdict(ALL))]


@pytest.mark.parametrize("name", ["_OUTCOMES", "_ARMS"])
async def test_what_came_after_a_follow_up_is_found_in_an_index_alone(
    address: str, name: str
) -> None:
    """It is looked for once for each follow-up, so that a look into the table as well tells."""
    journal = journal_at(address)
    await journal.open()
    await journal.close()
    plan = "\n".join(str(line) for line in explained(address, name))
    assert re.search(r"later\S* USING COVERING INDEX turns_by_thread|Index Only Scan.* later", plan)


@pytest.mark.parametrize("name", COUNTS)
def test_no_count_reads_the_facts_as_json(name: str) -> None:
    """What is counted by has columns of its own: reading JSON took most of the time."""
    assert "facts" not in getattr(stats, name)


async def test_what_was_decided_by_an_older_version_is_counted_alike(address: str) -> None:
    """A database without the columns has the same numbers once it is brought up to date."""
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await speak(chat)
    await hold_out(await chat.another("silent"))
    before = await counted(journal)
    await journal.close()
    change(address, OLD_FILE if is_file(address) else OLD_SERVER)
    journal = journal_at(address)
    await journal.open()
    assert await counted(journal) == before
    await journal.close()


@pytest.mark.parametrize("facts", ["{", "[1]", '{"variant": "a\\u0000b"}', '{"consecutive": {}}'])
async def test_facts_that_cannot_be_read_are_stored_all_the_same(address: str, facts: str) -> None:
    """They count as not known, and nobody's follow-up fails for them."""
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await speak(chat)
    change(address, f"UPDATE decisions SET facts = '{facts}'")  # noqa: S608 - ours
    [found] = await journal.stats.count_outcomes(ALL)
    assert (found.trigger_type, found.count) == ("check_in", 1)
    assert await journal.stats.count_arms(ALL) == []
    await journal.close()


async def counted(journal: Journal) -> tuple[Any, ...]:
    return (
        await journal.stats.count_outcomes(ALL),
        await journal.stats.count_arms(ALL),
        await journal.stats.count_searches(ALL),
    )
