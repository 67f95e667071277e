"""What is stored of a thread, as `threads`, `history`, `batches`, `context`, `timers` and `why`
show it.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, FunctionMessage

from segue.core.messages import user_message
from segue.core.stamp import stamp
from segue.core.triggers import TRIGGER_PROMPTS
from segue.journal.records import Thread
from segue.runtime.ids import SnowflakeGenerator
from segue.settings import Settings
from segue.simulate.world import Stage, plain_agent
from segue.stores import open_journal
from tests.cli.conftest import Play, Segue
from tests.runtime.scenes import Held, always, lines

CONFIG = """
[agents.guide]
name = "Guide"
model = "scripted"
memory.enabled = false
may_ask = ["clerk"]
[agents.clerk]
model = "scripted"
memory.enabled = false
"""
READ = ("threads", "history", "batches", "context", "timers", "why")

Shown = Callable[..., str]


@pytest.fixture
def story(database: str, tmp_path: Path, play: Play) -> Thread:
    """A question that the guide passes on to the clerk, an answer, silence, a follow-up."""
    (tmp_path / "segue.toml").write_text(CONFIG, encoding="utf-8")
    guide = plain_agent("guide", may_ask=["clerk"])
    asked = {"name": "clerk", "text": "Which floor?"}
    asking = AIMessage("", tool_calls=[{"name": "ask_agent", "args": asked, "id": "call-1"}])
    models = {
        "guide": lines(asking, "The [bold]third[/bold]. What do you need there?", "Still here?"),
        "clerk": always("The third."),
    }

    async def tell() -> Thread:
        stage = Stage(database)
        async with stage.world(guide, plain_agent("clerk"), models=models) as world:
            thread = await world.segue.create_thread("ann")
            await world.say(thread.id, "Where are the maps?")
            await world.pass_time(timedelta(hours=2))
            assert (await world.heard(thread.id))[-1] == "Still here?"
            return await world.segue.get_thread(thread.id)

    told: Thread = play(tell)
    return told


@pytest.fixture
def shown(segue: Segue, database: str) -> Shown:
    """What a command prints that goes well."""

    def call(*args: str) -> str:
        result = segue(*args, "--database", database)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return call


def test_conversations_are_listed_by_user(shown: Shown, story: Thread) -> None:
    """With the title; those in which agents ask each other are not among them."""
    [line] = [x for x in shown("threads", "--user", "ann").splitlines() if story.id in x]
    assert line.split()[:2] == [story.id, "guide"]
    assert "Where are the maps?" in line
    [thread] = json.loads(shown("threads", "--user", "ann", "--json"))
    assert (thread["id"], thread["user_id"], thread["message_count"]) == (story.id, "ann", 3)
    nothing = "me has no conversations here; --all lists those of all users.\n"
    assert shown("threads") == nothing


def test_the_newest_conversations_of_all_users_are_listed(
    segue: Segue, shown: Shown, story: Thread, database: str
) -> None:
    """With whose they are, as many as are asked for."""

    async def store() -> None:
        async with open_journal(Settings(database=database)) as journal:
            later = story.updated_at + timedelta(hours=1)
            await journal.threads.create("bobs", agent_id="clerk", user_id="bob", now=later)

    asyncio.run(store())
    rows = [line.split()[:3] for line in shown("threads", "--all").splitlines()]
    assert [row for row in rows if row[2:] in (["guide"], ["clerk"])] == [
        ["bobs", "bob", "clerk"],
        [story.id, "ann", "guide"],
    ]
    [newest] = json.loads(shown("threads", "--all", "--limit", "1", "--json"))
    assert (newest["id"], newest["user_id"]) == ("bobs", "bob")
    result = segue("threads", "--all", "--user", "ann", "--database", database)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "leave out --user" in result.stderr


def test_history_is_what_a_person_sees(shown: Shown, story: Thread) -> None:
    """Words as they were said, brackets and all, and never a trigger."""
    told = [x.split(maxsplit=3)[2:] for x in shown("history", story.id).splitlines() if "20" in x]
    assert [[who, what.strip()] for who, what in told] == [
        ["ann", "Where are the maps?"],
        ["Guide", "The [bold]third[/bold]. What do you need there?"],
        ["Guide", "Still here?"],
    ]
    messages = json.loads(shown("history", story.id, "--json"))
    assert [m["role"] for m in messages] == ["user", "agent", "agent"]
    assert [m["origin"] for m in messages] == [None, "reply", "follow_up"]
    for prompt in TRIGGER_PROMPTS.values():
        assert prompt not in shown("history", story.id, "--json")
    assert "Still here?" in shown("history", story.id, "--limit", "1")
    assert "maps" not in shown("history", story.id, "--limit", "1")


def test_batches_show_type_state_and_nesting(shown: Shown, story: Thread) -> None:
    """What the clerk was asked stands inside of the batch that asked."""
    first, second = json.loads(shown("batches", story.id, "--json"))
    assert (first["type"], first["state"]) == ("user_request", "complete")
    assert (second["type"], second["state"]) == ("system_trigger", "complete")
    [nested] = first["nested"]
    assert (nested["type"], nested["parent"]) == ("agent_to_agent", first["id"])
    assert nested["thread_id"] == f"{story.id}/clerk"
    assert second["nested"] == []
    printed = shown("batches", story.id).splitlines()
    assert any(x.startswith(first["id"]) and "user_request, complete" in x for x in printed)
    assert any(x.startswith(f"    {nested['id']}") for x in printed)
    assert "            agent   The third." not in printed
    assert "        agent   The third." in printed
    assert any("[calls ask_agent]" in x for x in printed)
    [last] = json.loads(shown("batches", story.id, "--json", "--limit", "1"))
    assert last["id"] == second["id"]


def test_a_thread_is_traced_batch_by_batch(shown: Shown, story: Thread, database: str) -> None:
    """Every stored message once, in order, in its own batch, triggers, calls and results too; with
    when each batch began, what worked on it, and what is nested in it.
    """

    async def stored(thread_id: str) -> list[list[str | None]]:
        async with open_journal(Settings(database=database)) as journal:
            turns = await journal.turns.list_of(thread_id)
            batches = [await journal.messages.load_batch(thread_id, turn.batch) for turn in turns]
            return [[message.id for message in batch.messages] for batch in reversed(batches)]

    traced = json.loads(shown("batches", story.id, "--json"))
    assert [[m["id"] for m in batch["messages"]] for batch in traced] == asyncio.run(
        stored(story.id)
    )
    roles = [[m["role"] for m in batch["messages"]] for batch in traced]
    assert roles == [["user", "agent", "tool", "agent"], ["trigger", "agent"]]
    assert [[turn["kind"] for turn in batch["turns"]] for batch in traced] == [
        ["reply"],
        ["follow_up"],
    ]
    assert traced[0]["began_at"] < traced[1]["began_at"]
    [nested] = traced[0]["nested"]
    assert [[m["id"] for m in nested["messages"]]] == asyncio.run(stored(nested["thread_id"]))
    printed = shown("batches", story.id)
    places = [printed.index(m["text"]) for batch in traced for m in batch["messages"]]
    assert places == sorted(places)


def test_pictures_and_old_roles_are_shown(shown: Shown, story: Thread, database: str) -> None:
    """A mark for each picture, and a blank after each role."""
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/map.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    said = [
        user_message([{"type": "text", "text": "Look at this."}, picture, picture]),
        FunctionMessage(content="The map.", name="see"),
        AIMessage("I see it."),
        user_message([sound]),
    ]

    async def store() -> None:
        async with open_journal(Settings(database=database)) as journal:
            await journal.messages.import_messages(story.id, stamp(said, SnowflakeGenerator(5)))

    asyncio.run(store())
    printed = shown("batches", story.id).splitlines()
    assert "    user    Look at this. [image] [image]" in printed
    assert "    function The map." in printed
    assert "    user    [audio]" in printed
    assert "Look at this. [image] [image]" in shown("history", story.id)


def test_an_unfinished_batch_says_why(shown: Shown, story: Thread, database: str) -> None:
    """An imported one, whose tool never answered: in `batches`, and left out of the context."""
    calls = [{"name": "order", "args": {}, "id": "c1"}]
    broken = stamp(
        [user_message("Order it."), AIMessage("", tool_calls=calls)], SnowflakeGenerator(5)
    )

    async def store() -> None:
        async with open_journal(Settings(database=database)) as journal:
            await journal.messages.import_messages(story.id, broken)

    asyncio.run(store())
    printed = shown("batches", story.id)
    assert "awaiting_tools" in printed
    assert "    ! Call 'c1' to 'order' has no result." in printed.splitlines()
    context = shown("context", story.id)
    assert "incomplete" in context
    assert "Order it." not in context


def test_the_context_is_what_the_model_would_get(shown: Shown, story: Thread) -> None:
    """In the model's order, the trigger too, and how much it is."""
    printed = shown("context", story.id)
    roles = [x.split()[0] for x in printed.splitlines() if x.strip() and "─" not in x]
    wanted = ["role", "system", "user", "agent", "tool", "agent", "trigger", "agent"]
    assert roles[: len(wanted)] == wanted
    assert "Nothing is left out." in printed
    assert "tokens in 2 batches." in printed
    found = json.loads(shown("context", story.id, "--json"))
    assert found["tokens"] > 0
    assert [m["type"] for m in found["messages"]][:2] == ["system", "human"]
    assert "synthetic" not in json.dumps(found["messages"])


