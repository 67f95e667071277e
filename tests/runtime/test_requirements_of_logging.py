"""What the requirements demand of the log: a follow-up can be followed in it, by fields, and
nobody's words are in it.
"""

import json
import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from segue.core.triggers import TRIGGER_PROMPTS, TriggerType
from segue.errors import BackendError
from segue.journal.records import Thread
from segue.settings.agents import AgentConfig
from segue.simulate.world import START, Stage, plain_agent
from segue.stores import JOURNAL_FILE
from segue.telemetry import configure_logging
from tests.journal.stores import change
from tests.runtime.scenes import Held
from tests.stories.scenes import PATIENCE, TOLD, arm, eager_agent, model_of, new_thread, passing

pytestmark = pytest.mark.anyio

Lines = Callable[[], list[dict[str, Any]]]
FOLLOW_UPS = ("synthetic", "follow_up", "no_follow_up", "turn")


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What was logged since the last look, as fields."""

    def read() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        return [line for line in found if line["logger"].startswith("segue")]

    return read


def remembering(agent: AgentConfig) -> AgentConfig:
    # The embedder takes a while to load on a busy machine.
    patient = AgentConfig.parse({"id": "any", "memory": {"time_limit": 60}}, "any")
    return agent.model_copy(update={"memory": patient.memory})


def kinds(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Level and kind of the lines about follow-ups, in order."""
    noted = [(line["level"], line["kind"]) for line in found if "kind" in line]
    return [(level, kind) for level, kind in noted if kind.startswith(FOLLOW_UPS)]


@pytest.mark.parametrize("trigger", TriggerType)
async def test_a_follow_up_can_be_followed_in_the_log(
    sqlite_stage: Stage, lines: Lines, trigger: TriggerType
) -> None:
    """Planned, gated, made, fired, gated again and stored: each by its fields, with thread, agent
    and trigger, in DEBUG and INFO alone.
    """
    configure_logging("DEBUG", json=True)
    agent = remembering(eager_agent(decider="none"))
    async with sqlite_stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        lines()  # the self-test at the start hides a trigger as well
        await world.say(thread, "Where is Oslo?")
        assert kinds(lines()) == [("info", "no_follow_up"), ("info", "turn_done")]
        await arm(world, thread, START + PATIENCE, trigger, reason="A silence of 30 s.")
        await world.pass_time(PATIENCE)
    found = lines()
    assert kinds(found) == [
        ("info", "follow_up_gated"),
        ("debug", "synthetic_message_created"),
        ("info", "follow_up_fired"),
        ("debug", "synthetic_message_detected"),
        ("info", "follow_up_gated"),
        ("info", "no_follow_up"),
        ("info", "turn_done"),
    ]
    assert {line["level"] for line in found} <= {"debug", "info"}
    about = [line for line in found if line.get("kind") != "no_follow_up" and "kind" in line]
    about += [line for line in found if line["logger"] == "segue.agent.retrieval"]
    assert len(about) >= 8
    for line in about:
        assert (line["thread_id"], line["agent_id"]) == (thread, "guide")
        assert line["trigger_type"] == trigger


async def test_a_plan_is_logged_with_its_own_trigger(sqlite_stage: Stage, lines: Lines) -> None:
    """After a check-in that asks something, the line on the plan says what is planned."""
    configure_logging(json=True)
    model = model_of(TOLD, "Which city do you live in?")
    async with sqlite_stage.world(eager_agent(), models={"guide": model}) as world:
        await world.say(await new_thread(world), "Where is Oslo?")
        lines()
        await world.pass_time(PATIENCE)
    told = [(line["kind"], line["trigger_type"]) for line in lines()]
    assert told[-2:] == [("follow_up_planned", "question_unanswered"), ("turn_done", "check_in")]


async def test_a_timer_that_cannot_be_considered_says_whose_it_is(
    sqlite_stage: Stage, lines: Lines
) -> None:
    """Thread, agent and trigger stand on each line of it, also where nobody named them."""
    configure_logging(json=True)
    async with sqlite_stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        lines()

        async def away(*_: Any) -> Thread:
            raise BackendError("The database is away.")

        world.journal.threads.get = away  # type: ignore[method-assign, assignment]
        await world.pass_time(PATIENCE)
    [line] = lines()
    assert (line["level"], line["thread_id"], line["agent_id"]) == ("warning", thread, "guide")
    assert line["trigger_type"] == "check_in"


