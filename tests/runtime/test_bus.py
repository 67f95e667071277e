"""The bus: who listens to a thread hears all of it, once and in order, from wherever it is said."""

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph

from segue.agent.scripted import ScriptedChatModel
from segue.core.triggers import TRIGGER_PROMPTS
from segue.core.turn_rules import DoubleTexting
from segue.errors import BackendError, NotFoundError, UsageError
from segue.events import (
    ListenerLagged,
    MessageDelta,
    MessageRetracted,
    MessageStored,
    ProgressReported,
    TurnCancelled,
    TurnFailed,
    parse_cursor,
)
from segue.journal.feed import FeedPage, StoredEvent
from segue.journal.journal import Journal
from segue.journal.records import PAGE_BYTES, TurnLease
from segue.runtime import bus, listeners, processor
from segue.runtime.bus import Bus
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import (
    EAGER,
    HELLO,
    PATIENCE,
    Breaking,
    Held,
    Paced,
    Tab,
    always,
    echo,
    lines,
    new_thread,
    pages,
    place,
    process,
    stored,
    tab,
)

pytestmark = pytest.mark.anyio


def unfinished(bus: Bus) -> list[str]:
    """The texts that a process is writing."""
    return [text for runs in bus._own.values() for run in runs for text in run.texts.values()]


def bus_of(world: World) -> Bus:
    return world.system.deps.bus


@pytest.fixture
def drafts_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is kept at once, not a few times a second."""
    monkeypatch.setattr(processor, "_SAVE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(processor, "_SAVE_SPACING", 0)


# Pieces and messages.


async def test_every_tab_hears_every_piece_and_then_the_message(stage: Stage) -> None:
    """Several tabs show the same reply as it grows, with cursors that rise."""
    model = Paced(script=[HELLO])
    async with stage.world(models={"guide": model}) as world, AsyncExitStack() as stack:
        thread = await new_thread(world.segue)
        tabs = [await stack.enter_async_context(tab(world.segue, thread)) for _ in range(3)]
        await world.segue.send(thread, "Hi")
        for words, draft in [(1, "Hello "), (2, "Hello there my ")]:
            model.let(words)
            for each in tabs:
                await each.until_draft(draft)
        model.finish()
        for each in tabs:
            await each.until_said(HELLO)
            assert each.texts == ["Hi", HELLO]
            assert each.count(MessageDelta) == 4
            cursors = [place(heard.cursor) for heard in each.heard]
            assert cursors == sorted(set(cursors))
        assert tabs[0].heard == tabs[1].heard == tabs[2].heard


async def test_a_message_that_came_in_pieces_by_the_store_and_by_a_watch_is_heard_once(
    database: str,
) -> None:
    """However often a process is told of it."""
    async with process(database, ScriptedChatModel(script=echo)) as here:
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen:
            for number in range(5):
                await here.segue.send(thread, f"{number}")
                await seen.until_said(f"You said: {number}")
                await here.system.deps.bus.notify_stored("")
                await here.system.deps.bus.notify_stored(thread)
            said = [text for n in range(5) for text in (f"{n}", f"You said: {n}")]
            assert seen.texts == said
            assert seen.drafts == {}


async def test_few_listeners_of_a_user_replay_at_once(sqlite_stage: Stage) -> None:
    """Each holds a page of messages until its client reads it; one that is live needs no slot."""
    async with sqlite_stage.world(models={"guide": ScriptedChatModel(script=echo)}) as world:
        threads = [await new_thread(world.segue) for _ in range(2)]
        await world.segue.reply(threads[1], "Hi")
        async with AsyncExitStack() as stack, tab(world.segue, threads[0]) as live:
            await world.segue.send(threads[0], "Hi")
            await live.until_said("You said: Hi")
            slow = []
            for number in range(4):  # each takes one of two stored events
                heard = world.segue.listen(threads[number % 2], since="0")
                slow.append(await stack.enter_async_context(aclosing(heard)))
                assert isinstance((await anext(heard)).payload, MessageStored)
            fifth = world.segue.listen(threads[0], since="0")
            waiting = asyncio.ensure_future(anext(fifth))
            await world.segue.send(threads[0], "Ho")
            await live.until_said("You said: Ho")
            assert not waiting.done()
            await slow[0].aclose()
            assert isinstance((await waiting).payload, MessageStored)
            await fifth.aclose()


async def test_a_tab_that_opens_without_a_cursor_hears_from_now_on(sqlite_stage: Stage) -> None:
    """What was said before is for the history; what is being written is not."""
    model = Paced(script=["First", HELLO])
    async with sqlite_stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        model.let(2)
        await world.say(thread, "One")
        await world.segue.send(thread, "Two")
        async with tab(world.segue, thread) as witness:
            model.let(2)
            await witness.until_draft("Hello there ")
            async with tab(world.segue, thread, None) as seen:
                await seen.until_draft("Hello there ")
                model.finish()
                await seen.until_said(HELLO)
                assert seen.texts == [HELLO]


async def test_two_messages_that_are_written_at_once_do_not_mix(sqlite_stage: Stage) -> None:
    """A graph of one's own may let two models speak in parallel; each message grows by itself."""
    models = {name: Paced(script=[f"{name} one two"]) for name in ("Left", "Right")}
    graph = StateGraph(MessagesState)
    for name, model in models.items():

        async def speak(state: MessagesState, model: Paced = model) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph.add_node(name, speak)
        graph.add_edge(BEGIN, name)
    async with sqlite_stage.world(plain_agent(graph=graph)) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            for words in (1, 2):
                for name, model in models.items():
                    model.let(1)
                    text = " ".join([name, "one"][:words]) + " "
                    await seen.until_draft(text)
            for model in models.values():
                model.finish()
            await seen.until(lambda tab: len(tab.said) == 3)
            assert sorted(seen.texts) == ["Hi", "Left one two", "Right one two"]
            assert seen.count(MessageRetracted) == 0
            assert seen.count(MessageDelta) == 6