def test_the_context_ends_its_system_message_with_the_clock_of_the_settings(
    shown: Shown, story: Thread, tmp_path: Path
) -> None:
    """The zone of users without one is read from the settings, also without a server."""
    config = 'time_zone = "Asia/Tokyo"\n[agents.guide]\nmodel = "scripted"\n'
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    system = json.loads(shown("context", story.id, "--json"))["messages"][0]["data"]["content"]
    assert system.rpartition("\n\n")[2].splitlines()[0].endswith("(Asia/Tokyo).")


def test_the_context_of_a_graph_of_ones_own_has_no_system_prompt(
    shown: Shown, story: Thread, tmp_path: Path
) -> None:
    """The prompt of the settings is the built-in agent's; such a graph is never given it."""
    config = '[agents.guide]\ngraph = "tests.agent.test_own_graphs:graph_of"\n'
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    found = json.loads(shown("context", story.id, "--json"))
    assert found["messages"][0]["type"] == "human"
    assert "friendly companion" not in shown("context", story.id)


def test_what_is_told_in_part_is_in_the_context(shown: Shown, story: Thread, database: str) -> None:
    """A message that fills the window is shown cut, with the reason."""
    later = SnowflakeGenerator(5, last=story.last_position)
    long = stamp([user_message("word " * 10_000), AIMessage("I see.", id="seen")], later)

    async def store() -> None:
        async with open_journal(Settings(database=database)) as journal:
            await journal.messages.import_messages(story.id, long)

    asyncio.run(store())
    printed = shown("context", story.id)
    assert "shortened" in printed
    assert "characters left out" in printed
    [told] = json.loads(shown("context", story.id, "--json"))["shortened"]
    assert told["batch"] == str(long[0].additional_kwargs["batch"])


