"""What the documents behind Segue demand of storage, seen in the rows themselves."""

# ruff: noqa: S608 - the statements are made of names in this file

import asyncio
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, get_type_hints

import psycopg
import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from segue.agent.checkpoints.selftest import FAILED, check_integrity
from segue.core.messages import synthetic_message, user_message
from segue.core.metadata import BatchType, MessageMetadata, is_synthetic
from segue.core.snowflake import MAX_ID
from segue.core.stamp import stamp
from segue.core.triggers import TriggerType
from segue.errors import BackendError, ConflictError
from segue.journal.journal import Journal
from segue.journal.postgres import database as postgres
from segue.journal.records import NewTimer
from segue.journal.rows import MessageRow
from segue.journal.sqlite import database as sqlite
from segue.journal.tables import MEMORIES, Whose
from segue.testing.journal_contract.chat import HOUR, Chat, positions, texts
from segue.testing.journal_contract.fixtures import anyio_backend, ticking_ids
from tests.journal.racers import START, all_at_once, racers
from tests.journal.stores import ask, change, is_file, journal_at

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

PLENTY = 1_000_000
# What only one of the databases understands, as a pair: in a file, and on PostgreSQL.
TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
)
REFERENCES = (
    "SELECT \"table\" FROM pragma_foreign_key_list('messages')",
    """SELECT confrelid::regclass::text FROM pg_constraint
       WHERE contype = 'f' AND conrelid = 'messages'::regclass""",
)
VERSION = ("PRAGMA user_version", "SELECT max(version) FROM segue_schema")
FORGET = (
    """CREATE TRIGGER forget AFTER INSERT ON messages BEGIN
           UPDATE messages SET body = replace(body, '"{key}"', '"lost"') WHERE rowid = new.rowid;
       END""",
    """CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           NEW.body := replace(NEW.body, '"{key}"', '"lost"'); RETURN NEW;
       END $$;
       CREATE TRIGGER forget BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION forget()""",
)


@pytest.fixture
async def journal(address: str) -> AsyncIterator[Journal]:
    journal = journal_at(address)
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def chat(journal: Journal) -> Chat:
    return await Chat(journal, ticking_ids(), START).begin()


def spoken(address: str, pair: tuple[str, str]) -> str:
    """The one of two statements that the store at this address understands."""
    in_a_file, on_postgres = pair
    return in_a_file if is_file(address) else on_postgres


def change_bodies(address: str, old: str, new: str) -> None:
    change(address, f"UPDATE messages SET body = replace(body, '{old}', '{new}')")


def tables_of(address: str) -> list[str]:
    return [str(name) for (name,) in ask(address, spoken(address, TABLES))]


def tables_holding(address: str, word: str) -> list[str]:
    """The tables in which any value of any row holds a word."""
    rows = {table: ask(address, f"SELECT * FROM {table}") for table in tables_of(address)}
    return [table for table in rows if word in str(rows[table])]


async def read_elsewhere(address: str, thread_id: str = "chat") -> list[BaseMessage]:
    """All messages of a thread, batch by batch, through a handle of its own."""
    journal = journal_at(address)
    await journal.open()
    batches = await journal.messages.tail(thread_id, max_tokens=PLENTY)
    await journal.close()
    return [message for batch in reversed(batches) for message in batch.messages]


async def fire(chat: Chat, trigger: str, reason: str | None = None) -> list[BaseMessage]:
    """A timer of this trigger fires; its batch as the journal holds it."""
    await chat.arm(trigger_type=trigger)
    lease = await chat.take_timer()
    message = synthetic_message(trigger, reason)
    turn = await chat.journal.timers.fire(lease, message, ids=chat.ids, now=chat.now)
    assert turn is not None
    return (await chat.journal.messages.load_batch(chat.thread_id, turn.batch)).messages


