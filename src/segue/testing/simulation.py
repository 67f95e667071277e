"""Runs a scenario on a virtual clock: weeks of a whole Segue in seconds.

Everything is real but the time, the checkpoints, webhooks, which go nowhere, and, unless an agent
names another, the model. The user of the scenario lives here too. Printing is the CLI's.
"""

import asyncio
import hashlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

import httpx

from segue.agent.checkpoints import MemoryCheckpoints
from segue.compose import Replacements, compose
from segue.core.durations import show_duration
from segue.core.errors import UsageError
from segue.core.metadata import MessageMetadata
from segue.facade import Segue
from segue.journal.records import Turn, TurnKind
from segue.settings import Settings
from segue.stores import JOURNAL_FILE
from segue.testing.clock import VirtualClock
from segue.testing.scenario import Event, Scenario, Timetable
from segue.testing.simulation_report import Kind, SimulationReport
from segue.testing.storyline import Storyline
from segue.testing.voices import Meter, Voice, voiced_model
from segue.testing.world import World

Act = Callable[[World], Awaitable[datetime | None]]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Longer than any sleep, so that leases cost a simulated year nothing.
_NODE_LEASE: Final = timedelta(days=30)
# At one moment no more follow-ups are sent than this.
_NEWEST: Final = 50
# Seconds of real time for the work at one moment: an agent may have a model that is really asked.
_PATIENCE: Final = 600.0


def simulate(scenario: Scenario, database: Path | None = None) -> SimulationReport:
    """Run a scenario to its end and tell everything that happened.

    The database is kept in a new folder, if one is given. The same scenario gives the same report.
    It runs an event loop of its own, which uses no threads, so that nothing happens in another
    order the next time; inside of another loop, call it by `asyncio.to_thread`.
    """
    _check_no_loop()
    with TemporaryDirectory(prefix="segue-") as temporary:
        folder = Path(temporary) if database is None else _new_folder(database)
        with asyncio.Runner(loop_factory=_OneThreadLoop) as runner:
            return runner.run(_Simulation(scenario, folder).run())


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "An event loop runs here already, and a simulation has its own; "
        "call it by `await asyncio.to_thread(simulate, scenario)`."
    )


def _new_folder(database: Path) -> Path:
    if (database / JOURNAL_FILE).exists():
        raise UsageError(
            f"The folder {str(database)!r} holds a journal already; a simulation needs a new one, "
            "since its clock would play with what is planned there."
        )
    try:
        database.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The folder {str(database)!r} cannot be made: {error.strerror}."
        ) from None
    return database


