"""What is deleted is gone from a SQLite file and its log at once, also while it is open."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from segue.errors import BackendError
from segue.journal.memories import NewMemory
from segue.journal.sqlite import SqliteJournal, database
from segue.journal.tables import THREADS
from segue.testing.journal_contract.chat import Chat, texts
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

# One word, which begins as no other does: the index of words leaves out what words share.
WORD = "xyloword"
LONG = "This goes on for a while. " * 400


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def chat(journal: SqliteJournal) -> Chat:
    return await Chat(journal, ticking_ids(), START).begin()


def files_with(folder: Path, word: str = WORD) -> list[str]:
    return [file.name for file in sorted(folder.iterdir()) if word.encode() in file.read_bytes()]


async def whisper(chat: Chat) -> None:
    """The word in a title, in short and long messages, in a draft, and in the search."""
    await chat.journal.threads.update(chat.thread_id, title=f"Of {WORD}")
    await chat.exchange(f"My {WORD} is here.", f"{LONG} {WORD} {LONG}")
    await chat.say("And now?")
    lease = await chat.take_turn()
    await chat.journal.turns.save_draft(lease, "draft", f"Your {WORD} is")
    await chat.finish(lease, AIMessage("Gone."))


async def remember(chat: Chat) -> None:
    fact = NewMemory("guide", "ada", WORD, f"Has a {WORD}. {LONG}", {"of": WORD})
    await chat.journal.memories.put(fact, ids=chat.ids, now=chat.now)


async def test_a_deleted_thread_leaves_no_word_in_the_files(
    journal: SqliteJournal, chat: Chat, tmp_path: Path
) -> None:
    """Neither in free pages, nor in the index of words, nor in the log; others keep theirs."""
    secret = await chat.another("secret")
    for number in range(30):  # pages that are shared with others, and split
        await chat.exchange(f"Question {number}?", f"Answer {number}.")
        await whisper(secret)
    assert files_with(tmp_path)
    await journal.threads.delete("secret")
    assert files_with(tmp_path) == []
    assert len(await journal.search.find("ada", "question")) == 20
    assert texts((await journal.messages.history("chat", limit=2)).messages) == [
        "Question 29?",
        "Answer 29.",
    ]


async def test_the_index_of_all_users_is_merged_a_few_times_a_minute(
    journal: SqliteJournal, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge writes the whole index, so deleting thread after thread must not repeat it. Closing
    the journal merges what is left.
    """
    merges: list[object] = []
    merge = journal.db._merge_index

    async def counted() -> bool:
        merges.append(None)
        return await merge()

    monkeypatch.setattr(journal.db, "_merge_index", counted)
    for number in range(8):
        await whisper(await chat.another(f"secret {number}"))
        await journal.threads.delete(f"secret {number}")
    assert len(merges) == 5
    await journal.close()
    assert len(merges) == 6
    assert files_with(tmp_path) == []


@pytest.mark.parametrize("part", ["_merge_index", "_empty_log"])
async def test_a_deletion_whose_traces_cannot_be_wiped_yet_is_done(
    journal: SqliteJournal,
    chat: Chat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    """The caller is not told that nothing was written; the file is wiped as soon as it can be."""
    monkeypatch.setattr(database, "_MERGE_SECONDS", 0.01)
    monkeypatch.setattr(database, "_FOLD_AGAIN_SECONDS", 0.01)
    work, failures = getattr(journal.db, part), iter(range(2))

    async def refused() -> bool:
        if next(failures, None) is not None:
            raise BackendError("The disk is full.")
        return bool(await work())

    monkeypatch.setattr(journal.db, part, refused)
    await whisper(await chat.another("secret"))
    assert (await journal.threads.delete("secret")).rows["threads"] == 1
    while waiting := journal.db._merging or journal.db._folding:
        await waiting
    assert next(failures, None) is None
    assert files_with(tmp_path) == []


async def test_a_forgotten_memory_leaves_no_word_in_the_files(
    journal: SqliteJournal, chat: Chat, tmp_path: Path
) -> None:
    """Neither its content, nor its key, nor the words that it is found by."""
    await remember(chat)
    assert files_with(tmp_path)
    assert await journal.memories.delete("guide", "ada", WORD)
    assert files_with(tmp_path) == []


async def test_a_replaced_memory_leaves_no_word_in_the_file(
    journal: SqliteJournal, chat: Chat, tmp_path: Path
) -> None:
    """The log may hold it until it is emptied, as the next deletion does."""
    await remember(chat)
    other = NewMemory("guide", "ada", "other", "Likes tea.")
    for fact in (NewMemory("guide", "ada", WORD, "Had one."), other):
        await journal.memories.put(fact, ids=chat.ids, now=chat.now)
    await journal.memories.delete("guide", "ada", "other")
    assert files_with(tmp_path, f"Has a {WORD}") == []


async def test_removed_batches_leave_no_word_in_the_files(
    journal: SqliteJournal, chat: Chat, tmp_path: Path
) -> None:
    """Retention wipes once, after all that it removes."""
    first = await chat.exchange(f"My {WORD} is here.", f"{LONG} {WORD}")
    await chat.exchange("Is it open?", "Yes.")
    await journal.removal.remove_batches("chat", [first])
    await journal.removal.wipe()
    assert files_with(tmp_path) == []


async def test_the_log_is_emptied_when_a_long_reader_ends(
    journal: SqliteJournal, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that reads meanwhile is not waited for, and nobody who writes waits for it."""
    monkeypatch.setattr(database, "_FOLD_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(database, "_FOLD_MILLISECONDS", 0)
    await whisper(await chat.another("secret"))
    async with journal.transfer.snapshot() as rows:
        await journal.threads.delete("secret")
        assert [row["id"] for row in await rows.read_rows(THREADS)] == ["chat", "secret"]
        assert files_with(tmp_path)
        waiting = journal.db._folding
        assert waiting is not None
    await waiting
    assert files_with(tmp_path) == []
    await chat.exchange("Is it open?", "Yes.")


async def test_a_journal_can_be_closed_while_its_log_waits(
    journal: SqliteJournal, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the last connection empties the log as well."""
    monkeypatch.setattr(database, "_FOLD_MILLISECONDS", 0)
    await whisper(await chat.another("secret"))
    async with journal.transfer.snapshot():
        await journal.threads.delete("secret")
    await journal.close()
    assert files_with(tmp_path) == []
