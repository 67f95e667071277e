"""What a search reads of a store, and how an older index becomes a new one."""

import re

import pytest
from langchain_core.messages import AIMessage

from segue.journal.journal import Journal
from segue.journal.postgres.tx import FOUND
from segue.journal.search import EXCERPT_SIZES, owner_mark
from segue.journal.sqlite.tx import HITS
from segue.journal.tx import for_postgres
from segue.testing.journal_contract.chat import Chat
from segue.testing.journal_contract.fixtures import START, ticking_ids
from segue.testing.postgres import PostgresServer
from tests.journal.old_schemas import UNMARKED_FILE, UNMARKED_SERVER
from tests.journal.stores import ask, change, is_file, journal_at, raw

pytestmark = pytest.mark.anyio

OTHERS = 300
WORD = "lighthouse"


async def tell(journal: Journal) -> Chat:
    """One message of Ada's and many of Bob's with the same word."""
    chat = await Chat(journal, ticking_ids(), START).begin()
    await chat.say(f"Is the {WORD} open?")
    bobs = await chat.another("bobs", user_id="bob")
    for number in range(OTHERS):
        await bobs.say(f"Lighthouse {number}")
    return chat


async def test_a_search_reads_only_the_users_own_rows(address: str) -> None:
    """Else its time would tell what others write, and grow with all that they wrote."""
    journal = journal_at(address)
    await journal.open()
    await tell(journal)
    assert len(await journal.search.find("ada", WORD)) == 1
    await journal.close()
    term = f"{owner_mark('ada')}{WORD}"
    if is_file(address):
        assert ask(address, f"SELECT count(*) FROM messages_terms WHERE term = '{term}'") == [(1,)]  # noqa: S608 - ours
        with raw(address) as connection:
            values = {"terms": "{}", "user": "ada", "thread": None}
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {HITS}", values)]
        # The two virtual tables are read by what was asked, all others by a key.
        scans = [line for line in plan if line.startswith("SCAN")]
        assert [line.split()[1] for line in scans] == ["asked", "messages_terms"]
        # The rows of all matches hold their words and bodies: the index alone is read.
        assert any("indexed_messages USING COVERING INDEX" in line for line in plan)
        assert not any(" messages " in line for line in plan)
        return
    index = scan_of_words(address, "ada")
    assert re.search(r"actual rows=1(\.0+)? ", index), index


def scan_of_words(address: str, user: str) -> str:
    """The line of PostgreSQL's plan for a search that reads the index of words."""
    term = f"{owner_mark(user)}{WORD}"
    names = {"words": [term], "query": term, "user": user, "thread": None, "limit": 20}
    names |= {**EXCERPT_SIZES, "excerpt_words": [WORD]}
    with raw(address) as connection:
        connection.execute("ANALYZE")
        connection.execute("SET enable_seqscan = off")
        sql = f"EXPLAIN (ANALYZE, TIMING off) {for_postgres(FOUND).decode()}"
        lines = connection.execute(sql, names).fetchall()
    [index] = [line for (line,) in lines if "on messages_words" in line]
    return str(index)


async def test_a_search_on_postgres_reads_the_index_once_for_all_threads(
    server: PostgresServer,
) -> None:
    """Not once for each: with sixty threads, a common word took seconds."""
    address = server.create_database()
    journal = journal_at(address)
    await journal.open()
    chat = await tell(journal)
    for number in range(20):
        await chat.another(f"more-{number}", user_id="bob")
    await journal.close()
    index = scan_of_words(address, "bob")
    assert re.search(rf"actual rows={OTHERS}(\.0+)? loops=1\b", index), index


async def test_what_others_write_changes_neither_order_nor_score(address: str) -> None:
    """A word is as rare as it is in what the user has."""
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    for text in ("the red mill", "the old mill", "the red boat", "a house", "a garden", "a cat"):
        await chat.say(text)
    before = await journal.search.find("ada", "red mill boat")
    bobs = await chat.another("bobs", user_id="bob")
    for number in range(50):
        await bobs.say(f"red boat {number}")
    assert await journal.search.find("ada", "red mill boat") == before
    await journal.close()


async def test_the_mark_of_a_user_is_not_found(address: str) -> None:
    """Neither by itself nor with a word, and by no other user."""
    journal = journal_at(address)
    await journal.open()
    await tell(journal)
    for user in ("ada", "bob"):
        mark = owner_mark("ada")
        assert await journal.search.find(user, f"{mark} {mark}{WORD} {mark}*") == []
    await journal.close()


async def test_an_older_index_is_made_anew(address: str) -> None:
    """All that was found before is found after, with the same scores, and can be deleted."""
    journal = journal_at(address)
    await journal.open()
    chat = await tell(journal)
    await chat.finish(await chat.take_turn(), AIMessage("Café LIGHTHOUSE: lighthouse, ½ ٣ 漢字!"))
    await chat.say("🙂")
    words = f"{WORD} cafe open 漢字"
    before = {user: await journal.search.find(user, words, limit=500) for user in ("ada", "bob")}
    assert [len(found) for found in before.values()] == [2, OTHERS]
    await journal.close()
    change(address, UNMARKED_FILE if is_file(address) else UNMARKED_SERVER)
    again = journal_at(address)
    await again.open()
    for user, found in before.items():
        assert await again.search.find(user, words, limit=500) == found
    await again.threads.delete("bobs")
    assert await again.search.find("bob", WORD) == []
    assert len(await again.search.find("ada", WORD)) == 2
    await again.close()


async def test_a_repeated_word_costs_a_search_no_more_than_a_few(address: str) -> None:
    """One message of a hundred thousand letters must not hold up the searches of all users."""
    journal = journal_at(address)
    await journal.open()
    chat = await Chat(journal, ticking_ids(), START).begin()
    await chat.say(f"{WORD} " * 9_000)
    await chat.say(f"The {WORD} of Oslo")
    assert len(await journal.search.find("ada", WORD)) == 2
    await journal.close()
    if is_file(address):
        [(rows,)] = ask(address, "SELECT count(*) FROM messages_terms")
    else:
        [(rows,)] = ask(address, "SELECT sum(word_count) FROM messages")
    assert rows == 8 + 4
