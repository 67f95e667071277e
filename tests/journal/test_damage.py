"""Rows that somebody or something has damaged: set aside or named, and never in others' way."""

from collections.abc import AsyncIterator

import pytest

from segue.errors import BackendError
from segue.journal.journal import Journal
from segue.journal.records import TimerState
from segue.testing.journal_contract.chat import LEASE, Chat, texts
from segue.testing.journal_contract.fixtures import START, anyio_backend, ticking_ids
from tests.journal.stores import ask, change, is_file, journal_at

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

TIMERS = {
    "a payload that is no JSON": "payload = '{oops'",
    "a kind that does not exist": "kind = 'sneeze'",
    "a time beyond all calendars": "due_at = {never}",
    "an end beyond all calendars": "expires_at = {never}",
}
MESSAGES = {
    "a body that is no JSON": "{oops",
    "a body that is no message": "[]",
    "a message of an unknown kind": '{"type": "sneeze", "data": {"content": "hatchi"}}',
    "a message without content": '{"type": "ai", "data": {}}',
}


@pytest.fixture
async def journal(address: str) -> AsyncIterator[Journal]:
    journal = journal_at(address)
    await journal.open()
    yield journal
    await journal.close()


@pytest.fixture
async def chat(journal: Journal) -> Chat:
    return await Chat(journal, ticking_ids(), START).begin()


def damage_timer(address: str, timer_id: int, damage: str) -> None:
    never = f"{1 << 62}" if is_file(address) else "'294276-01-01'"
    what = TIMERS[damage].replace("{never}", never)
    change(address, f"UPDATE timers SET {what} WHERE id = {timer_id}")  # noqa: S608 - see above