async def work(chat: Chat) -> list[BaseMessage]:
    """A question answered with the help of a tool; all messages as the steps returned them."""
    accepted = await chat.say()
    lease = await chat.take_turn()
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    written = await chat.write(lease, call, ToolMessage("found", tool_call_id="call_1"))
    return [accepted.message, *written, *await chat.finish(lease, AIMessage("Yes."))]


async def test_a_stored_trigger_is_marked_in_its_row(address: str, chat: Chat) -> None:
    """Whoever reads the table sees which rows are synthetic and which trigger each one had."""
    expected: list[tuple[bool, str | None]] = [(False, None), (False, None)]
    await chat.exchange()
    for trigger in TriggerType:
        await fire(chat, trigger)
        await chat.reply()
        expected += [(True, str(trigger)), (False, None)]
    rows = ask(address, "SELECT synthetic, trigger_type FROM messages ORDER BY position")
    assert [(bool(synthetic), trigger) for synthetic, trigger in rows] == expected


async def test_a_trigger_is_a_value_in_its_row(address: str, chat: Chat) -> None:
    """A message refers to its thread and to nothing else, so its trigger can not go missing."""
    await fire(chat, "check_in")
    assert ask(address, spoken(address, REFERENCES)) == [("threads",)]
    assert ask(address, "SELECT trigger_type FROM messages") == [("check_in",)]


async def test_a_mixed_thread_reads_back_as_it_was_stored(address: str, chat: Chat) -> None:
    """Type, trigger and reason of all four triggers are kept in order; real messages stay plain."""
    stored = await work(chat)
    for trigger in TriggerType:
        stored += await fire(chat, trigger, f"reason for {trigger}")
        stored += await chat.reply()
    read = await read_elsewhere(address)
    assert read == stored
    assert [type(message) for message in read] == [type(message) for message in stored]
    triggers = [MessageMetadata.of(message) for message in read if is_synthetic(message)]
    assert [(m.trigger_type, m.trigger_reason) for m in triggers] == [
        (trigger, f"reason for {trigger}") for trigger in TriggerType
    ]
    plain = [message.additional_kwargs for message in read if not is_synthetic(message)]
    assert len(plain) == 8
    assert all("trigger" not in key and key != "synthetic" for kept in plain for key in kept)


async def test_every_field_of_metadata_reads_back_equal(address: str, chat: Chat) -> None:
    """A message that carries all there is comes back with its role, content, id and each field."""
    metadata = MessageMetadata(
        synthetic=True,
        trigger_type=TriggerType.TASK_INCOMPLETE,
        trigger_reason="quiet for an hour: ünïcode 🙂",
        initiative="program",
        position=MAX_ID // 2,
        batch=MAX_ID // 2 - 1,
        sequence_num=1,
        batch_type=BatchType.AGENT_TO_AGENT,
        parent_batch=MAX_ID // 2 - 2,
        stored_at="2027-01-15T08:00:00+00:00",
        continue_requested=True,
        settled=True,
        source_agent_id="tutor",
        tool_triggered=True,
        retry_count=2,
        priority="high",
        client_message_id="mine-1",
    )
    assert all(getattr(metadata, field.name) != field.default for field in fields(metadata))
    message = metadata.onto(ToolMessage("found", tool_call_id="call_1", id="m-1"))
    await chat.journal.messages.import_messages("chat", [message])
    [read] = await read_elsewhere(address)
    assert read == message
    assert type(read) is ToolMessage
    assert MessageMetadata.of(read) == metadata


async def test_metadata_outlives_the_process_that_wrote_it(address: str, journal: Journal) -> None:
    """A trigger stored by a process that has ended is still a trigger when its thread goes on."""
    await journal.threads.create("thread-0", agent_id="guide", user_id="ada", now=START)
    timer = NewTimer("thread-0", START, "check_in")
    await journal.timers.arm(timer, ids=ticking_ids(), now=START)
    with racers(address, "nudge") as other:
        all_at_once(other, 0)
    [trigger] = await read_elsewhere(address, "thread-0")
    metadata = MessageMetadata.of(trigger)
    assert metadata.synthetic
    assert metadata.trigger_type is TriggerType.CHECK_IN
    resumed = Chat(journal, ticking_ids(node=2), START, "thread-0")
    await resumed.reply("Still there?")
    assert texts((await journal.messages.history("thread-0")).messages) == ["Still there?"]


