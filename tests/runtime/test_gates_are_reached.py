"""Every gate stands before every way on which a follow-up can reach a user.

For each gate there is a scene in which it alone says no, played on each way: the timer is due, the
turn is taken up after a wait, and the first word is about to be shown. The same scenes are played
with that one gate taken out, and then the follow-up is sent: so these tests can fail, and none of
them passes for another reason than its gate.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from segue.agent.scripted import ScriptedChatModel
from segue.core.autonomy import gates
from segue.core.autonomy.gates import Gate, GateOutcome
from segue.core.triggers import TriggerType
from segue.journal.records import Claimed, Decision, NewTimer
from segue.journal.sqlite import SqliteJournal
from segue.journal.tx import Part
from segue.runtime.clock import sleep
from segue.simulate.world import Stage, World, plain_agent
from tests.runtime.scenes import lines, new_thread, stored, tab

pytestmark = pytest.mark.anyio

SOON = timedelta(seconds=30)
FIRST, SECOND = "First?", "Second?"
Change = Callable[[World, str], Awaitable[Any]]


async def set_policy(world: World, **changes: Any) -> None:
    """The owner changes the policy of the running agent."""
    agent = world.system.deps.agent_of("guide")
    autonomy = agent.config.autonomy
    changed = autonomy.model_copy(update={"policy": replace(autonomy.policy, **changes)})
    agent.config = agent.config.model_copy(update={"autonomy": changed})


def policy(**changes: Any) -> Change:
    return lambda world, _: set_policy(world, **changes)


def wish(**wishes: Any) -> Change:
    return lambda world, thread: world.segue.set_thread_preferences(thread, **wishes)


async def opt_out(world: World, thread: str) -> None:
    del thread
    await world.segue.set_user_preferences("ann", opted_out=True)


async def snooze(world: World, thread: str) -> None:
    await world.segue.snooze(thread, world.clock.now() + timedelta(days=1))


async def typing(world: World, thread: str) -> None:
    await world.segue.report_typing(thread)


async def write_unnoticed(world: World, thread: str) -> None:
    """The epoch rises, and nothing else of what a user's message does."""
    assert isinstance(world.journal, SqliteJournal)
    sql = "UPDATE threads SET epoch = epoch + 1 WHERE id = ?"
    await world.journal.db.write(lambda db: db.execute(sql, (thread,)))


async def nothing(world: World, thread: str) -> None:
    """Time alone is enough."""
    del world, thread


@dataclass(frozen=True)
class Scene:
    """What makes one gate say no: a change of the world, or time that passes over a timer."""

    change: Change = nothing
    wait: timedelta = timedelta()
    timer: dict[str, Any] = field(default_factory=dict)
    expires_after: timedelta | None = None


SCENES = {
    Gate.ENABLED: Scene(policy(enabled=False)),
    Gate.OPTED_OUT: Scene(opt_out),
    Gate.MUTED: Scene(wish(muted=True)),
    Gate.SNOOZED: Scene(snooze),
    Gate.SUPERSEDED: Scene(write_unnoticed),
    Gate.STALE: Scene(wait=timedelta(minutes=2), expires_after=timedelta(minutes=1)),
    Gate.MISSED: Scene(wait=timedelta(minutes=10), timer={"missed": "skip"}),
    # One was sent before in every scene.
    Gate.CONSECUTIVE_CAP: Scene(policy(max_consecutive=1)),
    Gate.DAILY_CAP: Scene(policy(max_per_day=1)),
    Gate.COOLDOWN: Scene(policy(cooldown=timedelta(hours=1))),
    Gate.TYPING: Scene(typing),
    Gate.QUIET_HOURS: Scene(wish(quiet_hours={"start": "00:00", "end": "23:59"})),
}


@asynccontextmanager
async def stopped(
    world: World, steps: Part, monkeypatch: pytest.MonkeyPatch, **found: Any
) -> AsyncIterator[None]:
    """A worker whose steps find nothing, as if it were down, until the block is left."""

    def finding(what: Any) -> Callable[..., Awaitable[Any]]:
        async def find(*_: Any, **__: Any) -> Any:
            return what

        return find

    with monkeypatch.context() as patch:
        for step, what in found.items():
            patch.setattr(steps, step, finding(what))
        yield
    world.system.deps.wakeups.all_at(world.clock.now())


