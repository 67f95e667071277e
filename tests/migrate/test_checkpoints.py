"""Threads of LangGraph apps, from both official savers to both databases."""

import shutil
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from segue.core.batch import CUT_OFF_REPLY, INTERRUPTED_RESULT, group_batches
from segue.core.context import build_context
from segue.core.messages import user_message
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.snowflake import time_of
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import BackendError, NotFoundError, UsageError
from segue.migrate import SETTING, checkpoints
from segue.migrate.migration import open_source
from segue.runtime.ids import SnowflakeGenerator
from segue.testing.postgres import PostgresServer
from segue.testing.providers import request_problems
from tests.migrate.apps import App, calling, sqlite_app, tell_old_stories
from tests.migrate.conftest import (
    LATER,
    Journals,
    Killed,
    Mortal,
    OldApp,
    check_strikes,
    everything,
    messages_of,
    migrate,
    opened,
)

pytestmark = pytest.mark.anyio


async def test_threads_of_an_app_come_in_whole(old_app: OldApp, database: str) -> None:
    """Each user's threads have their words in order, nobody sees a marker, and the source is as it
    was.
    """
    tell_old_stories(old_app.app)
    before = old_app.digest()
    async with opened(database) as journal:
        report = await migrate(old_app.place, journal)
        assert (report.threads, report.migrated, report.skipped) == (3, 3, [])
        assert (report.markers, report.orphans, report.repairs) == (1, 0, 2)
        trip = await journal.messages.history("trip")
        said = ["Hello!", "Hi Ann!", "Still there?", "Rome, please.", "Rome it is."]
        assert [message.text for message in trip.messages] == said
        order = await journal.messages.history("order")
        assert [m.text for m in order.messages] == ["Find both.", "Hello?", "Yes?"]
        assert [t.id for t in await journal.threads.list_of("ann")] == ["trip"]
        assert {t.id for t in await journal.threads.list_of("bob")} == {"order", "cut"}
        trigger = next(m for m in await messages_of(journal, "trip") if is_synthetic(m))
        assert trigger.text == TRIGGER_PROMPTS[TriggerType.CHECK_IN]
    assert old_app.digest() == before


async def test_what_comes_in_is_valid_for_every_provider(old_app: OldApp, database: str) -> None:
    """Runs that broke off are settled: their words and finished results reach the model."""
    tell_old_stories(old_app.app)
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        for thread, messages in await everything(journal):
            assert all(batch.is_complete for batch in group_batches(messages)), thread.id
            context = build_context(messages)
            assert context.dropped == []
            assert request_problems(context.messages) == []
        results = [m.text for m in await messages_of(journal, "cut") if isinstance(m, ToolMessage)]
        assert results == ["found b", INTERRUPTED_RESULT]
        assert (await messages_of(journal, "cut"))[-1].text == CUT_OFF_REPLY


async def test_messages_keep_the_times_at_which_they_were_stored(
    old_app: OldApp, database: str
) -> None:
    """Each position holds the time of the first checkpoint that had the message."""
    tell_old_stories(old_app.app)
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        for name in ("trip", "order"):
            seen = old_app.app.first_seen(name)
            stored = {m.id or "": m for m in await messages_of(journal, name)}
            assert seen.keys() <= stored.keys()
            for message_id, moment in seen.items():
                position = MessageMetadata.of(stored[message_id]).position or 0
                assert abs(time_of(position) - moment) < timedelta(milliseconds=2)
            thread = await journal.threads.get(name)
            first, last = min(seen.values()), max(seen.values())
            assert abs(thread.created_at - first) < timedelta(milliseconds=2)
            assert thread.updated_at <= last + timedelta(milliseconds=2)


async def test_a_second_run_changes_nothing(old_app: OldApp, database: str) -> None:
    """Done again, the same source leaves every thread and message as it is."""
    tell_old_stories(old_app.app)
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        before = await everything(journal)
        report = await migrate(old_app.place, journal)
        assert (report.unchanged, report.messages) == (3, 0)
        assert await everything(journal) == before


