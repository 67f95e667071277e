"""Retention: whole batches leave, and what is left is right."""

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from segue.core.metadata import BatchType
from segue.core.snowflake import MAX_ID
from segue.journal.journal import Journal
from segue.journal.records import (
    DROPPED,
    Decision,
    NewEffect,
    NewTimer,
    NextTime,
    TimerKind,
    TimerState,
    nested_id,
)
from segue.journal.retention import Removed
from segue.testing.journal_contract.chat import HOUR, Chat, texts


async def stored(journal: Journal, thread_id: str = "chat") -> list[int]:
    [found] = [t for t in await journal.removal.list_stored() if t.thread_id == thread_id]
    return [batch.id for batch in found.batches]


async def test_batches_are_listed_with_what_a_rule_asks_for(journal: Journal, chat: Chat) -> None:
    """Type, size, the time of the last message, and whether a turn still works on them."""
    first = await chat.exchange()
    await chat.continue_batch(first)
    await chat.reply("And on Sundays.")
    chat.now += HOUR
    await chat.follow_up()
    await chat.reply("Still there?")
    asked = await chat.say("And now?")
    [thread] = await journal.removal.list_stored()
    assert (thread.thread_id, thread.user_id, thread.agent_id) == ("chat", "ada", "guide")
    old, follow_up, open_one = thread.batches
    assert (old.id, old.type, old.messages) == (first, BatchType.USER_REQUEST, 4)
    assert (old.last_at, old.is_unfinished) == (chat.now - HOUR, False)
    assert (follow_up.type, follow_up.last_at) == (BatchType.SYSTEM_TRIGGER, chat.now)
    assert (open_one.id, open_one.is_unfinished) == (asked.turn.batch, True)


async def test_threads_are_listed_page_by_page(journal: Journal, chat: Chat) -> None:
    """In order of their names, each once; those in which agents ask each other are left out."""
    for name in ("Zoo", "bar", nested_id("chat", "clerk")):
        await chat.another(name)
    names: list[str] = []
    while page := await journal.removal.list_stored(after=names[-1] if names else "", limit=2):
        names += [thread.thread_id for thread in page]
    assert names == ["Zoo", "bar", "chat"]


async def test_what_agents_asked_stays_while_somebody_may_go_on_with_it(
    journal: Journal, chat: Chat
) -> None:
    """A worker that continues a batch after a crash must not ask the same again."""
    asking = (await chat.say()).turn.batch
    lease = await chat.take_turn()
    clerk = await chat.another(nested_id("chat", "clerk"), agent_id="clerk")
    batches = []
    for words in ("Which floor?", "And which door?"):
        asked = await clerk.say(words, parent_batch=asking, source_agent_id="guide")
        await clerk.reply("The third.")
        batches.append(asked.turn.batch)
    [thread] = await journal.removal.list_stored(nested=True)
    assert (thread.thread_id, thread.agent_id) == (clerk.thread_id, "clerk")
    assert [(b.id, b.type, b.is_unfinished) for b in thread.batches] == [
        (batch, BatchType.AGENT_TO_AGENT, True) for batch in batches
    ]
    assert await journal.removal.remove_batches(clerk.thread_id, batches) == Removed()
    await chat.finish(lease, AIMessage("On the third."))
    await chat.arm(HOUR, trigger_type=None, kind=TimerKind.CONTINUATION, batch=asking)
    assert await journal.removal.remove_batches(clerk.thread_id, batches) == Removed()
    chat.now += HOUR
    timer = await chat.take_timer()
    await chat.close(timer, TimerState.EXPIRED, "Too late.")
    assert await journal.removal.remove_batches(clerk.thread_id, batches) == Removed(1, 2)


async def test_a_removed_batch_is_gone_from_everywhere(journal: Journal, chat: Chat) -> None:
    """From history, search, the list and the thread's row, once; the newest batch always stays."""
    await journal.removal.wipe()
    first = await chat.exchange("Is the mill open?", "The mill is.")
    second = await chat.exchange("And the mine?", "No.")
    last_position = (await chat.thread()).last_position
    assert await journal.removal.remove_batches("chat", [first, second]) == Removed(1, 2)
    thread = await chat.thread()
    assert (thread.message_count, thread.title, thread.preview) == (2, "And the mine?", "No.")
    assert await journal.removal.remove_batches("chat", [first, MAX_ID]) == Removed()
    await journal.removal.wipe()
    assert await chat.thread() == thread
    assert texts(await chat.history()) == ["And the mine?", "No."]
    assert await journal.search.find("ada", "mill") == []
    assert len(await journal.search.find("ada", "mine")) == 1
    assert await stored(journal) == [second]
    assert thread.last_position == last_position
    assert await chat.exchange() > second