class _OneThreadLoop(asyncio.SelectorEventLoop):
    """Does the work of the journal's threads on the spot."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        if executor is None:  # somebody else's, who may wait for a thread of its own
            return super().run_in_executor(executor, func, *args)
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - for whoever waits
            done.set_exception(error)
        return done


@dataclass(order=True)
class _Due:
    """Something that the user does, or that befalls the process, at a moment."""

    at: datetime
    number: int
    act: Act = field(compare=False)


class _Simulation:
    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._timetable = Timetable.of(scenario)
        self._clock = VirtualClock(self._timetable.start, patience=_PATIENCE)
        self._story = Storyline(self._timetable, scenario.user.id)
        self._checkpoints = MemoryCheckpoints()
        self._meter = Meter()
        self._voices = {agent.id: Voice(agent) for agent in scenario.agents}
        self._settings = Settings(
            database=str(folder), agents=scenario.agents, poll=None, node_lease_for=_NODE_LEASE
        )
        self._numbers = count()
        self._agenda: list[_Due] = []
        # By agent: the newest follow-up that the user has seen, how many, and their last message.
        self._seen = dict.fromkeys(self._voices, 0)
        self._follow_ups = dict.fromkeys(self._voices, 0)
        self._wrote = dict.fromkeys(self._voices, 0)

    async def run(self) -> SimulationReport:
        """Live through it all, with a new process after each outage."""
        for at, event in self._timetable.events:
            self._plan(at, partial(self._happen, event))
        is_new = True
        while True:
            async with self._process() as world:
                if is_new:
                    await self._begin(world)
                is_new = False
                back_at = await self._live(world)
                if back_at is None:
                    return await self._report(world)
            await self._clock.advance_to(back_at)

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[World]:
        nowhere = httpx.MockTransport(lambda _: httpx.Response(200))
        async with httpx.AsyncClient(transport=nowhere) as http:
            given = Replacements(self._clock, self._models(), http, self._checkpoints)
            async with compose(self._settings, given) as composed:
                yield World(self._clock, Segue(composed), composed)

    def _models(self) -> dict[str, Any]:
        return {
            agent.id: voiced_model(agent, self._voices[agent.id], self._meter)
            for agent in self._scenario.agents
            if agent.graph is None
        }

    async def _begin(self, world: World) -> None:
        user = self._scenario.user
        await world.segue.set_user(
            user.id,
            time_zone=user.time_zone,
            quiet_hours=user.quiet_hours,
            muted=user.mute,
            opted_out=user.opt_out,
        )
        for agent in self._scenario.agents:
            await world.segue.create_thread(user.id, agent.id, thread_id=agent.id)

    async def _live(self, world: World) -> datetime | None:
        """Let time pass until the end, or until an outage: then when it is over."""
        end = self._timetable.end
        await self._clock.settle()
        while True:
            await self._look(world)
            next_at = min(self._agenda[0].at if self._agenda else end, end)
            if (wakes_at := self._clock.next_at) is not None and wakes_at < next_at:
                await self._clock.advance_to(wakes_at)
                continue
            await self._clock.advance_to(next_at)
            if not self._agenda or self._agenda[0].at > end:
                return None
            back_at = await heapq.heappop(self._agenda).act(world)
            if back_at is not None:
                return back_at
            await self._clock.settle()

    async def _report(self, world: World) -> SimulationReport:
        scenario, local = self._scenario, self._timetable.local
        return SimulationReport(
            title=scenario.title,
            seed=scenario.seed,
            user=scenario.user.id,
            start=local(self._timetable.start),
            end=local(self._timetable.end),
            entries=await self._story.tell(world.journal, list(self._voices)),
            usage=self._meter.usage,
        )

    def _plan(self, at: datetime, act: Act) -> None:
        heapq.heappush(self._agenda, _Due(at, next(self._numbers), act))

    async def _happen(self, event: Event, world: World) -> datetime | None:
        """Let an event happen; when the process is back, if it goes down."""
        agent = self._scenario.agent_of(event).id
        if event.down is not None:
            return self._go_down(world, event.down)
        if event.say is not None:
            await self._say(world, agent, event.say)
        elif event.replies is not None:
            self._voices[agent].lines.extend(event.replies)
        elif event.kind == "type":
            await world.segue.typing(agent)
            self._note(world, f"types to {agent}")
        else:
            await self._wish(world, event)
        return None

    def _go_down(self, world: World, span: timedelta) -> datetime:
        back_at = self._clock.now() + span
        what = f"the process is down for {show_duration(span)}"
        self._note(world, what, kind=Kind.OUTAGE, who="segue", until=back_at)
        return back_at

    async def _say(self, world: World, agent: str, text: str) -> int:
        """The user writes; the message's position."""
        accepted = await world.segue.send(agent, text)
        position = MessageMetadata.of(accepted.message).position or 0
        self._story.ended_by |= dict.fromkeys(accepted.cancelled_timers, position)
        self._wrote[agent] = position
        return position

    async def _wish(self, world: World, event: Event) -> None:
        what, wishes = _wishes(event, self._clock.now())
        if event.agent is None:
            await world.segue.set_user(self._scenario.user.id, **wishes)
        else:
            await world.segue.set_thread(event.agent, **wishes)
            what += f" with {event.agent}"
        self._note(world, what)

    def _note(self, world: World, what: str, kind: Kind = Kind.WISH, **more: Any) -> None:
        number = world.composed.parts.ids.next()
        self._story.note(number, kind, self._clock.now(), what, **more)

    async def _look(self, world: World) -> None:
        """The user sees new follow-ups, and plans to answer some of them."""
        answering = self._scenario.user.replies
        if answering is None:
            return
        for agent, seen in self._seen.items():
            turns = await world.journal.list_turns(agent, limit=_NEWEST)
            new = [turn for turn in reversed(turns) if turn.id > seen and _is_seen(turn)]
            for turn in new:
                self._seen[agent] = turn.id
                number = self._follow_ups[agent] = self._follow_ups[agent] + 1
                if _draw(self._scenario.seed, agent, number) < answering.share:
                    text = answering.say[(number - 1) % len(answering.say)]
                    answer = partial(self._answer, agent, text, turn)
                    self._plan(self._clock.now() + answering.after, answer)

    async def _answer(self, agent: str, text: str, turn: Turn, world: World) -> None:
        """Answer a follow-up, unless the user wrote to the agent since it came."""
        if self._wrote[agent] < turn.id and turn.shown_at is not None:
            position = await self._say(world, agent, text)
            self._story.answers[position] = turn.shown_at


def _wishes(event: Event, now: datetime) -> tuple[str, dict[str, Any]]:
    """What the user wants, in words and as settings."""
    if event.mute is not None:
        return ("mutes" if event.mute else "unmutes") + " follow-ups", {"muted": event.mute}
    if event.snooze is not None:
        what = f"snoozes follow-ups for {show_duration(event.snooze)}"
        return what, {"snoozed_until": now + event.snooze}
    if event.opt_out is not None:
        what = "opts out of follow-ups" if event.opt_out else "wants follow-ups again"
        return what, {"opted_out": event.opt_out}
    if event.time_zone is not None:
        return f"is in {event.time_zone} now", {"time_zone": event.time_zone}
    hours = event.quiet_hours
    what = f"wants quiet hours, {hours}" if hours else "wants no quiet hours"
    return what, {"quiet_hours": hours}


def _is_seen(turn: Turn) -> bool:
    return turn.kind is TurnKind.FOLLOW_UP and turn.shown_at is not None


def _draw(seed: int, agent: str, number: int) -> float:
    """From 0 up to 1, and the same for the same follow-up, whatever the policy made of others."""
    digest = hashlib.sha256(f"{seed}\0{agent}\0{number}".encode()).digest()
    return int.from_bytes(digest[:6]) / (1 << 48)
