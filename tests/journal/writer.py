"""Processes that use a journal as a whole system does, until they are killed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from langchain_core.messages import AIMessage, ToolMessage

from segue import SnowflakeGenerator, synthetic_message, user_message
from segue.errors import BackendError, ConflictError
from segue.journal.journal import Journal
from segue.journal.memories import NewMemory
from segue.journal.records import Ending, NewEffect, NewTimer
from tests.journal.stores import journal_at, steps_of
from tests.processes import PROCESSES

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(seconds=30)
THREADS = ("red", "green", "blue")
Say = Callable[[str, str], None]


@dataclass
class Hands:
    """What a writer does, at whatever time it thinks it is."""

    journal: Journal
    ids: SnowflakeGenerator

    async def answer(self, now: datetime) -> None:
        """Take the next turn, whose ever it was, through a tool call to its end.

        The call and its result have the same ids at every attempt, as a system that repeats a
        turn gives them. The answer and the effect do not, so that a second one would be seen.
        """
        lease = await self.journal.turns.claim_one("worker", now=now, lease_for=LEASE)
        if lease is None:
            return
        turn = lease.turn
        ask = {"name": "find", "args": {}, "id": f"call {turn.id}"}
        call = AIMessage("", id=f"{turn.id} call", tool_calls=[ask])
        result = ToolMessage("found", id=f"{turn.id} result", tool_call_id=f"call {turn.id}")
        effect = NewEffect("webhook", {}, f"turn {turn.id} at attempt {turn.attempts}")
        await self.journal.messages.append(lease, [call], ids=self.ids, now=now)
        await self.journal.messages.append(lease, [result], ids=self.ids, now=now)
        await self.journal.turns.finish(
            lease, [AIMessage("Yes.")], ids=self.ids, now=now, ending=Ending(effects=[effect])
        )

    async def follow_up(self, thread_id: str, now: datetime) -> None:
        timer = NewTimer(thread_id, now, "check_in")
        await self.journal.timers.arm(timer, ids=self.ids, now=now)
        for lease in await self.journal.timers.claim_due("worker", now=now, lease_for=LEASE):
            message = synthetic_message("check_in")
            await self.journal.timers.fire(lease, message, ids=self.ids, now=now)

    async def remember(self, thread_id: str, now: datetime) -> None:
        memory = NewMemory("guide", "ada", "last", f"Asked at {now}.")
        await self.journal.memories.put(memory, ids=self.ids, now=now)
        tail = await self.journal.messages.tail(thread_id, max_tokens=200)
        if old := [batch.id for batch in tail[3:] if batch.is_complete]:
            await self.journal.summaries.save(thread_id, "They talked.", old, ids=self.ids, now=now)


def _announce(journal: Journal, say: Say) -> None:
    """Let a journal say which step it is in, so that a kill can be seen to strike there."""
    for step, take in steps_of(journal).items():
        part, name = step.split(".")
        setattr(getattr(journal, part), name, _announced(step, take, say))


def _announced(step: str, take: Any, say: Say) -> Any:
    async def announced(*args: Any, **kwargs: Any) -> Any:
        say("begun", step)
        result = await take(*args, **kwargs)
        say("ended", step)
        return result

    return announced


def _live(address: str, life: int, mouth: Connection) -> None:
    asyncio.run(_work(address, life, mouth))


async def _work(address: str, life: int, mouth: Connection) -> None:
    """Work for ever, and say every message as soon as its acceptance has returned.

    Every life's clock is an hour ahead of the one before, so a writer takes leases from those who
    are still at work; they must notice.
    """

    def say(kind: str, word: str) -> None:
        # In one piece and at once: what was said is out even if the next instant is the last.
        mouth.send((kind, word))

    start = START + life * timedelta(hours=1)
    journal = journal_at(address)
    _announce(journal, say)
    await journal.open()
    node = await journal.nodes.lease(f"life {life}", now=start, lease_for=timedelta(days=366))
    hands = Hands(journal, SnowflakeGenerator(node, last=await journal.nodes.last_position()))
    for thread_id in THREADS:
        await journal.threads.create(thread_id, agent_id="guide", user_id="ada", now=start)
    for n in count():
        while not await _cycle(hands, THREADS[n % 3], start + n * timedelta(seconds=1), say):
            pass


async def _cycle(hands: Hands, thread_id: str, now: datetime, say: Say) -> bool:
    """One of everything; False if the database failed, and the cycle is to be repeated."""
    try:
        question = user_message(f"Question of {now}?")
        accepted = await hands.journal.inbox.accept(
            thread_id, question, ids=hands.ids, now=now, client_message_id=f"{now}"
        )
        say("accepted", str(accepted.message.id))
        await _unless_taken(hands.answer(now), say)
        await _unless_taken(hands.follow_up(thread_id, now), say)
        await _unless_taken(hands.answer(now), say)
        await _unless_taken(hands.remember(thread_id, now), say)
    except BackendError as error:
        say("failed", str(error))
        return False
    return True


async def _unless_taken(move: Coroutine[None, None, None], say: Say) -> None:
    try:
        await move
    except ConflictError as error:
        say("conflict", str(error))


class Writer:
    """A writing process, and what it said."""

    def __init__(self, address: str, life: int) -> None:
        self.ear, mouth = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=_live, args=(address, life, mouth), daemon=True)
        self._process.start()
        mouth.close()
        self.said: dict[str, list[str]] = defaultdict(list)
        self.hear()

    def hear(self) -> None:
        self._last_words = kind, word = self.ear.recv()
        self.said[kind].append(word)

    def kill(self) -> str:
        """Kill -9, hear all that it had to say, and tell in the middle of what it was."""
        self._process.kill()
        self._process.join()
        with suppress(EOFError):
            while True:
                self.hear()
        kind, word = self._last_words
        return word if kind == "begun" else "nothing"


def let_work(writers: Iterable[Writer], one: Writer, cycles: int) -> None:
    """Hear all of them until that one has accepted so many messages more."""
    by_ear = {writer.ear: writer for writer in writers}
    goal = len(one.said["accepted"]) + cycles
    while len(one.said["accepted"]) < goal:
        speaking = wait(list(by_ear), timeout=60)
        assert speaking, "The writers hang."
        for ear in speaking:
            by_ear[cast("Connection", ear)].hear()
