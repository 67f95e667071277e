"""What a user wants of all agents, and that a user is typing."""

# ruff: noqa: S101 - tests assert

import asyncio
from dataclasses import replace
from datetime import datetime

from segue.journal.ports import Journal
from segue.testing.journal_contract.chat import HOUR, USER, Chat
from segue.testing.journal_contract.fixtures import OpenJournal


async def test_of_an_unknown_user_nothing_is_set(journal: Journal, now: datetime) -> None:
    """Nobody has to be entered before somebody asks, and asking enters nobody."""
    assert await journal.get_user_settings("nobody") == {}
    assert await journal.update_user_settings("nobody", {}, now=now) == {}


async def test_a_users_settings_are_merged_and_null_removes_one(
    journal: Journal, now: datetime
) -> None:
    """What is not named stays, and all that is set comes back."""
    quiet = {"from": "22:00", "to": "07:00", "zone": "Europe/Paris 🙂"}
    first = await journal.update_user_settings(USER, {"quiet": quiet, "mute": True}, now=now)
    assert first == {"quiet": quiet, "mute": True}
    merged = await journal.update_user_settings(USER, {"mute": None, "daily": 3}, now=now + HOUR)
    assert merged == {"quiet": quiet, "daily": 3}
    assert await journal.get_user_settings(USER) == merged


async def test_a_users_settings_are_read_by_every_process(
    open_journal: OpenJournal, journal: Journal, now: datetime
) -> None:
    """Whoever opts out in one place is left alone by all."""
    await journal.update_user_settings(USER, {"opted_out": True}, now=now)
    assert await (await open_journal()).get_user_settings(USER) == {"opted_out": True}


async def test_settings_made_at_once_are_all_kept(
    open_journal: OpenJournal, journal: Journal, now: datetime
) -> None:
    """Two pages that set different things do not undo each other, also for a new user."""
    handles = [journal, await open_journal()]
    await asyncio.gather(
        *(handles[n % 2].update_user_settings(USER, {f"key-{n}": n}, now=now) for n in range(8))
    )
    assert await journal.get_user_settings(USER) == {f"key-{n}": n for n in range(8)}


async def test_users_do_not_share_settings(journal: Journal, chat: Chat, now: datetime) -> None:
    """One user's wish says nothing about another, and a thread has settings of its own."""
    await journal.update_user_settings(USER, {"mute": True}, now=now)
    assert await journal.get_user_settings("bo") == {}
    assert (await journal.get_thread(chat.thread_id)).settings == {}


async def test_a_users_settings_outlive_their_threads(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Who deletes a conversation has not opted in again."""
    await journal.update_user_settings(USER, {"opted_out": True}, now=now)
    await journal.delete_thread(chat.thread_id)
    assert await journal.get_user_settings(USER) == {"opted_out": True}


async def test_typing_changes_nothing_but_its_own_time(
    journal: Journal, chat: Chat, now: datetime
) -> None:
    """Who types has said nothing yet: the epoch, the list and the timers stay as they are."""
    await chat.exchange()
    timer = await chat.arm(HOUR)
    before = await journal.get_thread("chat")
    assert before.typing_at is None
    await journal.note_typing("chat", now=now + HOUR)
    assert await journal.get_thread("chat") == replace(before, typing_at=now + HOUR)
    assert await journal.list_timers("chat") == [timer]


async def test_typing_is_noted_of_one_thread(journal: Journal, chat: Chat, now: datetime) -> None:
    """In another conversation of the same user nobody is typing."""
    await chat.another("second")
    await journal.note_typing("second", now=now)
    assert (await journal.get_thread("chat")).typing_at is None
