"""The compressor at a journal of its own: any history, one at a time, and what is in its way."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage

from segue import (
    build_context,
    group_batches,
    is_synthetic,
    settle,
    stamp,
    synthetic_message,
)
from segue.cli.housekeeping import compress_thread
from segue.core.batch import Batch
from segue.core.compression import Strategy
from segue.core.messages import continuation_message, visible_messages
from segue.errors import ConflictError, UsageError
from segue.journal import messages as stored_messages
from segue.journal.journal import Journal
from segue.journal.records import NewTimer, Summary, Thread, TimerKind
from segue.journal.sqlite import SqliteJournal
from segue.offline import OfflineSegue
from segue.runtime.clock import SystemClock
from segue.runtime.compressor import Backlog, Compressor, WindowLimits
from segue.settings import Settings as SegueSettings
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, VirtualClock, plain_agent
from segue.stores import open_journal
from segue.testing.journal_contract.chat import Chat
from segue.testing.providers import request_problems
from tests.histories import broken_threads, calling, exchange, threads, ticking_generator
from tests.runtime.scenes import Held

pytestmark = pytest.mark.anyio


class Faithful:
    """Sums up by repeating everything."""

    def __init__(self) -> None:
        self.calls = 0

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        del max_tokens
        self.calls += 1
        return f"{earlier} {retold}".strip()


def agent_of(window: int, **compression: Any) -> AgentConfig:
    return plain_agent(context_tokens=window, compression=compression)


def stored_once(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """As a journal takes them: each message once, whatever was repeated on the way."""
    return [*{message.id: message for message in messages}.values()]


@asynccontextmanager
async def conversation(messages: Sequence[BaseMessage]) -> AsyncIterator[tuple[Journal, Thread]]:
    """A thread with this history, in a database of its own."""
    with TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        await journal.open()
        try:
            thread = await journal.threads.create("t", agent_id="guide", user_id="ann", now=START)
            await journal.messages.import_messages("t", messages)
            yield journal, thread
        finally:
            await journal.close()


def compressor_of(journal: Journal, agent: AgentConfig, summariser: Any) -> Compressor:
    clock = VirtualClock(START)
    ids = ticking_generator(node=2)
    return Compressor(journal, ids, clock, lambda _: agent, lambda _: summariser)


async def chain(journal: Journal) -> list[Summary]:
    """All summaries of the thread, newest first, undone one by one."""
    found: list[Summary] = []
    while newest := await journal.summaries.find("t"):
        found.append(newest)
        await journal.summaries.undo(newest)
    return found


@given(
    st.one_of(threads(max_batches=6), broken_threads()),
    st.sampled_from(Strategy),
    st.integers(20, 400),
    st.integers(1, 3),
)
def test_any_history_is_compressed_without_a_loss(
    messages: list[BaseMessage], strategy: Strategy, window: int, keep: int
) -> None:
    """History stays, requests stay valid, nobody's batch is split, and all of it can be undone."""

    async def check() -> None:
        agent = agent_of(window, strategy=strategy, keep=keep)
        async with conversation(stored_once(messages)) as (journal, thread):
            seen = (await journal.messages.history("t", limit=1_000)).messages
            before = await journal.messages.tail("t", max_tokens=100_000)
            await compressor_of(journal, agent, Faithful()).shrink(thread, at_once=True)
            after = await journal.messages.window("t", max_tokens=100_000)
            assert (await journal.messages.history("t", limit=1_000)).messages == seen
            assert all(batch in before for batch in after.batches)
            assert _users_words(seen) == _users_words(stored_once(messages))
            gone = [b for b in before if b not in after.batches]
            complete = [b.id for b in before if b.is_complete]
            assert {b.id for b in gone} <= {*complete[keep:]}
            text = after.summary.text if after.summary else None
            context = build_context(after.batches, None, window * 10, summary=text)
            assert request_problems(context.messages) == []
            undone = [batch for summary in await chain(journal) for batch in summary.batches]
            assert sorted(undone) == sorted(b.id for b in gone)
            assert await journal.messages.tail("t", max_tokens=100_000) == before

    asyncio.run(check())


def _users_words(messages: Sequence[BaseMessage]) -> list[str]:
    own = (m for m in visible_messages(messages) if isinstance(m, HumanMessage))
    return sorted(str(m.content) for m in own if not is_synthetic(m))


def talked(count: int) -> list[BaseMessage]:
    generator = ticking_generator()
    return [
        message
        for number in range(count)
        for message in stamp(exchange(f"Question {number}? " + "So. " * 200), generator)
    ]


