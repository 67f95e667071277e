"""What listeners see: messages, ends of turns, and the message that is being written."""

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from segue.core.snowflake import MAX_ID
from segue.errors import ConflictError
from segue.journal.feed import FeedPage, Partial, StoredEvent
from segue.journal.journal import Journal
from segue.journal.records import PAGE_BYTES
from segue.testing.journal_contract.chat import LEASE, NOW, Chat, position


def seen(events: FeedPage) -> list[str]:
    """What each event is about, in order."""
    return [_seen(event) for event in events.events]


def _seen(event: StoredEvent) -> str:
    if event.message is not None:
        assert event.turn is None
        assert event.position == position(event.message)
        return str(event.message.content)
    assert event.turn is not None
    assert event.position == event.turn.end_position
    return f"<{(event.turn.ending or {}).get('why', 'over')}>"


async def draft(journal: Journal) -> Partial | None:
    return (await journal.feed.read("chat")).drafts.get("chat")


def at_work(page: FeedPage) -> tuple[int, int] | None:
    """The turn that runs in the only thread, by its lease."""
    running = page.running.get("chat")
    return None if running is None else (running.id, running.token)


async def test_events_are_of_one_thread(journal: Journal, chat: Chat) -> None:
    """Whatever is said and written in another one, a new thread has no events."""
    second = await chat.another("second")
    lease = await second.running_reply("One?")
    await journal.turns.save_draft(lease, "m-1", "Let me")
    assert await journal.feed.read("chat") == FeedPage([], 0)
    await second.finish(lease, says={"why": "done"})
    assert await journal.feed.read("chat") == FeedPage([], 0)


async def test_messages_and_ends_of_turns_are_seen_in_order(journal: Journal, chat: Chat) -> None:
    """Each has its position, and the end of a turn comes after what the turn said."""
    lease = await chat.running_reply("One?")
    await chat.say("Two?")
    await chat.finish(lease, AIMessage("One."), says={"why": "done"})
    await chat.finish(await chat.take_turn(), AIMessage("Two."), says={"why": "done again"})
    events = await journal.feed.read("chat")
    assert seen(events) == ["One?", "Two?", "One.", "<done>", "Two.", "<done again>"]
    places = [event.position for event in events.events]
    assert places == sorted(set(places))


async def test_an_end_is_seen_as_the_turn_is(journal: Journal, chat: Chat) -> None:
    """Listeners get the turn with all that it says."""
    says = {"why": "asks", "question": {"text": "Shall I 🙂?", "choices": [1, None]}}
    lease = await chat.running_reply()
    await chat.finish(lease, says=says, is_waiting=True)
    [_, end] = (await journal.feed.read("chat")).events
    assert end.turn == await chat.turn(lease.turn.id)
    assert end.turn.ending == says
    assert end.turn.is_waiting


async def test_a_turn_that_says_nothing_ends_for_listeners(journal: Journal, chat: Chat) -> None:
    """They learn that it is over; of a follow-up that was never shown, they learn nothing."""
    await chat.exchange("One?", "One.")
    turn = (await chat.turns())[0]
    assert turn.ending is None
    assert seen(await journal.feed.read("chat")) == ["One?", "One.", "<over>"]
    await chat.fail(await chat.running_follow_up(), "oops")
    assert seen(await journal.feed.read("chat")) == ["One?", "One.", "<over>"]
    await chat.finish(await chat.shown_follow_up(), AIMessage("Still there?"))
    assert seen(await journal.feed.read("chat"))[3:] == ["Still there?", "<over>"]


async def test_every_kind_of_end_can_say_something(chat: Chat) -> None:
    """A failure and a withdrawal have their places like any other end."""
    await chat.fail(await chat.running_reply("One?"), says={"why": "failed"})
    await chat.withdraw(await chat.running_follow_up(), says={"why": "withdrawn"})
    assert seen(await chat.journal.feed.read("chat")) == ["One?", "<failed>", "<withdrawn>"]


async def test_what_is_hidden_is_no_event(journal: Journal, chat: Chat) -> None:
    """Neither a trigger nor a tool's result nor a silent call is for listeners."""
    await chat.follow_up()
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    result = ToolMessage("found", tool_call_id="call_1")
    await chat.finish(await chat.take_turn(), call, result, AIMessage("Still there?"))
    assert seen(await journal.feed.read("chat")) == ["Still there?"]


async def test_a_listener_that_comes_back_sees_what_it_missed(journal: Journal, chat: Chat) -> None:
    """The oldest first, page after page: nothing comes twice and nothing is left out."""
    for n in range(3):
        await chat.finish(
            await chat.running_reply(f"{n}?"), AIMessage(f"{n}."), says={"why": f"end {n}"}
        )
    everything = (await journal.feed.read("chat")).events
    assert len(everything) == 9
    for n, known in enumerate(everything):
        rest = everything[n + 1 :]
        assert (await journal.feed.read("chat", after=known.position)).events == rest
        for limit in (1, 2, 3, 8):
            page = await journal.feed.read("chat", after=known.position, limit=limit)
            assert page.events == rest[:limit]
    assert (await journal.feed.read("chat", after=MAX_ID)).events == []