@dataclass
class Play:
    """One scene in one world: a conversation with one follow-up, and a second that is due."""

    scene: Scene
    world: World
    model: ScriptedChatModel
    monkeypatch: pytest.MonkeyPatch
    thread: str = ""

    async def begin(self) -> None:
        self.thread = await new_thread(self.world.segue)
        await self.world.say(self.thread, "Where is Oslo?")
        await self.arm()
        await self.world.pass_time(SOON)
        assert (await self.world.heard(self.thread))[-1] == FIRST

    async def arm(self, **rules: Any) -> None:
        parts = self.world.system.deps
        due_at = self.world.clock.now() + SOON
        timer = NewTimer(self.thread, due_at, TriggerType.CHECK_IN.value, **rules)
        await parts.journal.timers.arm(timer, ids=parts.ids, now=self.world.clock.now())
        parts.wakeups.timers.at(due_at)

    async def arm_second(self) -> None:
        rules = dict(self.scene.timer)
        if self.scene.expires_after is not None:
            rules["expires_at"] = self.world.clock.now() + SOON + self.scene.expires_after
        await self.arm(**rules)

    async def when_due(self) -> None:
        """The timer is found, at its time or when somebody looks again."""
        await self.arm_second()
        await self.scene.change(self.world, self.thread)
        timers = self.world.journal.timers
        async with stopped(self.world, timers, self.monkeypatch, claim_due=[], next_at=None):
            await self.world.pass_time(SOON + self.scene.wait)
        await self.world.clock.settle()

    async def when_taken_up(self) -> None:
        """The timer fires in time, and its turn waits for somebody to take it."""
        await self.arm_second()
        turns = self.world.journal.turns
        async with stopped(self.world, turns, self.monkeypatch, claim=Claimed([], None)):
            await self.world.pass_time(SOON + max(self.scene.wait, timedelta(minutes=2)))
            await self.scene.change(self.world, self.thread)
        await self.world.clock.settle()

    async def when_shown(self) -> None:
        """The model thinks while the world changes."""

        async def think(messages: list[BaseMessage]) -> str:
            del messages
            await sleep(self.world.clock, self.scene.wait)
            await self.scene.change(self.world, self.thread)
            return SECOND

        self.model.script = think
        await self.arm_second()
        await self.world.pass_time(SOON + self.scene.wait)

    async def last_decision(self) -> Decision:
        return (await self.world.journal.decisions.list_of(self.thread))[0]


WAYS: dict[str, Callable[[Play], Awaitable[None]]] = {
    "due": Play.when_due,
    "taken up": Play.when_taken_up,
    "shown": Play.when_shown,
}
# Lateness is when a timer or its turn was found; how long a model then thinks is no part of it.
ALL = [(gate, way) for gate in SCENES for way in WAYS if (gate, way) != (Gate.MISSED, "shown")]
# Here the journal refuses too: a timer of an older epoch is not fired, whatever the gates say.
SECOND_LOCK = {(Gate.SUPERSEDED, "due")}


@asynccontextmanager
async def playing(
    stage: Stage, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Play]:
    model = lines("In Norway.", FIRST, then=SECOND)
    agent = plain_agent(autonomy={"decider": "none", "policy": {"cooldown": 0, "typing_hold": 60}})
    async with stage.world(agent, models={"guide": model}) as world:
        play = Play(scene, world, model, monkeypatch)
        await play.begin()
        yield play


def test_there_is_a_scene_for_every_gate() -> None:
    """Who adds a gate adds its scene."""
    # News waits for the talk to rest; `tests/stories/test_requests.py` shows it.
    assert {*SCENES, Gate.TALKING} == set(Gate) == set(gates._GATES)


@pytest.mark.parametrize(("gate", "way"), ALL)
async def test_a_gate_alone_keeps_a_follow_up_from_the_user(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, gate: Gate, way: str
) -> None:
    """Nothing of it is seen or heard, no model is asked before, and the record names the gate."""
    async with playing(sqlite_stage, SCENES[gate], monkeypatch) as play:
        before = await play.world.heard(play.thread)
        async with tab(play.world.segue, play.thread) as screen:
            await WAYS[way](play)
            await screen.until_said(FIRST)
        assert await play.world.heard(play.thread) == before
        assert stored(screen.events) == before
        assert SECOND not in repr(screen.events)
        assert len(play.model.seen) == (3 if way == "shown" else 2)
        decision = await play.last_decision()
        against = {g for g, said in decision.facts["verdicts"].items() if said != GateOutcome.ALLOW}
        assert against == {gate}
        assert decision.facts["gate"] == gate
        assert decision.kind == ("gates" if way == "due" else "gates_before_showing")


def take_out(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a gate say yes to everything."""

    def allow(_: Any) -> tuple[GateOutcome, str, None]:
        return GateOutcome.ALLOW, "Taken out.", None

    without = MappingProxyType({**gates._GATES, gate: allow})
    monkeypatch.setattr(gates, "_GATES", without)


@pytest.mark.parametrize(("gate", "way"), [case for case in ALL if case not in SECOND_LOCK])
async def test_without_that_gate_the_follow_up_is_sent(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, gate: Gate, way: str
) -> None:
    """The same scene, and nobody says no: what kept it back was this gate and nothing else."""
    async with playing(sqlite_stage, SCENES[gate], monkeypatch) as play:
        take_out(gate, monkeypatch)
        await WAYS[way](play)
        assert (await play.world.heard(play.thread))[-1] == SECOND


@pytest.mark.parametrize(("gate", "way"), sorted(SECOND_LOCK))
async def test_without_that_gate_the_journal_still_refuses(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch, gate: Gate, way: str
) -> None:
    """A reply beats a timer even where the gates would not know of it."""
    async with playing(sqlite_stage, SCENES[gate], monkeypatch) as play:
        take_out(gate, monkeypatch)
        await WAYS[way](play)
        assert (await play.world.heard(play.thread))[-1] == FIRST
        [timer, _] = await play.world.journal.timers.list_of(play.thread)
        assert (timer.state, timer.state_reason) == ("cancelled", "The user wrote.")
