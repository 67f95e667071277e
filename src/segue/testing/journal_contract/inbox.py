"""Messages from users: a new batch, a turn, and the end of older follow-ups."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.messages import user_message
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import SnowflakeSource
from segue.errors import ConflictError
from segue.journal.follow_ups import SEEN_AFTER
from segue.journal.journal import Journal
from segue.journal.records import WROTE, TimerKind, TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, NOW, Chat, positions, texts
from segue.testing.journal_contract.fixtures import OpenJournal

MOMENT = timedelta(milliseconds=1)


async def test_a_users_message_begins_a_batch_of_its_own(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """The batch is named after the message's position, and every process reads it at once."""
    elsewhere = await open_journal()
    for text in ("Is it open?", "And tomorrow?"):
        accepted = await chat.say(text)
        assert accepted.is_new
        placed = MessageMetadata.of(accepted.message)
        assert placed.batch == placed.position == accepted.turn.batch
        assert placed.sequence_num == 0
        assert placed.batch_type is BatchType.USER_REQUEST
        batch = await elsewhere.messages.load_batch("chat", accepted.turn.batch)
        assert batch.messages == [accepted.message]
    assert texts(await chat.messages()) == ["Is it open?", "And tomorrow?"]


async def test_a_users_message_queues_its_turn(chat: Chat) -> None:
    """The turn is a reply that can be taken at once, at the epoch that the message began."""
    turn = (await chat.say()).turn
    assert (turn.kind, turn.state, turn.attempts) == (TurnKind.REPLY, TurnState.QUEUED, 0)
    assert (turn.thread_id, turn.agent_id, turn.user_id) == ("chat", "guide", "ada")
    assert (turn.queued_at, turn.available_at, turn.shown_at) == (NOW, NOW, None)
    assert turn.epoch == (await chat.thread()).epoch
    assert await chat.turns() == [turn]


async def test_every_users_message_raises_the_epoch(chat: Chat) -> None:
    """The epoch counts what the user said, not what the agent said."""
    await chat.exchange()
    await chat.exchange()
    assert (await chat.thread()).epoch == 2


async def test_a_message_sent_twice_is_accepted_once(chat: Chat) -> None:
    """With a client's id used before nothing changes, and the first acceptance is returned."""
    first = await chat.say("Is it open?", client_message_id="c-1")
    await chat.reply()
    timer = await chat.arm(HOUR)
    before = await chat.thread()
    again = await chat.say("Is it open?", client_message_id="c-1")
    assert not again.is_new
    assert again.message == first.message
    assert again.turn == await chat.turn(first.turn.id)
    assert (again.cancelled_timers, again.voided_turns) == ((), ())
    assert await chat.thread() == before
    assert await chat.timers() == [timer]
    assert len(await chat.turns()) == 1


async def test_an_id_of_another_message_is_refused(chat: Chat) -> None:
    """Else the second text would be lost without a word."""
    await chat.say("Is it open?", client_message_id="c-1")
    with pytest.raises(ConflictError, match="is that of another message"):
        await chat.say("Stop writing to me.", client_message_id="c-1")


async def test_a_message_sent_twice_at_once_is_accepted_once(crowd: list[Chat]) -> None:
    """Processes that get the same message at the same time store it once."""
    accepted = await asyncio.gather(*(each.say(client_message_id="c-1") for each in crowd))
    assert sum(a.is_new for a in accepted) == 1
    assert len({a.turn.id for a in accepted}) == 1
    assert await crowd[0].messages() == [accepted[0].message]
    assert (await crowd[0].thread()).epoch == 1


async def test_one_messages_id_is_fine_in_two_threads(chat: Chat, ids: SnowflakeSource) -> None:
    """The same message can be given to two agents, and two clients may count alike."""
    await chat.another("lesson", agent_id="tutor")
    message = user_message("Is it open?", id="m-1")
    for thread_id in ("chat", "lesson"):
        accepted = await chat.journal.inbox.accept(
            thread_id, message, ids=ids, now=NOW, client_message_id="1"
        )
        assert accepted.is_new


async def test_a_messages_id_can_be_used_once(chat: Chat) -> None:
    """A second message with the id of the first is refused, and nothing changes."""
    message = user_message("Is it open?", id="m-1")
    await chat.say(message)
    timer = await chat.arm()
    before = await chat.thread()
    with pytest.raises(ConflictError):
        await chat.say(message)
    assert await chat.thread() == before
    assert await chat.timers() == [timer]
    assert len(await chat.turns()) == 1