async def test_a_batch_that_waits_or_is_worked_on_is_never_removed(chat: Chat) -> None:
    """Queued, running, waiting for a person, or about to go on: all of it stays."""
    waiting = (await chat.say("Book it.")).turn.batch
    await chat.finish(await chat.take_turn(), AIMessage("Shall I?"), is_waiting=True)
    await chat.follow_up()
    await chat.reply("Still there?")
    assert (await chat.journal.removal.remove_batches("chat", [waiting])).batches == 0
    later = await chat.exchange()  # which settles the one that waited
    await chat.arm(HOUR, trigger_type=None, kind=TimerKind.CONTINUATION, batch=later)
    queued = (await chat.say()).turn.batch
    await chat.say("Hello?")
    assert (await chat.journal.removal.remove_batches("chat", [later, queued])).batches == 0
    lease = await chat.take_turn()
    assert (await chat.journal.removal.remove_batches("chat", [queued])).batches == 0
    await chat.finish(lease, AIMessage("Yes."))
    assert (await chat.journal.removal.remove_batches("chat", [waiting, queued])).batches == 2
    assert later in await stored(chat.journal)


async def test_what_agents_asked_each_other_goes_with_the_batch_that_asked(chat: Chat) -> None:
    """However deep, and nothing of other batches."""
    asking = await chat.exchange()
    kept = await chat.exchange()
    inner, outer = nested_id("chat", "clerk"), nested_id(nested_id("chat", "clerk"), "cook")
    clerk = await chat.another(inner, agent_id="clerk")
    cook = await chat.another(outer, agent_id="cook")
    asked = await clerk.say("Which floor?", parent_batch=asking, source_agent_id="guide")
    await clerk.reply("The third.")
    await cook.say("Is it hot?", parent_batch=asked.turn.batch, source_agent_id="clerk")
    await cook.reply("Yes.")
    await clerk.say("And now?", parent_batch=kept, source_agent_id="guide")
    await clerk.reply("The first.")
    assert await chat.journal.removal.remove_batches("chat", [asking]) == Removed(1, 6)
    assert texts(await clerk.messages()) == ["And now?", "The first."]
    assert await cook.messages() == []
    assert (await chat.journal.threads.get(inner)).message_count == 2
    assert (await chat.journal.threads.get(outer)).preview is None


async def test_an_archived_batch_can_be_removed(journal: Journal, chat: Chat) -> None:
    """Its summary stays and can still be undone; a title that was set stays, too."""
    first = await chat.exchange()
    second = await chat.exchange()
    await journal.threads.update("chat", title="Opening hours")
    summary = await chat.summarise("Asked.", [first])
    assert (await journal.removal.remove_batches("chat", [first])).messages == 2
    assert await journal.summaries.find("chat") == summary
    assert (await chat.thread()).title == "Opening hours"
    await journal.summaries.undo(summary)
    assert await stored(journal) == [second]


async def test_a_persons_answer_goes_with_its_batch(journal: Journal, chat: Chat) -> None:
    """What was asked and answered is kept with turns, and is no less what was said."""
    waiting = await chat.ask_back(says={"kind": "question", "questions": {"q": "Which mill?"}})
    turn = await chat.answer(waiting.id, "Secret.")
    booked = ToolMessage("Booked.", tool_call_id=f"call {waiting.id}")
    await chat.finish(await chat.take_turn(), booked, AIMessage("Done."))
    await chat.exchange()
    assert (await chat.turn(turn.id)).payload["answer"] == "Secret."
    await journal.removal.remove_batches("chat", [turn.batch])
    assert "answer" not in (await chat.turn(turn.id)).payload
    assert (await chat.turn(waiting.id)).ending is None


async def test_what_was_delivered_goes_with_its_batch(journal: Journal, chat: Chat) -> None:
    """A webhook repeats what the agent said; until it is delivered, its batch stays as well."""
    lease = await chat.running_reply()
    said = {"event": "reply", "messages": [{"text": "The mill."}]}
    webhook = NewEffect("webhook", said, f"webhook:{lease.turn.id}")
    await chat.finish(lease, AIMessage("The mill."), effects=[webhook])
    await chat.exchange()
    assert await journal.removal.remove_batches("chat", [lease.turn.batch]) == Removed()
    await journal.effects.complete(await chat.take_effect(), "200")
    assert await journal.removal.remove_batches("chat", [lease.turn.batch]) == Removed(1, 2)
    [kept] = await journal.effects.list_of("chat")
    assert kept.payload == {"event": "reply", "messages": []}


