"""The rules of a sound store: kept by a journal, and each of them able to fail."""

import pytest
from langchain_core.messages import AIMessage

from segue.journal.records import NewEffect
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from tests.journal.soundness import POSTGRES, SQLITE, broken_rules
from tests.journal.stores import change, journal_at

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BREACHES = {
    "a position is there twice": """
        UPDATE messages SET position = (SELECT min(position) FROM messages)
        WHERE thread_id = 'second'""",
    "a position does not rise": "UPDATE messages SET position = 1 WHERE sequence_num = 1",
    "a batch has a gap": "UPDATE messages SET sequence_num = 2 WHERE sequence_num = 1",
    "a batch has no turn": "DELETE FROM turns",
    "a thread has two live follow-ups": """
        DROP INDEX timers_one_follow_up; UPDATE timers SET state = 'pending'""",
    "a live timer will never wake": "UPDATE timers SET wake_at = NULL",
    "a turn is nobody's and runs": "UPDATE turns SET owner = NULL",
    "a turn will never wake, or out of turn": "UPDATE turns SET wake_at = NULL",
    "a thread runs two turns": """
        DROP INDEX turns_one_running; UPDATE turns SET state = 'running'""",
    "a fired timer has no turn, or a turn no timer": "DELETE FROM timers WHERE state = 'fired'",
    "a finished turn has no effect, or two": "DELETE FROM effects",
    "a turn was finished by one who had lost it": "UPDATE turns SET attempts = 2",
    "a thread's columns lag behind its messages": "UPDATE threads SET epoch = epoch - 1",
    "a batch is archived in part": """
        UPDATE messages SET archived = (1 = 1) WHERE sequence_num = 1""",
    "a batch is archived without a summary, or the reverse": """
        UPDATE messages SET archived = (1 = 1)""",
    "a row has lost its thread": "DELETE FROM threads",
}
SQLITE_BREACHES = BREACHES | {
    "the search does not know a message": """
        INSERT INTO messages_words (messages_words) VALUES ('delete-all')""",
    "the file is damaged": """
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = 'CREATE INDEX timers_awake ON timers (wake_at)'
        WHERE name = 'timers_awake'""",
}
POSTGRES_BREACHES = BREACHES | {
    "a row has lost its thread": "SET session_replication_role = replica; DELETE FROM threads",
    "the search does not know a message": "UPDATE messages SET words = NULL",
    "a table is damaged": """
        UPDATE pg_class SET relfrozenxid = pg_current_xact_id()::xid WHERE relname = 'messages'""",
    "an index is damaged": """
        UPDATE pg_index SET indisready = false WHERE indexrelid = 'nodes_pkey'::regclass;
        INSERT INTO nodes VALUES (1, 'unknown to the index', now());
        UPDATE pg_index SET indisready = true WHERE indexrelid = 'nodes_pkey'::regclass""",
}
CASES = [("sqlite", rule, SQLITE_BREACHES[rule]) for rule in SQLITE]
CASES += [("postgres", rule, POSTGRES_BREACHES[rule]) for rule in POSTGRES]
IDS = [f"{backend}-{rule}" for backend, rule, _ in CASES]


@pytest.fixture
async def used(address: str) -> str:
    """Something in every table: an answer, a running follow-up, a timer, and a second thread."""
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await chat.say("Question 1?")
    lease = await chat.take_turn()
    effect = NewEffect("webhook", {}, f"turn {lease.turn.id} at attempt 1")
    await chat.finish(lease, AIMessage("Yes."), effects=[effect])
    await chat.follow_up()
    await chat.take_turn()
    await chat.arm()
    await (await chat.another("second")).say("Question 2?")
    await journal.close()
    return address


async def test_a_store_in_use_keeps_all_rules(used: str) -> None:
    """A journal that is used as intended breaks none of them."""
    assert broken_rules(used) == []


@pytest.mark.parametrize(
    ("new_address", "rule", "breach"), CASES, ids=IDS, indirect=["new_address"]
)
async def test_a_broken_rule_is_found(used: str, rule: str, breach: str) -> None:
    """Every rule sees what it is about."""
    change(used, breach)
    assert rule in broken_rules(used)