async def test_a_source_that_grew_gives_what_is_new(old_app: OldApp, database: str) -> None:
    """New batches are added, and what was there keeps its place."""
    app = old_app.app
    tell_old_stories(app)
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        before = await messages_of(journal, "trip")
        app.say("trip", "And Oslo?", calling("Oslo"), "Oslo, too.", user_id="ann")
        report = await migrate(old_app.place, journal)
        assert (report.continued, report.unchanged, report.messages) == (1, 2, 4)
        after = await messages_of(journal, "trip")
        assert after[: len(before)] == before
        assert [m.text for m in after[len(before) :]] == [
            "And Oslo?",
            "",
            "found Oslo",
            "Oslo, too.",
        ]
        [new] = group_batches(after[len(before) :])
        assert new.is_complete


async def test_a_run_that_goes_on_after_it_was_settled_is_added_to_its_batch(
    old_app: OldApp, database: str
) -> None:
    """The real reply is shown, and the model's view stays valid."""
    app = old_app.app
    app.break_off("cut", "Find these.", calling("b", "nothing"), user_id="bob")
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        app.go_on("cut", "Here you are.")
        report = await migrate(old_app.place, journal)
        assert (report.continued, report.skipped) == (1, [])
        shown = await journal.messages.history("cut")
        assert [m.text for m in shown.messages] == ["Find these.", "Here you are."]
        stored = await messages_of(journal, "cut")
        assert [batch.is_complete for batch in group_batches(stored)] == [True]
        assert request_problems(build_context(stored).messages) == []


async def test_a_result_that_the_app_gave_up_does_not_stand_in_the_way(
    old_app: OldApp, database: str
) -> None:
    """LangGraph forgets the results of a cut-off step when the user writes; the thread goes on."""
    app = old_app.app
    app.break_off("cut", "Find these.", calling("b", "nothing"), user_id="bob")
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        app.say("cut", "Hello?", "Yes?", user_id="bob")
        report = await migrate(old_app.place, journal)
        assert (report.continued, report.messages, report.skipped) == (1, 2, [])
        shown = await journal.messages.history("cut")
        assert [m.text for m in shown.messages] == ["Find these.", "Hello?", "Yes?"]
        stored = await messages_of(journal, "cut")
        assert request_problems(build_context(stored).messages) == []


async def test_a_batch_that_may_be_going_on_is_held_back(old_app: OldApp, database: str) -> None:
    """An app at work is not cut in the middle: its last batch comes when it is finished or old."""
    app = old_app.app
    app.say("cut", "Hello!", "Hi.", user_id="bob")
    app.break_off("cut", "Find these.", calling("nothing"), user_id="bob")
    at_work = LATER - timedelta(hours=1)
    async with opened(database) as journal:
        report = await migrate(old_app.place, journal, now=at_work)
        assert (report.migrated, report.held_back, report.repairs) == (1, 1, 0)
        assert [m.text for m in await messages_of(journal, "cut")] == ["Hello!", "Hi."]
        again = await migrate(old_app.place, journal, now=at_work)
        assert (again.unchanged, again.held_back, again.messages) == (1, 1, 0)
        later = await migrate(old_app.place, journal)
        assert (later.continued, later.held_back, later.repairs) == (1, 0, 1)
        history = await journal.messages.history("cut")
        assert [m.text for m in history.messages] == ["Hello!", "Hi.", "Find these."]


async def test_a_thread_that_went_on_here_takes_nothing_more(
    old_app: OldApp, database: str
) -> None:
    """Two endings of one conversation are not mixed; the report says so."""
    old_app.app.say("trip", "Hello!", "Hi.", user_id="ann")
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        ids = SnowflakeGenerator(node=1)
        await journal.inbox.accept("trip", user_message("I am here now."), ids=ids, now=LATER)
        old_app.app.say("trip", "And there.", "Hm.", user_id="ann")
        before = await everything(journal)
        report = await migrate(old_app.place, journal)
        assert "continued here" in report.skipped[0].why
        assert await everything(journal) == before


async def test_a_conversation_that_was_rewritten_is_left_alone(
    old_app: OldApp, database: str
) -> None:
    """If the source's beginning is another one now, nothing is guessed."""
    old_app.app.say("trip", [HumanMessage("Hello!", id="m-1")], "Hi.", user_id="ann")
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        old_app.app.say("trip", [HumanMessage("Good day!", id="m-1")], "Hi.", user_id="ann")
        before = await everything(journal)
        [skipped] = (await migrate(old_app.place, journal)).skipped
        assert skipped.thread == "trip"
        assert "--prefix" in skipped.why
        assert await everything(journal) == before


