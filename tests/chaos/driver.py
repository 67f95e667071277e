"""The driver: users who write, write again, change their minds and type, all at once.

They reach the journal from a process of their own, as a client's server would. After an error the
same message is sent again under its own id, as a client does that does not know whether it came
through. Everything that was accepted is remembered here, outside of the database.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Final

from segue.core.messages import user_message
from segue.core.snowflake import SnowflakeSource
from segue.errors import BackendError, ConflictError
from segue.journal.inbox import Arrival
from segue.journal.journal import Journal
from segue.journal.records import Accepted, NewTimer, TimerKind, TurnState
from segue.runtime.clock import Clock
from tests.chaos.cast import PLANS, question

THREADS: Final = 20
USERS: Final = 6
AGENTS: Final = ("guide", "guide", "planner", "host")
_COLLECT: Final = timedelta(seconds=0.5)
# Short enough to meet an answer, or long enough for a follow-up, or two.
_HASTY: Final = (0.5, 1.5, 3.0, 4.5)
_SILENT: Final = (4.0, 6.0, 9.0)
# How long a client goes on trying; far longer than any restart takes.
_PATIENCE: Final = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was accepted."""

    thread_id: str
    token: str
    plan: str
    text: str
    batch: int
    turn_id: int
    # When the client had it in writing that the message is stored.
    returned_at: datetime


@dataclass
class Spoken:
    """All that the users did."""

    sent: list[Sent] = field(default_factory=list)
    # Keys of requested follow-ups, events and reminders that were accepted, with their threads.
    requested: dict[str, str] = field(default_factory=dict)
    # Turns that somebody wanted to be stopped.
    cancelled: set[int] = field(default_factory=set)
    did: Counter[str] = field(default_factory=Counter)


@dataclass
class Driver:
    """Twenty conversations at once."""

    journal: Journal
    ids: SnowflakeSource
    clock: Clock
    seed: int
    spoken: Spoken = field(default_factory=Spoken)
    _tokens: "count[int]" = field(default_factory=lambda: count(1))

    async def run(self, over: asyncio.Event) -> None:
        """Talk in all threads until it is over; what was begun is brought to its end."""
        async with asyncio.TaskGroup() as talks:
            for number in range(THREADS):
                agent = AGENTS[number % len(AGENTS)]
                talks.create_task(_Talk(self, f"thread-{number}", agent).run(over))

    async def create(self, thread_id: str, agent: str, user_id: str) -> None:
        await self.journal.threads.create(
            thread_id, agent_id=agent, user_id=user_id, now=self.clock.now()
        )

    async def send(self, thread_id: str, plan: str, arrival: Arrival) -> Accepted | None:
        """Send a message until it is accepted; None if it was refused."""
        token = f"q{next(self._tokens)}"
        text = question(token, plan)
        give_up_at = self.clock.now() + _PATIENCE
        while True:
            try:
                accepted = await self.journal.inbox.accept(
                    thread_id,
                    user_message(text),
                    ids=self.ids,
                    now=self.clock.now(),
                    client_message_id=token,
                    arrival=arrival,
                )
            except ConflictError:
                assert arrival.only_if_idle
                self.spoken.did["refused"] += 1
                return None
            except BackendError:
                if self.clock.now() > give_up_at:
                    raise
                self.spoken.did["sent again"] += 1
                await asyncio.sleep(0.2)
            else:
                break
        self.spoken.did["known already"] += not accepted.is_new
        self.spoken.cancelled |= {*accepted.stopped_turns}
        if arrival.interrupts and not accepted.is_new:
            # The first acceptance was lost on its way, and with it what was stopped.
            turns = await self.journal.turns.list_of(thread_id)
            self.spoken.cancelled |= {each.id for each in turns if each.cancel_requested}
        turn = accepted.turn
        self.spoken.sent.append(
            Sent(thread_id, token, plan, text, turn.batch, turn.id, self.clock.now())
        )
        return accepted

    async def request(self, thread_id: str, kind: TimerKind, after: timedelta) -> None:
        """Request something until it is accepted; the same key again, as a program does."""
        key = f"k{next(self._tokens)}"
        trigger = "check_in" if kind is TimerKind.FOLLOW_UP else kind.value
        give_up_at = self.clock.now() + _PATIENCE
        while key not in self.spoken.requested:
            now = self.clock.now()
            timer = NewTimer(thread_id, now + after, trigger, kind=kind, key=key)
            try:
                await self.journal.timers.arm(timer, ids=self.ids, now=now)
            except BackendError:
                if now > give_up_at:
                    raise
                await asyncio.sleep(0.2)
            else:
                self.spoken.requested[key] = thread_id
                self.spoken.did[f"requested: {kind.value}"] += 1

    async def cancel(self, thread_id: str) -> None:
        stopped = await self.journal.turns.cancel(thread_id, ids=self.ids, now=self.clock.now())
        self.spoken.cancelled |= {turn.id for turn in stopped}
        self.spoken.did["cancelled"] += len(stopped)