async def test_two_at_once_on_one_thread_ask_once() -> None:
    """The second waits for the first, and then has nothing left to do."""
    held = Held("They talked.")

    class Slow(Faithful):
        async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
            await super().summarise(earlier, retold, max_tokens)
            return str(await held([]))

    summariser = Slow()
    async with conversation(talked(14)) as (journal, thread):
        compressor = compressor_of(journal, agent_of(4_000, keep=1), summariser)
        first, second = (asyncio.create_task(compressor.shrink(thread)) for _ in range(2))
        await held.asked.wait()
        held.go.set()
        stored = [*await first, *await second]
        assert (len(stored), summariser.calls) == (1, 1)


async def test_a_window_below_its_trigger_is_compressed_only_on_demand() -> None:
    """A wish that comes late, when somebody else has made room, does nothing."""
    async with conversation(talked(8)) as (journal, thread):
        compressor = compressor_of(journal, agent_of(4_000, keep=1, strategy="truncate"), None)
        assert await compressor.shrink(thread) == []
        assert await compressor.shrink(thread, at_once=True) != []


async def test_a_summary_that_is_undone_meanwhile_is_not_repeated() -> None:
    """Its batches are in the window again: words made from it would tell them twice."""
    held = Held("First and second.")

    class Slow(Faithful):
        async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
            del retold, max_tokens
            return await held([]) if earlier else "First."

    async with conversation(talked(14)) as (journal, thread):
        everything = await journal.messages.list_live_batches("t")
        first = await journal.summaries.save(
            "t", "First.", everything[:1], ids=ticking_generator(node=3), now=START
        )
        compressor = compressor_of(journal, agent_of(4_000, keep=1), Slow())
        second = asyncio.create_task(compressor.shrink(thread, at_once=True))
        await held.asked.wait()
        await journal.summaries.undo(first)
        held.go.set()
        with pytest.raises(ConflictError):
            await second
        assert await journal.summaries.find("t") is None
        assert await journal.messages.list_live_batches("t") == everything


async def test_unfinished_batches_hold_up_nobody() -> None:
    """More of them than are looked at together, in front of all others."""
    generator = ticking_generator()
    orphans = [
        message
        for _ in range(70)
        for message in stamp([HumanMessage("Look."), calling("c1")], generator)
    ]
    sound = [m for n in range(60) for m in stamp(exchange(f"Question {n}? " * 9), generator)]
    async with conversation([*orphans, *sound]) as (journal, thread):
        agent = agent_of(700, keep=1, strategy="truncate")
        stored = await compressor_of(journal, agent, None).shrink(thread, at_once=True)
        gone = [batch for summary in stored for batch in summary.batches]
        assert gone == [batch.id for batch in group_batches(sound)][: len(gone)]
        live = {*await journal.messages.list_live_batches("t", limit=1_000)}
        assert {batch.id for batch in group_batches(orphans)} <= live
        assert len(live) < 70 + 8


async def test_a_batch_that_is_being_processed_stays_with_all_after_it() -> None:
    """An old batch goes on: what came after it is not taken away meanwhile."""
    ids, minute = ticking_generator(), timedelta(minutes=1)
    async with conversation(talked(8)) as (journal, thread):
        [first, *_] = before = await journal.messages.list_live_batches("t")
        timer = NewTimer("t", START, kind=TimerKind.CONTINUATION, batch=first)
        await journal.timers.arm(timer, ids=ids, now=START)
        [lease] = await journal.timers.claim_due("me", now=START, lease_for=minute)
        await journal.timers.fire(lease, continuation_message(), ids=ids, now=START)
        compressor = compressor_of(journal, agent_of(700, keep=1, strategy="truncate"), None)
        assert await compressor.shrink(thread, at_once=True) == []
        assert await journal.messages.list_live_batches("t") == before


async def test_without_anybody_to_ask_nothing_is_summed_up() -> None:
    """Rather an error than a conversation that is forgotten."""
    async with conversation(talked(12)) as (journal, thread):
        compressor = compressor_of(journal, agent_of(700, keep=1), None)
        with pytest.raises(UsageError):
            await compressor.shrink(thread, at_once=True)
        assert await journal.summaries.find("t") is None


async def test_batches_in_which_nobody_spoke_leave_the_summary_as_it_is() -> None:
    """There is nothing to ask a model about."""
    generator = ticking_generator()
    messages: list[BaseMessage] = []
    for _ in range(4):
        [cut_off] = group_batches(
            stamp([synthetic_message("check_in", None, "Hm? " * 400)], generator)
        )
        messages += settle(cut_off, generator).messages
    summariser = Faithful()
    async with conversation(messages) as (journal, thread):
        compressor = compressor_of(journal, agent_of(700, keep=1), summariser)
        stored = await compressor.shrink(thread, at_once=True)
        assert ({summary.text for summary in stored}, summariser.calls) == ({""}, 0)