async def test_a_reply_that_breaks_off_is_taken_back_and_written_anew(stage: Stage) -> None:
    """Also where the model gives both tries the same id."""
    model = Breaking(script=lambda _: AIMessage(HELLO, id="same"))
    async with stage.world(models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_heard(MessageRetracted)
            assert seen.drafts == {}
            await world.pass_time(seconds=1)
            await seen.until_said(HELLO)
            taken_back = seen.events.index(MessageRetracted(f"{seen.said[-1].id}"))
            pieces = [e.text for e in seen.events[taken_back:] if isinstance(e, MessageDelta)]
            assert "".join(pieces) == HELLO


async def test_what_nobody_finishes_is_taken_off_the_screen_at_the_end(
    sqlite_stage: Stage,
) -> None:
    """A graph that asks its model again by itself leaves a piece that no message follows."""
    model = Breaking(script=lambda _: HELLO)
    graph = StateGraph(MessagesState)

    async def speak(state: MessagesState) -> dict[str, Any]:
        try:
            said = await model.ainvoke(state["messages"])
        except ConnectionError:
            said = await model.ainvoke(state["messages"])
        return {"messages": [said]}

    graph.add_node("speak", speak)
    graph.add_edge(BEGIN, "speak")
    async with sqlite_stage.world(plain_agent(graph=graph)) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_said(HELLO)
            await seen.until(lambda tab: tab.drafts == {})
            assert seen.count(MessageRetracted) == 1


async def test_a_piece_is_heard_after_what_came_before_it_and_never_after_its_message(
    sqlite_stage: Stage,
) -> None:
    """What a tab cannot place comes whole with the message, or came already."""
    async with sqlite_stage.world(models={"guide": always("Yes.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hi")
        reply = (await world.segue.history(thread)).messages[-1].id or ""
        [turn] = await world.journal.turns.list_of(thread)
        lease = TurnLease(turn, "here", 1, world.clock.now())
        with bus_of(world).running(lease):
            # The turn stored its message, and did not come to say so yet.
            bus_of(world).write(lease, reply, "Ye")
            async with tab(world.segue, thread) as seen:
                await seen.until_said("Yes.")
                bus_of(world).write(lease, reply, "s.")
                bus_of(world).tell(thread, MessageDelta("missed", 5, "the rest"))
                bus_of(world).write(lease, "next", "Go on")
                await seen.until_draft("Go on")
                assert seen.count(MessageDelta) == 1


async def test_a_turn_that_ends_takes_back_its_own_pieces_alone(sqlite_stage: Stage) -> None:
    """A follow-up that became void may end after the reply to the user has begun."""
    async with sqlite_stage.world(models={"guide": always("Yes.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hi")
        [turn] = await world.journal.turns.list_of(thread)
        old = TurnLease(turn, "here", 1, world.clock.now())
        new = replace(old, token=2)
        async with tab(world.segue, thread) as seen:
            await seen.until_said("Yes.")
            with bus_of(world).running(new):
                with bus_of(world).running(old):
                    bus_of(world).write(old, "old", "Still ")
                    bus_of(world).write(new, "new", "Here ")
                    bus_of(world).retract(old)
                bus_of(world).write(new, "new", "I am")
                await seen.until_draft("Here I am")
                assert seen.drafts == {"new": "Here I am"}
                assert seen.count(MessageRetracted) == 1
                assert [run.token for run in bus_of(world)._own[thread]] == [2]


async def test_pieces_of_a_message_have_the_id_that_it_is_stored_with(
    sqlite_stage: Stage,
) -> None:
    """Also where a model gives all messages the same id, which the store does not take twice."""
    model = ScriptedChatModel(script=lambda _: AIMessage("word " * 300, id="same"))
    off = {"enabled": False}  # a tool would need room, too
    agent = plain_agent(context_tokens=260, system_prompt="Talk.", autonomy=off)
    async with sqlite_stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        for number in range(5):  # of the first, the agent knows nothing any more
            await world.say(thread, f"{number}")
        now = (await world.journal.threads.get(thread)).last_position
        async with tab(world.segue, thread, str(now)) as seen:
            await world.say(thread, "Last")
            await seen.until(lambda tab: len(tab.said) == 2 and tab.drafts == {})
            assert seen.said[-1].id != "same"
            assert seen.count(MessageRetracted) == 0


# Coming back.


async def test_a_tab_that_comes_back_gets_each_stored_thing_after_its_cursor_once(
    stage: Stage,
) -> None:
    """From the cursor of any event, be it a message, a piece, a failure or a cancellation; also in
    a process that was started anew.
    """
    model = lines("One two three", ValueError("broken"), "Four five")
    async with stage.world(models={"guide": model}, patience=0) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            for text in ("a", "b", "c"):
                await world.say(thread, text)
            held = await world.segue.send(thread, "d", strategy=DoubleTexting.COLLECT)
            await world.segue.cancel(thread)
            await world.segue.wait_turn(held.turn)
            await world.say(thread, "e")
            await seen.until_said("Fine.")
        everything = [
            *("a", "One two three", "b", "TurnFailed", "c", "Four five", "d", "TurnCancelled"),
            *("e", "Fine."),
        ]
        assert stored(seen.events) == everything
        await _assert_each_cursor_leads_on(world, thread, seen)
    async with stage.world(models={"guide": model}) as world:
        await _assert_each_cursor_leads_on(world, thread, seen)


async def _assert_each_cursor_leads_on(world: World, thread: str, seen: Tab) -> None:
    everything = stored(seen.events)
    for number, heard in enumerate(seen.heard):
        left = stored(seen.events[number + 1 :])
        assert left == everything[len(everything) - len(left) :]
        if isinstance(heard.payload, TurnFailed | TurnCancelled):  # repeated with the turn's end
            left = [type(heard.payload).__name__, *left]
        async with tab(world.segue, thread, heard.cursor) as back:
            await back.until(lambda tab, left=left: len(stored(tab.events)) >= len(left))  # type: ignore[misc]
            await asyncio.sleep(0)
            assert stored(back.events) == left
            assert all(place(again.cursor) > place(heard.cursor) for again in back.heard)


async def test_a_tab_that_comes_back_in_the_middle_of_a_reply_gets_all_of_it_so_far(
    stage: Stage,
) -> None:
    """From any cursor it has: also that of a piece of this very reply."""
    model = Paced(script=[HELLO])
    async with stage.world(models={"guide": model}) as world, AsyncExitStack() as stack:
        thread = await new_thread(world.segue)
        seen = await stack.enter_async_context(tab(world.segue, thread))
        await world.segue.send(thread, "Hi")
        model.let(3)
        await seen.until_draft("Hello there my ")
        tabs = [seen]
        for heard in list(seen.heard):
            back = await stack.enter_async_context(tab(world.segue, thread, heard.cursor))
            await back.until_draft("Hello there my ")
            first = next(event for event in back.events if isinstance(event, MessageDelta))
            assert (first.offset, first.text) == (0, "Hello there my ")
            assert all(place(again.cursor) > place(heard.cursor) for again in back.heard)
            tabs.append(back)
        model.finish()
        for each in tabs:
            await each.until_said(HELLO)
            assert each.drafts == {}


async def test_more_than_a_page_is_read_to_its_end(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was away for long gets all of it, also if a row in between is damaged."""
    monkeypatch.setattr(bus, "_PAGE", 10)
    async with sqlite_stage.world(models={"guide": always("Yes.")}) as world:
        thread = await new_thread(world.segue)
        for number in range(15):
            await world.say(thread, f"{number}")
        async with tab(world.segue, thread) as seen:
            await seen.until(lambda tab: len(tab.said) == 30)
        world.journal.feed.read = _without_row(world.journal.feed.read, 7)  # type: ignore[method-assign]
        async with tab(world.segue, thread) as seen:
            await seen.until(lambda tab: len(tab.said) == 29)
            assert seen.texts[-2:] == ["14", "Yes."]


def _without_row(events: Any, number: int) -> Any:
    """A journal whose row of that number cannot be read: its page comes out shorter."""
    unreadable: list[StoredEvent] = []

    async def read(thread_id: str, *, after: int = 0, limit: int = 200) -> FeedPage:
        page: FeedPage = await events(thread_id, after=after, limit=limit)
        if not unreadable:
            unreadable.append(page.events[number])
        left = [event for event in page.events if event not in unreadable]
        return replace(page, events=left)

    return read


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "-1",
        "1.5",
        "123",
        "0.x",
        "0.-1",
        "0.1.2",
        "0.",
        ".1",
        "\u0660",  # a zero, but not ours
        "9" * 19,
        "9" * 5_000,
        f"0.{'9' * 5_000}",
        0,
        b"0",
    ],
)
async def test_a_bad_cursor_is_refused(sqlite_stage: Stage, cursor: Any) -> None:
    """What no event has ever carried is an error of the caller, and not the beginning."""
    async with sqlite_stage.world() as world:
        thread = await new_thread(world.segue)
        with pytest.raises(UsageError):
            await asyncio.wait_for(anext(pages(world.segue, thread, cursor)), PATIENCE)
        assert bus_of(world)._threads == {}


async def test_an_unknown_thread_cannot_be_listened_to(stage: Stage) -> None:
    """It is not there, and nobody waits for it."""
    async with stage.world() as world:
        with pytest.raises(NotFoundError):
            await anext(pages(world.segue, "nowhere"))
        assert bus_of(world)._threads == {}


def test_a_cursor_stands_for_what_was_stored_last_and_what_was_heard_since() -> None:
    """So that those of a tab that came back rise above the one it came with."""
    assert (parse_cursor("0"), parse_cursor("0.12")) == ((0, 0), (0, 12))
    text = f"{12345:019d}"
    assert (parse_cursor(text), parse_cursor(f"{text}.3")) == ((12345, 0), (12345, 3))


# Other processes, crashes and restarts.


@pytest.mark.usefixtures("drafts_kept")
async def test_a_reply_that_another_process_writes_is_heard_as_it_grows(database: str) -> None:
    """Piece by piece and once; a tab that opens in the middle gets the text so far."""
    model = Paced(script=[HELLO, "And more"])
    async with process(database, model) as there, process(database, always("?")) as here:
        await here.only_listen()
        thread = await new_thread(here.segue)
        async with tab(here.segue, thread) as seen, tab(there.segue, thread) as direct:
            await here.segue.send(thread, "Hi")
            model.let(1)
            await seen.until_draft("Hello ")
            model.let(2)
            await seen.until_draft("Hello there my ")
            async with tab(here.segue, thread) as late:
                await late.until_draft("Hello there my ")
                model.let(2)
                for each in (late, seen, direct):
                    await each.until_said(HELLO)
                    assert each.texts == ["Hi", HELLO]
            model.finish()
            await here.segue.send(thread, "Go on")
            await seen.until_said("And more")
            assert seen.texts == ["Hi", HELLO, "Go on", "And more"]
            assert (seen.count(MessageRetracted), seen.drafts) == (0, {})
        assert here.system.deps.bus._threads == {}
        assert unfinished(here.system.deps.bus) == []


@pytest.mark.usefixtures("drafts_kept")
async def test_a_tab_that_opens_does_not_take_a_piece_from_the_others(database: str) -> None:
    """Who reads first what another process has written tells all who listen here."""
    model = Paced(script=[HELLO])
    stage = Stage(database)  # one that hears of others only when it looks
    async with process(database, model) as there, stage.world() as world:
        await world.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(there.segue)
        async with tab(world.segue, thread) as seen:
            await there.segue.send(thread, "Hi")
            model.let(2)
            await _until_kept(world, thread, "Hello there ")
            async with tab(world.segue, thread) as late:
                await late.until_draft("Hello there ")
                model.let(1)
                await _until_kept(world, thread, "Hello there my ")
                await bus_of(world).notify_stored(thread)
                for each in (seen, late):
                    await each.until_draft("Hello there my ")
        assert (bus_of(world)._threads, unfinished(bus_of(world))) == ({}, [])
        model.finish()


async def _until_kept(world: World, thread: str, text: str) -> None:
    """Wait until another process has stored so much of what it writes."""
    async with asyncio.timeout(PATIENCE):
        while True:
            partial = (await world.journal.feed.read(thread)).drafts.get(thread)
            if partial is not None and partial.text == text:
                return
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("drafts_kept")
async def test_a_reply_that_starts_anew_after_a_crash_takes_its_old_piece_back(
    database: str,
) -> None:
    """The screen shows what the next process writes, and nothing of what the dead one left."""
    dead = Paced(script=["I was about to"])
    heir = Paced(script=[HELLO])
    async with Stage(database).world(models={"guide": dead}, patience=0) as crashed:
        thread = await new_thread(crashed.segue)
        async with tab(crashed.segue, thread) as first:
            await crashed.segue.send(thread, "Hi")
            dead.let(3)
            await first.until_draft("I was about ")
        # Its clock stands still from here on, so it never keeps its lease.
        stage = Stage(database)
        async with stage.world(models={"guide": heir}) as world:
            async with tab(world.segue, thread, first.heard[-1].cursor) as seen:
                await seen.until_draft("I was about ")
                passing = asyncio.create_task(world.pass_time(seconds=31))
                await seen.until_heard(MessageRetracted)
                assert seen.drafts == {}
                heir.finish()
                await seen.until_said(HELLO)
                await passing
                assert seen.texts == [HELLO]
                assert seen.count(MessageRetracted) == 1
            assert await world.heard(thread) == ["Hi", HELLO]


async def test_a_tab_misses_nothing_over_a_restart_in_the_middle_of_a_reply(stage: Stage) -> None:
    """The cursor of a piece that was never finished leads to the reply that came instead."""
    model = Paced(script=["Never finished"])
    async with stage.world(models={"guide": model}, patience=0) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            model.let(1)
            await seen.until_draft("Never ")
    async with (
        stage.world(models={"guide": always(HELLO)}) as world,
        tab(world.segue, thread, seen.heard[-1].cursor) as back,
    ):
        await back.until_said(HELLO)
        assert back.texts == [HELLO]


# Slow listeners, and those who leave.


async def test_a_slow_tab_is_told_that_it_lags_and_loses_no_message(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not read is bounded; then it reads what is stored, and all of a reply so far."""
    model = Paced(script=lambda messages: f"{echo(messages)} and so on")
    async with stage.world(models={"guide": model}) as world, AsyncExitStack() as stack:
        monkeypatch.setattr(listeners, "_MAX_BEHIND", 4)
        thread = await new_thread(world.segue)
        quick = await stack.enter_async_context(tab(world.segue, thread))
        slow = await stack.enter_async_context(aclosing(pages(world.segue, thread, "0")))
        await world.segue.send(thread, "0")
        screen = Tab()
        screen.see(await anext(slow))
        for number in range(10):
            if number:
                await world.segue.send(thread, f"{number}")
            model.let(7)
            await quick.until_said(f"You said: {number} and so on")
            assert all(len(each._items) <= 4 for each in bus_of(world)._threads[thread].queues)
        await world.segue.send(thread, "last")
        model.let(3)
        await quick.until_draft("You said: last ")
        await screen.read(slow, lambda tab: "You said: last " in tab.drafts.values())
        model.finish()
        await screen.read(slow, lambda tab: len(tab.said) == 22)
        await quick.until(lambda tab: len(tab.said) == 22)
        assert screen.texts == quick.texts
        # On a busy machine the quick one may be late, too.
        assert screen.count(ListenerLagged)
        cursors = [place(heard.cursor) for heard in screen.heard]
        assert cursors == sorted(set(cursors))


async def test_a_replay_is_read_as_the_listener_takes_it(stage: Stage) -> None:
    """No more than a page of bytes is read ahead of a client that takes its time."""
    async with stage.world(models={"guide": always("I see.")}) as world:
        thread = await new_thread(world.segue)
        for _ in range(4):
            await world.segue.send(thread, picture(PAGE_BYTES))
            await world.clock.settle()
        reads = counted(world.journal)
        screen = Tab()
        async with aclosing(pages(world.segue, thread, "0")) as slow:
            for page in range(1, 5):
                wanted = 2 * page - 1
                await screen.read(slow, lambda tab: len(tab.said) == wanted)  # noqa: B023 - at once
                assert len(reads) == page
            await screen.read(slow, lambda tab: len(tab.said) == 8)


async def test_a_listener_does_not_wait_for_others_that_never_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with an error and holds nothing; the next one from the same cursor misses nothing."""
    monkeypatch.setattr(bus, "REPLAY_WAIT_SECONDS", 0.05)
    async with stage.world(models={"guide": always("I see.")}) as world:
        thread = await new_thread(world.segue)
        await world.say(thread, "Hello!")
        await world.say(thread, "Are you there?")
        async with AsyncExitStack() as stack:
            for _ in range(4):
                deaf = pages(world.segue, thread, "0")
                await stack.enter_async_context(aclosing(deaf))
                await anext(deaf)
            async with asyncio.timeout(PATIENCE), aclosing(pages(world.segue, thread, "0")) as late:
                with pytest.raises(BackendError, match="listen again"):
                    await anext(late)
            assert len(bus_of(world)._threads[thread].queues) == 4
        screen = Tab()
        async with aclosing(pages(world.segue, thread, "0")) as again:
            await screen.read(again, lambda tab: len(tab.said) == 4)


def picture(size: int) -> list[Any]:
    return [{"type": "image", "base64": "A" * size, "mime_type": "image/png"}]


def counted(journal: Journal) -> list[int]:
    """The positions after which events are read from now on."""
    reads: list[int] = []
    events = journal.feed.read

    async def counting(thread_id: str, *, after: int = 0, limit: int = 200) -> FeedPage:
        reads.append(after)
        return await events(thread_id, after=after, limit=limit)

    vars(journal.feed)["read"] = counting
    return reads


async def test_a_slow_tab_holds_few_bytes(stage: Stage) -> None:
    """Of large messages fewer wait for it than of small ones; none is lost."""
    async with stage.world(models={"guide": always("I see.")}) as world, AsyncExitStack() as stack:
        thread = await new_thread(world.segue)
        quick = await stack.enter_async_context(tab(world.segue, thread))
        slow = await stack.enter_async_context(aclosing(pages(world.segue, thread, "0")))
        await world.say(thread, "first")
        screen = Tab()
        await screen.read(slow, lambda tab: tab.texts == ["first", "I see."])
        for number in range(4):
            await world.segue.send(thread, picture(PAGE_BYTES * 2 // 3))
            await world.clock.settle()
            await quick.until(lambda tab: len(tab.said) == 2 * number + 4)  # noqa: B023 - at once
            queues = bus_of(world)._threads[thread].queues
            assert all(each._bytes < 2 * PAGE_BYTES for each in queues)
        await screen.read(slow, lambda tab: len(tab.said) == 10 and tab.count(ListenerLagged) == 1)
        assert screen.texts == quick.texts


class _BreakingWhenLet(Breaking, Paced):
    """A model whose connection breaks only when it is let write on."""


async def test_a_slow_tab_learns_that_what_it_saw_was_taken_back(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it lagged when that was told."""
    model = _BreakingWhenLet(script=lambda _: HELLO)
    async with sqlite_stage.world(models={"guide": model}) as world:
        monkeypatch.setattr(listeners, "_MAX_BEHIND", 3)
        thread = await new_thread(world.segue)
        async with aclosing(pages(world.segue, thread, "0")) as slow:
            screen = Tab()
            first = asyncio.create_task(anext(slow))
            await world.segue.send(thread, "Hi")
            model.let(2)
            screen.see(await first)
            await screen.read(slow, lambda tab: tab.drafts != {})
            model.finish()
            await world.clock.settle()
            await world.pass_time(seconds=1)
            await screen.read(slow, lambda tab: HELLO in tab.texts and tab.drafts == {})
            assert screen.count(ListenerLagged)  # on a busy machine more than once
            assert screen.count(MessageRetracted) == 1


@pytest.mark.usefixtures("unguarded")
async def test_a_slow_tab_sees_nothing_of_a_follow_up_that_is_void(stage: Stage) -> None:
    """Its first word was on the way to the tab when the user wrote."""
    model = Paced(script=["Oslo.", "Still there my friend?", "Fine."])
    async with stage.world(EAGER, models={"guide": model}) as world, AsyncExitStack() as stack:
        thread = await new_thread(world.segue)
        quick = await stack.enter_async_context(tab(world.segue, thread))
        slow = await stack.enter_async_context(aclosing(pages(world.segue, thread, "0")))
        screen = Tab()
        model.let(2)
        await world.segue.send(thread, "I am moving to Oslo.")
        await screen.read(slow, lambda tab: "Oslo." in tab.texts)
        model.let(1)
        passing = asyncio.create_task(world.pass_time(seconds=30))
        await quick.until_draft("Still ")
        await world.segue.send(thread, "Never mind")
        model.finish()
        await quick.until_said("Fine.")
        await screen.read(slow, lambda tab: "Fine." in tab.texts)
        await passing
        assert "Still" not in str(screen.events)
        assert quick.texts == screen.texts


async def test_who_leaves_leaves_nothing_behind(stage: Stage) -> None:
    """Neither listeners nor drafts: of own replies, and of those that another process writes."""
    model = Paced(script=[HELLO, HELLO])
    async with stage.world(models={"guide": model}) as world:
        here = bus_of(world)
        thread = await new_thread(world.segue)
        for _ in range(3):
            async with tab(world.segue, thread), tab(world.segue, thread, None):
                await asyncio.sleep(0)
        assert (here._threads, unfinished(here)) == ({}, [])
        async with tab(world.segue, thread) as seen:
            await world.segue.send(thread, "Hi")
            model.let(2)
            await seen.until_draft("Hello there ")
        assert here._threads == {}
        async with tab(world.segue, thread) as seen:
            await seen.until_draft("Hello there ")
            model.finish()
            await seen.until_said(HELLO)
        await world.clock.settle()
        assert (here._threads, here._own) == ({}, {})


@pytest.mark.usefixtures("drafts_kept")
async def test_who_leaves_while_the_store_is_read_leaves_nothing_behind(database: str) -> None:
    """A look at what another process writes ends after the last listener has gone."""
    model = Paced(script=[HELLO])
    stage = Stage(database)
    async with process(database, model) as there, stage.world() as world:
        await world.system.runtime.turns.close(timedelta(0))
        thread = await new_thread(there.segue)
        reading, go_on = asyncio.Event(), asyncio.Event()
        events = world.journal.feed.read

        async def slowly(*args: Any, **kwargs: Any) -> FeedPage:
            page = await events(*args, **kwargs)
            reading.set()
            await go_on.wait()
            return page

        async with tab(world.segue, thread):
            await there.segue.send(thread, "Hi")
            model.let(2)
            await _until_kept(world, thread, "Hello there ")
            world.journal.feed.read = slowly  # type: ignore[method-assign]
            looking = asyncio.create_task(bus_of(world).notify_stored(thread))
            await reading.wait()
        go_on.set()
        await looking
        assert (bus_of(world)._threads, unfinished(bus_of(world))) == ({}, [])
        model.finish()


async def test_a_listener_comes_to_its_end_when_the_process_stops(sqlite_stage: Stage) -> None:
    """Whoever waits in a loop around it is not held up, and who comes later neither."""
    async with sqlite_stage.world(models={"guide": always("Yes.")}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_said("Yes.")
            bus_of(world).close()
            async with asyncio.timeout(PATIENCE):
                await seen.ended()
                later = [each async for each in world.segue.listen(thread, "0")]
        assert [each.payload for each in later if isinstance(each.payload, MessageStored)] == [
            event for event in seen.events if isinstance(event, MessageStored)
        ]


# Follow-ups.


@pytest.mark.parametrize("speaks", [True, False])
async def test_nothing_of_a_follow_up_is_heard_before_it_is_shown(
    stage: Stage, speaks: bool
) -> None:
    """Neither a piece nor what its tools report; and of one that comes too late nothing at all."""
    held = Held("Still there?")

    async def remind(messages: Any) -> Any:
        from langgraph.config import get_stream_writer  # noqa: PLC0415 - inside of a graph

        get_stream_writer()("looking around")
        return await held(messages)

    model = lines("Oslo.", remind)
    async with stage.world(EAGER, models={"guide": model}) as world:
        thread = await new_thread(world.segue)
        show_turn, heard_before = world.journal.turns.show, []

        async def watched(*args: Any, **kwargs: Any) -> None:
            heard_before.extend(seen.events[2:])
            await show_turn(*args, **kwargs)

        world.journal.turns.show = watched  # type: ignore[method-assign]
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "I am moving to Oslo.")
            await seen.until_said("Oslo.")
            seen.heard[:] = [h for h in seen.heard if isinstance(h.payload, MessageStored)]
            passing = asyncio.create_task(world.pass_time(seconds=30))
            await held.asked.wait()
            assert seen.events[2:] == []
            if speaks:
                held.go.set()
                await seen.until_said("Still there?")
                assert heard_before == []
                assert seen.count(ProgressReported) == 1
            else:
                await world.segue.send(thread, "Never mind")
                await seen.until_said("Fine.")
                assert (seen.count(ProgressReported), seen.count(MessageRetracted)) == (0, 0)
                assert "Still there?" not in str(seen.events)
            await passing
            assert not any(prompt in str(seen.events) for prompt in TRIGGER_PROMPTS.values())


# A store that fails.


async def test_a_message_is_stored_and_heard_although_the_listeners_could_not_be_told(
    stage: Stage,
) -> None:
    """The database was away when they read: nobody sends again for that, and no reply fails."""
    async with stage.world(models={"guide": always("Yes.")}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_said("Yes.")
            events, is_away = world.journal.feed.read, True

            async def read(*args: Any, **kwargs: Any) -> FeedPage:
                if is_away:
                    raise BackendError("The database is away.")
                return await events(*args, **kwargs)

            world.journal.feed.read = read  # type: ignore[method-assign]
            await world.say(thread, "Are you there?")
            everything = ["Hi", "Yes.", "Are you there?", "Yes."]
            assert await world.heard(thread) == everything
            assert seen.texts == everything[:2]
            is_away = False
            await world.pass_time(seconds=2)
            await seen.until(lambda tab: tab.texts == everything)


async def test_the_end_of_a_thread_is_heard_and_holds_up_nobody_else(stage: Stage) -> None:
    """Who listens to a thread that is deleted is told that it is gone; others go on."""
    async with stage.world(models={"guide": always("Yes.")}) as world:
        gone, kept = await new_thread(world.segue), await new_thread(world.segue)
        async with tab(world.segue, gone) as last, tab(world.segue, kept) as seen:
            await world.say(gone, "Hi")
            await last.until_said("Yes.")
            await world.segue.send(kept, "Hi")
            await seen.until_said("Yes.")
            await world.journal.threads.delete(gone)
            seen.said.clear()
            await world.journal.threads.update(kept, title="New")
            await bus_of(world).notify_stored("")
            with pytest.raises(NotFoundError):
                await last.until_said("No.")
            await world.say(kept, "Still here?")
            await seen.until_said("Still here?")


async def test_failures_are_heard_by_those_who_were_there_and_by_those_who_come_later(
    stage: Stage,
) -> None:
    """The end of a turn has its place between the messages."""
    async with stage.world(models={"guide": lines(ValueError("no"))}) as world:
        thread = await new_thread(world.segue)
        async with tab(world.segue, thread) as seen:
            await world.say(thread, "Hi")
            await seen.until_heard(TurnFailed)
            await world.say(thread, "Again")
            await seen.until_said("Fine.")
        async with tab(world.segue, thread) as late:
            await late.until_said("Fine.")
            assert (
                stored(late.events) == stored(seen.events) == ["Hi", "TurnFailed", "Again", "Fine."]
            )
            assert late.count(TurnCancelled) == 0