async def test_the_text_so_far_is_seen(journal: Journal, chat: Chat) -> None:
    """Whole each time, until its message is stored; it does not touch thread, turn or history."""
    lease = await chat.running_reply("One?")
    before = await chat.thread()
    assert await draft(journal) is None
    for text in ("Let", "Let me see 🙂", ""):
        await journal.turns.save_draft(lease, "m-1", text)
        assert await draft(journal) == Partial(lease.turn.id, "m-1", text)
    await journal.turns.save_draft(lease, "m-2", "Next")
    assert await draft(journal) == Partial(lease.turn.id, "m-2", "Next")
    assert len(await chat.messages()) == 1
    assert await chat.thread() == before
    assert await chat.turn(lease.turn.id) == lease.turn
    await chat.write(lease, AIMessage("Next, please.", id="m-2"))
    events = await journal.feed.read("chat")
    assert (seen(events), events.drafts.get("chat")) == (["One?", "Next, please."], None)


@pytest.mark.parametrize("end", ["finish", "fail", "release", "lose"])
async def test_the_text_so_far_is_gone_with_the_end(journal: Journal, chat: Chat, end: str) -> None:
    """Or when another worker begins anew; the old lease does not go on with it."""
    lease = await chat.running_reply("One?")
    await journal.turns.save_draft(lease, "m-1", "Let me")
    match end:
        case "finish":
            await chat.finish(lease)
        case "fail":
            await journal.turns.fail(lease, "oops", ids=chat.ids, now=NOW)
        case "release":
            await journal.turns.release(lease, now=NOW)
        case _:
            chat.now += LEASE
            await chat.take_turn("worker-b")
    assert await draft(journal) is None
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.turns.save_draft(lease, "m-1", "Let me see")
    await chat.say("Two?")
    if end != "lose":
        await chat.take_turn()
    assert await draft(journal) is None


async def test_a_follow_up_is_not_seen_before_it_is_shown(journal: Journal, chat: Chat) -> None:
    """It may still be withdrawn, so no listener gets a word of it."""
    lease = await chat.running_follow_up()
    await journal.turns.save_draft(lease, "m-1", "Still")
    assert await draft(journal) is None
    await chat.show(lease)
    assert await draft(journal) == Partial(lease.turn.id, "m-1", "Still")


async def test_the_turn_at_work_is_known_to_listeners(journal: Journal, chat: Chat) -> None:
    """By its lease, also on a page that is not the last; a queued turn is not at work."""
    await chat.exchange()
    assert at_work(await journal.feed.read("chat")) is None
    lease = await chat.shown_follow_up()
    running = lease.turn.id, lease.token
    assert at_work(await journal.feed.read("chat")) == running
    assert at_work(await journal.feed.read("chat", limit=1)) == running
    again = await chat.take_turn("worker-b", NOW + LEASE)
    assert at_work(await journal.feed.read("chat")) == (lease.turn.id, again.token)
    await chat.say()
    assert at_work(await journal.feed.read("chat")) is None


async def test_the_text_so_far_comes_with_the_last_page(journal: Journal, chat: Chat) -> None:
    """A listener that has not yet read all events before it gets it later."""
    await chat.exchange("One?", "One.")
    lease = await chat.running_reply("Two?")
    await journal.turns.save_draft(lease, "m-1", "Let me")
    assert (await journal.feed.read("chat", limit=3)).drafts.get("chat") is None
    whole = await journal.feed.read("chat", limit=4)
    assert seen(whole) == ["One?", "One.", "<over>", "Two?"]
    assert whole.drafts.get("chat") is not None
    last = whole.events[-1].position
    assert (await journal.feed.read("chat", after=last)).drafts.get("chat") is not None


async def test_a_page_of_events_ends_after_a_number_of_bytes(journal: Journal, chat: Chat) -> None:
    """No message follows the one that brings it to its size; ends of turns keep their places."""
    for n in range(3):
        await chat.finish(
            await chat.running_reply(str(n) * (PAGE_BYTES * 2 // 3)), says={"why": f"done {n}"}
        )
    first = await journal.feed.read("chat")
    second = await journal.feed.read("chat", after=first.events[-1].position)
    assert (first.is_cut, second.is_cut) == (True, False)
    expected = ["0000000", "<done 0", "1111111", "<done 1", "2222222", "<done 2"]
    assert [what[:7] for what in [*seen(first), *seen(second)]] == expected
    assert [e.size > PAGE_BYTES // 2 for e in first.events if e.message] == [True, True]