async def test_a_dry_run_tells_all_and_writes_nothing(old_app: OldApp, database: str) -> None:
    """Its numbers are those of the run that follows."""
    tell_old_stories(old_app.app)
    async with opened(database) as journal:
        tried = await migrate(old_app.place, journal, is_dry_run=True)
        assert await everything(journal) == []
        done = await migrate(old_app.place, journal)
        tried.is_dry_run = False
        assert tried == done
    assert (await migrate(old_app.place, None)).messages == done.messages


async def test_a_killed_run_repeated_gives_the_same_as_an_unbroken_one(
    tmp_path: Path, sqlite_journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is struck, the next run ends with the same threads, messages and positions."""
    monkeypatch.setattr("segue.migrate.ledger._PORTION", 2)
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        tell_old_stories(app)
    assert await check_strikes(sqlite_journals, str(path)) > 20


async def test_a_source_may_grow_after_a_run_was_killed(
    tmp_path: Path, sqlite_journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the killed run had begun is finished first, and what is new comes after it."""
    said = ["Hello!", "Hi.", "Find these.", "Here you are.", "Thanks!", "Welcome."]
    monkeypatch.setattr("segue.migrate.ledger._PORTION", 2)
    before, grown = tmp_path / "before.sqlite", tmp_path / "grown.sqlite"
    with sqlite_app(before) as app:
        app.say("trip", "Hello!", "Hi.", user_id="ann")
        app.break_off("trip", "Find these.", calling("b", "nothing"), user_id="ann")
    shutil.copyfile(before, grown)
    with sqlite_app(grown) as app:
        app.go_on("trip", "Here you are.")
        app.say("trip", "Thanks!", "Welcome.", user_id="ann")
    struck = 0
    for is_after in (False, True):
        for lives in range(1, 7):
            async with sqlite_journals() as journal:
                with suppress(Killed), Mortal(journal, lives, is_after) as mortal:
                    await migrate(str(before), journal)
                struck += mortal.is_dead
                for _ in range(2):
                    assert (await migrate(str(grown), journal)).skipped == []
                shown = [m.text for m in (await journal.messages.history("trip")).messages]
                assert shown == said
                stored = await messages_of(journal, "trip")
                assert all(batch.is_complete for batch in group_batches(stored))
                assert request_problems(build_context(stored).messages) == []
    assert struck > 5


async def test_what_is_known_is_not_read_again(tmp_path: Path, sqlite_journals: Journals) -> None:
    """A second run looks at the marks alone: of threads that did not change nothing is read."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        tell_old_stories(app)
    async with sqlite_journals() as journal:
        await migrate(str(path), journal)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE checkpoints SET checkpoint = x'c1'")
        report = await migrate(str(path), journal)
        assert (report.unchanged, report.skipped) == (3, [])


async def test_threads_are_named_apart_by_a_prefix(old_app: OldApp, database: str) -> None:
    """A thread that is there already and is no migrated one is not touched."""
    old_app.app.say("trip", "Hello!", "Hi.", user_id="ann")
    async with opened(database) as journal:
        await journal.threads.create("trip", agent_id="guide", user_id="cyd", now=LATER)
        [skipped] = (await migrate(old_app.place, journal)).skipped
        assert "--prefix" in skipped.why
        assert (await migrate(old_app.place, journal, prefix="old-")).migrated == 1
        assert [t.id for t in await journal.threads.list_of("ann")] == ["old-trip"]


async def test_owners_are_found_or_given(tmp_path: Path, sqlite_journals: Journals) -> None:
    """By a path in the metadata, by the option for those that do not say, or not at all."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        app.say("one", "Hello!", "Hi.", customer="ann", bot="clerk")
        app.say("two", "Hello!", "Hi.", bot="butler")
        app.say("a/b", "Hello!", "Hi.", customer="bob")
    async with sqlite_journals() as journal:
        nobody = await migrate(str(path), journal)
        assert [each.thread for each in nobody.skipped] == ["a/b", "one", "two"]
        assert "--user" in nobody.skipped[0].why
        found: Any = {"user_from": "metadata.customer", "agent_from": "metadata.bot"}
        report = await migrate(str(path), journal, user="cyd", **found)
        assert [(s.thread, "butler" in s.why) for s in report.skipped] == [("two", True)]
        [one] = await journal.threads.list_of("ann")
        assert (one.id, one.agent_id) == ("one", "clerk")
        [nested] = await journal.threads.list_of("bob")
        assert "/" not in nested.id
        await migrate(str(path), journal, user="cyd", user_from="metadata.customer")
        [two] = await journal.threads.list_of("cyd")
        assert two.id == "two"


async def test_a_user_that_is_given_gets_only_what_nobody_has(
    old_app: OldApp, database: str
) -> None:
    """Threads that name a user stay with that one, and the report says how many went to whom."""
    tell_old_stories(old_app.app)
    old_app.app.say("nobody", "Hello!", "Hi.")
    async with opened(database) as journal:
        tried = await migrate(old_app.place, journal, user="cyd", is_dry_run=True)
        report = await migrate(old_app.place, journal, user="cyd")
        assert tried.users == report.users == {"ann": 1, "bob": 2, "cyd": 1}
        assert [thread.id for thread in await journal.threads.list_of("cyd")] == ["nobody"]
        assert [thread.id for thread in await journal.threads.list_of("ann")] == ["trip"]
        assert (await migrate(old_app.place, journal, user="cyd")).users == {}


async def test_a_thread_that_cannot_keep_its_name_is_told_with_both(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """Also in a later run, so that it can be found; a prefix alone is no other name."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        app.say("bob/work", "Hello!", "Hi.", user_id="bob")
        app.say("trip", "Hello!", "Hi.", user_id="bob")
    async with sqlite_journals() as journal:
        for _ in range(2):
            [renamed] = (await migrate(str(path), journal, prefix="old-")).renamed
            assert renamed.thread == "bob/work"
            assert (await journal.threads.get(renamed.became)).user_id == "bob"


async def test_nothing_is_left_beside_a_file(tmp_path: Path, sqlite_journals: Journals) -> None:
    """A source that nobody has open is the same file alone in its folder, refused or read."""
    folder = tmp_path / "old"
    folder.mkdir()
    path = folder / "old.sqlite"
    with sqlite_app(path) as app:
        tell_old_stories(app)
    before = path.read_bytes(), path.stat().st_mtime_ns
    async with sqlite_journals() as journal:
        assert (await migrate(str(path), journal)).migrated == 3
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [*folder.iterdir()] == [path]
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE checkpoints RENAME TO others")
        db.commit()
    with pytest.raises(UsageError, match="no checkpoints"):
        open_source(str(path))
    assert [*folder.iterdir()] == [path]


async def test_the_log_of_an_app_that_has_its_file_open_stays(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """What it wrote and what it writes later is read, be it open before us or after."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        app.say("trip", "Hello!", "Hi.", user_id="ann")
    source = open_source(str(path))
    source.heads()
    async with sqlite_journals() as journal:
        with sqlite_app(path) as app:
            app.say("trip", "Rome?", "Rome.", user_id="ann")
            source.close()
            app.say("trip", "Oslo?", "Oslo.", user_id="ann")
            log = (tmp_path / "old.sqlite-wal").read_bytes()
            assert log
            await migrate(str(path), journal)
            assert (tmp_path / "old.sqlite-wal").read_bytes() == log
            app.say("trip", "Bye!", "Bye.", user_id="ann")
        await migrate(str(path), journal)
        shown = [message.text for message in (await journal.messages.history("trip")).messages]
        assert shown == ["Hello!", "Hi.", "Rome?", "Rome.", "Oslo?", "Oslo.", "Bye!", "Bye."]


async def test_the_log_of_an_app_that_was_killed_is_read_and_stays(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """What it had stored is in the log alone; both files are as they were."""
    killed = tmp_path / "killed"
    killed.mkdir()
    with sqlite_app(tmp_path / "old.sqlite") as app:
        app.say("trip", "Hello!", "Hi.", user_id="ann")
        for name in ("old.sqlite", "old.sqlite-wal"):
            shutil.copyfile(tmp_path / name, killed / name)
    files = [killed / "old.sqlite", killed / "old.sqlite-wal"]
    before = [path.read_bytes() for path in files]
    async with sqlite_journals() as journal:
        assert (await migrate(str(files[0]), journal)).migrated == 1
    assert [path.read_bytes() for path in files] == before


async def test_threads_of_the_async_saver_are_read(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """It writes the same tables."""
    path = tmp_path / "old.sqlite"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await App(saver).asay("trip", "Rome?", calling("Rome"), "Rome.", user_id="ann")
    async with sqlite_journals() as journal:
        assert (await migrate(str(path), journal)).migrated == 1
        assert [m.text for m in (await journal.messages.history("trip")).messages] == [
            "Rome?",
            "Rome.",
        ]


async def test_a_long_past_is_read_in_part(
    tmp_path: Path, sqlite_journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times stay in order, and within those of the thread, when most checkpoints are left out."""
    monkeypatch.setattr(checkpoints, "PAST_BYTES", 8_000)
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        for turn in range(6):
            app.say("trip", f"Question {turn}", f"Answer {turn}", user_id="ann")
        seen = app.first_seen("trip")
    async with sqlite_journals() as journal:
        await migrate(str(path), journal)
        stored = await messages_of(journal, "trip")
        times = [time_of(MessageMetadata.of(m).position or 0) for m in stored]
        slack = timedelta(milliseconds=20)
        assert times == sorted(times)
        assert len(set(times)) > 2
        assert all(seen[m.id or ""] - slack <= t for m, t in zip(stored, times, strict=True))
        assert times[-1] <= max(seen.values()) + slack


async def test_a_summary_is_not_told_as_the_users_words(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """What a middleware wrote in the user's place is told to the model, and is neither shown to a
    person nor an instruction.
    """
    path = tmp_path / "old.sqlite"
    kwargs = {"lc_source": "summarization"}
    summary = HumanMessage("Summary: they like Rome.", additional_kwargs=kwargs)
    with sqlite_app(path) as app:
        app.say("trip", [summary, HumanMessage("And now?")], "Rome.", user_id="ann")
    async with sqlite_journals() as journal:
        await migrate(str(path), journal)
        assert [m.text for m in (await journal.messages.history("trip")).messages] == [
            "And now?",
            "Rome.",
        ]
        [first, *_] = build_context(await messages_of(journal, "trip")).messages
        assert is_synthetic(first)
        assert "they like Rome" in first.text
        assert not isinstance(first, SystemMessage)


async def test_instructions_of_the_old_app_are_not_taken(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """The agent has its own here, and a stored system message would join them."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        app.say("trip", [SystemMessage("Be rude."), HumanMessage("Hi")], "Hm.", user_id="ann")
        app.say("trip", [SystemMessage("Be ruder."), HumanMessage("Well?")], "So.", user_id="ann")
    async with sqlite_journals() as journal:
        report = await migrate(str(path), journal)
        assert report.messages == 4
        stored = await messages_of(journal, "trip")
        assert [m.text for m in stored] == ["Hi", "Hm.", "Well?", "So."]
        assert [batch.is_complete for batch in group_batches(stored)] == [True, True]
        assert (await migrate(str(path), journal)).unchanged == 1


class Numbers(TypedDict):
    number: int


async def test_what_cannot_be_read_is_skipped_with_a_reason(
    tmp_path: Path, sqlite_journals: Journals
) -> None:
    """A thread without messages, a damaged one, an encrypted one, one of an unknown form."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        for thread in ("damaged", "fine", "locked", "odd"):
            app.say(thread, "Hello!", "Hi.", user_id="ann")
        builder = StateGraph(Numbers)
        builder.add_node("add", lambda state: {"number": state["number"] + 1})
        builder.add_edge(START, "add")
        graph: Any = builder.compile(checkpointer=app.saver)
        graph.invoke({"number": 1}, {"configurable": {"thread_id": "numbers"}})
    changes = {
        "damaged": "checkpoint = x'c1'",
        "locked": "type = 'msgpack+aes'",
        "odd": "type = 'x'",
    }
    with sqlite3.connect(path) as db:
        for thread, change in changes.items():
            db.execute(f"UPDATE checkpoints SET {change} WHERE thread_id = ?", (thread,))  # noqa: S608
    async with sqlite_journals() as journal:
        report = await migrate(str(path), journal)
        why = {skipped.thread: skipped.why for skipped in report.skipped}
        assert report.migrated == 1
        assert why.keys() == {"damaged", "locked", "numbers", "odd"}
        assert "cannot be read" in why["damaged"]
        assert "encrypted (aes)" in why["locked"]
        assert "no 'messages'" in why["numbers"]
        assert "serializer" in why["odd"]


class Reversing:
    """A cipher that would not keep a secret."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mirror", plaintext[::-1]

    def decrypt(self, _name: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_a_source_that_is_none_says_what_is_wrong(tmp_path: Path, server: PostgresServer) -> None:
    """No file, another file, another database, encrypted, away: each in its own words."""
    with pytest.raises(NotFoundError, match="no file"):
        open_source(str(tmp_path / "missing.sqlite"))
    words = tmp_path / "notes.txt"
    words.write_text("Hello!", encoding="utf-8")
    with pytest.raises(UsageError, match="neither a SQLite file"):
        open_source(str(words))
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE checkpoints (name TEXT)")
    with pytest.raises(UsageError, match="no checkpoints of LangGraph"):
        open_source(str(other))
    torn = tmp_path / "torn.sqlite"
    torn.write_bytes(b"SQLite format 3\0" + b"\xff" * 2_000)
    with pytest.raises(UsageError, match="cannot be read as SQLite"):
        open_source(str(torn))
    locked = tmp_path / "locked.sqlite"
    with sqlite3.connect(locked, check_same_thread=False) as db:
        saver = SqliteSaver(db, serde=EncryptedSerializer(Reversing()))
        App(saver).say("trip", "Hello!", "Hi.")
    with pytest.raises(UsageError, match=r"encrypted \(mirror\)"):
        open_source(str(locked))
    with pytest.raises(UsageError, match="no table 'checkpoints'"):
        open_source(server.create_database())
    with pytest.raises(BackendError):
        open_source("postgresql://127.0.0.1:1/nowhere")


async def test_the_record_is_small_and_names_no_place(old_app: OldApp, database: str) -> None:
    """A user may see a thread's settings: no path, address or words of anybody are in it."""
    tell_old_stories(old_app.app)
    async with opened(database) as journal:
        await migrate(old_app.place, journal)
        kept = (await journal.threads.get("trip")).settings
        assert kept.keys() == {SETTING}
        assert kept[SETTING].keys() == {"mark", "messages", "digest", "last"}
        assert kept[SETTING]["messages"] == len(old_app.app.messages("trip"))


class Trap:
    """An object of an app's own that says when it comes to life."""

    made: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name
        self.made.append(name)

    def _asdict(self) -> dict[str, str]:
        return {"name": self.name}


class Trapped(MessagesState):
    trap: Any


async def test_no_object_of_an_app_comes_to_life(tmp_path: Path, sqlite_journals: Journals) -> None:
    """Reading a source runs none of its code, wherever in a state an object of its own is."""
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        builder = StateGraph(Trapped)
        builder.add_node("model", lambda _: {"messages": [AIMessage("Hi.")], "trap": Trap("other")})
        builder.add_edge(START, "model")
        graph: Any = builder.compile(checkpointer=app.saver)
        config: Any = {"configurable": {"thread_id": "trip"}}
        graph.invoke({"messages": [("user", "Hello!")]}, config)
    stored = JsonPlusSerializer().dumps_typed([Trap("message")])
    Trap.made.clear()
    async with sqlite_journals() as journal:
        assert (await migrate(str(path), journal, user="ann")).migrated == 1
        assert [m.text for m in (await journal.messages.history("trip")).messages] == [
            "Hello!",
            "Hi.",
        ]
    with pytest.raises((LookupError, ValueError)):
        checkpoints.load_messages(checkpoints.unpack(stored))
    assert Trap.made == []


def test_a_source_cannot_be_written_to(old_app: OldApp) -> None:
    """Not by a mistake either: the database itself refuses."""
    old_app.app.say("trip", "Hello!", "Hi.")
    source: Any = open_source(old_app.place)
    with pytest.raises(BackendError, match=r"read-?only"):
        source._rows("DELETE FROM checkpoints RETURNING thread_id")
    source.close()


async def test_threads_without_metadata_are_counted_in_the_log(
    tmp_path: Path, sqlite_journals: Journals, caplog: pytest.LogCaptureFixture
) -> None:
    """At INFO, and without anybody's words."""
    caplog.set_level("INFO", "segue.migrate")
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        tell_old_stories(app)
    async with sqlite_journals() as journal:
        await migrate(str(path), journal)
    assert "Of 3 threads without metadata, 3 were migrated" in caplog.text
    assert "Rome" not in caplog.text
