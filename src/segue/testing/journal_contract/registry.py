"""Users' settings, API keys, node numbers, and push subscriptions."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from segue.core.snowflake import MAX_NODE, SnowflakeSource, latest_id
from segue.errors import ConflictError, NotFoundError
from segue.journal.journal import Journal
from segue.journal.memories import NewMemory
from segue.journal.records import ApiKey
from segue.journal.registry import PushSubscription
from segue.runtime.ids import SnowflakeGenerator
from segue.testing.journal_contract.chat import HOUR, LEASE, NOW, USER, Chat, positions
from segue.testing.journal_contract.fixtures import START, OpenJournal, ticking_ids

SECOND = timedelta(seconds=1)
MILLIS = int(START.timestamp() * 1000)


async def test_a_users_settings_are_merged_and_null_removes_one(
    open_journal: OpenJournal, chat: Chat
) -> None:
    """Every process reads them; other users and threads have their own, an unknown user none."""
    users = chat.journal.users
    quiet = {"from": "22:00", "to": "07:00", "zone": "Europe/Paris 🙂"}
    first = await users.update_settings(USER, {"quiet": quiet, "mute": True}, now=NOW)
    assert first == {"quiet": quiet, "mute": True}
    merged = await users.update_settings(USER, {"mute": None, "daily": 3}, now=NOW + HOUR)
    assert merged == {"quiet": quiet, "daily": 3}
    assert await users.update_settings("unknown", {}, now=NOW) == {}
    assert await users.get_settings("unknown") == {}
    assert (await chat.thread()).settings == {}
    await chat.journal.threads.delete(chat.thread_id)
    assert await (await open_journal()).users.get_settings(USER) == merged


async def test_why_settings_changed_is_recorded_with_them(chat: Chat) -> None:
    """Both or neither: a decision about an unknown thread changes no setting."""
    made = chat.decision()
    users = chat.journal.users
    await users.update_settings(USER, {"opted_out": True}, now=NOW, decisions=[made])
    assert await chat.decisions() == [made]
    other = replace(chat.decision(), thread_id="unknown")
    with pytest.raises(NotFoundError):
        await users.update_settings(USER, {"opted_out": None}, now=NOW, decisions=[other])
    assert await users.get_settings(USER) == {"opted_out": True}


async def test_settings_made_at_once_are_all_kept(crowd: list[Chat]) -> None:
    """Two pages that set different things do not undo each other, also for a new user."""
    made = {f"key-{n}": n for n in range(len(crowd))}
    await asyncio.gather(
        *(
            each.journal.users.update_settings(USER, {key: value}, now=NOW)
            for each, (key, value) in zip(crowd, made.items(), strict=True)
        )
    )
    assert await crowd[0].journal.users.get_settings(USER) == made


async def test_typing_changes_nothing_but_its_own_time(journal: Journal, chat: Chat) -> None:
    """The epoch, the list, the timers and other threads stay as they are."""
    other = await journal.threads.get((await chat.another("second")).thread_id)
    await chat.exchange()
    timer = await chat.arm(HOUR)
    before = await chat.thread()
    assert before.typing_at is None
    await journal.threads.note_typing("chat", now=NOW + HOUR)
    assert await chat.thread() == replace(before, typing_at=NOW + HOUR)
    assert await chat.timers() == [timer]
    assert await journal.threads.get("second") == other


async def test_a_message_ends_the_typing(journal: Journal, chat: Chat) -> None:
    """A follow-up does not wait for a user who has sent what they typed."""
    await journal.threads.note_typing("chat", now=NOW)
    await chat.follow_up()
    assert (await chat.thread()).typing_at == NOW
    await chat.say("Here it is.")
    assert (await chat.thread()).typing_at is None


def _key(now: datetime, key_id: str = "k1", user_id: str | None = USER) -> ApiKey:
    return ApiKey(key_id, "a 🙂 laptop", user_id, False, b"\x00\xff", now)


async def test_a_key_is_found_by_every_process_as_it_was_added(
    open_journal: OpenJournal, journal: Journal
) -> None:
    """A key works in every process; an unknown key is not found."""
    await journal.keys.add(_key(NOW))
    operator = replace(_key(NOW, "k2", None), is_operator=True)
    await journal.keys.add(operator)
    other = await open_journal()
    assert [await other.keys.find(name) for name in ("k1", "k2", "k3")] == [
        _key(NOW),
        operator,
        None,
    ]


async def test_a_key_is_added_once(journal: Journal) -> None:
    """A second one with the same id changes nothing of the first."""
    await journal.keys.add(_key(NOW))
    with pytest.raises(ConflictError, match="k1"):
        await journal.keys.add(_key(NOW, user_id="bo"))
    assert await journal.keys.list_all() == [_key(NOW)]


async def test_a_revoked_key_says_since_when(journal: Journal) -> None:
    """It stays in the list, and revoking it again does not move the moment."""
    await journal.keys.add(_key(NOW + HOUR, "k2"))
    await journal.keys.add(_key(NOW))
    revoked = replace(_key(NOW), revoked_at=NOW + HOUR)
    assert await journal.keys.revoke("k1", now=NOW + HOUR) == revoked
    assert await journal.keys.revoke("k1", now=NOW + 2 * HOUR) == revoked
    assert await journal.keys.list_all() == [revoked, _key(NOW + HOUR, "k2")]
    with pytest.raises(NotFoundError, match="k3"):
        await journal.keys.revoke("k3", now=NOW)


async def test_turns_are_listed_by_their_batches(journal: Journal, chat: Chat) -> None:
    """What became of some messages is asked for without reading all turns of a thread."""
    turns = [(await chat.say(text)).turn for text in ("One", "Two", "Three")]
    chosen = {turns[0].batch, turns[2].batch}
    found = await journal.turns.list_of(chat.thread_id, batches=chosen)
    assert [turn.id for turn in found] == [turns[2].id, turns[0].id]
    assert await journal.turns.list_of(chat.thread_id, batches=[]) == []


async def lease(journal: Journal, owner: str, now: datetime) -> int:
    return await journal.nodes.lease(owner, now=now, lease_for=LEASE)


async def test_every_lease_is_a_number_of_its_own(crowd: list[Chat]) -> None:
    """Processes that start at the same time get different numbers in range."""
    nodes = await asyncio.gather(
        *(lease(each.journal, f"p-{n}", NOW) for n, each in enumerate(crowd))
    )
    assert len(set(nodes)) == len(crowd)
    assert all(0 <= node <= MAX_NODE for node in nodes)


async def test_a_number_is_free_again_when_its_lease_ran_out(journal: Journal) -> None:
    """A process that died does not keep its number for ever; a living one does keep it."""
    held = {await lease(journal, f"process-{n}", NOW) for n in range(3)}
    before_end = await lease(journal, "early", NOW + LEASE - SECOND)
    assert before_end not in held
    after = {await lease(journal, f"late-{n}", NOW + LEASE) for n in range(3)}
    assert after == held


async def test_an_extended_number_stays_with_its_owner(journal: Journal) -> None:
    """No other process gets it as long as it is extended in time."""
    node = await lease(journal, "process-a", NOW)
    await journal.nodes.extend(node, "process-a", now=NOW + LEASE / 2, lease_for=LEASE)
    assert await lease(journal, "process-b", NOW + LEASE) != node


async def test_a_number_that_was_taken_over_cannot_be_extended(journal: Journal) -> None:
    """Its new owner keeps it and alone can release it; a number that was not leased is refused."""
    node = await lease(journal, "process-a", NOW)
    assert await lease(journal, "process-b", NOW + LEASE) == node
    for number in (node, 7):
        with pytest.raises(ConflictError):
            await journal.nodes.extend(number, "process-a", now=NOW + LEASE, lease_for=HOUR)
    await journal.nodes.release(node, "process-a")
    assert await lease(journal, "process-c", NOW + LEASE) != node
    await journal.nodes.extend(node, "process-b", now=NOW + LEASE, lease_for=HOUR)
    await journal.nodes.release(node, "process-b")
    assert await lease(journal, "process-d", NOW + LEASE) == node


async def test_the_last_number_can_be_leased_and_no_more(journal: Journal) -> None:
    """All numbers are given out before anyone is refused."""
    owners = {await lease(journal, f"process-{n}", NOW): n for n in range(MAX_NODE + 1)}
    assert sorted(owners) == list(range(MAX_NODE + 1))
    with pytest.raises(ConflictError):
        await lease(journal, "one-too-many", NOW)
    await journal.nodes.release(700, f"process-{owners[700]}")
    assert await lease(journal, "next", NOW) == 700


async def test_the_last_position_is_the_highest_of_all_threads(chat: Chat) -> None:
    """A generator seeded with it starts above everything stored, up to an id if one is given."""
    nodes = chat.journal.nodes
    assert await nodes.last_position() == 0
    await chat.exchange()
    second = await chat.another("second")
    await second.exchange()
    last = await nodes.last_position()
    assert last >= max(positions([*await chat.messages(), *await second.messages()]))
    years = timedelta(days=6_000)
    later = Chat(chat.journal, ticking_ids(2, START + years), chat.now + years, "later")
    await (await later.begin()).exchange()
    assert await nodes.last_position() > last
    assert await nodes.last_position(latest=latest_id(chat.now)) == last
    assert await nodes.last_position(latest=1) == 0


async def test_a_restart_with_the_clock_set_back_repeats_no_id(journal: Journal) -> None:
    """A generator seeded with the last position gives no id of a message, timer or memory again."""
    fast = SnowflakeGenerator(node=5, clock=lambda: MILLIS)
    before = await Chat(journal, fast, NOW, "before").begin()
    await before.exchange()
    used = await before.arm(HOUR)
    fact = await journal.memories.put(NewMemory("guide", "ada", "a", "A."), ids=fast, now=NOW)
    last = await journal.nodes.last_position()
    ids = SnowflakeGenerator(node=5, last=last, clock=lambda: MILLIS - 3_600_000)
    after = await Chat(journal, ids, NOW, "after").begin()
    assert (await after.arm(HOUR)).id > used.id
    new = await journal.memories.put(NewMemory("guide", "bob", "b", "B."), ids=ids, now=NOW)
    assert new.id != fact.id


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
    assert await journal.push.list_of(USER) == [again]
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