async def test_metadata_is_nowhere_but_with_its_message(address: str, chat: Chat) -> None:
    """It is in the message's own row, in no other table, and gone when the message is."""
    await fire(chat, "check_in", "because of a cormorant")
    assert tables_holding(address, "cormorant") == ["messages"]
    assert len(ask(address, "SELECT body FROM messages WHERE body LIKE '%cormorant%'")) == 1
    await chat.journal.threads.delete("chat")
    assert tables_holding(address, "cormorant") == []


async def test_a_row_has_its_agent_and_place_in_columns(address: str, chat: Chat) -> None:
    """Position, batch, number and type stand beside the agent, as they were assigned."""
    stored = await work(chat)
    batch = MessageMetadata.of(stored[0]).batch
    assert batch is not None
    await chat.continue_batch(batch)
    stored += [(await chat.journal.messages.load_batch("chat", batch)).messages[-1]]
    stored += await chat.reply("All done.")
    rows = ask(
        address,
        "SELECT agent_id, message_id, position, batch, sequence_num, batch_type "
        "FROM messages ORDER BY position",
    )
    placed = [(message.id, MessageMetadata.of(message)) for message in stored]
    assert rows == [
        ("guide", name, m.position, m.batch, m.sequence_num, m.batch_type) for name, m in placed
    ]
    assert [row[4] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert len({row[1] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "column", ["position", "batch", "sequence_num", "batch_type", "agent_id", "synthetic", "body"]
)
async def test_a_row_is_never_without_its_place(address: str, chat: Chat, column: str) -> None:
    """The database itself refuses a row that lacks one of the fields that batches are made of."""
    await chat.say()
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.NotNullViolation)):
        change(address, f"UPDATE messages SET {column} = NULL")


@pytest.mark.parametrize("field", ["position", "batch", "sequence_num", "batch_type"])
def test_a_rows_types_leave_no_room_for_a_missing_place(field: str) -> None:
    """Code that makes a row and forgets a field does not pass the type checker."""
    assert get_type_hints(MessageRow)[field] in (int, str)
    assert {f.name: f.default for f in fields(MessageRow)}[field] is MISSING


@pytest.mark.parametrize("column", ["position", "batch", "sequence_num"])
async def test_an_unreadable_id_cannot_be_in_a_column(
    address: str, chat: Chat, column: str
) -> None:
    """Ids are numbers to the database, which refuses anything else in their place."""
    await chat.say()
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.InvalidTextRepresentation)):
        change(address, f"UPDATE messages SET {column} = 'abc'")