def test_timers_and_reasons_tell_what_became_of_a_follow_up(shown: Shown, story: Thread) -> None:
    """That it was planned and sent, and why."""
    timers = json.loads(shown("timers", story.id, "--json"))
    assert ("fired", "sent") in [(timer["state"], timer["became"]) for timer in timers]
    assert "question_unanswered" in shown("timers", story.id)
    reasons = json.loads(shown("why", story.id, "--json"))
    assert ("a follow-up", "sent") in [(r["what"], r["outcome"]) for r in reasons]
    assert "The reply asks the user something." in shown("why", story.id)


def test_timers_tell_a_follow_up_that_was_stopped(shown: Shown, database: str) -> None:
    """The user wrote before they saw it; one that did not fire became nothing yet."""
    held = Held("Never seen.")

    async def play() -> str:
        models = {"guide": lines("Where to?", held, "Good.", "And then?")}
        async with Stage(database).world(models=models) as world:
            thread = await world.segue.create_thread("ann")
            await world.say(thread.id, "I want to travel.")
            passing = asyncio.create_task(world.pass_time(timedelta(hours=2)))
            await held.asked.wait()
            await world.segue.send(thread.id, "To Oslo.")
            held.go.set()
            await passing
            return thread.id

    thread_id = asyncio.run(play())
    found = json.loads(shown("timers", thread_id, "--json"))
    stopped = ("fired", "stopped")
    assert [(t["state"], t["became"]) for t in found if t["state"] == "fired"] == [stopped]
    assert all(t["became"] is None for t in found if t["state"] != "fired")
    [line] = [x for x in shown("timers", thread_id).splitlines() if "fired" in x]
    assert "stopped" in line
    assert "The user wrote." in line


def test_looking_works_on_nothing(shown: Shown, story: Thread, database: str) -> None:
    """No command that only looks takes a turn, fires a timer or stores anything."""

    async def state() -> object:
        async with open_journal(Settings(database=database)) as journal:
            turn = await journal.turns.list_of(story.id)
            return await journal.nodes.last_position(), turn, await journal.timers.list_of(story.id)

    before = asyncio.run(state())
    for command in READ:
        shown(command, *([] if command == "threads" else [story.id]))
    assert asyncio.run(state()) == before


@pytest.mark.parametrize("command", [each for each in READ if each != "threads"])
def test_an_unknown_thread_is_told(
    segue: Segue, story: Thread, database: str, command: str
) -> None:
    """In one line, with exit code 2."""
    del story
    result = segue(command, "nowhere", "--database", database)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert "nowhere" in line
    assert "segue threads" in line


@pytest.mark.parametrize("command", READ)
def test_no_database_is_made_by_looking(segue: Segue, tmp_path: Path, command: str) -> None:
    """A slip in a folder's name says so instead of showing an empty one."""
    args = [] if command == "threads" else ["t"]
    result = segue(command, *args, "--database", "slip")
    assert result.exit_code == 2
    assert "has no database yet" in result.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_context_needs_its_agent(segue: Segue, story: Thread, database: str) -> None:
    """Other settings than those of the thread have another window: better none than a wrong one."""
    Path("segue.toml").write_text("[agents.eve]\nmodel = 'scripted'\n", encoding="utf-8")
    result = segue("context", story.id, "--database", database)
    assert result.exit_code == 2
    assert "The thread is with agent 'guide', and the settings have only: eve." in result.stderr
