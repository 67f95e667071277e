"""Runs a scenario on a virtual clock: weeks of a whole Segue in seconds.

Everything is real except the time, checkpoints, webhooks (not sent) and, unless an agent names
another, the model. The scenario's user acts here, too. The CLI prints the report.
"""

import asyncio
import hashlib
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

import httpx
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from segue.agent.checkpoints.store import MemoryCheckpoints
from segue.agent.models import load_model
from segue.agent.scripted import ScriptedChatModel, demo_reply
from segue.compose import Overrides
from segue.core.durations import show_duration
from segue.core.metadata import MessageMetadata
from segue.core.tokens import estimate_tokens
from segue.core.triggers import TRIGGER_PROMPTS
from segue.errors import UsageError
from segue.events import OutsideEvent
from segue.journal.records import Turn
from segue.settings.agents import AgentConfig
from segue.simulate.report import EntryKind, SimulationReport, Usage
from segue.simulate.scenario import Event, Scenario, Timetable
from segue.simulate.timeline import Timeline
from segue.simulate.world import VirtualClock, World, open_world
from segue.stores import JOURNAL_FILE

Action = Callable[[World], Awaitable[datetime | None]]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# More than the follow-ups that are sent at one moment.
_NEWEST: Final = 50
# Seconds of real time for the work at one moment: an agent may call a real model.
_TIMEOUT: Final = 600.0


def simulate(scenario: Scenario, database: Path | None = None) -> SimulationReport:
    """Run a scenario to its end and report everything that happened.

    The database is kept in a new folder, if one is given. The same scenario gives the same report:
    it runs in an event loop of its own without threads, so that the order never changes. Inside of
    another loop, call it by `asyncio.to_thread`.
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
        "An event loop is running already, and a simulation has its own; "
        "call it by `await asyncio.to_thread(simulate, scenario)`."
    )


def _new_folder(database: Path) -> Path:
    if (database / JOURNAL_FILE).exists():
        raise UsageError(
            f"The folder {str(database)!r} holds a journal already; a simulation needs a new one, "
            "since it would run the timers that are planned there."
        )
    try:
        database.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The folder {str(database)!r} cannot be made: {error.strerror}."
        ) from None
    return database


class _OneThreadLoop(asyncio.SelectorEventLoop):
    """Runs the work of the journal's threads at once, in this thread."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        if executor is None:  # not the journal's; it may wait for its own thread
            return super().run_in_executor(executor, func, *args)
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)
        return done


class _Script:
    """Replies of a scripted model: the lines it was given, and then the demo's."""

    def __init__(self, agent: AgentConfig) -> None:
        self.lines: deque[str] = deque()
        # The demo knows triggers by their fixed prompts; it would repeat an owner's own prompt.
        self._fixed = {
            variant.text.strip(): TRIGGER_PROMPTS[trigger]
            for trigger, variants in agent.autonomy.prompts.items()
            for variant in variants
        }

    def __call__(self, messages: Sequence[BaseMessage]) -> str:
        if self.lines:
            return self.lines.popleft()
        return demo_reply([self._with_fixed_prompt(message) for message in messages])

    def _with_fixed_prompt(self, message: BaseMessage) -> BaseMessage:
        fixed = self._fixed.get(message.text.strip())
        return message if fixed is None else message.model_copy(update={"content": fixed})


class _Meter(AsyncCallbackHandler):
    """Counts the calls and tokens of models."""

    def __init__(self) -> None:
        self.usage = Usage()

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002
        messages: list[list[BaseMessage]],
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        self.usage.model_calls += len(messages)
        self.usage.tokens_read += sum(estimate_tokens(m) for request in messages for m in request)

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:  # noqa: ARG002
        self.usage.tokens_written += sum(
            estimate_tokens(made.message)
            for answers in response.generations
            for made in answers
            if isinstance(made, ChatGeneration)
        )


