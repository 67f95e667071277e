"""`segue stats`: what follow-ups come to, for people and for programs."""

import asyncio
import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.core.triggers import TRIGGER_PROMPTS
from segue.simulate.world import Stage, VirtualClock
from tests.cli.conftest import Play, Segue
from tests.stories.scenes import arm, eager_agent, model_of, new_thread

# Long ago, so that this machine's clock is past every window.
THEN = datetime(2026, 1, 15, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
CANARY = "kumquat"
PROMPTS = {"check_in": [{"name": "warm", "text": f"Ask about the {CANARY}."}]}

Shown = Callable[..., str]


@pytest.fixture
def story(database: str, tmp_path: Path, play: Play) -> None:
    """Two follow-ups of one trigger, one answered; one of another that a mute suppressed."""
    (tmp_path / "segue.toml").write_text('[agents.guide]\nmodel = "scripted"\n', encoding="utf-8")
    agent = eager_agent(prompts=PROMPTS, policy={"max_consecutive": 1}, decider="none")

    async def tell() -> None:
        stage = Stage(database, VirtualClock(THEN))
        async with stage.world(agent, models={"guide": model_of()}) as world:
            threads = [await new_thread(world, user) for user in ("ann", "bo", "cy")]
            await world.segue.set_user_preferences("cy", muted=True)
            for thread, trigger in zip(
                threads, ("check_in", "check_in", "task_incomplete"), strict=True
            ):
                await arm(world, thread, world.clock.now(), trigger, reason=CANARY)
            await world.pass_time(HOUR)
            await world.say(threads[0], f"What is a {CANARY}?")

    play(tell)


@pytest.fixture
def shown(segue: Segue, database: str) -> Shown:
    """What the command prints that goes well."""

    def call(*args: str) -> str:
        result = segue("stats", *args, "--database", database)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return call


@pytest.mark.usefixtures("story")
def test_outcomes_are_a_table_with_sentences(shown: Shown) -> None:
    """A row for each trigger and variant, and a sentence where something can be said."""
    lines = shown().splitlines()
    [sent] = [line.split() for line in lines if "check_in" in line]
    assert sent[:6] == ["guide", "check_in", "warm", "1", "1", "0"]
    assert " ".join(sent[-7:]) == "0 50 % (9 to 91) 1h"
    [muted] = [line.split() for line in lines if "task_incomplete" in line]
    assert muted[:3] == ["guide", "task_incomplete", "-"]
    assert muted[-2:] == ["muted", "1"]


@pytest.mark.usefixtures("story")
def test_programs_get_json(shown: Shown) -> None:
    """All numbers, with names that stay."""
    found = json.loads(shown("--json"))
    assert [(row["trigger"], row["variant"], row["total"]) for row in found["outcomes"]] == [
        ("check_in", "warm", 2),
        ("task_incomplete", None, 1),
    ]
    sent, muted = found["outcomes"]
    assert (sent["replied"], sent["ignored"], sent["median_latency_seconds"]) == (1, 1, 3600)
    assert sent["reply_rate"]["value"] == 0.5
    assert (muted["suppressed"], muted["suppressed_by"]) == (1, {"muted": 1})
    assert found["arms"] == []
    assert (found["unmarked"], found["window_seconds"]) == (0, 86_400)


@pytest.mark.usefixtures("story")
def test_tables_get_csv(shown: Shown) -> None:
    """One value per column, the same rows."""
    rows = [*csv.DictReader(io.StringIO(shown("--csv")))]
    assert [(row["trigger"], row["replied"], row["suppressed_by"]) for row in rows] == [
        ("check_in", "1", ""),
        ("task_incomplete", "0", "muted=1"),
    ]
    assert rows[0]["reply_rate_value"] == "0.5"


@pytest.mark.usefixtures("story")
def test_one_agent_trigger_or_time_can_be_asked_for(shown: Shown) -> None:
    """By name, by date, and by how long ago."""
    nothing = "No follow-ups.\n"
    assert "check_in" not in shown("--trigger", "task_incomplete")
    assert shown("--since", "1h") == nothing
    assert shown("--until", "2026-01-14") == nothing
    assert shown("--since", "2026-01-14", "--until", "2026-01-17") == shown()
    assert "0 %" in shown("--window", "30m")


@pytest.mark.usefixtures("story")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--trigger", "birthday"), "check_in"),
        (("--since", "soon"), "'soon' is not a time or an age; write a date such as"),
        (("--since", "9999999d"), "'9999999d' is not a time or an age; write a date such as"),
        (("--window", "0s"), "window"),
        (("--since", "1h", "--until", "2h"), "is not after"),
        (("--csv", "--json"), "exclude each other"),
        (("--agent", "nobody"), "Unknown agent 'nobody': nothing of it is stored"),
    ],
)
def test_a_mistake_is_told_in_a_line(
    segue: Segue, database: str, args: tuple[str, ...], said: str
) -> None:
    """With exit code 2, and what was expected."""
    result = segue("stats", *args, "--database", database)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert said in line


@pytest.mark.usefixtures("story")
@pytest.mark.parametrize("how", [(), ("--json",), ("--csv",)], ids=str)
def test_no_word_of_anybody_is_printed(shown: Shown, how: tuple[str, ...]) -> None:
    """Neither a trigger's, nor a reason's, nor a user's."""
    printed = shown(*how)
    assert "warm" in printed
    assert CANARY not in printed
    assert not any(words in printed for words in TRIGGER_PROMPTS.values())


def test_of_held_out_users_it_is_told_who_wrote(
    shown: Shown, database: str, tmp_path: Path
) -> None:
    """In a sentence."""
    (tmp_path / "segue.toml").write_text('[agents.guide]\nmodel = "scripted"\n', encoding="utf-8")
    agent = eager_agent(holdout=1.0, decider="none")

    async def tell() -> None:
        stage = Stage(database, VirtualClock(THEN))
        async with stage.world(agent, models={"guide": model_of()}) as world:
            thread = await new_thread(world)
            await arm(world, thread, world.clock.now())
            await world.pass_time(HOUR)
            await world.say(thread, "Hello!")

    asyncio.run(tell())
    printed = shown()
    assert "check_in, held out: users wrote after 100 % (21 to 100) of the moments in 1" in printed