async def test_messages_accepted_at_once_are_all_stored(crowd: list[Chat]) -> None:
    """Processes that write into one thread at the same time lose nothing and share no position."""
    said = [f"Message {n}" for n in range(len(crowd))]
    accepted = await asyncio.gather(*map(Chat.say, crowd, said))
    stored = await crowd[0].messages()
    assert sorted(texts(stored)) == said
    assert len(set(positions(stored))) == len(crowd)
    thread = await crowd[0].thread()
    assert (thread.epoch, thread.message_count) == (len(crowd), len(crowd))
    assert sorted(a.turn.epoch for a in accepted) == list(range(1, len(crowd) + 1))


@pytest.mark.parametrize(
    "state", [TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED], ids=str
)
async def test_a_users_message_cancels_the_live_follow_up(chat: Chat, state: TimerState) -> None:
    """A reply beats a timer, also one that waits longer or is being decided about."""
    timer = await chat.arm()
    if state is not TimerState.PENDING:
        lease = await chat.take_timer()
        if state is TimerState.POSTPONED:
            await chat.postpone(lease, NOW + HOUR, "quiet hours")
    [live] = await chat.timers()
    assert live.state is state
    accepted = await chat.say()
    assert accepted.cancelled_timers == (timer.id,)
    [cancelled] = await chat.timers()
    assert cancelled.state is TimerState.CANCELLED
    assert cancelled.state_reason
    assert await chat.journal.timers.next_at() is None


async def test_a_users_message_leaves_closed_timers_as_they_are(chat: Chat) -> None:
    """The record of why a timer did not fire is not rewritten."""
    closed = await chat.close(await chat.claimed_timer(), TimerState.SUPPRESSED, "muted")
    assert (await chat.say()).cancelled_timers == ()
    assert await chat.timers() == [closed]


async def test_a_users_message_voids_a_follow_up(chat: Chat) -> None:
    """A queued one is never begun; one that is being generated ends unseen and writes no more."""
    queued = await chat.follow_up()
    accepted = await chat.say()
    assert accepted.voided_turns == (queued.id,)
    assert (await chat.turn(queued.id)).state is TurnState.VOID
    await chat.reply()
    lease = await chat.running_follow_up()
    accepted = await chat.say()
    assert accepted.voided_turns == (lease.turn.id,)
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.show(lease)
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.finish(lease, AIMessage("Are you there?"))
    assert "Are you there?" not in texts(await chat.messages())
    assert (await chat.turn(lease.turn.id)).state is TurnState.VOID


async def test_a_follow_up_that_is_being_shown_is_not_voided(chat: Chat) -> None:
    """Words that the user has begun to read are finished and kept."""
    lease = await chat.shown_follow_up(SEEN_AFTER)
    accepted = await chat.say()
    assert (accepted.voided_turns, accepted.shown_turn) == ((), lease.turn.id)
    await chat.finish(lease, AIMessage("Are you there?"))
    assert (await chat.turn(lease.turn.id)).state is TurnState.DONE


@pytest.mark.parametrize(
    ("ago", "text"), [(SEEN_AFTER - MOMENT, "Are"), (HOUR, "")], ids=["just now", "nothing kept"]
)
async def test_a_follow_up_that_nobody_can_have_read_is_void(
    journal: Journal, chat: Chat, ago: timedelta, text: str
) -> None:
    """As if it had not been shown: it counts for no cap, and nothing of it comes any more."""
    lease = await chat.shown_follow_up(ago, text)
    accepted = await chat.say()
    assert (accepted.voided_turns, accepted.shown_turn) == ((lease.turn.id,), None)
    void = await chat.turn(lease.turn.id)
    assert (void.state, void.error, void.shown_at) == (TurnState.VOID, WROTE, None)
    assert (await journal.feed.read("chat")).drafts.get("chat") is None
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.turns.save_draft(lease, "m-1", "Are you there?")
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_a_follow_up_of_which_a_message_is_stored_is_not_voided(chat: Chat) -> None:
    """It is in the history, however new it is; one that was given back left the screen."""
    lease = await chat.shown_follow_up(HOUR)
    await chat.release(lease)
    assert (await chat.say()).voided_turns == (lease.turn.id,)
    await chat.reply()
    lease = await chat.shown_follow_up()
    call = {"name": "look", "args": {}, "id": "call-1"}
    await chat.write(lease, AIMessage("Let me look.", tool_calls=[call]))
    accepted = await chat.say()
    assert (accepted.voided_turns, accepted.shown_turn) == ((), lease.turn.id)


async def test_a_users_message_does_not_touch_answers(chat: Chat) -> None:
    """Neither the running nor the queued answer to an earlier message, nor what it still does."""
    lease = await chat.running_reply("First.")
    await chat.say("Second.")
    accepted = await chat.say("Third.")
    assert accepted.voided_turns == ()
    states = [turn.state for turn in await chat.turns()]
    assert states == [TurnState.QUEUED, TurnState.QUEUED, TurnState.RUNNING]
    await chat.show(lease)
    await chat.finish(lease, AIMessage("Yes."))
    await chat.reply()
    await chat.reply()
    going_on = await chat.continue_batch(lease.turn.batch)
    timer = await chat.arm(HOUR, kind=TimerKind.CONTINUATION, batch=lease.turn.batch)
    accepted = await chat.say()
    assert (accepted.cancelled_timers, accepted.voided_turns) == ((), ())
    assert (await chat.turn(going_on.id)).state is TurnState.QUEUED
    assert (await chat.timers())[0] == timer


