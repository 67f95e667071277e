"""`TurnWorker`: claims turns, keeps their leases while they are worked on, and stops them.

Many threads at once, up to a bound; of one thread never two, which the journal sees to.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from segue.core.errors import BackendError, ConflictError, NotFoundError, SegueError
from segue.journal.records import Turn, TurnLease, TurnState
from segue.runtime.leash import Leash, Why
from segue.runtime.parts import Parts
from segue.runtime.processor import SessionProcessor
from segue.runtime.rules import TurnRules

logger = logging.getLogger(__name__)

# How often a turn that somebody else has, or nobody yet, is looked at, in case nobody tells us.
_POLL: Final = timedelta(seconds=5)
_LIVE: Final = frozenset({TurnState.QUEUED, TurnState.RUNNING})


@dataclass
class _Job:
    lease: TurnLease
    leash: Leash
    # How many others' turns it waits for; it needs no room while it does.
    resting: int = 0


class TurnWorker:
    """Works on as many turns at once as it has slots."""

    def __init__(
        self, parts: Parts, processor: SessionProcessor, rules: TurnRules, slots: int
    ) -> None:
        self._parts = parts
        self._processor = processor
        self._rules = rules
        self._slots = slots
        self._jobs: dict[str, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._claiming = asyncio.Lock()
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def step(self) -> datetime | None:
        """Take turns while there is room; when to look again."""
        parts, now = self._parts, self._parts.clock.now()
        async with self._claiming:
            room = self._room
            if not room:
                return None  # the end of a turn wakes us
            claimed = await parts.journal.claim_turns(
                parts.owner, now=now, lease_for=parts.lease_for, limit=room
            )
            for lease in claimed.leases:
                self._start(lease)
        # With room left, one that is due is in somebody's hands this moment.
        return None if len(claimed.leases) == room else claimed.next_at

    async def extend_leases(self) -> datetime | None:
        """Keep what is being worked on; and hear whether somebody wants it to stop."""
        for job in list(self._jobs.values()):
            await self._extend(job)
        return self._parts.clock.now() + self._parts.lease_for / 3 if self._jobs else None

    async def look_after(self, thread_id: str) -> None:
        """Something happened in a thread, or in any (""): stop its turn if it is to be stopped."""
        for each in [thread_id] if thread_id else [*{*self._jobs, *self._waiting}]:
            self._tell_waiting(each)
            if job := self._jobs.get(each):
                await self._look_after(job)

    async def _look_after(self, job: _Job) -> None:
        """Stop a turn that was cancelled, or that is not ours any more."""
        try:
            turn = await self._parts.journal.get_turn(job.lease.turn.id)
        except NotFoundError:
            job.leash.stop(Why.VOID)
            return
        except BackendError as error:  # the next look is when its lease is kept
            logger.warning("Turn %s was not looked after: %s", job.lease.turn.id, error)
            return
        if turn.state is not TurnState.RUNNING:
            job.leash.stop(Why.VOID)
        elif turn.cancel_requested:
            job.leash.stop(Why.CANCELLED, turn.error)

    def withdraw(self, thread_id: str, turn_ids: tuple[int, ...]) -> None:
        """Stop a turn of ours that is void; quicker than to look."""
        job = self._jobs.get(thread_id)
        if job is not None and job.lease.turn.id in turn_ids:
            job.leash.stop(Why.VOID)

    async def ended(self, turn: Turn) -> Turn:
        """Wait until a turn is over, whoever works on it; one at work here wakes us at its end."""
        wake = asyncio.Event()
        waiting = self._waiting.setdefault(turn.thread_id, set())
        waiting.add(wake)
        try:
            while True:
                if not self._is_at_work(turn):
                    found = await self._parts.journal.get_turn(turn.id)
                    if found.state not in _LIVE:
                        return found
                await self._parts.clock.wait(self._parts.clock.now() + _POLL, wake)
        finally:
            waiting.discard(wake)
            if not waiting:
                self._waiting.pop(turn.thread_id, None)

    async def goes_on(self, thread_id: str) -> bool:
        """Whether the turn that is being stopped here is still to be done, by somebody."""
        job = self._jobs.get(thread_id)
        if job is None:
            return False
        turn = await self._parts.journal.get_turn(job.lease.turn.id)
        return turn.state in _LIVE and not turn.cancel_requested

    @contextmanager
    def resting(self, thread_id: str) -> Iterator[None]:
        """Around a wait for another turn, which may need the room."""
        job = self._jobs.get(thread_id)
        if job is None:
            yield
            return
        # The first of several waits in the place of the turn itself.
        counted = self._parts.clock.working() if job.resting else nullcontext()
        job.resting += 1
        self._parts.agendas.turns.at_once()
        try:
            with counted:
                yield
        finally:
            job.resting -= 1

    async def close(self, patience: timedelta) -> None:
        """Take no more turns; let those at work finish, and hand back what does not in time."""
        self._is_closing = True
        async with self._claiming:
            pass  # what is being taken this moment is at work then
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience.total_seconds())
        for job in self._jobs.values():
            job.leash.stop(Why.SHUTDOWN)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._parts.lease_for.total_seconds())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _room(self) -> int:
        busy = sum(not job.resting for job in self._jobs.values())
        return 0 if self._is_closing else max(self._slots - busy, 0)

    def _is_at_work(self, turn: Turn) -> bool:
        job = self._jobs.get(turn.thread_id)
        return job is not None and job.lease.turn.id == turn.id and not job.leash.is_stopped

    def _start(self, lease: TurnLease) -> None:
        job = _Job(lease, Leash(self._rules.time_left(lease.turn)))
        if not self._jobs:
            self._parts.agendas.leases.at(self._parts.clock.now() + self._parts.lease_for / 3)
        if lost := self._jobs.get(lease.turn.thread_id):
            # Its lease ran out before we could keep it, and nobody else would stop it now.
            lost.leash.stop(Why.VOID)
        self._jobs[lease.turn.thread_id] = job
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, job: _Job) -> None:
        turn = job.lease.turn
        with self._parts.clock.working():
            try:
                await self._processor.process(job.lease, job.leash)
            except SegueError as error:
                # The journal is away; the turn is taken again when its lease is over.
                logger.warning("Turn %s broke off: %s", turn.id, error)
            except Exception:
                logger.exception("Turn %s broke off", turn.id)
            finally:
                if self._jobs.get(turn.thread_id) is job:
                    del self._jobs[turn.thread_id]
                self._tell_waiting(turn.thread_id)
                self._parts.agendas.turns.at_once()

    def _tell_waiting(self, thread_id: str) -> None:
        for wake in self._waiting.get(thread_id, ()):
            wake.set()

    async def _extend(self, job: _Job) -> None:
        parts = self._parts
        try:
            lease = await parts.journal.extend_turn(
                job.lease, now=parts.clock.now(), lease_for=parts.lease_for
            )
        except (ConflictError, NotFoundError):
            job.leash.stop(Why.VOID)
            return
        if lease.turn.cancel_requested:
            job.leash.stop(Why.CANCELLED, lease.turn.error)
