"""Whatever ends a turn, the state after it is that of the last turn that ended well."""

import asyncio
import operator
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from segue.agent.checkpoints.store import StrictSerializer
from segue.core.metadata import is_synthetic
from segue.core.triggers import TriggerType
from segue.errors import BackendError
from segue.runtime.clock import sleep
from segue.settings.agents import AgentConfig, Limits
from segue.simulate.world import Stage, World, with_graph
from tests.stories.scenes import arm, eager_agent, new_thread

MINUTE = timedelta(minutes=1)
NewDatabase = Callable[[], str]


class Log(MessagesState):
    """The first words of the turns that wrote here."""

    log: Annotated[list[str], operator.add]
    blob: bytes


def note(state: Log) -> dict[str, Any]:
    last = state["messages"][-1]
    return {"log": ["trigger" if is_synthetic(last) else last.text]}


@dataclass
class Play:
    """A thread, and what its log must be by now."""

    stage: Stage
    stack: AsyncExitStack
    expected: list[str] = field(default_factory=list)
    trigger_lingers: bool = False
    numbers: Any = field(default_factory=count)
    world: World = field(init=False)
    thread: str = field(init=False)

    async def act(self, state: Log) -> dict[str, Any]:
        word = state["log"][-1].partition(" ")[0]
        if word == "fail":
            raise ValueError("This node fails.")
        if word == "large":
            return {"messages": [AIMessage("Here.")], "blob": b"x" * 20_000}
        if word == "linger" or (word == "trigger" and self.trigger_lingers):
            await sleep(self.stage.clock, MINUTE)
        if word == "ask":
            interrupt("Sure?")
        return {"messages": [AIMessage("I have noted it.")]}

    def agent(self) -> AgentConfig:
        builder = StateGraph(Log)
        builder.add_sequence([note, self.act])
        builder.add_edge(BEGIN, "note")
        policy = {"max_consecutive": 99, "max_per_day": 99, "quiet_hours": None, "min_delay": 1}
        far = {trigger.value: 86_400 for trigger in TriggerType}
        agent = with_graph(eager_agent(delays=far, policy=policy), builder.compile())
        return agent.model_copy(update={"limits": Limits(state_bytes=10_000)})

    async def open(self) -> None:
        self.world = await self.stack.enter_async_context(self.stage.world(self.agent()))

    async def say(self, word: str, *, counts: bool) -> None:
        text = f"{word} {next(self.numbers)}"
        await self.world.say(self.thread, text)
        if counts:
            self.expected.append(text)

    async def log(self) -> list[str]:
        stored = await self.world.journal.states.load(self.thread)
        if "log" not in stored:
            return []
        value = stored["log"]
        found: list[str] = StrictSerializer().loads_typed((value.form, value.value))
        return found


async def good(play: Play) -> None:
    await play.say("good", counts=True)


async def fails(play: Play) -> None:
    await play.say("fail", counts=False)


async def is_too_large(play: Play) -> None:
    await play.say("large", counts=False)


async def is_stopped(play: Play) -> None:
    await play.say("linger", counts=False)
    await play.world.segue.cancel(play.thread)
    await play.world.pass_time(2 * MINUTE)


async def asks(play: Play) -> None:
    """And gets no answer, unless the next move gives one."""
    await play.say("ask", counts=True)


async def is_answered(play: Play) -> None:
    for turn in await play.world.journal.turns.list_of(play.thread, only_waiting=True):
        await play.world.segue.answer(turn.id, "yes")
        await play.world.clock.settle()


async def breaks_off(play: Play) -> None:
    """Its end cannot be stored at first."""
    turns = play.world.journal.turns
    finish = turns.finish

    async def away(*_: Any, **__: Any) -> Any:
        turns.finish = finish  # type: ignore[method-assign]  # once
        raise BackendError("The database is away.")

    turns.finish = away  # type: ignore[method-assign]  # as if it were away
    await play.say("good", counts=True)
    await play.world.pass_time(2 * MINUTE)


async def follows_up(play: Play) -> None:
    await arm(play.world, play.thread, play.stage.clock.now() + MINUTE)
    before = len(await play.world.journal.turns.list_of(play.thread, limit=1000))
    await play.world.pass_time(2 * MINUTE)
    after = await play.world.journal.turns.list_of(play.thread, limit=1000)
    play.expected += ["trigger"] * (len(after) - before)


async def is_overtaken(play: Play) -> None:
    """The user writes while the agent thinks of what to say first."""
    play.trigger_lingers = True
    await arm(play.world, play.thread, play.stage.clock.now() + MINUTE)
    await play.world.pass_time(MINUTE)
    await play.say("good", counts=True)
    await play.world.pass_time(2 * MINUTE)
    play.trigger_lingers = False


async def starts_again(play: Play) -> None:
    await play.stack.aclose()
    await play.open()


Move = Callable[[Play], Awaitable[None]]
MOVES: list[Move] = [
    good, fails, is_too_large, is_stopped, asks, is_answered, breaks_off, follows_up, is_overtaken,
    starts_again,
]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    numbers = count()
    if request.param == "sqlite":
        files = request.getfixturevalue("empty_files")
        return lambda: str(shutil.copytree(files, tmp_path / str(next(numbers))))
    server, like = request.getfixturevalue("server"), request.getfixturevalue("empty_tables")
    return lambda: str(server.create_database(like=like))


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(moves=[asks, follows_up, is_answered])
@given(moves=st.lists(st.sampled_from(MOVES), min_size=2, max_size=6))
def test_the_state_is_that_of_the_last_turn_that_ended_well(
    new_database: NewDatabase, moves: list[Move]
) -> None:
    async def play_all() -> None:
        async with AsyncExitStack() as stack:
            play = Play(Stage(new_database()), stack)
            await play.open()
            play.thread = await new_thread(play.world)
            for move in moves:
                await move(play)
                assert await play.log() == play.expected, move.__name__

    asyncio.run(play_all())


@pytest.mark.anyio
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
async def test_every_end_between_two_good_turns(stage: Stage, move: Move) -> None:
    """Each end once, so that none is left to chance."""
    async with AsyncExitStack() as stack:
        play = Play(stage, stack)
        await play.open()
        play.thread = await new_thread(play.world)
        for each in (good, asks if move is is_answered else good, move, good):
            await each(play)
            assert await play.log() == play.expected
        assert len(play.expected) >= 3