async def test_a_users_message_does_not_touch_other_threads(journal: Journal, chat: Chat) -> None:
    """Writing in one conversation says nothing about another."""
    second = await chat.another("second")
    turn = await second.follow_up()
    timer = await second.arm(HOUR)
    accepted = await chat.say()
    assert (accepted.cancelled_timers, accepted.voided_turns) == ((), ())
    assert await chat.turn(turn.id) == turn
    assert (await journal.timers.list_of("second"))[0] == timer


@pytest.mark.parametrize("is_running", [False, True], ids=["queued", "running"])
async def test_a_message_for_an_idle_thread_is_refused_while_a_reply_is_due(
    chat: Chat, is_running: bool
) -> None:
    """A client that prefers to wait gets an error, and nothing changes."""
    await chat.say("First.")
    if is_running:
        await chat.take_turn()
    timer = await chat.arm(HOUR)
    before, turns = await chat.thread(), await chat.turns()
    with pytest.raises(ConflictError, match="An answer is being written") as refused:
        await chat.say("Second.", only_if_idle=True)
    assert refused.value.code == "conflict"
    assert await chat.thread() == before
    assert await chat.turns() == turns
    assert await chat.timers() == [timer]
    assert texts(await chat.messages()) == ["First."]


async def test_a_message_for_an_idle_thread_is_accepted_when_all_is_said(chat: Chat) -> None:
    """Sent again it is not refused; another thread's answer does not count, a continuation does."""
    await (await chat.another("second")).say()
    await chat.next_turn()
    first = await chat.say(client_message_id="c-1", only_if_idle=True)
    assert first.is_new
    again = await chat.say(client_message_id="c-1", only_if_idle=True)
    assert (again.is_new, again.turn) == (False, first.turn)
    await chat.reply()
    second = await chat.say(only_if_idle=True)
    assert second.is_new
    await chat.reply()
    await chat.continue_batch(second.turn.batch)
    with pytest.raises(ConflictError, match="An answer is being written"):
        await chat.say(only_if_idle=True)


async def test_a_follow_up_does_not_make_a_thread_busy(chat: Chat) -> None:
    """A user need not wait for a message that they did not ask for, shown or not."""
    follow_up = await chat.follow_up()
    assert (await chat.say(only_if_idle=True)).voided_turns == (follow_up.id,)
    await chat.reply()
    await chat.show(await chat.running_follow_up())
    assert (await chat.say(only_if_idle=True)).is_new


async def test_of_messages_for_an_idle_thread_sent_at_once_one_is_accepted(
    crowd: list[Chat],
) -> None:
    """Two tabs that find the thread idle at the same moment do not both get a turn."""
    said = (each.say(only_if_idle=True) for each in crowd)
    outcomes = await asyncio.gather(*said, return_exceptions=True)
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == len(crowd) - 1
    assert len(await crowd[0].turns()) == 1


async def test_another_agents_question_says_whose_it_is(chat: Chat) -> None:
    """Half of where it comes from is enough; its answer has the same type and parent."""
    origins: list[dict[str, Any]] = [
        {"parent_batch": 7, "source_agent_id": "planner"},
        {"parent_batch": 7},
        {"source_agent_id": "planner"},
    ]
    for epoch, known in enumerate(origins, 1):
        accepted = await chat.say("How much is it?", **known)
        assert (accepted.turn.kind, accepted.turn.epoch) == (TurnKind.REPLY, epoch)
        await chat.reply("Nine.")
        batch = await chat.batch(accepted.turn.batch)
        assert batch.messages[0] == accepted.message
        assert (batch.type, batch.parent) == (BatchType.AGENT_TO_AGENT, known.get("parent_batch"))
        question, answer = map(MessageMetadata.of, batch.messages)
        assert question.source_agent_id == known.get("source_agent_id")
        assert (answer.batch_type, answer.parent_batch) == (batch.type, batch.parent)


async def test_what_comes_along_with_a_message_reaches_its_turn(chat: Chat) -> None:
    """The worker gets it with the lease, and every reader with the turn; as a rule it is empty."""
    payload = {"model": "large 🙂", "depth": [1, {"a": None}]}
    accepted = await chat.say(payload=payload)
    assert accepted.turn.payload == payload
    assert (await chat.take_turn()).turn.payload == payload
    assert (await chat.turn(accepted.turn.id)).payload == payload
    assert (await chat.say()).turn.payload == {}
