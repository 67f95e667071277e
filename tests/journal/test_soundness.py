"""The rules of a sound file: kept by a journal, and each of them able to fail."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from segue.journal.records import NewEffect
from segue.journal.sqlite import SqliteJournal
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from tests.journal.soundness import BROKEN_RULES, broken_rules

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BREACHES = {
    "a position does not rise": "UPDATE messages SET position = 1 WHERE sequence_num = 1",
    "a batch has a gap": "UPDATE messages SET sequence_num = 2 WHERE sequence_num = 1",
    "a batch has no turn": "DELETE FROM turns",
    "a thread has two live follow-ups": """
        DROP INDEX timers_one_follow_up; UPDATE timers SET state = 'pending'""",
    "a live timer will never wake": "UPDATE timers SET wake_at = NULL",
    "a turn runs without a lease": "UPDATE turns SET lease_until = NULL",
    "a thread runs two turns": """
        DROP INDEX turns_one_running; UPDATE turns SET state = 'running'""",
    "a fired timer has no turn, or a turn no timer": "DELETE FROM timers WHERE state = 'fired'",
    "a finished turn has no effect": "DELETE FROM effects",
    "a thread's columns lag behind its messages": "UPDATE threads SET epoch = epoch - 1",
    "a batch is archived in part, or without a summary": "UPDATE messages SET archived = 1",
    "the search does not know a message": """
        INSERT INTO messages_words (messages_words) VALUES ('delete-all')""",
    "the file is damaged": """
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = 'CREATE INDEX timers_awake ON timers (wake_at)'
        WHERE name = 'timers_awake'""",
    "a row has lost its thread": "PRAGMA foreign_keys = OFF; DELETE FROM threads",
}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file with something in every table: a follow-up, an answer, and a turn that is running."""
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await chat.say("Question 1?")
    effect = NewEffect("webhook", {}, "reply-1")
    await chat.finish(await chat.take_turn(), AIMessage("Yes."), effects=[effect])
    await chat.follow_up()
    await chat.take_turn()
    await chat.arm()
    await journal.close()
    return tmp_path / "journal.db"


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def check(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return broken_rules(connection)


async def test_a_file_in_use_keeps_all_rules(path: Path) -> None:
    """A journal that is used as intended breaks none of them."""
    assert check(path) == []


@pytest.mark.parametrize("rule", BROKEN_RULES)
async def test_a_broken_rule_is_found(path: Path, rule: str) -> None:
    """Every rule sees what it is about."""
    change(path, BREACHES[rule])
    assert rule in check(path)
