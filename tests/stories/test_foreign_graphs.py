"""Graphs as others write them run unchanged, over several turns with a follow-up between."""

from collections.abc import Callable
from typing import Any

import pytest

from segue.agent.checkpoints.store import StrictSerializer
from segue.events import ProgressReported
from segue.simulate.world import Stage, World, with_graph
from tests.stories import graphs
from tests.stories.scenes import PATIENCE, eager_agent, listening, new_thread
from tests.stories.test_graph_state import replies

pytestmark = [
    pytest.mark.anyio,
    # Of `create_react_agent`, which the supervisor still uses.
    pytest.mark.filterwarnings("ignore:create_react_agent has been moved"),
]

# What each says to: one, a trigger, two, three.
SAID: dict[Callable[[], Any], list[str]] = {
    graphs.deep_agent: ["flour", "flour", "oil", "oil"],
    graphs.supervisor: ["served 0", "served 0", "served 2", "served 0"],
    graphs.swarm: ["bob", "bob", "bob", "bob"],
    lambda: graphs.workflow: ["turn 1", "turn 2", "turn 3", "turn 4"],
    graphs.subgraphs: ["1 notes", "2 notes", "3 notes", "4 notes"],
    graphs.commands: ["1 notes", "2 notes", "3 notes", "4 notes"],
    graphs.sends: ["3 notes", "6 notes", "9 notes", "12 notes"],
    graphs.custom_events: ["1 notes", "2 notes", "3 notes", "4 notes"],
    graphs.with_middleware: ["fine", "fine", "fine", "fine"],
}
NAMES = [
    "deepagents", "supervisor", "swarm", "entrypoint", "subgraphs", "commands", "sends",
    "custom_events", "middleware",
]  # fmt: skip


def agent(graph: Any) -> Any:
    return with_graph(eager_agent(policy={"max_consecutive": 1}), graph)


async def values(world: World, thread: str) -> dict[str, Any]:
    stored = await world.journal.states.load(thread)
    serde = StrictSerializer()
    return {name: serde.loads_typed((each.form, each.value)) for name, each in stored.items()}


@pytest.mark.parametrize(("make", "said"), SAID.items(), ids=NAMES)
async def test_a_graph_of_others_runs_unchanged(
    stage: Stage, make: Callable[[], Any], said: list[str]
) -> None:
    """Its state lives on over a follow-up and a restart."""
    async with stage.world(agent(make())) as world:
        thread = await new_thread(world)
        await world.say(thread, "one")
        await world.pass_time(PATIENCE)
    async with stage.world(agent(make())) as world:
        await world.say(thread, "two")
        await world.say(thread, "three")
        found = await replies(world, thread)
        assert [each for each in found if each in said] == said
        assert {turn.state for turn in await world.journal.turns.list_of(thread)} == {"done"}


async def test_files_and_tasks_of_deepagents_survive(stage: Stage) -> None:
    async with stage.world(agent(graphs.deep_agent())) as world:
        thread = await new_thread(world)
        await world.say(thread, "one")
        found = await values(world, thread)
        assert [task["content"] for task in found["todos"]] == ["Buy flour"]
        assert "flour" in str(found["files"]["/notes.txt"])


async def test_a_swarm_goes_on_with_its_active_agent(stage: Stage) -> None:
    async with stage.world(agent(graphs.swarm())) as world:
        thread = await new_thread(world)
        await world.say(thread, "one")
        assert (await values(world, thread))["active_agent"] == "bob"


async def test_state_of_middleware_lives_on(stage: Stage) -> None:
    async with stage.world(agent(graphs.with_middleware())) as world:
        thread = await new_thread(world)
        await world.say(thread, "one")
        assert (await values(world, thread))["calls"] == 12
        await world.say(thread, "three")
        assert (await values(world, thread))["calls"] == 13


async def test_custom_events_reach_listeners(stage: Stage) -> None:
    async with stage.world(agent(graphs.custom_events())) as world:
        thread = await new_thread(world)
        async with listening(world, thread) as listener:
            await world.say(thread, "one")
            await world.say(thread, "two")
        reported = [e.value for e in listener.events if isinstance(e, ProgressReported)]
        assert reported == [{"step": 1}, {"step": 2}]


async def test_several_questions_at_once_and_the_state_after_their_answers(stage: Stage) -> None:
    async with stage.world(agent(graphs.interrupts())) as world:
        thread = await new_thread(world)
        for turns in (1, 2):
            await world.say(thread, "A pizza.")
            [turn] = await world.journal.turns.list_of(thread, only_waiting=True)
            assert turn.ending is not None
            asked = {words: key for key, words in turn.ending["questions"].items()}
            answers = {asked["Which size?"]: "large", asked["Which crust?"]: "thin"}
            await world.segue.answer(turn.id, answers)
            await world.clock.settle()
            assert (await replies(world, thread))[-1] == f"{2 * turns} notes"
