"""`segue migrate`: what it prints, and how it ends."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Segue
from tests.migrate.apps import sqlite_app, tell_old_stories

CONFIG = """
[agents.guide]
model = "scripted"
memory.enabled = false
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The checkpoints of an old app, beside the settings."""
    (tmp_path / "segue.toml").write_text(CONFIG, encoding="utf-8")
    path = tmp_path / "old.sqlite"
    with sqlite_app(path) as app:
        tell_old_stories(app)
        app.say("nobody", "Hello!", "Hi.")
    return path


def test_what_was_found_is_told(segue: Segue, old: Path) -> None:
    """As a table, with progress on the other stream and a reason for what was skipped."""
    result = segue("migrate", old)
    assert result.exit_code == 0
    assert "4 of 4 conversations" in result.stderr
    [markers] = [line for line in result.stdout.splitlines() if "old markers" in line]
    assert markers.split()[-1] == "1"
    assert "--user sets" in result.stdout
    assert "messages stored" in result.stdout
    assert "would" not in result.stdout
    history = segue("history", "trip")
    assert "Still there?" in history.stdout
    assert "AUTONOMOUS" not in history.stdout


def test_a_dry_run_makes_no_database(segue: Segue, old: Path, tmp_path: Path) -> None:
    """It says what would come, and leaves the folder as it is."""
    result = segue("migrate", old, "--user", "ann", "--dry-run", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["is_dry_run"], report["threads"], report["migrated"]) == (True, 4, 3)
    assert report["held_back"] == 1
    assert not (tmp_path / "segue-data").exists()


def test_a_dry_run_says_what_would_be(segue: Segue, old: Path) -> None:
    """Nothing is told as done that is not done."""
    told = segue("migrate", old, "--dry-run").stdout
    for words in ("would be migrated", "messages would be stored", "dry run"):
        assert words in told
    assert " migrated" not in told.replace("would be migrated", "")
    assert "messages stored" not in told


def test_whose_threads_they_became_is_told(segue: Segue, old: Path, tmp_path: Path) -> None:
    """The users with the most threads by name, up to ten, and how many more there are."""
    rows = segue("migrate", old, "--user", "lost").stdout.splitlines()
    assert {("ann", "1"), ("bob", "1"), ("lost", "1")} <= {tuple(row.split()) for row in rows}
    chats = tmp_path / "chats.jsonl"
    lines = [
        {"id": f"{user}-{n}", "user": f"u{user:02}", "messages": [{"role": "user", "content": "?"}]}
        for user in range(12)
        for n in range(2 if user == 11 else 1)
    ]
    chats.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    told = segue("migrate", chats, "--dry-run").stdout.splitlines()
    shares = [row.split() for row in told if re.match(r"(u\d\d|and)\s", row)]
    named = [["u11", "2"], *([f"u{user:02}", "1"] for user in range(9))]
    assert shares == [*named, ["and", "2", "more", "2"]]
    report = json.loads(segue("migrate", chats, "--dry-run", "--json").stdout)
    assert (len(report["users"]), report["users"]["u11"]) == (12, 2)


def test_a_name_that_could_not_be_kept_is_told(segue: Segue, old: Path) -> None:
    """With the one that the thread has now, for people and for programs."""
    with sqlite_app(old) as app:
        app.say("bob/work", "Hello!", "Hi.", user_id="bob")
    [row] = [row for row in segue("migrate", old).stdout.splitlines() if "bob/work" in row]
    name = row.split()[-1]
    assert segue("history", name).exit_code == 0
    report = json.loads(segue("migrate", old, "--json").stdout)
    assert report["renamed"] == [{"thread": "bob/work", "became": name}]


def test_a_second_run_has_nothing_to_do(segue: Segue, old: Path) -> None:
    """All that can be taken is there, and says so."""
    segue("migrate", old)
    report = json.loads(segue("migrate", old, "--json").stdout)
    assert (report["unchanged"], report["messages"], len(report["skipped"])) == (2, 0, 1)


def test_what_is_wrong_is_told_in_one_line(segue: Segue, old: Path, tmp_path: Path) -> None:
    """No such file, an unknown agent: called wrongly. Nothing could be taken: failed."""
    missing = segue("migrate", tmp_path / "missing.sqlite")
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert "There is no file" in missing.stderr
    unknown = segue("migrate", old, "--agent", "butler")
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (2, 1)
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"messages": []}\n', encoding="utf-8")
    assert segue("migrate", chats).exit_code == 1
