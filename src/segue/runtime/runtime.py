"""The runtime: all workers of one process, started and stopped together."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from segue.core.errors import SegueError
from segue.runtime.clock import sleep
from segue.runtime.effects import EffectRunner
from segue.runtime.ids import LeasedIds
from segue.runtime.loops import Agenda, Step, keep_going
from segue.runtime.parts import Parts
from segue.runtime.retainer import Retainer
from segue.runtime.sweeper import Sweeper
from segue.runtime.timers import TimerWorker
from segue.runtime.turns import TurnWorker

logger = logging.getLogger(__name__)

# Word of other processes often comes in bursts; one look is enough for all of it.
_MOMENT: Final = timedelta(milliseconds=20)
_PAUSE: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Turns, timers and effects, the leases that they hold, and word from other processes."""

    parts: Parts
    ids: LeasedIds
    turns: TurnWorker
    timers: TimerWorker
    effects: EffectRunner
    sweeper: Sweeper
    retainer: Retainer
    # The longest sleep of a worker; none where no other process can have anything to say.
    poll: timedelta | None = None
    patience: timedelta = timedelta(seconds=5)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work until the block is left; then finish or hand back what is being worked on."""
        agendas = self.parts.agendas
        async with _unwrapped(), asyncio.TaskGroup() as tasks:
            keep = [
                tasks.create_task(work)
                for work in (
                    self._loop("turn", self.turns.step, agendas.turns),
                    self._loop("lease", self.turns.extend_leases, agendas.leases),
                    self._loop("timer", self.timers.step, agendas.timers),
                    self._loop("effect", self.effects.step, agendas.effects),
                    # Nobody has anything to say to these two.
                    keep_going("sweep", self.sweeper.step, Agenda(), self.parts.clock),
                    keep_going("retention", self.retainer.step, Agenda(), self.parts.clock),
                    self._loop("node", self.ids.renew, Agenda()),
                    self._loop("listener", self.parts.bus.step, self.parts.bus.agenda),
                )
            ]
            if self.poll is not None:
                keep.append(tasks.create_task(self._watch()))
            try:
                yield
            finally:
                await self.turns.close(self.patience)
                await self.effects.close()
                self.parts.bus.close()
                for task in keep:
                    task.cancel()

    async def _loop(self, name: str, step: Step, agenda: Agenda) -> None:
        await keep_going(name, step, agenda, self.parts.clock, self.poll)

    async def _watch(self) -> None:
        """Hear of other processes until the journal is closed, whatever fails meanwhile."""
        while True:
            try:
                await self._pass_on()
            except Exception:
                logger.exception("Watching other processes failed, next try in %s", _PAUSE)
                await sleep(self.parts.clock, _PAUSE)
            else:
                return

    async def _pass_on(self) -> None:
        """Pass on what other processes did."""
        async with aclosing(self.parts.journal.watch(of_others=True)) as changes:
            async for thread_id in changes:
                self.parts.agendas.look(self.parts.clock.now() + _MOMENT)
                try:
                    await self.turns.look_after(thread_id)
                    await self.parts.bus.stored(thread_id)
                except SegueError as error:
                    logger.warning("Word of thread %s was not passed on: %s", thread_id, error)
                except Exception:
                    logger.exception("Word of thread %s was not passed on", thread_id)


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """A caller's own error comes out as it is, not in the group that tasks put it in."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None