@pytest.mark.parametrize("key", ["position", "batch", "sequence_num"])
async def test_an_unreadable_id_in_a_message_is_an_error(
    address: str, chat: Chat, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch with a place that cannot be read is nobody's to work on; the error says where."""
    accepted = await chat.say()
    number = accepted.message.additional_kwargs[key]
    change_bodies(address, f'"{key}":{number}', f'"{key}":"abc"')
    with pytest.raises(BackendError, match=rf"{accepted.message.id}.*'{key}' is 'abc'"):
        await chat.journal.messages.load_batch("chat", accepted.turn.batch)
    with caplog.at_level(logging.ERROR):
        assert await chat.journal.messages.list_incomplete_batches("guide") == []
    assert str(accepted.message.id) in caplog.text


async def test_an_unknown_trigger_in_a_row_is_logged_and_stays_hidden(
    address: str, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger that a later version may know is a warning here, and never shown to a person."""
    [message] = await fire(chat, "check_in")
    change_bodies(address, '"trigger_type":"check_in"', '"trigger_type":"full_moon"')
    with caplog.at_level(logging.WARNING):
        [(_, batch)] = await chat.journal.messages.list_incomplete_batches("guide")
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("full_moon" in line and str(message.id) in line for line in warnings)
    assert is_synthetic(batch.messages[0])
    assert (await chat.journal.messages.history("chat")).messages == []


async def test_batches_are_made_of_messages_alone(address: str, chat: Chat) -> None:
    """No table keeps batches: with the queue emptied by hand, every batch reads as before."""
    await work(chat)
    await fire(chat, "check_in")
    before = await chat.journal.messages.tail("chat", max_tokens=PLENTY)
    change(address, "DELETE FROM turns; DELETE FROM timers")
    assert await chat.journal.messages.tail("chat", max_tokens=PLENTY) == before
    assert [batch.is_complete for batch in before] == [False, True]
    names = tables_of(address)
    assert "messages" in names
    assert [name for name in names if "batch" in name or "metadata" in name] == []


async def test_words_that_were_never_finished_are_not_kept(address: str, chat: Chat) -> None:
    """The text so far is gone from the rows when its turn ends, however it ends."""
    for end in ("finish", "fail", "withdraw"):
        await chat.follow_up()
        lease = await chat.take_turn()
        await chat.journal.turns.save_draft(lease, "m-1", "unfinished")
        assert tables_holding(address, "unfinished") == ["turns"]
        if end == "finish":
            await chat.finish(lease)
        elif end == "fail":
            await chat.journal.turns.fail(lease, "oops", ids=chat.ids, now=chat.now)
        else:
            await chat.journal.turns.withdraw(lease, "muted", ids=chat.ids, now=chat.now)
        assert tables_holding(address, "unfinished") == []


async def test_a_batch_that_was_settled_is_not_looked_at_again(address: str, chat: Chat) -> None:
    """Once the user said something else, no row names it as unfinished or as waiting."""
    await chat.ask_back()
    left = "SELECT count(*) FROM turns WHERE left_open OR is_waiting"
    assert ask(address, left) == [(1,)]
    await chat.say("Never mind.")
    assert ask(address, left) == [(0,)]


class Spy:
    """Every statement that a journal sends, with its values in it."""

    def __init__(self) -> None:
        self._sent: list[str] = []

    def note(self, statement: str) -> None:
        # What a database's own triggers do comes as a comment, and is not sent.
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement):
            self._sent.append(statement)

    def taken(self) -> list[str]:
        taken, self._sent = self._sent, []
        return taken


@pytest.fixture
def spy(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """Asked for before the journal, so that it hears of the journal's connections."""
    spy = Spy()
    if is_file(address):
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=overheard(spy)))
        yield spy
        return
    execute = psycopg.AsyncConnection.execute
    with psycopg.connect(address) as beside:

        async def overheard_execute(self: Any, query: Any, values: Any = None, **kw: Any) -> Any:
            spy.note(psycopg.ClientCursor(beside).mogrify(query, values))
            return await execute(self, query, values, **kw)

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", overheard_execute)
        yield spy


def overheard(spy: Spy) -> type[sqlite3.Connection]:
    class Overheard(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.set_trace_callback(spy.note)

    return Overheard


async def test_batch_questions_are_answered_by_one_table(spy: Spy, chat: Chat) -> None:
    """One batch, an agent's batch and the newest batches are read without any join."""
    [first, *_] = await work(chat)
    batch = MessageMetadata.of(first).batch
    assert batch is not None
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "load_batch": lambda: chat.journal.messages.load_batch("chat", batch),
        "list_batch": lambda: chat.journal.messages.list_batch("guide", batch),
        "tail": lambda: chat.journal.messages.tail("chat", max_tokens=PLENTY),
    }
    asked: dict[str, set[str]] = {}
    for name, question in questions.items():
        spy.taken()
        assert await question()
        statements = spy.taken()
        assert statements
        assert not any(re.search(r"\bjoin\b", s, re.IGNORECASE) for s in statements)
        asked[name] = {t for s in statements for t in re.findall(r"\bFROM (\w+)", s)}
    # The tail asks the other table whether there is such a thread at all.
    assert asked["load_batch"] == asked["list_batch"] == {"messages"}
    assert asked["tail"] == {"messages", "threads"}


