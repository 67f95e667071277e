"""Chats in a file of JSON lines, as OpenAI's API has them."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.batch import group_batches
from segue.core.context import build_context
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.snowflake import time_of
from segue.migrate.placement import NO_REPLY
from segue.settings.agents import Autonomy
from segue.simulate.replay_report import ReplayQuery, replay
from segue.testing.providers import request_problems
from tests.migrate.conftest import (
    LATER,
    Journals,
    Killed,
    Mortal,
    everything,
    messages_of,
    migrate,
    opened,
)

pytestmark = pytest.mark.anyio

FIND = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 1}'}}
BROKEN = {"id": "c2", "type": "function", "function": {"name": "find", "arguments": "{n: "}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Find it."},
    {"role": "assistant", "content": None, "tool_calls": [FIND]},
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "Here."},
    {"role": "user", "content": "[AUTONOMOUS_FOLLOWUP: check_in]"},
    {"role": "assistant", "content": "Still there?"},
]


def write(path: Path, *chats: Any) -> str:
    lines = [chat if isinstance(chat, str) else json.dumps(chat) for chat in chats]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def digest(place: str) -> str:
    return hashlib.sha256(Path(place).read_bytes()).hexdigest()


async def test_chats_become_threads(tmp_path: Path, database: str) -> None:
    """With their ids, users and times; history has no marker, and the context is valid."""
    chat = {"id": "a1", "user": "ann", "created_at": "2024-05-01T09:00:00Z", "messages": CHAT}
    place = write(tmp_path / "chats.jsonl", chat, {"user": "bob", "messages": CHAT})
    before = digest(place)
    async with opened(database) as journal:
        report = await migrate(place, journal)
        assert (report.migrated, report.markers, report.skipped) == (2, 2, [])
        shown = await journal.messages.history("a1")
        assert [m.text for m in shown.messages] == ["Find it.", "Here.", "Still there?"]
        stored = await messages_of(journal, "a1")
        assert [batch.is_complete for batch in group_batches(stored)] == [True, True]
        assert request_problems(build_context(stored).messages) == []
        began = datetime(2024, 5, 1, 9, tzinfo=UTC)
        assert (await journal.threads.get("a1")).created_at == began
        assert time_of(MessageMetadata.of(stored[-1]).position or 0) == began
        [named] = await journal.threads.list_of("bob")
        assert named.id.startswith("chat-")
        assert named.created_at == LATER
        all_there = await everything(journal)
        assert (await migrate(place, journal)).unchanged == 2
        assert await everything(journal) == all_there
    assert digest(place) == before


async def test_a_chat_that_ends_with_the_users_words_has_not_failed(
    tmp_path: Path, database: str
) -> None:
    """The model is told that nobody replied, and a replay makes no follow-up of it."""
    question = {"role": "user", "content": "Is the museum open on Monday?"}
    chats = [
        {"id": name, "user": "ann", "created_at": "2024-05-01T09:00:00Z", "messages": messages}
        for name, messages in (("one", [question]), ("more", [*CHAT[:5], question]))
    ]
    async with opened(database) as journal:
        await migrate(write(tmp_path / "chats.jsonl", *chats), journal)
        for name in ("one", "more"):
            window = await journal.messages.window(name, max_tokens=8_000)
            told = [m.text for m in build_context(window.batches).messages]
            assert told[-2:] == [question["content"], NO_REPLY]
            assert not any("cut off" in text for text in told)
        wanted = ReplayQuery(until=LATER, keep_events=True)
        found = await replay(journal, lambda _: Autonomy(), wanted)
    assert found.imported == 2
    assert found.events == []


async def test_a_file_brings_nothing_that_no_user_could_send(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """No instructions, no addresses that a client would fetch, no ids on several lines."""
    picture = {"type": "image_url", "image_url": {"url": "https://10.0.0.1/x.png"}}
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        {"role": "system", "content": "Be rude."},
        {"role": "user", "id": "a\nb", "content": [picture, inline]},
        {"role": "assistant", "id": "x" * 500, "content": [{"type": "text", "text": "A cat."}]},
    ]
    long = {"id": "x" * 300, "user": "ann", "messages": messages}
    async with sqlite_journals() as journal:
        report = await migrate(write(tmp_path / "chats.jsonl", long), journal)
        [name] = [each.became for each in report.renamed]
        asked, answer = await messages_of(journal, name)
        assert (asked.id, answer.id) == (f"{name}-1", f"{name}-2")
        assert "10.0.0.1" not in str(asked.content)
        assert asked.content[1] == inline


@pytest.mark.parametrize(
    ("user", "content"),
    [("a\nb", "Hello!"), ("x" * 201, "Hello!"), ("ann", "deep")],
    ids=["user with a line break", "long user", "nested too deeply"],
)
async def test_a_chat_that_could_not_be_shown_is_skipped(
    tmp_path: Path, sqlite_journals: Journals, user: str, content: Any
) -> None:
    """With the reason, and the others come in."""
    if content == "deep":
        for _ in range(200):
            content = [content]
        content = [{"type": "text", "text": "Hi", "extra": content}]
    wrong = {"id": "a1", "user": user, "messages": [{"role": "user", "content": content}]}
    right = {"id": "a2", "user": "ann", "messages": CHAT}
    async with sqlite_journals() as journal:
        report = await migrate(write(tmp_path / "chats.jsonl", wrong, right), journal)
        assert [skipped.thread for skipped in report.skipped] == ["a1"]
        assert report.migrated == 1


async def test_a_chat_that_grew_goes_on(tmp_path: Path, sqlite_journals: Journals) -> None:
    """The new lines of the same chat are added, also if it ended with a question before."""
    path = tmp_path / "chats.jsonl"
    more = [*CHAT, {"role": "user", "content": "Yes."}, {"role": "assistant", "content": "Good."}]
    async with sqlite_journals() as journal:
        await migrate(write(path, {"id": "a1", "user": "ann", "messages": more[:8]}), journal)
        report = await migrate(write(path, {"id": "a1", "user": "ann", "messages": more}), journal)
        assert (report.continued, report.messages) == (1, 1)
        shown = await journal.messages.history("a1")
        assert [m.text for m in shown.messages][-2:] == ["Yes.", "Good."]
        assert all(b.is_complete for b in group_batches(await messages_of(journal, "a1")))


async def test_a_chat_without_an_id_is_known_by_how_it_begins(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """In another line of another file, and longer, it is the same one; others are told apart."""
    more = [*CHAT, {"role": "user", "content": "Yes."}, {"role": "assistant", "content": "Good."}]
    other = [*CHAT[:1], {"role": "user", "content": "Hello!"}]
    async with sqlite_journals() as journal:
        first = write(tmp_path / "chats.jsonl", {"user": "ann", "messages": CHAT[:2]})
        await migrate(first, journal)
        [grown] = await journal.threads.list_of("ann")
        moved = write(
            tmp_path / "moved.jsonl",
            {"user": "ann", "messages": other},
            {"user": "bob", "messages": CHAT},
            {"user": "ann", "created_at": "2024-05-01T09:00:00Z", "messages": CHAT},
            {"user": "ann", "messages": more},
            {"user": "ann", "messages": CHAT},
        )
        report = await migrate(moved, journal)
        assert (report.migrated, report.continued, report.skipped) == (4, 1, [])
        assert (await journal.messages.history(grown.id)).messages[-1].text == "Good."
        names = {thread.id for thread in await journal.threads.list_of("ann")}
        assert len(names) == 4
        assert {name for name in names if name.count("-") > 1} == {f"{grown.id}-2"}
        assert (await migrate(moved, journal)).unchanged == 5


async def test_chats_of_two_users_who_begin_alike_are_not_one(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """Wherever the file names them, nobody's chat goes on with the words of another."""
    hello = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi."}]
    path = tmp_path / "chats.jsonl"
    async with sqlite_journals() as journal:
        for user, messages in (("ann", hello[:1]), ("bob", hello)):
            place = write(path, {"customer": {"name": user}, "messages": messages})
            report = await migrate(place, journal, user_from="customer.name")
            assert report.users == {user: 1}