class _Talk:
    """One conversation; its dice do not depend on what happens in others."""

    def __init__(self, driver: Driver, thread_id: str, agent: str) -> None:
        self._driver = driver
        self._thread_id = thread_id
        self._agent = agent
        self._random = Random(f"{driver.seed} {thread_id}")  # noqa: S311 - no secret
        self._pauses = self._random.choice((_HASTY, _SILENT))

    async def run(self, over: asyncio.Event) -> None:
        user = f"user-{self._random.randrange(USERS)}"
        await self._driver.create(self._thread_id, self._agent, user)
        while not over.is_set():
            await self._once()
            pause = self._random.choice(self._pauses) * self._random.uniform(0.7, 1.3)
            try:
                async with asyncio.timeout(pause):
                    await over.wait()
            except TimeoutError:
                pass

    async def _once(self) -> None:
        ways: dict[Callable[[], Awaitable[object]], int] = {
            self._ask: 6,
            self._type: 2,
            self._double: 1,
            self._interrupt: 1,
            self._collect: 1,
            self._change_mind: 1,
            self._request: 2,
        }
        [how] = self._random.choices(list(ways), list(ways.values()))
        try:
            if not await self._is_behind():
                await how()
        except BackendError:  # of a wish that nobody insists on
            self._driver.spoken.did["gave up a wish"] += 1

    async def _is_behind(self) -> bool:
        """Whether there is enough to answer: nobody writes on and on to one who is silent."""
        turns = await self._driver.journal.turns.list_of(self._thread_id, limit=5)
        return sum(turn.state in (TurnState.QUEUED, TurnState.RUNNING) for turn in turns) > 2

    async def _ask(self, arrival: Arrival = Arrival()) -> Accepted | None:  # noqa: B008 - frozen
        plan = self._random.choice(list(PLANS[self._agent]))
        return await self._driver.send(self._thread_id, plan, arrival)

    async def _type(self) -> None:
        await self._driver.journal.threads.note_typing(
            self._thread_id, now=self._driver.clock.now()
        )
        await asyncio.sleep(self._random.uniform(0.1, 0.6))
        await self._ask()

    async def _double(self) -> None:
        await self._ask()
        await asyncio.sleep(self._random.uniform(0, 0.3))
        await self._ask(Arrival(only_if_idle=self._random.random() < 0.3))

    async def _interrupt(self) -> None:
        await self._ask()
        await asyncio.sleep(self._random.uniform(0, 0.8))
        await self._ask(Arrival(interrupts=True))

    async def _collect(self) -> None:
        for _ in range(self._random.randint(2, 3)):
            await self._ask(Arrival(collect=_COLLECT))
            await asyncio.sleep(self._random.uniform(0, 0.3))

    async def _request(self) -> None:
        kinds = (TimerKind.FOLLOW_UP, TimerKind.EVENT, TimerKind.EVENT, TimerKind.REMINDER)
        for _ in range(self._random.randint(1, 2)):
            kind, after = self._random.choice(kinds), self._random.uniform(0, 2)
            await self._driver.request(self._thread_id, kind, timedelta(seconds=after))
        if self._random.random() < 0.3:
            await self._ask()

    async def _change_mind(self) -> None:
        await self._ask()
        await asyncio.sleep(self._random.uniform(0, 1.2))
        await self._driver.cancel(self._thread_id)
