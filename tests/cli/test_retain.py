"""`segue retain`: what would go, what went, and what is called wrongly."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from segue.simulate.world import Stage
from tests.cli.conftest import Play, Segue

CONFIG = """
[agents.guide]
model = "scripted"
memory.enabled = false
autonomy.enabled = false
"""


@pytest.fixture
def thread(database: str, tmp_path: Path, play: Play) -> str:
    """A thread of three batches."""
    (tmp_path / "segue.toml").write_text(CONFIG, encoding="utf-8")

    async def tell() -> str:
        stage = Stage(database)
        async with stage.world() as world:
            made = await world.segue.create_thread("ann", settings={"opted_out": True})
            for words in ("One.", "Two.", "Three."):
                await world.say(made.id, words)
                await world.pass_time(timedelta(minutes=1))
            return made.id

    told: str = play(tell)
    return told


def test_batches_are_shown_after_others_went(segue: Segue, thread: str, database: str) -> None:
    """Those that are left, though the turns of the others are still known."""
    segue("retain", "--keep-last", "1", "--database", database)
    shown = json.loads(segue("batches", thread, "--database", database, "--json").stdout)
    assert [batch["messages"][0]["text"] for batch in shown] == ["Three."]


def heard(segue: Segue, thread: str, database: str) -> list[str]:
    shown = json.loads(segue("history", thread, "--database", database, "--json").stdout)
    return [message["text"] for message in shown if message["role"] == "user"]


def test_a_dry_run_shows_a_table_and_removes_nothing(
    segue: Segue, thread: str, database: str
) -> None:
    """Each thread with what would go of it."""
    result = segue("retain", "--keep-last", "1", "--dry-run", "--database", database)
    assert result.exit_code == 0
    [row] = [line for line in result.stdout.splitlines() if thread in line]
    assert row.split()[:4] == [thread, "ann", "2", "4"]
    assert "2 batches with 4 messages would be deleted." in result.stdout
    assert heard(segue, thread, database) == ["One.", "Two.", "Three."]


def test_what_is_old_enough_goes(segue: Segue, thread: str, database: str) -> None:
    """By number here; again, there is nothing left to do."""
    call = ("retain", "--keep-last", "2", "--type", "user_request", "--database", database)
    report = json.loads(segue(*call, "--json").stdout)
    assert [(t["thread_id"], t["batches"]) for t in report["threads"]] == [(thread, 1)]
    assert heard(segue, thread, database) == ["Two.", "Three."]
    assert "Nothing is old enough" in segue(*call).stdout


def test_the_rule_of_the_settings_is_taken_if_none_is_given(
    segue: Segue, thread: str, database: str, tmp_path: Path
) -> None:
    """And without that nothing goes, and it says what to do."""
    nothing = segue("retain", "--database", database)
    assert (nothing.exit_code, "--older-than" in nothing.stderr) == (2, True)
    (tmp_path / "segue.toml").write_text(f"[retention]\nkeep_last = 1\n{CONFIG}", encoding="utf-8")
    assert segue("retain", "--database", database).exit_code == 0
    assert heard(segue, thread, database) == ["Three."]


def test_the_policy_of_the_settings_is_shown_by_a_dry_run(
    segue: Segue, thread: str, database: str, tmp_path: Path
) -> None:
    """Each type by its own rule: here the user's last two stay, though one would for the others."""
    policy = "[retention]\nkeep_last = 1\n[retention.by_type.user_request]\nkeep_last = 2\n"
    (tmp_path / "segue.toml").write_text(policy + CONFIG, encoding="utf-8")
    result = segue("retain", "--dry-run", "--database", database)
    [row] = [line for line in result.stdout.splitlines() if thread in line]
    assert (row.split()[2], row.split()[-2:]) == ("1", ["1", "user_request"])
    assert "1 batch with 2 messages would be deleted." in result.stdout
    assert heard(segue, thread, database) == ["One.", "Two.", "Three."]


def test_a_wrong_call_removes_nothing(segue: Segue, thread: str, database: str) -> None:
    """An age that is none, a type alone: one line, and the code for a wrong call."""
    for wrong in (
        ("--older-than", "soon"),
        ("--older-than", "0d"),
        ("--type", "system_trigger"),
        ("--older-than", "1d", "--type", "none"),
    ):
        result = segue("retain", *wrong, "--database", database)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert heard(segue, thread, database) == ["One.", "Two.", "Three."]
