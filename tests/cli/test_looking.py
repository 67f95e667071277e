"""Commands that look: at a database or a server alike, and without secrets that they do not use."""

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from segue.runtime.clock import SystemClock
from segue.server.auth import new_key
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage, plain_agent
from tests.cli.conftest import Segue
from tests.runtime.scenes import always
from tests.server.clients import site_of

pytestmark = pytest.mark.anyio

CONFIG = """
[agents.guide]
name = "Guide"
model = "openai:gpt-4o-mini"
webhook.url = "https://example.org/hook"
"""
NOW = re.compile(r'Now: .*?\)\.|About \d+|"tokens": \d+')
OF_A_THREAD = ("history", "batches", "context", "timers", "why")


async def play(stage: Stage) -> tuple[str, str]:
    """Two users who talked, and a follow-up of each is to come; their threads, sooner first."""
    guide = plain_agent("guide", name="Guide")
    async with stage.world(guide, models={"guide": always("Anything else?")}) as world:
        first, second = [await world.segue.create_thread(user) for user in ("ann", "bob")]
        await world.say(first.id, "Where are the maps?")
        await world.pass_time(timedelta(minutes=1))
        await world.say(second.id, "Who are you?")
        return first.id, second.id


async def test_looking_needs_no_secret_that_it_does_not_use(
    segue: Segue, stage: Stage, tmp_path: Path
) -> None:
    """Neither the model's key, nor the webhook's secret, which `chat` and `serve` ask for."""
    thread, _ = await play(stage)
    (tmp_path / "segue.toml").write_text(CONFIG, encoding="utf-8")
    at = ("--database", stage.database)
    for args in (
        *((view, thread) for view in OF_A_THREAD),
        ("threads", "--all"),
        ("timers",),
        ("stats",),
        ("keys", "list"),
    ):
        result = await asyncio.to_thread(segue, *args, *at)
        assert (result.exit_code, result.stderr) == (0, ""), args
    refused = await asyncio.to_thread(segue, "chat", *at)
    assert refused.exit_code == 2
    assert "agents.guide.webhook.secret" in refused.stderr


@pytest.mark.parametrize("style", [(), ("--json",)])
async def test_a_server_shows_the_same_as_its_database(
    segue: Segue, sqlite_stage: Stage, tmp_path: Path, style: tuple[str, ...]
) -> None:
    """To an operator; every command prints it alike."""
    thread, _ = await play(sqlite_stage)
    config = "[agents.guide]\nname = 'Guide'\nsystem_prompt = 'Guide.'\nmemory.enabled = false\n"
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    guide = plain_agent("guide", name="Guide", system_prompt="Guide.")
    key, words = new_key("ops", "ops", SystemClock().now(), is_operator=True)
    async with sqlite_stage.world(guide) as world, site_of(world.segue) as site:
        await world.journal.keys.add(key)
        for args in (
            *((view, thread, *style) for view in OF_A_THREAD),
            ("threads", "--all", *style),
            ("threads", "--user", "bob", *style),
            ("timers", "--limit", "1", *style),
            *([] if style else [("stats", "--until", "2040-01-01")]),  # its "Z" is "+00:00" here
        ):
            here = await asyncio.to_thread(segue, *args, "--database", sqlite_stage.database)
            there = await asyncio.to_thread(segue, *args, "--url", site.address, "--key", words)
            assert (there.exit_code, there.stderr) == (0, ""), args
            # The world's clock is a virtual one.
            assert NOW.sub("", there.stdout) == NOW.sub("", here.stdout), args


async def test_without_an_operators_key_one_sees_ones_own_threads_alone(
    segue: Segue, sqlite_stage: Stage
) -> None:
    """With why the agent wrote in them. The rest is refused in the server's words; so is an address
    beside a database.
    """
    thread, other = await play(sqlite_stage)
    key, words = new_key("laptop", "ann", SystemClock().now())
    async with sqlite_stage.world() as world, site_of(world.segue) as site:
        await world.journal.keys.add(key)
        at = ("--url", site.address, "--key", words)
        own = await asyncio.to_thread(segue, "threads", "--json", *at)
        assert [each["id"] for each in json.loads(own.stdout)] == [thread]
        why = await asyncio.to_thread(segue, "why", thread, *at)
        assert (why.exit_code, why.stderr) == (0, "")
        assert "planning a follow-up" in why.stdout
        hidden = await asyncio.to_thread(segue, "why", other, *at)
        assert (hidden.exit_code, hidden.stdout) == (2, "")
        for args in (("threads", "--all"), ("batches", thread), ("timers",), ("stats",)):
            refused = await asyncio.to_thread(segue, *args, *at)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert "operator" in refused.stderr
    both = await asyncio.to_thread(segue, "threads", "--url", "http://x", "--database", "y")
    assert both.exit_code == 2
    assert "no --database" in both.stderr


