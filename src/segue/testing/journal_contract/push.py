"""Push subscriptions, and the key of all processes."""

import asyncio
from dataclasses import replace

from segue.core.snowflake import SnowflakeSource
from segue.journal.journal import Journal
from segue.journal.push import PushSubscription
from segue.testing.journal_contract.chat import HOUR, NOW, USER, Chat
from segue.testing.journal_contract.fixtures import OpenJournal


def browser(ids: SnowflakeSource, name: str = "phone", user: str = USER) -> PushSubscription:
    endpoint = f"https://push.example.org/{name}"
    return PushSubscription(ids.next(), user, endpoint, b"\x04key", b"\x00auth", NOW)


async def test_a_browser_is_stored_as_it_is_and_once(
    journal: Journal, open_journal: OpenJournal, ids: SnowflakeSource
) -> None:
    """Subscribed again, it keeps its id and has its new keys; every process sees it."""
    first = await journal.push.subscribe(browser(ids), limit=5)
    again = replace(browser(ids), public_key=b"other", created_at=NOW + HOUR)
    stored = await journal.push.subscribe(again, limit=5)
    assert stored == replace(first, public_key=b"other")
    other = await open_journal()
    assert await other.push.list_of(USER) == [stored]
    assert await other.push.find(first.id) == stored
    assert await other.push.find(first.id + 1) is None
    assert await other.push.list_of("unknown") == []


async def test_a_browser_belongs_to_who_subscribed_last(
    journal: Journal, ids: SnowflakeSource
) -> None:
    """Else one user of a browser would read what is meant for another."""
    mine = await journal.push.subscribe(browser(ids), limit=5)
    await journal.push.subscribe(browser(ids, user="bob"), limit=5)
    assert await journal.push.list_of(USER) == []
    assert [each.user_id for each in await journal.push.list_of("bob")] == ["bob"]
    await journal.push.remove(mine)  # as its former user had it
    assert not await journal.push.unsubscribe(USER, mine.endpoint)
    assert len(await journal.push.list_of("bob")) == 1


async def test_the_oldest_browsers_make_room(journal: Journal, ids: SnowflakeSource) -> None:
    """Of the same user alone, and never the one that is subscribed now."""
    others = await journal.push.subscribe(browser(ids, "other", "bob"), limit=2)
    made = [await journal.push.subscribe(browser(ids, f"b-{n}"), limit=2) for n in range(4)]
    assert await journal.push.list_of(USER) == made[2:]
    again = await journal.push.subscribe(browser(ids, "b-2"), limit=1)
    assert again in await journal.push.list_of(USER)
    assert await journal.push.list_of("bob") == [others]


async def test_a_browser_is_removed_by_its_user_or_its_service(
    journal: Journal, ids: SnowflakeSource
) -> None:
    """A second time changes nothing."""
    first, second = [
        await journal.push.subscribe(browser(ids, name), limit=5) for name in ("one", "two")
    ]
    assert await journal.push.unsubscribe(USER, first.endpoint)
    assert not await journal.push.unsubscribe(USER, first.endpoint)
    await journal.push.remove(second)
    await journal.push.remove(second)
    assert await journal.push.list_of(USER) == []


async def test_a_deleted_user_has_no_browser(
    journal: Journal, chat: Chat, ids: SnowflakeSource
) -> None:
    """The report counts them; others keep theirs."""
    del chat
    await journal.push.subscribe(browser(ids), limit=5)
    kept = await journal.push.subscribe(browser(ids, "other", "bob"), limit=5)
    deleted = await journal.removal.delete_user(USER)
    assert deleted.rows["push_subscriptions"] == 1
    assert await journal.push.list_of(USER) == []
    assert await journal.push.list_of("bob") == [kept]


async def test_the_first_key_is_everybodys(crowd: list[Chat]) -> None:
    """However many processes make one at the same time."""
    made = [bytes([n]) * 32 for n in range(len(crowd))]
    keys = await asyncio.gather(
        *(each.journal.push.get_key(key) for each, key in zip(crowd, made, strict=True))
    )
    assert len({*keys}) == 1
    assert keys[0] in made
    assert await crowd[-1].journal.push.get_key(b"later") == keys[0]