class Saying(Faithful):
    """Sums up by the same words each time."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        await super().summarise(earlier, retold, max_tokens)
        return self._words


async def foreseen(compressor: Compressor, thread: Thread) -> tuple[list[list[int]], int]:
    """The rounds that would be, and how many of them are certain."""
    rounds = [each async for each in compressor.preview(thread)]
    certain = sum(each.is_certain for each in rounds)
    assert all(each.is_certain for each in rounds[:certain])
    return [[batch.id for batch in each.leaving] for each in rounds], certain


@given(
    st.one_of(threads(max_batches=8), broken_threads()),
    st.sampled_from(Strategy),
    st.integers(20, 400),
    st.integers(1, 3),
    st.sampled_from(["", "They talked. " * 5, "x" * 5_000]),
)
def test_what_is_foreseen_is_what_happens(
    messages: list[BaseMessage], strategy: Strategy, window: int, keep: int, earlier: str
) -> None:
    """Round by round: all of it with summaries as long as may be, what is certain with short ones.
    Looking changes nothing.
    """

    async def check() -> None:
        agent = agent_of(window, strategy=strategy, keep=keep)
        async with conversation(stored_once(messages)) as (journal, thread):
            first = [
                b.id for b in await journal.messages.tail("t", max_tokens=9_999) if b.is_complete
            ][-1:]
            if earlier and first:
                ids = ticking_generator(node=3)
                await journal.summaries.save("t", earlier, first, ids=ids, now=START)
            before = await journal.messages.list_live_batches("t")
            rounds, certain = await foreseen(compressor_of(journal, agent, None), thread)
            assert await journal.messages.list_live_batches("t") == before
            for words, expected in (("x" * 5_000, rounds), ("x", rounds[:certain])):
                assert await _carried_out(journal, thread, agent, Saying(words)) == expected
                assert await journal.messages.list_live_batches("t") == before

    asyncio.run(check())


async def _carried_out(
    journal: Journal, thread: Thread, agent: AgentConfig, summariser: Any
) -> list[list[int]]:
    """What really leaves, round by round; it is taken back."""
    compressor, stored = compressor_of(journal, agent, summariser), list[Summary]()
    while done := await compressor.shrink(thread, at_once=True):
        stored += done
    for summary in reversed(stored):
        await journal.summaries.undo(summary)
    return [[*summary.batches] for summary in stored]


async def test_a_backlog_is_foreseen_to_its_end() -> None:
    """Not only the first round: four of them and more, of batches that no window reaches."""
    async with conversation(backlog(orphans=70, sound=100)) as (journal, thread):
        agent = agent_of(700, keep=1)
        rounds, certain = await foreseen(compressor_of(journal, agent, None), thread)
        assert len(rounds) > 4
        assert certain <= len(rounds)
        longest = Saying("x" * 5_000)
        assert await _carried_out(journal, thread, agent, longest) == rounds


async def test_short_summaries_may_end_it_sooner() -> None:
    """What is called certain leaves all the same, and the rest does not."""
    async with conversation(talked(14)) as (journal, thread):
        agent = agent_of(2_250, keep=1)
        rounds, certain = await foreseen(compressor_of(journal, agent, None), thread)
        assert 0 < certain < len(rounds)
        assert await _carried_out(journal, thread, agent, Saying("x" * 5_000)) == rounds
        assert await _carried_out(journal, thread, agent, Saying("x")) == rounds[:certain]


@pytest.mark.parametrize("window", [1, 50, 1_000, 8_000, 200_000])
def test_measures_fit_into_any_window(window: int) -> None:
    """The summary is at most half of what stays, and what stays less than what is too much."""
    measures = WindowLimits.of(agent_of(window))
    assert measures.target <= measures.trigger <= window
    assert measures.summary <= max(measures.target // 2, 16)
    assert measures.reading > 0


def counted(journal: Journal) -> list[int]:
    """The batches that are read of a journal from now on, a page at a time."""
    read: list[int] = []
    load = journal.messages.load_batches

    async def load_batches(thread_id: str, batches: Collection[int]) -> list[Batch]:
        read.extend(batches)
        return await load(thread_id, batches)

    vars(journal.messages)["load_batches"] = load_batches
    return read


def backlog(orphans: int, sound: int) -> list[BaseMessage]:
    """Batches that never end, before many that no window reaches."""
    ids = ticking_generator()
    left_open = [stamp([HumanMessage("Look."), calling("c1")], ids) for _ in range(orphans)]
    exchanges = [stamp(exchange(f"Question {n}? " * 9), ids) for n in range(sound)]
    return [message for batch in (*left_open, *exchanges) for message in batch]


@pytest.mark.parametrize("strategy", ["truncate", "importance", "time_decay", "summarise"])
async def test_each_batch_is_read_once_on_its_way_out(strategy: str) -> None:
    """Neither what has left nor what may not leave is looked at again for what comes after it."""
    async with conversation(backlog(orphans=70, sound=300)) as (journal, thread):
        read = counted(journal)
        agent = agent_of(700, keep=1, strategy=strategy)
        stored = await compressor_of(journal, agent, Faithful()).shrink(thread, at_once=True)
        left = sum(len(summary.batches) for summary in stored)
        assert left > 280 or (strategy == "summarise" and len(stored) == 4)
        assert read
        assert len(read) == len({*read})


@pytest.mark.parametrize("strategy", ["truncate", "summarise"])
async def test_batches_with_many_bytes_leave_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """So that a thread of large pictures is never in memory as a whole; all of them leave."""
    monkeypatch.setattr(stored_messages, "WINDOW_BYTES", 1_000)
    async with conversation(backlog(orphans=3, sound=100)) as (journal, thread):
        ahead: list[int] = []
        window = await journal.messages.window(thread.id, max_tokens=700)
        waiting = Backlog(journal, thread.id, agent_of(700, keep=1, strategy=strategy))
        while leaving := await waiting.choose(window, START):
            ahead.append(len(waiting.ahead))
            waiting.remove(leaving)
            if len(ahead) == 5:
                break
        assert len(ahead) == 5
        assert max(ahead) <= 3


class Overtaken(Faithful):
    """While it sums up for the first time, an old batch goes on."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self.heard = ""

    async def summarise(self, earlier: str, retold: str, max_tokens: int) -> str:
        if not self.calls:
            chat = Chat(self._journal, ticking_generator(node=3), START, "t")
            [*_, last] = await self._journal.messages.list_live_batches("t", limit=10)
            await chat.continue_batch(last)
            await chat.reply("And one thing more.")
        self.heard += retold
        return await super().summarise(earlier, retold, max_tokens)


