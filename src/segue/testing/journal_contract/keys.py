"""Keys of the server's callers."""

# ruff: noqa: S101 - tests assert

from dataclasses import replace
from datetime import datetime

import pytest

from segue.core.errors import ConflictError, NotFoundError
from segue.journal.ports import Journal
from segue.journal.records import ApiKey
from segue.testing.journal_contract.chat import HOUR, USER, Chat
from segue.testing.journal_contract.fixtures import OpenJournal


def _key(now: datetime, key_id: str = "k1", user_id: str | None = USER) -> ApiKey:
    return ApiKey(key_id, "a 🙂 laptop", user_id, False, b"\x00\xff", now)


async def test_a_key_is_found_by_every_process_as_it_was_added(
    open_journal: OpenJournal, journal: Journal, now: datetime
) -> None:
    """Whoever may come in, may come in everywhere; an unknown key is none."""
    await journal.add_key(_key(now))
    operator = replace(_key(now, "k2", None), is_operator=True)
    await journal.add_key(operator)
    other = await open_journal()
    assert [await other.find_key(name) for name in ("k1", "k2", "k3")] == [
        _key(now),
        operator,
        None,
    ]


async def test_a_key_is_added_once(journal: Journal, now: datetime) -> None:
    """A second one with the same id changes nothing of the first."""
    await journal.add_key(_key(now))
    with pytest.raises(ConflictError, match="k1"):
        await journal.add_key(_key(now, user_id="bo"))
    assert await journal.list_keys() == [_key(now)]


async def test_a_revoked_key_says_since_when(journal: Journal, now: datetime) -> None:
    """It stays in the list, and revoking it again does not move the moment."""
    await journal.add_key(_key(now + HOUR, "k2"))
    await journal.add_key(_key(now))
    revoked = replace(_key(now), revoked_at=now + HOUR)
    assert await journal.revoke_key("k1", now=now + HOUR) == revoked
    assert await journal.revoke_key("k1", now=now + 2 * HOUR) == revoked
    assert await journal.list_keys() == [revoked, _key(now + HOUR, "k2")]
    with pytest.raises(NotFoundError, match="k3"):
        await journal.revoke_key("k3", now=now)


async def test_turns_are_listed_by_their_batches(journal: Journal, chat: Chat) -> None:
    """What became of some messages is asked for without reading all turns of a thread."""
    turns = [(await chat.say(text)).turn for text in ("One", "Two", "Three")]
    chosen = {turns[0].batch, turns[2].batch}
    found = await journal.list_turns(chat.thread_id, batches=chosen)
    assert [turn.id for turn in found] == [turns[2].id, turns[0].id]
    assert await journal.list_turns(chat.thread_id, batches=[]) == []