async def test_timers_without_a_thread_are_those_to_come_in_all(segue: Segue, stage: Stage) -> None:
    """Soonest first, as many as are asked for, with whose thread it is."""
    first, second = await play(stage)
    at = ("--database", stage.database)
    printed = (await asyncio.to_thread(segue, "timers", *at)).stdout.splitlines()
    assert printed[0].split("\t") == ["due", "thread", "agent", "state", "became", "trigger", "why"]
    rows = [line.split("\t") for line in printed[1:]]
    assert [row[1:4] for row in rows] == [
        [first, "guide", "pending"],
        [second, "guide", "pending"],
    ]
    one = await asyncio.to_thread(segue, "timers", "--limit", "1", "--json", *at)
    assert [timer["thread_id"] for timer in json.loads(one.stdout)] == [first]


def ask(_: MessagesState) -> dict[str, list[AIMessage]]:
    size = interrupt("Which size?")
    colour = interrupt({"question": "Which colour?", "choices": ["blue", "red"]})
    return {"messages": [AIMessage(f"One {size} {colour} one.")]}


async def test_the_history_has_the_agents_questions_and_the_answers(
    segue: Segue, stage: Stage
) -> None:
    """In their places between the messages; with a limit, only those of the messages shown."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    guide = AgentConfig(id="guide", graph=graph)
    key, secret = new_key("ops", "ops", SystemClock().now(), is_operator=True)
    async with stage.world(guide) as world, site_of(world.segue) as site:
        await world.journal.keys.add(key)
        thread = await world.segue.create_thread("ann")
        turn = await world.segue.wait_turn((await world.segue.send(thread, "A vase, please.")).turn)
        for answer in ("large", "blue"):
            await world.pass_time(timedelta(seconds=1))
            turn = await world.segue.wait_turn(await world.segue.answer(turn, answer))
        here = ("--database", stage.database)
        for place in (here, ("--url", site.address, "--key", secret)):
            shown = await asyncio.to_thread(segue, "history", thread.id, *place)
            lines = [line.split("\t")[1:] for line in shown.stdout.splitlines()]
            assert lines == [
                ["who", "what"],
                ["ann", "A vase, please."],
                ["guide", "Which size?"],
                ["ann", "large"],
                ["guide", "Which colour? (blue, red)"],
                ["ann", "blue"],
                ["guide", "One large blue one."],
            ]
        last = await asyncio.to_thread(segue, "history", thread.id, "--limit", "1", "--json", *here)
        assert [each["text"] for each in json.loads(last.stdout)] == ["One large blue one."]


async def test_the_timers_of_a_thread_are_in_the_order_of_their_times(
    segue: Segue, stage: Stage, tmp_path: Path
) -> None:
    """The last due first, whichever was set first."""
    thread, _ = await play(stage)
    (tmp_path / "segue.toml").write_text('[agents.guide]\nmodel = "scripted"\n', encoding="utf-8")
    at = ("--database", stage.database)
    for wait in ("3h", "1h", "2h"):
        made = await asyncio.to_thread(segue, "remind", thread, "tea", "--after", wait, *at)
        assert made.exit_code == 0, made.stderr
    listed = await asyncio.to_thread(segue, "timers", thread, "--json", *at)
    due = [timer["due_at"] for timer in json.loads(listed.stdout)]
    assert len(due) == 4
    assert due == sorted(due, reverse=True)


async def test_a_table_in_a_pipe_has_no_padding(segue: Segue, stage: Stage) -> None:
    """A long message makes no other line longer, and each cell is found by its tab."""
    async with stage.world(models={"guide": always("Yes.")}) as world:
        thread = await world.segue.create_thread("ann")
        await world.say(thread.id, "Long " * 1_000)
    printed = await asyncio.to_thread(segue, "history", thread.id, "--database", stage.database)
    heading, asked, answered = printed.stdout.splitlines()
    assert heading == "when\twho\twhat"
    assert asked.endswith("\tann\t" + " ".join(["Long"] * 1_000))
    assert answered.endswith("\tguide\tYes.")
    assert len(answered) < 50


async def test_a_follow_up_is_requested_at_a_database_and_a_server_alike(
    segue: Segue, stage: Stage, tmp_path: Path
) -> None:
    """And the same name is one follow-up, whichever way it is asked for."""
    thread, _ = await play(stage)
    (tmp_path / "segue.toml").write_text('[agents.guide]\nmodel = "scripted"\n', encoding="utf-8")
    asked = ("follow-up", thread, "--after", "2h", "--prompt", "Ask.", "--once", "a", "--json")
    made = await asyncio.to_thread(segue, *asked, "--database", stage.database)
    async with (
        stage.world(plain_agent("guide", name="Guide")) as world,
        site_of(world.segue) as site,
    ):
        key, secret = new_key("ops", "ann", SystemClock().now(), is_operator=True)
        await world.journal.keys.add(key)
        again = await asyncio.to_thread(segue, *asked, "--url", site.address, "--key", secret)
    assert (made.exit_code, again.exit_code) == (0, 0), made.stderr + again.stderr
    first, second = json.loads(made.stdout), json.loads(again.stdout)
    assert first["id"] == second["id"]
    assert (first["is_new"], second["is_new"]) == (True, False)
    told = await asyncio.to_thread(segue, *asked[:-1], "--database", stage.database)
    assert "It was already requested as 'a'" in told.stdout
    for name in ("follow-up", thread), ("remind", thread, "call mum"):
        empty = await asyncio.to_thread(
            segue, *name, "--after", "1h", "--once", "", "--database", stage.database
        )
        assert (empty.exit_code, "key is ''" in empty.stderr) == (2, True)
    wrong = await asyncio.to_thread(segue, "follow-up", thread, "--at", "soon")
    assert (wrong.exit_code, "expected a time with its zone" in wrong.stderr) == (2, True)


async def test_reminders_are_set_listed_and_cancelled_at_a_database_and_a_server_alike(
    segue: Segue, stage: Stage, tmp_path: Path
) -> None:
    """What one way sets, the other lists and cancels."""
    thread, _ = await play(stage)
    (tmp_path / "segue.toml").write_text('[agents.guide]\nmodel = "scripted"\n', encoding="utf-8")
    at = ("--database", stage.database)
    made = await asyncio.to_thread(
        segue, "remind", thread, "call mum", "--at", "2028-01-15T09:00", "--json", *at
    )
    assert made.exit_code == 0, made.stderr
    reminder = json.loads(made.stdout)
    async with (
        stage.world(plain_agent("guide", name="Guide")) as world,
        site_of(world.segue) as site,
    ):
        key, secret = new_key("phone", "ann", SystemClock().now())
        await world.journal.keys.add(key)
        remote = ("--url", site.address, "--key", secret)
        for place in (("--thread", thread), ()):
            listed = await asyncio.to_thread(segue, "reminders", *place, "--json", *remote)
            assert [each["id"] for each in json.loads(listed.stdout)] == [reminder["id"]]
        ended = await asyncio.to_thread(segue, "reminders", "--cancel", reminder["id"], *remote)
        assert (ended.exit_code, "is cancelled" in ended.stdout) == (0, True), ended.stderr
    left = await asyncio.to_thread(segue, "reminders", "--user", "ann", *at)
    assert "No reminders." in left.stdout
    wrong = await asyncio.to_thread(segue, "remind", thread, "x", "--at", "soon", *at)
    assert (wrong.exit_code, "Write it like" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    "command", [("remind", "call mum", "--after", "1h"), ("follow-up",), ("chat",)]
)
async def test_a_thread_that_a_server_does_not_find_may_be_another_users(
    segue: Segue, stage: Stage, command: tuple[str, ...]
) -> None:
    """Without --user the error says how to name its user; with it, there is nothing to add."""
    thread, _ = await play(stage)
    name, *given = command
    where = ("--thread", thread) if name == "chat" else (thread, *given)
    async with (
        stage.world(plain_agent("guide", name="Guide")) as world,
        site_of(world.segue) as site,
    ):
        call = (name, *where, "--url", site.address)
        for user, has_hint in (((), True), (("--user", "bob"), False)):
            missing = await asyncio.to_thread(segue, *call, *user)
            assert missing.exit_code == 2
            assert "does not exist" in missing.stderr
            assert ("name the user with --user." in missing.stderr) is has_hint
    if name != "chat":
        stored = ("--database", stage.database)
        unknown = await asyncio.to_thread(segue, name, "nosuch", *given, *stored)
        assert "name the user with --user." not in unknown.stderr


async def test_preferences_are_set_at_a_database_and_a_server_alike(
    segue: Segue, stage: Stage
) -> None:
    """What one way sets, the other shows and takes back; the gates obey it."""
    thread, _ = await play(stage)
    at = ("--database", stage.database)
    hours = ("--quiet-hours", "22:00-08:00", "--zone", "Europe/Berlin")
    made = await asyncio.to_thread(segue, "preferences", "ann", *hours, "--stop", *at)
    assert made.exit_code == 0, made.stderr
    assert re.search(r"quiet_hours\s+22:00 to 08:00", made.stdout)
    assert re.search(r"opted_out\s+true", made.stdout)
    async with (
        stage.world(plain_agent("guide", name="Guide")) as world,
        site_of(world.segue) as site,
    ):
        assert (await world.segue.follow_up(thread)).state.value == "suppressed"
        key, secret = new_key("phone", "ann", SystemClock().now())
        await world.journal.keys.add(key)
        remote = ("--url", site.address, "--key", secret, "--json")
        shown = await asyncio.to_thread(segue, "preferences", *remote)
        assert json.loads(shown.stdout)["preferences"]["time_zone"] == "Europe/Berlin"
        undo = ("--resume", "--mute", "--quiet-hours", "off", "--zone", "default")
        changed = await asyncio.to_thread(segue, "preferences", *undo, *remote)
        kept = json.loads(changed.stdout)["preferences"]
        assert kept == {"quiet_hours": False, "muted": True}
    calm = ("--unmute", "--quiet-hours", "default", "--snooze", "3h")
    left = await asyncio.to_thread(segue, "preferences", "ann", *calm, *at, "--json")
    assert [*json.loads(left.stdout)["preferences"]] == ["snoozed_until"]
    ever = await asyncio.to_thread(segue, "preferences", "ann", "--snooze", "9999999d", *at)
    assert ever.exit_code == 0, ever.stderr
    until = ("--zone", "Europe/Berlin", "--snooze", "2037-01-15T08:00Z")
    named = await asyncio.to_thread(segue, "preferences", "ann", *until, *at)
    assert re.search(r"snoozed_until\s+2037-01-15 09:00:00 Europe/Berlin", named.stdout)
    undone = ("--snooze", "off", "--zone", "default")
    ended = await asyncio.to_thread(segue, "preferences", "ann", *undone, *at)
    assert "No preference is set." in ended.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--quiet-hours", "late"), "expected times such as 22:00-08:00"),
        (("--quiet-hours", "22:00-25:00"), "quiet_hours is"),
        (("--zone", "Mars"), "expected the name of an IANA time zone"),
        (("--snooze", "soon"), "soon"),
        (("--snooze", "2027-01-15T08:00"), "expected a time with its zone"),
        (("--resume", "--stop"), "--resume undoes --stop"),
    ],
)
async def test_wrong_preferences_are_refused(
    segue: Segue, stage: Stage, given: tuple[str, ...], said: str
) -> None:
    """With a sentence, and nothing is changed."""
    await play(stage)
    at = ("--database", stage.database)
    wrong = await asyncio.to_thread(segue, "preferences", "ann", *given, *at)
    assert (wrong.exit_code, said in wrong.stderr) == (2, True), wrong.stderr
    shown = await asyncio.to_thread(segue, "preferences", "ann", *at)
    assert "No preference is set." in shown.stdout