async def test_what_was_requested_is_made_once_however_old_its_batch(
    journal: Journal, chat: Chat
) -> None:
    """The key outlives the removed batch, its prompt and data do not; what waits is untouched."""
    told = await chat.arm(key="program:a", payload={"prompt": "Ask about the mill."})
    waits = {"kind": TimerKind.REMINDER, "trigger_type": "reminder"}
    reminder = await chat.arm(HOUR, key="reminder:b", payload={"text": "the mill"}, **waits)
    event = await chat.arm(HOUR, key="event:c", kind=TimerKind.EVENT, payload={"data": "mill"})
    turn = await chat.fired(await chat.take_timer())
    await chat.reply("How was the mill?")
    await chat.exchange()
    assert await journal.removal.remove_batches("chat", [turn.batch]) == Removed(1, 2)
    again = await chat.arm(key="program:a", payload={"prompt": "Once more."})
    assert (again.id, again.state, again.payload) == (told.id, TimerState.FIRED, {})
    assert [await journal.timers.find(timer.id) for timer in (reminder, event)] == [reminder, event]


async def test_what_was_never_said_goes_with_what_is_older(journal: Journal, chat: Chat) -> None:
    """A reminder that was cancelled has no batch of its own; it leaves with those before it."""
    waits: dict[str, Any] = {"kind": TimerKind.REMINDER, "trigger_type": "reminder"}
    for text in ("the mill", "the fair"):
        latest = await chat.exchange()
        reminder = await chat.arm(HOUR, key=text, payload={"text": text}, **waits)
        await journal.timers.cancel_reminder(reminder.id, DROPPED, now=chat.now)
        if text == "the mill":
            old, batch = reminder, latest
    await chat.exchange()
    await journal.removal.remove_batches("chat", [batch])
    found = [await journal.timers.find(each.id) for each in (old, reminder)]
    assert [timer and timer.payload for timer in found] == [{}, {"text": "the fair"}]


async def test_what_was_said_about_a_batch_goes_with_it(journal: Journal, chat: Chat) -> None:
    """The agent's reason to go on later, and the words of a decider; the decisions stay."""
    await chat.say()
    lease = await chat.take_turn()
    batch = lease.turn.batch
    later = NewTimer(
        "chat", chat.now + HOUR, kind=TimerKind.CONTINUATION, batch=batch, reason="mill"
    )
    words = {"trigger": "check_in", "words": "They like mills."}
    decision = Decision(
        chat.ids.next(), "chat", "plan", "nothing", ("No.",), words, None, lease.turn.id, chat.now
    )
    await chat.finish(lease, AIMessage("I go on later."), timers=[later], decisions=[decision])
    await journal.timers.cancel("chat", DROPPED, ids=chat.ids, now=chat.now)
    await chat.exchange()
    [timer] = await journal.timers.list_of("chat", kinds=[TimerKind.CONTINUATION])
    assert timer.reason == "mill"
    assert await journal.removal.remove_batches("chat", [batch]) == Removed(1, 2)
    [timer] = await journal.timers.list_of("chat", kinds=[TimerKind.CONTINUATION])
    [kept] = [d for d in await journal.decisions.list_of("chat") if d.id == decision.id]
    assert (timer.reason, kept.facts) == (None, {"trigger": "check_in"})


async def test_a_recurring_reminder_outlives_what_it_said(journal: Journal, chat: Chat) -> None:
    """Its old messages leave; text and rule stay for the next time."""
    waits: dict[str, Any] = {"kind": TimerKind.REMINDER, "trigger_type": "reminder"}
    payload = {"text": "the mill"}
    reminder = await chat.arm(key="reminder:b", payload=payload, **waits)
    lease = await chat.take_timer()
    turn = await chat.fired(lease, again=NextTime(chat.now + HOUR, payload))
    await chat.reply("The mill!")
    await chat.exchange()
    assert await journal.removal.remove_batches("chat", [turn.batch]) == Removed(1, 2)
    [waiting] = await journal.timers.list_reminders("ada")
    assert (waiting.id, waiting.payload, waiting.turn_id) == (reminder.id, payload, turn.id)