async def test_a_batch_that_goes_on_meanwhile_is_read_again() -> None:
    """It was read for an earlier summary; its own has what was said since."""
    async with conversation(backlog(orphans=0, sound=100)) as (journal, thread):
        summariser = Overtaken(journal)
        await compressor_of(journal, agent_of(700, keep=1), summariser).shrink(thread, at_once=True)
        assert summariser.calls > 2
        assert summariser.heard.count("And one thing more.") == 1


async def test_who_asks_is_told_of_each_batch_that_left() -> None:
    """Once, with its messages; a summary has no more than their ids."""
    async with conversation(talked(40)) as (journal, thread):
        told: list[Batch] = []
        compressor = compressor_of(journal, agent_of(700, keep=1, strategy="truncate"), None)
        stored = await compressor.shrink(thread, at_once=True, tell=told.append)
        assert [b.id for b in told] == [batch for each in stored for batch in each.batches]
        first = await journal.messages.load_batch("t", told[0].id)
        assert told[0].messages == first.messages


async def test_what_left_is_shown_without_being_read_again() -> None:
    """Thousands of batches may leave: of each, the command keeps a line, and lets it go."""
    async with conversation(backlog(orphans=0, sound=200)) as (journal, thread):
        read = counted(journal)
        agent = agent_of(700, keep=1, strategy="truncate")
        chosen = SegueSettings(agents=(agent,))
        segue = OfflineSegue(chosen, journal, SystemClock())
        outcome = await compress_thread(segue, thread, dry_run=False)
        gone = [batch for summary in outcome.summaries for batch in summary.batches]
        assert [left.id for left in outcome.leaving] == gone
        assert outcome.leaving[0].text.startswith("Question 0?")
        assert max(len(left.text) for left in outcome.leaving) <= 80
        assert len(read) == len({*read})


async def test_what_leaves_does_not_stay_in_memory(database: str) -> None:
    """Batches of the window are kept for the next turn; one that is read by itself is not."""
    async with open_journal(SegueSettings(database=database)) as journal:
        await journal.threads.create("t", agent_id="guide", user_id="ann", now=START)
        ids = ticking_generator()
        # Words that no other test has, since what is kept is kept for the whole process.
        said = [stamp(exchange(f"{n} in {database}?"), ids) for n in range(9)]
        await journal.messages.import_messages(
            "t", [message for batch in said for message in batch]
        )
        [old, *_] = await journal.messages.list_live_batches("t")
        once, twice = [await journal.messages.load_batch("t", old) for _ in range(2)]
        assert (once.messages, once is twice) == (twice.messages, False)
        first, again = [await journal.messages.window("t", max_tokens=100) for _ in range(2)]
        assert [*map(id, first.batches)] == [*map(id, again.batches)] != []
