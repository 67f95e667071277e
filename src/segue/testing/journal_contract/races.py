"""Steps of several processes at the same moment: one of them is first, and both know it."""

import asyncio
from contextlib import suppress
from datetime import datetime

from langchain_core.messages import AIMessage

from segue.core.batch import group_batches
from segue.core.messages import synthetic_message, user_message
from segue.core.metadata import MessageMetadata
from segue.errors import ConflictError
from segue.journal.journal import Journal
from segue.journal.records import NewTimer, TimerState, TurnKind, TurnState
from segue.testing.journal_contract.chat import LEASE, NOW, Chat, positions
from segue.testing.journal_contract.fixtures import OpenJournal, Rounds, ticking_ids

ALIVE = (TimerState.PENDING, TimerState.POSTPONED, TimerState.CLAIMED)


async def test_a_thread_begun_twice_at_once_is_one_thread(crowd: list[Chat]) -> None:
    """Two tabs that open the same new conversation both get it."""
    threads = [each.journal.threads for each in crowd]
    made = await asyncio.gather(
        *(each.create("new", agent_id="guide", user_id="ada", now=NOW) for each in threads)
    )
    assert made == [await threads[0].get("new")] * len(crowd)


async def test_a_reply_and_a_timer_at_the_same_moment(rounds: Rounds) -> None:
    """Either the timer did not fire, or what it queued is void: no stale follow-up is left."""
    async for worker, user in rounds:
        lease = await worker.claimed_timer()
        fired, accepted = await asyncio.gather(worker.fire(lease), user.say())
        [timer] = await worker.journal.timers.list_of(worker.thread_id)
        if fired is None:
            assert timer.state is TimerState.CANCELLED
            assert accepted.voided_turns == ()
        else:
            assert timer.state is TimerState.FIRED
            assert accepted.voided_turns == (fired.id,)
        turns = await worker.journal.turns.list_of(worker.thread_id)
        queued = [turn.kind for turn in turns if turn.state is TurnState.QUEUED]
        assert queued == [TurnKind.REPLY]
        await worker.reply()


async def test_a_reply_and_the_first_token_at_the_same_moment(rounds: Rounds) -> None:
    """Whichever comes first, the follow-up is void: the user has not read it yet."""
    async for worker, user in rounds:
        lease = await worker.running_follow_up()
        refused, accepted = await asyncio.gather(
            worker.journal.turns.show(lease, now=worker.now), user.say(), return_exceptions=True
        )
        assert not isinstance(accepted, BaseException)
        turn = await worker.journal.turns.get(lease.turn.id)
        assert refused is None or isinstance(refused, ConflictError)
        assert (turn.state, accepted.voided_turns) == (TurnState.VOID, (turn.id,))
        assert (turn.shown_at, accepted.shown_turn) == (None, None)
        await worker.reply()


async def test_an_end_and_a_takeover_at_the_same_moment(rounds: Rounds) -> None:
    """Of a slow worker and the one that takes over, exactly one goes on with the turn."""
    async for slow, quick in rounds:
        late = await slow.running_reply()
        ended, lease = await asyncio.gather(
            slow.finish(late, AIMessage("Yes.", id="reply")),
            quick.journal.turns.claim_one("worker-b", now=slow.now + LEASE, lease_for=LEASE),
            return_exceptions=True,
        )
        assert not isinstance(lease, BaseException)
        if lease is None:
            assert not isinstance(ended, BaseException)
        else:
            assert isinstance(ended, ConflictError)
            await quick.finish(lease, AIMessage("Yes.", id="reply"))
        assert len(await slow.messages()) == 2


async def ask_away(journal: Journal, node: int, thread_ids: list[str], now: datetime) -> None:
    ids = ticking_ids(node)
    for n in range(6):
        message = user_message(f"Question {n} of {node}?")
        await journal.inbox.accept(thread_ids[n % 3], message, ids=ids, now=now)


async def answer(journal: Journal, node: int, now: datetime) -> None:
    ids = ticking_ids(node)
    for _ in range(8):
        lease = await journal.turns.claim_one(f"worker-{node}", now=now, lease_for=LEASE)
        if lease is None:
            continue
        with suppress(ConflictError):  # the user was faster than a follow-up
            await journal.messages.append(lease, [AIMessage("Let me see.")], ids=ids, now=now)
            await journal.turns.finish(lease, [AIMessage("Yes.")], ids=ids, now=now)
            timer = NewTimer(lease.turn.thread_id, now, "check_in")
            await journal.timers.arm(timer, ids=ids, now=now)


async def keep_time(journal: Journal, node: int, now: datetime) -> None:
    ids = ticking_ids(node)
    for _ in range(8):
        for lease in await journal.timers.claim_due(f"keeper-{node}", now=now, lease_for=LEASE):
            await journal.timers.fire(lease, synthetic_message("check_in"), ids=ids, now=now)


async def test_a_busy_system_keeps_its_promises(
    open_journal: OpenJournal, journal: Journal, chat: Chat
) -> None:
    """Users, turns and timers at once over two handles: no error, no gap, no second follow-up."""
    threads = [await chat.another(f"busy-{n}") for n in range(3)]
    names = [thread.thread_id for thread in threads]
    other = await open_journal()
    await asyncio.gather(
        *(ask_away(handle, node, names, NOW) for node, handle in enumerate([journal, other], 10)),
        *(answer(handle, node, NOW) for node, handle in enumerate([journal, other], 20)),
        *(keep_time(handle, node, NOW) for node, handle in enumerate([journal, other], 30)),
    )
    for thread in threads:
        stored = await thread.messages()
        assert positions(stored) == sorted(set(positions(stored)))
        for batch in group_batches(stored):
            places = [MessageMetadata.of(message).sequence_num for message in batch.messages]
            assert places == list(range(len(places)))
        timers = await journal.timers.list_of(thread.thread_id)
        assert sum(timer.state in ALIVE for timer in timers) <= 1
        turns = await journal.turns.list_of(thread.thread_id)
        assert sum(turn.kind is TurnKind.REPLY for turn in turns) == 4
        waiting = [turn for turn in turns if turn.state is TurnState.QUEUED]
        assert {t.epoch for t in waiting if t.kind is TurnKind.FOLLOW_UP} <= {4}