async def test_the_making_of_a_synthetic_message_is_logged_with_its_metadata(
    stage: Stage, lines: Lines
) -> None:
    """At DEBUG, for a follow-up and for a continuation; their words are not part of it."""
    configure_logging("DEBUG", json=True)
    call = {"name": "continue_later", "args": {"after_seconds": 5, "reason": "look again"}}
    model = model_of(AIMessage("", tool_calls=[{**call, "id": "c1"}]), "A moment.", TOLD)
    agent = eager_agent().model_copy(update={"continuations": 1})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(timedelta(seconds=5) + PATIENCE)
    made = [line for line in lines() if line.get("kind") == "synthetic_message_created"]
    told = ("level", "thread_id", "agent_id", "synthetic", "trigger_type", "trigger_reason")
    rule = "The reply reports success or offers more help."
    assert [tuple(line[name] for name in told) for line in made] == [
        ("debug", thread, "guide", True, "continuation", "look again"),
        ("debug", thread, "guide", True, "check_in", rule),
    ]


async def test_each_end_of_a_follow_up_is_logged_with_its_reason(
    stage: Stage, lines: Lines
) -> None:
    """Put off, refused, withdrawn, made void and failed: nobody has to look into the database."""
    configure_logging(json=True)
    late, void = Held("Never seen."), Held("Never seen either.")
    model = model_of(TOLD, late, void, TOLD, ValueError("no"))
    agent = eager_agent(decider="none", policy={"max_consecutive": 9})
    async with stage.world(agent, models={"guide": model}, retries=0) as world:
        thread = await new_thread(world)

        async def next_one() -> None:
            await arm(world, thread, world.clock.now() + PATIENCE)

        await world.say(thread, "Where is Oslo?")
        await next_one()
        await world.segue.snooze(thread, START + 2 * PATIENCE)
        async with passing(world, 2 * PATIENCE):
            await late.asked.wait()
            await world.segue.set_thread_preferences(thread, muted=True)
            late.go.set()
        await next_one()
        await world.pass_time(PATIENCE)
        await world.segue.set_thread_preferences(thread, muted=None)
        await next_one()
        async with passing(world, PATIENCE):
            await void.asked.wait()
            await world.segue.send(thread, "And Bergen?")
        await next_one()
        await world.pass_time(PATIENCE)
    found = [line for line in lines() if kinds([line])]
    told = [(line["kind"], line.get("outcome")) for line in found]
    gated, fired = "follow_up_gated", ("follow_up_fired", None)
    allowed = (gated, "allow")
    replied = [("no_follow_up", None), ("turn_done", None)]
    assert told == [
        *replied,
        *[(gated, "postpone"), allowed, fired],
        *[(gated, "suppress"), ("follow_up_withdrawn", None)],
        (gated, "suppress"),
        *[allowed, fired, ("follow_up_voided", None), ("turn_given_up", None)],
        *replied,
        *[allowed, fired, ("turn_failed", None)],
    ]
    levels = {line["level"] for line in found if line["kind"] != "turn_failed"}
    assert levels == {"info"}
    assert found[-1]["level"] == "error"
    for line in found:
        assert (line["thread_id"], line["agent_id"]) == (thread, "guide")
        is_one = line["kind"].startswith(("follow_up", "turn_failed", "turn_given_up"))
        if is_one and line["kind"] != "follow_up_voided":
            assert line["trigger_type"] == "check_in"
        if line["kind"] in (gated, "follow_up_withdrawn", "turn_given_up"):
            assert line["reason"]


async def test_a_fourth_in_a_row_is_blocked_and_logged(stage: Stage, lines: Lines) -> None:
    """The line says which limit was reached."""
    configure_logging(json=True)
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(days=1)
        lines()
        await arm(world, thread, world.clock.now() + PATIENCE)
        await world.pass_time(PATIENCE)
    [blocked] = lines()
    assert (blocked["kind"], blocked["outcome"]) == ("follow_up_gated", "suppress")
    assert blocked["reason"].startswith("3 of 3 follow-ups sent")