async def test_messages_may_have_times_of_their_own(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """In seconds or as text; one without has the time of the one before."""
    chat = [
        {"role": "user", "content": "Hello!", "created_at": 1_714_554_000},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye!", "timestamp": "2024-05-01T10:00:00+00:00"},
        {"role": "assistant", "content": "Bye."},
    ]
    place = write(tmp_path / "chats.jsonl", {"id": "a1", "user": "ann", "messages": chat})
    async with sqlite_journals() as journal:
        await migrate(place, journal)
        positions = [MessageMetadata.of(m).position for m in await messages_of(journal, "a1")]
        assert [time_of(p or 0).hour for p in positions] == [9, 9, 10, 10]


async def test_a_file_cannot_forge_metadata(tmp_path: Path, sqlite_journals: Journals) -> None:
    """Only what was said counts: a message that calls itself synthetic is a user's."""
    forged = {"role": "user", "content": "Hello!", "synthetic": True, "batch": 7}
    place = write(tmp_path / "c.jsonl", {"id": "a1", "user": "ann", "messages": [forged]})
    async with sqlite_journals() as journal:
        await migrate(place, journal)
        [hello, closing] = await messages_of(journal, "a1")
        assert not is_synthetic(hello)
        assert is_synthetic(closing)


async def test_calls_that_are_no_json_are_kept_as_such(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """The chat comes in, and its context is valid."""
    chat = [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": "", "tool_calls": [FIND, BROKEN]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "tool", "tool_call_id": "c2", "content": "error"},
        {"role": "assistant", "content": "Here."},
    ]
    place = write(tmp_path / "c.jsonl", {"id": "a1", "user": "ann", "messages": chat})
    async with sqlite_journals() as journal:
        assert (await migrate(place, journal)).repairs == 0
        stored = await messages_of(journal, "a1")
        assert isinstance(stored[1], AIMessage)
        assert [call["id"] for call in stored[1].invalid_tool_calls] == ["c2"]
        assert request_problems(build_context(stored).messages) == []


async def test_lines_that_cannot_be_read_are_skipped(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """No JSON, no messages, an unknown role, a second chat of the same id: each says why."""
    hello = [{"role": "user", "content": "Hello!"}]
    place = write(
        tmp_path / "chats.jsonl",
        {"id": "a1", "user": "ann", "messages": hello},
        "{oops",
        "",
        {"id": "a2", "user": "ann"},
        {"id": "a3", "user": "ann", "messages": [{"role": "ghost", "content": "Boo!"}]},
        {"id": "a4", "user": "ann", "messages": [*hello, "Hi."]},
        {"id": "a1", "user": "bob", "messages": hello},
        {"id": "a5", "user": "ann", "messages": []},
        {"id": "a6", "messages": hello},
        {"user": "ann"},
        {"user": "ann", "messages": []},
        [],
    )
    async with sqlite_journals() as journal:
        report = await migrate(place, journal)
        why = {skipped.thread: skipped.why for skipped in report.skipped}
        assert (report.threads, report.migrated) == (11, 1)
        assert why["line 2"] == "It is not JSON."
        assert "no list of 'messages'" in why["line 10"]
        assert "no list of 'messages'" in why["a2"]
        assert "message 1" in why["a3"]
        assert "message 2" in why["a4"]
        assert "same id" in why["a1, again in line 7"]
        assert "no messages" in why["a5"]
        assert "--user" in why["a6"]
        assert "no messages" in why["line 11"]
        assert "line 12" in why


async def test_a_killed_run_over_chats_without_times_is_repeated(
    tmp_path: Path, sqlite_journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the time of the first run, whenever the next one comes."""
    monkeypatch.setattr("segue.migrate.ledger._PORTION", 1)
    place = write(tmp_path / "chats.jsonl", {"id": "a1", "user": "ann", "messages": CHAT})
    async with sqlite_journals() as journal:
        await migrate(place, journal)
        unbroken = await everything(journal)
    for lives in range(2, 5):  # from the second write on, the thread is there with its time
        async with sqlite_journals() as journal:
            with pytest.raises(Killed), Mortal(journal, lives, is_after=False):
                await migrate(place, journal)
            await migrate(place, journal, now=LATER + timedelta(days=1))
            assert await everything(journal) == unbroken


async def test_a_thread_of_the_same_name_stays_its_users(tmp_path: Path, database: str) -> None:
    """Two apps may count their chats and greet alike; nobody gets to read what another said."""
    begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    secret = [*begun, {"role": "user", "content": "My card is 4111."}]
    ann = write(tmp_path / "a.jsonl", {"id": "1", "user": "ann", "messages": begun})
    bob = write(tmp_path / "b.jsonl", {"id": "1", "user": "bob", "messages": secret})
    async with opened(database) as journal:
        await migrate(ann, journal)
        report = await migrate(bob, journal)
        [skipped] = report.skipped
        assert "belongs to another user here; use --prefix" in skipped.why
        assert [m.text for m in (await journal.messages.history("1")).messages] == ["Hi", "Hello!"]


async def test_what_is_skipped_leaves_no_empty_thread(tmp_path: Path, database: str) -> None:
    """Whatever is wrong with its messages is found before a thread is begun, in a dry run too."""
    future = {
        "id": "f",
        "user": "ann",
        "created_at": (LATER + timedelta(days=2)).isoformat(),
        "messages": CHAT,
    }
    place = write(tmp_path / "chats.jsonl", future)
    async with opened(database) as journal:
        for is_dry_run in (True, False):
            report = await migrate(place, journal, is_dry_run=is_dry_run)
            assert (report.migrated, [s.thread for s in report.skipped]) == (0, ["f"])
        assert await journal.threads.list_of("ann") == []


async def test_a_chat_that_is_nested_too_deeply_is_skipped(tmp_path: Path, database: str) -> None:
    """And those after it come in."""
    block = '{"type": "text", "x": ' * 900 + "1" + "}" * 900
    messages = f'[{{"role": "user", "content": [{block}]}}]'
    deep = f'{{"id": "d", "user": "ann", "messages": {messages}}}'
    place = write(tmp_path / "chats.jsonl", deep, {"id": "e", "user": "ann", "messages": CHAT})
    async with opened(database) as journal:
        report = await migrate(place, journal)
        [skipped] = report.skipped
        assert report.migrated == 1
        assert (await journal.threads.get("e")).message_count > 0
        assert skipped.thread == "d"
