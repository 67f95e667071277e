"""Accepting what a user says: a new batch, a turn, and the end of older follow-ups."""

# ruff: noqa: S101 - tests assert

import asyncio
from datetime import datetime, timedelta

import pytest
from langchain_core.messages import AIMessage

from segue.core.errors import ConflictError
from segue.core.messages import user_message
from segue.core.metadata import BatchType, MessageMetadata
from segue.core.snowflake import SnowflakeSource
from segue.journal.ports import Journal
from segue.journal.records import SEEN_AFTER, WROTE, TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import HOUR, LEASE, Chat, positions, texts
from segue.testing.journal_contract.fixtures import OpenJournal, ticking_ids

MOMENT = timedelta(milliseconds=1)


async def test_a_users_message_begins_a_batch_of_its_own(chat: Chat) -> None:
    """Each message is the first of a new batch that is named after its position."""
    for accepted in (await chat.say("Is it open?"), await chat.say("And tomorrow?")):
        placed = MessageMetadata.of(accepted.message)
        assert placed.batch == placed.position == accepted.turn.batch
        assert placed.sequence_num == 0
        assert placed.batch_type is BatchType.USER_REQUEST
    assert texts(await chat.messages()) == ["Is it open?", "And tomorrow?"]


async def test_a_users_message_is_stored_as_it_is_returned(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """Once the step returns, every other process reads the message."""
    accepted = await chat.say("Is it open?")
    assert accepted.is_new
    elsewhere = await open_journal()
    batch = await elsewhere.load_batch("chat", accepted.turn.batch)
    assert batch.messages == [accepted.message]


async def test_a_users_message_queues_its_turn(journal: Journal, chat: Chat, now: datetime) -> None:
    """The turn is a reply that can be taken at once, at the epoch that the message began."""
    turn = (await chat.say()).turn
    assert (turn.kind, turn.state, turn.attempts) == (TurnKind.REPLY, TurnState.QUEUED, 0)
    assert (turn.thread_id, turn.agent_id, turn.user_id) == ("chat", "guide", "ada")
    assert (turn.queued_at, turn.available_at, turn.shown_at) == (now, now, None)
    assert turn.epoch == (await journal.get_thread("chat")).epoch
    assert await journal.list_turns("chat") == [turn]


async def test_every_users_message_raises_the_epoch(journal: Journal, chat: Chat) -> None:
    """The epoch counts what the user said, not what the agent said."""
    await chat.exchange()
    await chat.exchange()
    assert (await journal.get_thread("chat")).epoch == 2


async def test_a_message_sent_twice_is_accepted_once(journal: Journal, chat: Chat) -> None:
    """With a client's id used before nothing changes, and the first acceptance is returned."""
    first = await chat.say("Is it open?", client_message_id="c-1")
    await chat.reply()
    timer = await chat.arm(HOUR)
    before = await journal.get_thread("chat")
    again = await chat.say("Is it open?", client_message_id="c-1")
    assert not again.is_new
    assert again.message == first.message
    assert again.turn == await journal.get_turn(first.turn.id)
    assert (again.cancelled_timers, again.voided_turns) == ((), ())
    assert await journal.get_thread("chat") == before
    assert await journal.list_timers("chat") == [timer]
    assert len(await journal.list_turns("chat")) == 1


async def test_a_message_sent_twice_at_once_is_accepted_once(
    open_journal: OpenJournal, journal: Journal, chat: Chat, now: datetime
) -> None:
    """Two processes that get the same message at the same time store it once."""
    handles = [journal, await open_journal()]
    accepted = await asyncio.gather(
        *(
            handles[n % 2].accept_message(
                "chat",
                user_message("Is it open?"),
                ids=ticking_ids(node=n),
                now=now,
                client_message_id="c-1",
            )
            for n in range(8)
        )
    )
    assert sum(a.is_new for a in accepted) == 1
    assert len({a.turn.id for a in accepted}) == 1
    assert await chat.messages() == [accepted[0].message]
    assert (await journal.get_thread("chat")).epoch == 1


async def test_a_clients_id_belongs_to_its_thread(chat: Chat) -> None:
    """Two clients may count their messages alike."""
    second = await chat.another("second")
    assert (await chat.say(client_message_id="1")).is_new
    assert (await second.say(client_message_id="1")).is_new


async def test_a_messages_id_can_be_used_once(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """A second message with the id of the first is refused, and nothing changes."""
    message = user_message("Is it open?", id="m-1")
    await journal.accept_message("chat", message, ids=ids, now=now)
    timer = await chat.arm()
    before = await journal.get_thread("chat")
    with pytest.raises(ConflictError):
        await journal.accept_message("chat", message, ids=ids, now=now)
    assert await journal.get_thread("chat") == before
    assert await journal.list_timers("chat") == [timer]
    assert len(await journal.list_turns("chat")) == 1


async def test_one_messages_id_is_fine_in_two_threads(
    journal: Journal, chat: Chat, ids: SnowflakeSource, now: datetime
) -> None:
    """The same message can be given to two agents."""
    await chat.another("lesson", agent_id="tutor")
    message = user_message("Is it open?", id="m-1")
    for thread_id in ("chat", "lesson"):
        assert (await journal.accept_message(thread_id, message, ids=ids, now=now)).is_new


async def test_messages_accepted_at_once_are_all_stored(
    open_journal: OpenJournal, journal: Journal, chat: Chat, now: datetime
) -> None:
    """Processes that write into one thread at the same time lose nothing and share no position."""
    handles = [journal, await open_journal()]
    accepted = await asyncio.gather(
        *(
            handles[n % 2].accept_message(
                "chat", user_message(f"Message {n}"), ids=ticking_ids(node=n), now=now
            )
            for n in range(10)
        )
    )
    stored = await chat.messages()
    assert sorted(texts(stored)) == sorted(f"Message {n}" for n in range(10))
    assert len(set(positions(stored))) == 10
    thread = await journal.get_thread("chat")
    assert (thread.epoch, thread.message_count) == (10, 10)
    assert sorted(a.turn.epoch for a in accepted) == list(range(1, 11))


@pytest.mark.parametrize(
    "state", [TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED], ids=str
)
async def test_a_users_message_cancels_the_live_follow_up(
    journal: Journal, chat: Chat, now: datetime, state: TimerState
) -> None:
    """A reply beats a timer, also one that waits longer or is being decided about."""
    timer = await chat.arm()
    if state is not TimerState.PENDING:
        lease = await chat.take_timer()
        if state is TimerState.POSTPONED:
            await journal.postpone_timer(lease, now + HOUR, "quiet hours", now=now)
    [live] = await journal.list_timers("chat")
    assert live.state is state
    accepted = await chat.say()
    assert accepted.cancelled_timers == (timer.id,)
    [cancelled] = await journal.list_timers("chat")
    assert cancelled.state is TimerState.CANCELLED
    assert cancelled.state_reason
    assert await journal.next_due_at() is None


async def test_a_users_message_leaves_closed_timers_as_they_are(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """The record of why a timer did not fire is not rewritten."""
    await chat.arm()
    closed = await journal.close_timer(
        await chat.take_timer(), TimerState.SUPPRESSED, "muted", ids=chat.ids, now=now
    )
    assert (await chat.say()).cancelled_timers == ()
    assert await journal.list_timers("chat") == [closed]


async def test_a_users_message_voids_a_queued_follow_up(journal: Journal, chat: Chat) -> None:
    """A follow-up that nobody has begun is never begun."""
    follow_up = await chat.follow_up()
    accepted = await chat.say()
    assert accepted.voided_turns == (follow_up.id,)
    assert (await journal.get_turn(follow_up.id)).state is TurnState.VOID
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_a_users_message_voids_a_running_follow_up(journal: Journal, chat: Chat) -> None:
    """A follow-up that is being generated ends unseen, and its worker can write nothing more."""
    await chat.follow_up()
    lease = await chat.take_turn()
    accepted = await chat.say()
    assert accepted.voided_turns == (lease.turn.id,)
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.show_turn(lease, now=chat.now)
    with pytest.raises(ConflictError, match="Nothing was written"):
        await chat.finish(lease, AIMessage("Are you there?"))
    assert "Are you there?" not in texts(await chat.messages())
    assert (await journal.get_turn(lease.turn.id)).state is TurnState.VOID


async def test_a_follow_up_that_is_being_shown_is_not_voided(journal: Journal, chat: Chat) -> None:
    """Words that the user has begun to read are finished and kept."""
    lease = await chat.shown_follow_up(SEEN_AFTER)
    accepted = await chat.say()
    assert (accepted.voided_turns, accepted.shown_turn) == ((), lease.turn.id)
    await chat.finish(lease, AIMessage("Are you there?"))
    assert (await journal.get_turn(lease.turn.id)).state is TurnState.DONE


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
    void = await journal.get_turn(lease.turn.id)
    assert (void.state, void.error, void.shown_at) == (TurnState.VOID, WROTE, None)
    assert (await journal.events("chat")).partial is None
    with pytest.raises(ConflictError, match="Nothing was written"):
        await journal.save_partial(lease, "m-1", "Are you there?")
    assert (await chat.take_turn()).turn.id == accepted.turn.id


async def test_a_follow_up_of_which_a_message_is_stored_is_not_voided(chat: Chat) -> None:
    """It is in the history already, however new it is."""
    lease = await chat.shown_follow_up()
    call = {"name": "look", "args": {}, "id": "call-1"}
    await chat.write(lease, AIMessage("Let me look.", tool_calls=[call]))
    accepted = await chat.say()
    assert (accepted.voided_turns, accepted.shown_turn) == ((), lease.turn.id)


async def test_a_follow_up_that_was_given_back_is_void(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Its pieces were taken off the screen, so nobody misses it."""
    lease = await chat.shown_follow_up(HOUR)
    await journal.release_turn(lease, now=now)
    assert (await chat.say()).voided_turns == (lease.turn.id,)


async def test_a_users_message_does_not_touch_answers(journal: Journal, chat: Chat) -> None:
    """Neither the running nor the queued answer to an earlier message is voided."""
    await chat.say("First.")
    await chat.say("Second.")
    lease = await chat.take_turn()
    accepted = await chat.say("Third.")
    assert accepted.voided_turns == ()
    states = [turn.state for turn in await journal.list_turns("chat")]
    assert states == [TurnState.QUEUED, TurnState.QUEUED, TurnState.RUNNING]
    await journal.show_turn(lease, now=chat.now)
    await chat.finish(lease, AIMessage("Yes."))


async def test_a_users_message_does_not_touch_continuations(journal: Journal, chat: Chat) -> None:
    """What an answer still has to do is part of the answer, waiting or queued."""
    batch = await chat.exchange()
    turn = await chat.continue_batch(batch)
    timer = await chat.arm(HOUR, kind=TurnKind.CONTINUATION, batch=batch)
    accepted = await chat.say()
    assert (accepted.cancelled_timers, accepted.voided_turns) == ((), ())
    assert (await journal.get_turn(turn.id)).state is TurnState.QUEUED
    assert (await journal.list_timers("chat"))[0] == timer


async def test_a_users_message_does_not_touch_other_threads(journal: Journal, chat: Chat) -> None:
    """Writing in one conversation says nothing about another."""
    second = await chat.another("second")
    turn = await second.follow_up()
    timer = await second.arm(HOUR)
    accepted = await chat.say()
    assert (accepted.cancelled_timers, accepted.voided_turns) == ((), ())
    assert await journal.get_turn(turn.id) == turn
    assert (await journal.list_timers("second"))[0] == timer


async def test_a_follow_up_after_the_message_is_not_void(journal: Journal, chat: Chat) -> None:
    """Only what is older than the message is voided."""
    await chat.exchange()
    follow_up = await chat.follow_up()
    lease = await journal.claim_turn("worker-a", now=chat.now, lease_for=LEASE)
    assert lease is not None
    assert lease.turn.id == follow_up.id
    await journal.show_turn(lease, now=chat.now)