async def test_nothing_above_debug_quotes_anybody(stage: Stage, lines: Lines) -> None:
    """Neither the user, the agent, a tool, a trigger nor a decider, when all goes well or badly;
    only DEBUG shows a little of what was searched.
    """
    configure_logging(json=True)

    async def look_up() -> str:
        """Look it up."""
        raise OSError("swordfish in the tool")

    calls = [{"name": "look_up", "args": {}, "id": "c1"}]
    model = model_of(
        AIMessage("", tool_calls=calls),
        "The swordfish is a fish.",
        "Another swordfish?",
        ValueError("swordfish in the model"),
        "Fine.",
    )
    own = {trigger.value: "Ask about the swordfish." for trigger in TriggerType}
    agent = remembering(eager_agent(prompts=own)).model_copy(update={"tools": (look_up,)})
    async with stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "My password is swordfish.")
        await world.pass_time(PATIENCE)
        await world.say(thread, "I said swordfish!")
        await world.say(thread, "Once more: swordfish!")
        timers = await world.segue.list_follow_ups(thread)
        assert len(timers) == 3
        assert "swordfish" not in repr([timer.reason for timer in timers])
        assert "swordfish" not in repr(await world.segue.why(thread, limit=1_000))
    found = lines()
    assert {line["level"] for line in found} == {"info", "warning", "error"}
    text = json.dumps(found)
    assert "swordfish" not in text
    assert [prompt for prompt in TRIGGER_PROMPTS.values() if prompt in text] == []


async def test_that_a_turn_is_stored_is_confirmed(stage: Stage, lines: Lines) -> None:
    """One INFO line after the commit, with the number of messages, for each kind of turn."""
    configure_logging(json=True)
    async with stage.world(eager_agent(), models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await world.pass_time(PATIENCE)
        turns = await world.journal.turns.list_of(thread)
    done = [line for line in lines() if line.get("kind") == "turn_done"]
    assert [(line["level"], line["messages"]) for line in done] == [("info", 2), ("info", 2)]
    assert [line["turn_id"] for line in done] == [turn.id for turn in reversed(turns)]


async def test_a_line_says_where_it_comes_from(sqlite_stage: Stage, lines: Lines) -> None:
    """Level, time, process, host and thread are fields; of a search also whose words it used."""
    configure_logging("DEBUG", json=True)
    agent = remembering(plain_agent(autonomy={"decider": "none"}))
    async with sqlite_stage.world(agent, models={"guide": model_of()}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Where is Oslo?")
        await arm(world, thread, START + PATIENCE)
        await world.pass_time(PATIENCE)
    asked, nudged = [line for line in lines() if line["event"].startswith("Memory query from")]
    for line in (asked, nudged):
        assert (line["level"], line["thread_id"]) == ("debug", thread)
        assert (line["process"], line["host"]) == (os.getpid(), socket.gethostname())
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert line["query"] == "Where is Oslo?"
    assert asked["source"] == "current_message"
    assert nudged["source"] == "last_real_user_message"
    assert asked["message_id"] == nudged["message_id"]


async def test_metadata_that_cannot_be_read_is_an_error_in_the_log(
    sqlite_stage: Stage, lines: Lines
) -> None:
    """It names the message, its batch is left out, and the talk goes on."""
    configure_logging(json=True)
    model = model_of("Yes.", "No.")
    agent = plain_agent(autonomy={"decider": "none"})
    async with sqlite_stage.world(agent, models={"guide": model}) as world:
        thread = await new_thread(world)
        await world.say(thread, "Is it open?")
        address = str(Path(sqlite_stage.database) / JOURNAL_FILE)
        wrong = """replace(body, '"sequence_num":1', '"sequence_num":"one"')"""
        change(address, f"UPDATE messages SET body = {wrong} WHERE text = 'Yes.'")  # noqa: S608 - ours
        lines()
        await world.say(thread, "And on Sunday?")
        assert [message.text for message in model.seen[-1][1:]] == ["And on Sunday?"]
    errors = [line for line in lines() if line["level"] == "error"]
    assert errors
    assert all("sequence_num" in line["event"] for line in errors)