async def test_many_batches_are_read_by_one_statement(spy: Spy, chat: Chat) -> None:
    """However many there are, as compression reads them."""
    numbers = [await chat.exchange(f"Question {number}?") for number in range(5)]
    spy.taken()
    read = await chat.journal.messages.load_batches("chat", numbers)
    assert [batch.id for batch in read] == numbers
    assert len(spy.taken()) == 1


async def test_an_agents_batch_is_found_by_an_index(address: str, spy: Spy, chat: Chat) -> None:
    """The table is neither walked through nor sorted to find the messages of one batch."""
    [first, *_] = await work(chat)
    spy.taken()
    await chat.journal.messages.list_batch("guide", first.additional_kwargs["batch"])
    [question] = spy.taken()
    assert_found_by("messages_by_batch", plan_of(address, question))


async def test_timers_that_ended_are_not_looked_at(address: str, spy: Spy, chat: Chat) -> None:
    """A thread of years has one for each reply, and a turn costs the same in it as in a new one."""
    await chat.exchange()
    spy.taken()
    await chat.say()
    await chat.drop("No more.")
    await chat.journal.removal.list_stored()
    questions = [asked for asked in spy.taken() if re.search(r"FROM timers|UPDATE timers", asked)]
    assert len(questions) >= 4
    for question in questions:
        plan = "\n".join(plan_of(address, question))
        assert "timers_alive" in plan
        assert "timers_by_thread" not in plan


async def test_a_users_memories_are_found_by_an_index(address: str, spy: Spy, chat: Chat) -> None:
    """Who takes out or deletes what is one user's does not look at everybody's."""
    spy.taken()
    assert await chat.journal.transfer.read_rows(MEMORIES, Whose(user_id="ann")) == []
    [question] = (asked for asked in spy.taken() if "memories" in asked)
    assert_found_by("memories_of_user", plan_of(address, question))


def plan_of(address: str, question: str) -> list[str]:
    if is_file(address):
        return [str(row[-1]) for row in ask(address, f"EXPLAIN QUERY PLAN {question}")]
    # A handful of rows is read faster than its index; what counts is that it could be used.
    with psycopg.connect(address) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_sort = off")
        rows = connection.execute(f"EXPLAIN {question}".encode()).fetchall()
    return [str(row[0]) for row in rows]


def assert_found_by(index: str, plan: list[str]) -> None:
    assert any(index in line for line in plan)
    assert not any(word in line for line in plan for word in ("SCAN", "Seq Scan", "Sort", "TEMP"))


async def test_metadata_costs_no_statement(spy: Spy, chat: Chat) -> None:
    """Storing a message with much metadata takes the same statements as storing a plain one."""
    first, plain, rich = stamp([AIMessage("Yes.") for _ in range(3)], ticking_ids(node=7))
    kwargs = MessageMetadata(source_agent_id="tutor", retry_count=2, priority="high").to_kwargs()
    rich = rich.model_copy(update={"additional_kwargs": rich.additional_kwargs | kwargs})
    # The first one makes SQLite read how its search index is set up.
    await chat.journal.messages.import_messages("chat", [first])
    counts = []
    for message in (plain, rich):
        spy.taken()
        await chat.journal.messages.import_messages("chat", [message])
        statements = spy.taken()
        assert any("INSERT INTO messages" in statement for statement in statements)
        counts.append([statement.split(None, 1)[0] for statement in statements])
    assert counts[0] == counts[1]


