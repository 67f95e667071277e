"""Watching: a hint that something was written, in this process or another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.journal.effects import EffectLease
from segue.journal.journal import Journal
from segue.journal.records import Hint
from segue.testing.journal_contract.chat import HOUR, Chat
from segue.testing.journal_contract.fixtures import OpenJournal

PATIENCE = 20  # seconds; a hint comes within one
TIMES = 6


class Hints:
    """The hints of one watch, as they come."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Hint] = asyncio.Queue()

    async def gather(self, journal: Journal) -> None:
        async with aclosing(journal.watch()) as hints:
            async for hint in hints:
                self._queue.put_nowait(hint)

    async def hear_of(self, thread_id: str, seconds: float = PATIENCE) -> bool:
        """Wait for a hint that may be of this thread, and say whether one came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (await self._queue.get()).thread_id not in ("", thread_id):
                    pass
                return True
        return False

    async def catch_up(self, chat: Chat) -> None:
        """Wait until a watcher runs, and has reported all that was written so far."""
        other = await chat.another("other")
        for _ in range(10 * PATIENCE):
            await other.arm(HOUR)
            if await self.hear_of("other", 0.1):
                return
        raise TimeoutError


@asynccontextmanager
async def watching(journal: Journal) -> AsyncIterator[Hints]:
    hints = Hints()
    task = asyncio.create_task(hints.gather(journal))
    try:
        yield hints
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def nothing(_: Chat) -> None:
    """No step has to come before."""


async def claimed_effect(chat: Chat) -> EffectLease:
    await chat.queue_effect()
    return await chat.take_effect()


# What comes before, and the step that is to be heard of.
WRITES: dict[
    str, tuple[Callable[[Chat], Awaitable[Any]], Callable[[Chat, Any], Awaitable[object]]]
] = {
    "accept": (nothing, lambda chat, _: chat.say()),
    "append": (Chat.running_reply, lambda chat, lease: chat.write(lease, AIMessage("Let me see."))),
    "save partial": (
        Chat.running_reply,
        lambda chat, lease: chat.journal.turns.save_draft(lease, "m", "Le"),
    ),
    "finish": (Chat.running_reply, lambda chat, lease: chat.finish(lease, AIMessage("Yes."))),
    "fail": (Chat.running_reply, lambda chat, lease: chat.fail(lease, "oops")),
    "release": (Chat.running_reply, lambda chat, lease: chat.release(lease)),
    "withdraw": (Chat.running_follow_up, lambda chat, lease: chat.withdraw(lease, "no")),
    "cancel": (Chat.running_reply, lambda chat, _: chat.cancel()),
    "answer": (Chat.ask_back, lambda chat, turn: chat.answer(turn.id, 1)),
    "arm": (nothing, lambda chat, _: chat.arm()),
    "fire": (Chat.claimed_timer, lambda chat, lease: chat.fire(lease)),
    "postpone": (
        Chat.claimed_timer,
        lambda chat, lease: chat.postpone(lease, chat.now + HOUR, "quiet hours"),
    ),
    "retry": (
        claimed_effect,
        lambda chat, lease: chat.journal.effects.retry(lease, "HTTP 503", retry_at=chat.now),
    ),
}


@pytest.mark.parametrize("write", WRITES)
async def test_every_step_that_others_wait_for_is_heard_of(
    open_journal: OpenJournal, chat: Chat, write: str
) -> None:
    """A listener or worker in another process is told of it, and need not ask all the time."""
    prepare, step = WRITES[write]
    async with watching(await open_journal()) as hints:
        await hints.catch_up(chat)
        prepared = await prepare(chat)
        await hints.catch_up(chat)
        await step(chat, prepared)
        assert await hints.hear_of("chat")


async def test_all_who_watch_are_told(journal: Journal, chat: Chat) -> None:
    """A process hears of its own steps, and one does not take the hint away from another."""
    async with watching(journal) as first, watching(journal) as second:
        await first.catch_up(chat)
        await second.catch_up(chat)
        await chat.say()
        assert await first.hear_of("chat")
        assert await second.hear_of("chat")


async def test_who_stops_watching_leaves_nothing_behind(journal: Journal, chat: Chat) -> None:
    """No task goes on, and the journal works as before."""
    before = len(asyncio.all_tasks())
    for _ in range(TIMES):
        async with watching(journal) as hints:
            await hints.catch_up(chat)
    # A store's own few tasks come and go.
    assert len(asyncio.all_tasks()) < before + TIMES
    await chat.exchange()
