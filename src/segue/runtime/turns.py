"""`TurnWorker`: claims turns, extends their leases while they run, and stops them.

It runs many threads at once, up to its slots; the journal gives out one turn per thread.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from segue.core.turn_rules import TurnRules
from segue.errors import BackendError, ConflictError, NotFoundError
from segue.journal.records import Turn, TurnLease, TurnState
from segue.runtime.deps import Deps, log_failure
from segue.runtime.processor import SessionProcessor
from segue.runtime.turn_failures import CancelScope, StopReason

logger = logging.getLogger(__name__)

# How often to read a turn of another process, in case its notification got lost.
_POLL: Final = timedelta(seconds=5)


@dataclass
class _Job:
    lease: TurnLease
    scope: CancelScope
    # How many other turns it waits for; meanwhile it needs no slot.
    resting: int = 0

    def stop_if_needed(self, turn: Turn) -> None:
        """`turn` is its newest state."""
        if turn.state is not TurnState.RUNNING:
            self.scope.stop(StopReason.VOID)
        elif turn.cancel_requested:
            self.scope.stop(StopReason.CANCELLED, turn.error)


class TurnWorker:
    def __init__(
        self, deps: Deps, processor: SessionProcessor, rules: TurnRules, slots: int
    ) -> None:
        self._deps = deps
        self._processor = processor
        self._rules = rules
        self._slots = slots
        self._jobs: dict[str, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._claiming = asyncio.Lock()
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def step(self) -> datetime | None:
        """Claim turns while slots are free; return the next due time."""
        deps, now = self._deps, self._deps.clock.now()
        async with self._claiming:
            room = self._free_slots
            if not room:
                return None  # the end of a turn wakes this worker
            claimed = await deps.journal.turns.claim(
                deps.owner, now=now, lease_for=deps.lease_for, limit=room
            )
            for lease in claimed.leases:
                self._start(lease)
        # With slots left, a turn that is due is locked by another process.
        return None if len(claimed.leases) == room else claimed.next_at

    async def extend_leases(self) -> datetime | None:
        """Extend the leases of running turns, and stop those that were cancelled."""
        for job in list(self._jobs.values()):
            await self._extend(job)
        return self._deps.clock.now() + self._deps.lease_for / 3 if self._jobs else None

    async def recheck(self, thread_id: str) -> None:
        """Something changed in a thread, or in any (""): stop its turn if it was cancelled."""
        for each in [thread_id] if thread_id else [*{*self._jobs, *self._waiting}]:
            self._wake_waiting(each)
            if job := self._jobs.get(each):
                await self._recheck(job)

    async def _recheck(self, job: _Job) -> None:
        """Stop a turn that was cancelled, or that another process claimed."""
        try:
            turn = await self._deps.journal.turns.get(job.lease.turn.id)
        except NotFoundError:
            job.scope.stop(StopReason.VOID)
        except BackendError as error:  # it is read again when its lease is extended
            logger.warning("Turn %s was not checked: %s", job.lease.turn.id, error)
        else:
            job.stop_if_needed(turn)

    def withdraw(self, thread_id: str, turn_ids: tuple[int, ...]) -> None:
        """Stop a turn here that is known to be void, without reading it."""
        job = self._jobs.get(thread_id)
        if job is not None and job.lease.turn.id in turn_ids:
            job.scope.stop(StopReason.VOID)

    async def wait_until_ended(self, turn: Turn) -> Turn:
        """Wait until a turn has ended, in any process."""
        wake = asyncio.Event()
        waiting = self._waiting.setdefault(turn.thread_id, set())
        waiting.add(wake)
        try:
            while True:
                if not self._is_running(turn):
                    found = await self._deps.journal.turns.get(turn.id)
                    if not found.is_live:
                        return found
                await self._deps.clock.wait(self._deps.clock.now() + _POLL, wake)
        finally:
            waiting.discard(wake)
            if not waiting:
                self._waiting.pop(turn.thread_id, None)

    async def will_resume(self, thread_id: str) -> bool:
        """Whether the turn that is being stopped here will be resumed."""
        job = self._jobs.get(thread_id)
        if job is None:
            return False
        turn = await self._deps.journal.turns.get(job.lease.turn.id)
        return turn.is_live and not turn.cancel_requested

    @contextmanager
    def resting(self, thread_id: str) -> Iterator[None]:
        """Around a wait for another turn, which may need the slot."""
        job = self._jobs.get(thread_id)
        if job is None:
            yield
            return
        # The turn's own task waits in the first of several waits.
        counted = self._deps.clock.working() if job.resting else nullcontext()
        job.resting += 1
        self._deps.wakeups.turns.now()
        try:
            with counted:
                yield
        finally:
            job.resting -= 1

    async def close(self, patience: timedelta) -> None:
        """Claim no more turns; let running ones finish, and release those that do not in time."""
        self._is_closing = True
        async with self._claiming:
            pass  # turns that are being claimed now are started then
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience.total_seconds())
        for job in self._jobs.values():
            job.scope.stop(StopReason.SHUTDOWN)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._deps.lease_for.total_seconds())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _free_slots(self) -> int:
        busy = sum(not job.resting for job in self._jobs.values())
        return 0 if self._is_closing else max(self._slots - busy, 0)

    def _is_running(self, turn: Turn) -> bool:
        job = self._jobs.get(turn.thread_id)
        return job is not None and job.lease.turn.id == turn.id and not job.scope.is_stopped

    def _start(self, lease: TurnLease) -> None:
        job = _Job(lease, CancelScope(self._rules.time_left(lease.turn.worked)))
        if not self._jobs:
            self._deps.wakeups.leases.at(self._deps.clock.now() + self._deps.lease_for / 3)
        if lost := self._jobs.get(lease.turn.thread_id):
            # Its lease expired before it was extended, and nothing else would stop it.
            lost.scope.stop(StopReason.VOID)
        self._jobs[lease.turn.thread_id] = job
        task = asyncio.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, job: _Job) -> None:
        turn = job.lease.turn
        with self._deps.clock.working():
            try:
                await self._processor.process(job.lease, job.scope)
            except Exception as error:  # noqa: BLE001 - it is claimed again when its lease expires
                log_failure(logger, f"Turn {turn.id} broke off", error)
            finally:
                if self._jobs.get(turn.thread_id) is job:
                    del self._jobs[turn.thread_id]
                self._wake_waiting(turn.thread_id)
                self._deps.wakeups.turns.now()
                if turn.attempts > 1:  # the process that had it before may have died
                    self._deps.wakeups.discards.now()

    def _wake_waiting(self, thread_id: str) -> None:
        for wake in self._waiting.get(thread_id, ()):
            wake.set()

    async def _extend(self, job: _Job) -> None:
        deps = self._deps
        try:
            lease = await deps.journal.turns.extend(
                job.lease, now=deps.clock.now(), lease_for=deps.lease_for
            )
        except (ConflictError, NotFoundError):
            job.scope.stop(StopReason.VOID)
        else:
            job.stop_if_needed(lease.turn)