async def test_batches_are_read_by_number_whatever_the_times(journal: Journal, chat: Chat) -> None:
    """A message that says it is older is still where it arrived: batch by batch, in sequence."""
    await chat.say("First?")
    chat.now -= HOUR
    await chat.say("Second?")
    chat.now += HOUR
    await chat.reply("First.")
    await chat.reply("Second.")
    tail = await journal.messages.tail("chat", max_tokens=PLENTY)
    by_batch = [message for batch in reversed(tail) for message in batch.messages]
    assert texts(by_batch) == ["First?", "First.", "Second?", "Second."]
    page = (await journal.messages.history("chat")).messages
    assert texts(page) == ["First?", "Second?", "First.", "Second."]
    assert positions(page) == sorted(positions(page))


def numbered(batch: int, count: int = 1) -> list[BaseMessage]:
    """A batch whose numbers have as many digits as the test wants."""
    return [
        MessageMetadata(
            position=batch + n, batch=batch, sequence_num=n, batch_type=BatchType.USER_REQUEST
        ).onto(AIMessage(f"{batch}.{n}", id=f"m-{batch}-{n}"))
        for n in range(count)
    ]


async def test_ids_are_sorted_as_numbers(journal: Journal, chat: Chat) -> None:
    """Neither batches nor sequence numbers nor pages go by the text of a number."""
    messages = [*numbered(8), *numbered(9), *numbered(10, count=12), *numbered(100)]
    assert await journal.messages.import_messages(chat.thread_id, messages) == 15
    tail = await journal.messages.tail("chat", max_tokens=PLENTY)
    assert [batch.id for batch in tail] == [100, 10, 9, 8]
    assert texts(tail[1].messages) == [f"10.{n}" for n in range(12)]
    assert positions((await journal.messages.history("chat")).messages) == [
        8,
        9,
        *range(10, 22),
        100,
    ]
    assert positions((await journal.messages.history("chat", before=10)).messages) == [8, 9]
    assert texts(await journal.messages.list_batch("guide", 10)) == [f"10.{n}" for n in range(12)]


async def test_a_sequence_number_is_used_once_in_a_thread(journal: Journal, chat: Chat) -> None:
    """The same number is fine in two threads, and refused for a second message of one."""
    await chat.another("second")
    [message] = numbered(10)
    assert await journal.messages.import_messages("chat", [message]) == 1
    assert await journal.messages.import_messages("second", [message]) == 1
    metadata = MessageMetadata(position=11, batch=10, sequence_num=0)
    rival = metadata.onto(AIMessage("Me too.", id="rival"))
    with pytest.raises(ConflictError):
        await journal.messages.import_messages("chat", [rival])
    assert texts(await chat.messages()) == ["10.0"]


async def test_a_batch_stays_with_its_thread_and_agent(journal: Journal, chat: Chat) -> None:
    """Of one batch that was given to several, each reads its own messages only."""
    second = await chat.another("second")
    lesson = await chat.another("lesson", agent_id="tutor")
    shared = stamp([user_message("Shared.")], ticking_ids(node=7))
    batch = shared[0].additional_kwargs["batch"]
    for thread in (chat, second, lesson):
        own = MessageMetadata(position=batch + 1, batch=batch, sequence_num=1)
        answer = own.onto(AIMessage(f"To {thread.thread_id}.", id="answer"))
        await journal.messages.import_messages(thread.thread_id, [*shared, answer])
    for thread in (chat, second, lesson):
        expected = ["Shared.", f"To {thread.thread_id}."]
        assert (
            texts((await journal.messages.load_batch(thread.thread_id, batch)).messages) == expected
        )
        assert texts(await thread.messages()) == expected
    assert texts(await journal.messages.list_batch("tutor", batch)) == ["Shared.", "To lesson."]