@pytest.mark.parametrize("damage", TIMERS)
async def test_a_malformed_timer_does_not_hold_up_the_others(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """It is set aside as suppressed with the reason, and its neighbours are claimed."""
    bad = await chat.arm()
    good = await (await chat.another("second")).arm()
    damage_timer(address, bad.id, damage)
    assert await journal.timers.next_at() == START
    leases = await journal.timers.claim_due("worker-a", now=START, lease_for=LEASE)
    assert [lease.timer.id for lease in leases] == [good.id]
    [(state, reason, wake_at)] = ask(
        address, "SELECT state, state_reason, wake_at FROM timers WHERE thread_id = 'chat'"
    )
    assert (state, wake_at) == (TimerState.SUPPRESSED, None)
    assert reason


@pytest.mark.parametrize("damage", TIMERS)
async def test_a_malformed_timer_does_not_block_its_thread(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """Its thread can be written to, armed again, muted, and listed for an operator."""
    damage_timer(address, (await chat.arm()).id, damage)
    await journal.timers.claim_due("worker-a", now=START, lease_for=LEASE)
    await chat.say()
    timer = await chat.arm()
    assert await journal.timers.list_of("chat") == [timer]
    assert len(await journal.timers.cancel("chat", "muted", ids=chat.ids, now=START)) == 1


@pytest.mark.parametrize("damage", MESSAGES)
async def test_a_malformed_message_does_not_hide_the_others(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """History is shown without it, the model gets the whole batches, and the thread goes on."""
    await chat.exchange("Is it open?", "Yes.")
    await chat.exchange("And on Sunday?", "No.")
    body = f"SET body = '{MESSAGES[damage]}' WHERE text = 'Yes.'"
    change(address, f"UPDATE messages {body}")
    await chat.exchange("And on Monday?", "Yes, of course.")
    shown = ["Is it open?", "And on Sunday?", "No.", "And on Monday?", "Yes, of course."]
    assert texts((await journal.messages.history("chat")).messages) == shown
    assert texts(await chat.messages()) == shown[1:]


@pytest.mark.parametrize("damage", MESSAGES)
async def test_a_batch_with_a_malformed_message_is_a_backend_error(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """Nobody works on a part of a batch as if it were the whole."""
    batch = await chat.exchange("Is it open?", "Yes.")
    change(address, f"UPDATE messages SET body = '{MESSAGES[damage]}' WHERE text = 'Yes.'")  # noqa: S608 - see above
    with pytest.raises(BackendError, match="cannot be read"):
        await journal.messages.load_batch("chat", batch)


async def test_a_malformed_turn_does_not_hold_up_the_queue(
    address: str, journal: Journal, chat: Chat
) -> None:
    """It has failed, its batch is there to be looked at, and all others are taken."""
    await chat.say("One?")
    other = await (await chat.another("second")).say("Two?")
    change(address, "UPDATE turns SET kind = 'sneeze' WHERE thread_id = 'chat'")
    later = await chat.say("Three?")
    taken = [
        await journal.turns.claim_one("worker-a", now=START, lease_for=LEASE) for _ in range(3)
    ]
    assert {lease and lease.turn.id for lease in taken} == {other.turn.id, later.turn.id, None}
    assert [turn.id for turn in await journal.turns.list_of("chat")] == [later.turn.id]
    assert ask(address, "SELECT state FROM turns WHERE kind = 'sneeze'") == [("failed",)]


async def test_malformed_turns_are_left_out_of_many(
    address: str, journal: Journal, chat: Chat
) -> None:
    """Of turns that are taken together, those that can be read are."""
    await chat.say("One?")
    other = await (await chat.another("second")).say("Two?")
    change(address, "UPDATE turns SET kind = 'sneeze' WHERE thread_id = 'chat'")
    later = await chat.say("Three?")
    taken = []
    for _ in range(2):
        claimed = await journal.turns.claim("worker-a", now=START, lease_for=LEASE, limit=5)
        taken += [lease.turn.id for lease in claimed.leases]
    assert sorted(taken) == sorted([other.turn.id, later.turn.id])
    assert ask(address, "SELECT state FROM turns WHERE kind = 'sneeze'") == [("failed",)]


async def test_a_malformed_effect_does_not_hold_up_the_outbox(
    address: str, journal: Journal, chat: Chat
) -> None:
    """It is set aside as dead, and its neighbours are carried out."""
    await chat.queue_effect("bad")
    await chat.queue_effect("good")
    change(address, "UPDATE effects SET payload = '{oops' WHERE dedupe_key = 'bad'")
    leases = await journal.effects.claim("worker-a", kind="webhook", now=START, lease_for=LEASE)
    assert [lease.effect.dedupe_key for lease in leases] == ["good"]
    assert ask(address, "SELECT state FROM effects WHERE dedupe_key = 'bad'") == [("dead",)]
    assert await journal.effects.list_dead() == []


@pytest.mark.parametrize("damage", MESSAGES)
async def test_a_malformed_batch_that_waits_does_not_keep_the_user_from_writing(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """It cannot be settled and stays open, but waits no longer."""
    asked = await chat.ask_back("Shall I?")
    change(address, f"UPDATE messages SET body = '{MESSAGES[damage]}' WHERE text = 'Shall I?'")  # noqa: S608 - see above
    await chat.exchange("Never mind.", "Fine.")
    assert not (await journal.turns.get(asked.id)).is_waiting
    assert ask(address, f"SELECT count(*) FROM messages WHERE batch = {asked.batch}") == [(2,)]  # noqa: S608 - see above


async def test_a_malformed_turn_that_waits_does_not_keep_the_user_from_writing(
    address: str, journal: Journal, chat: Chat
) -> None:
    """It is passed over, and the message has its turn."""
    await chat.ask_back()
    change(address, "UPDATE turns SET kind = 'sneeze'")
    await chat.exchange("Never mind.", "Fine.")
    assert len(await journal.turns.list_of("chat")) == 1


@pytest.mark.parametrize("damage", MESSAGES)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_malformed_message_does_not_stop_a_listener(
    address: str, journal: Journal, chat: Chat, damage: str, limit: int
) -> None:
    """Page after page, all that can be read is seen, also behind a page that cannot."""
    await chat.exchange("One?", "One.")
    lost = [await chat.exchange("Lost?", "Lost.") for _ in range(2)]
    await chat.exchange("Two?", "Two.")
    change(
        address,
        f"UPDATE messages SET body = '{MESSAGES[damage]}' WHERE batch IN ({lost[0]}, {lost[1]})",  # noqa: S608 - see above
    )
    seen, after = [], 0
    while page := (await journal.feed.read("chat", after=after, limit=limit)).events:
        seen += [event.message for event in page if event.message is not None]
        after = page[-1].position
    assert texts(seen) == ["One?", "One.", "Two?", "Two."]


async def test_malformed_settings_of_a_user_are_none(
    address: str, journal: Journal, chat: Chat
) -> None:
    """They can be read and set anew."""
    await journal.users.update_settings("ada", {"mute": True}, now=chat.now)
    change(address, "UPDATE users SET settings = '{oops'")
    assert await journal.users.get_settings("ada") == {}
    assert await journal.users.update_settings("ada", {"a": 1}, now=chat.now) == {"a": 1}


async def test_malformed_settings_do_not_lock_a_thread(
    address: str, journal: Journal, chat: Chat
) -> None:
    """The thread is listed, written to, set anew and deleted as if it had none."""
    change(address, "UPDATE threads SET settings = '{oops'")
    await chat.exchange()
    [thread] = await journal.threads.list_of("ada")
    assert thread.settings == {}
    assert (await journal.threads.update("chat", settings={"a": 1})).settings == {"a": 1}
    await journal.threads.delete("chat")


@pytest.mark.parametrize("damage", TIMERS)
async def test_a_thread_with_a_malformed_timer_can_be_muted(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """The timer is cancelled like any other, though it cannot be shown."""
    timer = await chat.arm()
    damage_timer(address, timer.id, damage)
    await journal.timers.cancel("chat", "muted", ids=chat.ids, now=START)
    await chat.arm()
    change(address, "UPDATE timers SET wake_at = NULL WHERE state = 'cancelled'")
    assert len(await journal.timers.claim_due("worker-a", now=START, lease_for=LEASE)) == 1


async def test_a_wake_time_beyond_all_calendars_is_the_last_of_all(
    address: str, journal: Journal, chat: Chat
) -> None:
    """Whoever asks when the next timer is due gets a time to wait for."""
    await chat.arm()
    never = f"{1 << 62}" if is_file(address) else "'294276-01-01'"
    change(address, f"UPDATE timers SET wake_at = {never}")  # noqa: S608 - see above
    due = await journal.timers.next_at()
    assert due is not None
    assert due > START


@pytest.mark.parametrize("damage", MESSAGES)
async def test_a_malformed_message_does_not_spoil_a_search(
    address: str, journal: Journal, chat: Chat, damage: str
) -> None:
    """It is found by its text like all others: its body is not looked at."""
    await chat.exchange("Is the museum open?", "The museum is open.")
    body = f"SET body = '{MESSAGES[damage]}' WHERE text = 'The museum is open.'"
    change(address, f"UPDATE messages {body}")
    found = await journal.search.find("ada", "museum")
    assert {hit.text for hit in found} == {"Is the museum open?", "The museum is open."}