class _Simulation:
    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._timetable = Timetable.of(scenario)
        self._clock = VirtualClock(self._timetable.start, patience=_TIMEOUT)
        self._timeline = Timeline(self._timetable, scenario.user.id)
        self._checkpoints = MemoryCheckpoints()
        nowhere = httpx.MockTransport(lambda _: httpx.Response(200))
        self._http = httpx.AsyncClient(transport=nowhere)
        self._meter = _Meter()
        self._scripts = {agent.id: _Script(agent) for agent in scenario.agents}
        self._folder = folder
        self._numbers = count()
        self._agenda: list[tuple[datetime, int, Action]] = []
        # By agent: the newest follow-up that was shown, how many were, and the user's last message.
        self._seen = dict.fromkeys(self._scripts, 0)
        self._follow_ups = dict.fromkeys(self._scripts, 0)
        self._wrote = dict.fromkeys(self._scripts, 0)

    async def run(self) -> SimulationReport:
        """Run it to the end, with a new process after each outage."""
        for at, event in self._timetable.events:
            self._plan(at, partial(self._happen, event))
        agents, is_new = self._scenario.agents, True
        while True:
            models = {agent.id: self._model(agent) for agent in agents if agent.graph is None}
            given = Overrides(self._clock, models, self._http, self._checkpoints)
            async with open_world(self._clock, given, str(self._folder), agents) as world:
                if is_new:
                    await self._begin(world)
                is_new = False
                back_at = await self._run_until_outage(world)
                if back_at is None:
                    return await self._report(world)
            await self._clock.advance_to(back_at)

    def _model(self, agent: AgentConfig) -> BaseChatModel:
        model = load_model(agent.model, agent.model_settings)
        if isinstance(model, ScriptedChatModel):
            model.script = self._scripts[agent.id]
        model.callbacks = [self._meter]
        return model

    async def _begin(self, world: World) -> None:
        user = self._scenario.user
        await world.segue.set_user_preferences(
            user.id,
            time_zone=user.time_zone,
            quiet_hours=user.quiet_hours,
            muted=user.mute,
            opted_out=user.opt_out,
        )
        for agent in self._scenario.agents:
            await world.segue.create_thread(user.id, agent.id, thread_id=agent.id)

    async def _run_until_outage(self, world: World) -> datetime | None:
        """Let time pass until the end (None), or until an outage: when that is over."""
        end = self._timetable.end
        await self._clock.settle()
        while True:
            await self._look(world)
            next_at = min(self._agenda[0][0] if self._agenda else end, end)
            if (wakes_at := self._clock.next_at) is not None and wakes_at < next_at:
                await self._clock.advance_to(wakes_at)
                continue
            await self._clock.advance_to(next_at)
            if not self._agenda or self._agenda[0][0] > end:
                return None
            _, _, act = heapq.heappop(self._agenda)
            back_at = await act(world)
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
            entries=await self._timeline.entries(world.journal, list(self._scripts)),
            usage=self._meter.usage,
        )

    def _plan(self, at: datetime, act: Action) -> None:
        heapq.heappush(self._agenda, (at, next(self._numbers), act))

    async def _happen(self, event: Event, world: World) -> datetime | None:
        """Run an event; if it is an outage, the time when the process is back."""
        agent = self._scenario.agent_of(event).id
        if event.down is not None:
            back_at = self._clock.now() + event.down
            what = f"the process is down for {show_duration(event.down)}"
            self._add_entry(world, what, kind=EntryKind.OUTAGE, who="segue", until=back_at)
            return back_at
        if event.say is not None:
            await self._say(world, agent, event.say)
        elif event.replies is not None:
            self._scripts[agent].lines.extend(event.replies)
        else:
            self._add_entry(world, await self._act(world, agent, event))
        return None

    async def _act(self, world: World, agent: str, event: Event) -> str:
        """Perform an event other than a message; returns its text for the timeline."""
        if event.type:
            await world.segue.report_typing(agent)
            return f"types to {agent}"
        if event.remind is not None:
            when = event.remind.model_dump(exclude_none=True, exclude={"text"})
            reminder = await world.segue.remind(agent, event.remind.text, **when)
            return f"sets a reminder with {agent}: {reminder.description}"
        if event.follow_up is not None:
            await world.segue.follow_up(agent, prompt=event.follow_up)
            return f"a program asks {agent} to write"
        if event.news is not None:
            news = OutsideEvent(id=str(world.system.deps.ids.next()), type=event.news)
            await world.segue.wake(news, thread=agent)
            return f"a program reports {event.news} to {agent}"
        what, preferences = _preferences(event, self._clock.now())
        if event.agent is None:
            await world.segue.set_user_preferences(self._scenario.user.id, **preferences)
            return what
        await world.segue.set_thread_preferences(event.agent, **preferences)
        return f"{what} with {event.agent}"

    async def _say(self, world: World, agent: str, text: str) -> int:
        """The user writes; the message's position."""
        accepted = await world.segue.send(agent, text)
        position = MessageMetadata.of(accepted.message).position or 0
        self._timeline.ended_by |= dict.fromkeys(accepted.cancelled_timers, position)
        self._wrote[agent] = position
        return position

    def _add_entry(
        self, world: World, what: str, kind: EntryKind = EntryKind.WISH, **more: Any
    ) -> None:
        number = world.system.deps.ids.next()
        self._timeline.add(number, kind, self._clock.now(), what, **more)

    async def _look(self, world: World) -> None:
        """The user sees new follow-ups, and plans to answer some of them."""
        replies = self._scenario.user.replies
        if replies is None:
            return
        for agent, seen in self._seen.items():
            turns = await world.journal.turns.list_of(agent, limit=_NEWEST)
            for turn in reversed(turns):
                if turn.id <= seen or not turn.kind.speaks_first or not turn.shown_at:
                    continue
                self._seen[agent] = turn.id
                number = self._follow_ups[agent] = self._follow_ups[agent] + 1
                if _draw(self._scenario.seed, agent, number) < replies.share:
                    text = replies.say[(number - 1) % len(replies.say)]
                    answer = partial(self._answer, agent, text, turn)
                    self._plan(self._clock.now() + replies.after, answer)

    async def _answer(self, agent: str, text: str, turn: Turn, world: World) -> None:
        """Answer a follow-up, unless the user wrote to the agent since it came."""
        if self._wrote[agent] < turn.id and turn.shown_at is not None:
            position = await self._say(world, agent, text)
            self._timeline.answers[position] = turn.shown_at


def _preferences(event: Event, now: datetime) -> tuple[str, dict[str, Any]]:
    """The user's preferences, as a text and as settings."""
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


def _draw(seed: int, agent: str, number: int) -> float:
    """A number from 0 up to 1 that depends only on the follow-up, not on the others."""
    digest = hashlib.sha256(f"{seed}\0{agent}\0{number}".encode()).digest()
    return int.from_bytes(digest[:6]) / (1 << 48)