async def test_no_number_is_used_again_after_a_deletion(address: str, chat: Chat) -> None:
    """A row that an operator took out leaves its number and its position unused."""
    accepted = await chat.say()
    lease = await chat.take_turn()
    [gone, kept] = await chat.write(lease, AIMessage("One."), AIMessage("Two."))
    change(address, f"DELETE FROM messages WHERE message_id = '{gone.id}'")
    [new] = await chat.write(lease, AIMessage("Three."))
    placed = [MessageMetadata.of(m) for m in (accepted.message, gone, kept, new)]
    assert [m.sequence_num for m in placed] == [0, 1, 2, 3]
    assert positions([new])[0] > positions([kept])[0]
    assert texts(await chat.messages()) == ["Is it open?", "Two.", "Three."]


async def test_search_and_table_agree_after_changes_in_bulk(journal: Journal, chat: Chat) -> None:
    """Archiving many rows, bringing them back and deleting a thread leave no word astray."""
    second = await chat.another("second")
    batches = [await chat.exchange(f"Is mill {n} open?", f"Mill {n} is.") for n in range(3)]
    await second.exchange("Is the mill open?", "It is.")

    async def found() -> int:
        return len(await journal.search.find("ada", "mill"))

    assert await found() == 7
    summary = await journal.summaries.save("chat", "Mills.", batches, ids=chat.ids, now=chat.now)
    assert await found() == 7
    await journal.summaries.undo(summary)
    assert await found() == 7
    await journal.threads.delete("chat")
    assert await found() == 1
    await (await chat.another("third")).exchange("Is the boat open?", "No.")
    assert await found() == 1
    assert len(await journal.search.find("ada", "boat")) == 1


async def open_at_once(address: str, handles: int = 1) -> None:
    """Open a store by several handles, and close them, also if it could not be opened."""
    journals = [journal_at(address) for _ in range(handles)]
    try:
        await asyncio.gather(*(journal.open() for journal in journals))
    finally:
        for journal in journals:
            await journal.close()


async def test_a_migration_is_recorded_if_it_ran(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that fails nothing stays, the version neither; the mended one runs once, from zero."""
    await open_at_once(address)
    module = sqlite if is_file(address) else postgres
    known = module.migrations("sqlite" if is_file(address) else "postgres")
    version = spoken(address, VERSION)
    [(before,)] = ask(address, version)
    later = "CREATE TABLE later (n INTEGER);"
    with monkeypatch.context() as patch:
        broken = [*known, f"{later}\nINSERT INTO nowhere VALUES (1);"]
        patch.setattr(module, "migrations", lambda _: broken)
        with pytest.raises(BackendError, match="nowhere"):
            await open_at_once(address)
    assert ask(address, version) == [(before,)]
    assert "later" not in tables_of(address)
    monkeypatch.setattr(module, "migrations", lambda _: [*known, later])
    await open_at_once(address, handles=4)
    await open_at_once(address)
    assert ask(address, version) == [(before + 1,)]


async def test_a_sound_database_passes_the_test_before_a_start(
    address: str, journal: Journal
) -> None:
    """A tagged message goes through the real journal and back, and nothing of it is left."""
    await check_integrity(journal, InMemorySaver(), ids=ticking_ids(), now=START)
    assert ask(address, "SELECT count(*) FROM messages") == [(0,)]
    assert ask(address, "SELECT count(*) FROM threads") == [(0,)]


@pytest.mark.parametrize("key", ["synthetic", "trigger_type", "trigger_reason"])
async def test_a_database_that_loses_metadata_stops_the_start(
    address: str, journal: Journal, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the database drops on the way is noticed, logged as ERROR and raised."""
    change(address, spoken(address, FORGET).format(key=key))
    with caplog.at_level(logging.ERROR), pytest.raises(BackendError, match=FAILED):
        await check_integrity(journal, InMemorySaver(), ids=ticking_ids(), now=START)
    assert FAILED in caplog.text
    assert ask(address, "SELECT count(*) FROM messages") == [(0,)]
