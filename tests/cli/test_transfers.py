"""Conversations out, in and away: `export`, `import` and `forget`."""

import asyncio
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from segue.settings import Settings
from segue.stores import open_journal
from segue.testing.postgres import PostgresServer
from tests.cli.conftest import Play, Segue
from tests.journal.stores import ask, change
from tests.transfer.files import Lines, sealed
from tests.transfer.tales import CANARY, EVERYTHING, Tale
from tests.transfer.test_forgetting import journal_of


async def tell(database: str) -> None:
    async with open_journal(Settings(database=database), make=True) as journal:
        await (await Tale(journal).begin()).tell(EVERYTHING)


@pytest.fixture
def told(database: str, play: Play) -> str:
    """A database in which much has happened, to Ada and to Bö."""
    play(lambda: tell(database))
    return database


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_everything_goes_out_and_comes_in(segue: Segue, told: str, tmp_path: Path) -> None:
    """Into a database that is made for it, with words about it on stderr or stdout."""
    out = segue("export", "--full", "--out", "all.jsonl", "--database", told)
    assert out.exit_code == 0, out.output
    assert "Exported" in out.stderr
    assert out.stdout == ""
    tried = segue("import", "all.jsonl", "--dry-run", "--database", "new")
    assert (tried.exit_code, "Would import 5 threads" in tried.stdout) == (0, True)
    came = segue("import", "all.jsonl", "--database", "new")
    assert (came.exit_code, "Imported 5 threads" in came.stdout) == (0, True)
    segue("export", "--full", "--out", "again.jsonl", "--database", "new")
    first, again = lines_of(tmp_path / "all.jsonl"), lines_of(tmp_path / "again.jsonl")
    assert first[1:-1] == again[1:-1]
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["again.jsonl", "all.jsonl"]


@pytest.mark.parametrize("remap", [[], ["--remap"]])
def test_a_trial_leaves_nothing_behind(
    segue: Segue, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remap: list[str]
) -> None:
    """Where there is no database yet it says the same, and there is none afterwards."""
    segue("export", "--full", "--out", "all.jsonl", "--database", told)
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    before = sorted(tmp_path.rglob("*"))
    tried = segue("import", "all.jsonl", "--dry-run", *remap, "--database", tmp_path / "new")
    assert (tried.exit_code, "Would import 5 threads" in tried.stdout) == (0, True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_trial_makes_no_tables(segue: Segue, tmp_path: Path, server: PostgresServer) -> None:
    """An empty database of PostgreSQL stays empty."""
    asyncio.run(tell(str(tmp_path / "old")))
    segue("export", "--full", "--out", "all.jsonl", "--database", "old")
    empty = server.create_database()
    tried = segue("import", "all.jsonl", "--dry-run", "--database", empty)
    assert (tried.exit_code, "Would import 5 threads" in tried.stdout) == (0, True)
    assert ask(empty, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_an_export_can_be_piped(segue: Segue, told: str) -> None:
    """Without a file the lines go to stdout, and nothing else does."""
    out = segue("export", "--user", "ada", "--database", told)
    lines = [json.loads(line) for line in out.stdout.split("\n") if line]
    assert (lines[0]["kind"], lines[-1]["type"]) == ("user", "footer")
    assert CANARY not in out.stdout
    one = segue("export", "blue", "--database", told)
    threads = [json.loads(line) for line in one.stdout.split("\n") if '"type":"thread"' in line]
    assert [thread["id"] for thread in threads] == ["blue"]


def test_for_scripts_both_say_what_they_did(segue: Segue, told: str) -> None:
    """As JSON, with counts by kind."""
    out = segue("export", "--full", "--out", "all.jsonl", "--json", "--database", told)
    assert json.loads(out.stdout)["lines"]["thread"] == 5
    came = segue("import", "all.jsonl", "--json", "--database", "new")
    assert json.loads(came.stdout)["rows"]["threads"] == 5


def test_a_copy_is_told_by_its_new_names(segue: Segue, told: str) -> None:
    """What is here is refused, left alone, or comes beside it under new ids."""
    segue("export", "--full", "--out", "all.jsonl", "--database", told)
    refused = segue("import", "all.jsonl", "--database", told)
    assert (refused.exit_code, "exists already" in refused.stderr) == (1, True)
    assert "--skip-existing" in refused.stderr
    assert "--remap" in refused.stderr
    again = segue("import", "all.jsonl", "--remap", "--database", told)
    assert (again.exit_code, "--skip-existing" in again.stderr) == (1, True)
    assert "--remap" not in again.stderr
    left = segue("import", "all.jsonl", "--skip-existing", "--database", told)
    assert "Thread blue exists already and was skipped." in left.stdout
    copied = segue("import", "all.jsonl", "--remap", "--skip-existing", "--database", told)
    assert copied.exit_code == 0, copied.output
    name = next(
        line.split()[-1].rstrip(".")
        for line in copied.stdout.splitlines()
        if line.startswith("Thread blue is now")
    )
    shown = [segue("history", thread, "--json", "--database", told) for thread in ("blue", name)]
    first, copy = [[m["text"] for m in json.loads(each.stdout)] for each in shown]
    assert first == copy != []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["export"], "Name a thread or a --user"),
        (["export", "nowhere", "--full"], "no thread 'nowhere'"),
        (["export", "nowhere"], "no thread 'nowhere'"),
        (["export", "--full", "--json"], "--out"),
        (["export", "--full", "--out", "no/such/folder/x"], "cannot be written"),
        (["export", "--full", "--out", "segue.toml/x"], "cannot be written"),
        (["export", "--full", "--out", "."], "cannot be written"),
        (["import", "missing.jsonl"], "cannot be read"),
        (["import", "segue.toml"], "Line 1"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    segue: Segue, told: str, tmp_path: Path, args: list[str], words: str
) -> None:
    """With the exit code of wrong use, and no file that looks like an export."""
    (tmp_path / "segue.toml").write_text("\n", encoding="utf-8")
    done = segue(*args, "--database", told)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert words in done.stderr
    assert not list(tmp_path.glob("*.jsonl*"))


def test_a_refused_file_begins_no_database(segue: Segue, tmp_path: Path) -> None:
    """What is no export leaves the folder as it was."""
    (tmp_path / "notes.txt").write_text("Hello!\n", encoding="utf-8")
    refused = segue("import", "notes.txt", "--database", "new")
    assert (refused.exit_code, "Line 1" in refused.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_only_a_trusted_file_brings_system_messages(
    segue: Segue, told: str, tmp_path: Path
) -> None:
    """They would join the agent's instructions; the error names the option."""
    segue("export", "--full", "--out", "all.jsonl", "--database", told)
    lines: Lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_bytes().splitlines()]
    message = next(line["messages"][0]["message"] for line in lines if line["type"] == "batch")
    message["type"] = message["data"]["type"] = "system"
    (tmp_path / "all.jsonl").write_bytes(sealed(lines))
    refused = segue("import", "all.jsonl", "--database", "new")
    assert (refused.exit_code, "--trusted" in refused.stderr) == (2, True)
    came = segue("import", "all.jsonl", "--trusted", "--database", "new")
    assert (came.exit_code, "Imported 5 threads" in came.stdout) == (0, True)


def test_counts_are_told_in_the_right_number(segue: Segue, told: str) -> None:
    """One thread, two threads; of lines, of rows and of what is deleted."""
    out = segue("export", "--full", "--out", "all.jsonl", "--json", "--database", told)
    lines = json.loads(out.stdout)["lines"]
    told_lines = {
        "thread": "5 threads",
        "memory": "3 memories",
        "preferences": "2 users' preferences",
    }
    for name, words in told_lines.items():
        assert words.startswith(f"{lines[name]} ")
        assert f" {words}" in out.stderr
    assert f" {lines['batch']} batches" in out.stderr
    one = segue("export", "blue", "--out", "blue.jsonl", "--database", told)
    assert "1 thread." in one.stderr
    came = segue("import", "all.jsonl", "--database", "new")
    assert "2 users' preferences" in came.stdout
    gone = segue("forget", "Bö", "--yes", "--database", "new")
    assert "1 user's preferences" in gone.stdout
    assert "1 memory" in gone.stdout


def test_how_much_would_be_deleted_is_told_before(segue: Segue, told: str) -> None:
    """The question and a trial say what is deleted then; a trial deletes nothing."""
    damage = "UPDATE threads SET settings = '{' WHERE id = 'blue'"  # it is counted all the same
    change(journal_of(told), damage)
    tried = segue("forget", "ada", "--dry-run", "--json", "--database", told)
    asked = segue("forget", "ada", "--database", told)
    in_words = segue("forget", "ada", "--dry-run", "--database", told)
    gone = segue("forget", "ada", "--yes", "--json", "--database", told)
    would, did = json.loads(tried.stdout), json.loads(gone.stdout)
    assert {k: v for k, v in would.items() if v} == {k: v for k, v in did.items() if v}
    assert would["messages"] > 1 < would["threads"]
    amount = f"{would['threads']} threads, {would['messages']} messages, 2 memories?"
    assert amount in asked.stderr
    assert in_words.stdout.startswith(f"Would delete {amount[:-1]}, ")
    nothing = segue("forget", "ada", "--dry-run", "--database", told)
    assert nothing.stdout == "ada has no data here.\n"


def test_a_key_is_not_told_as_deleted(segue: Segue, told: str) -> None:
    """It is kept and opens nothing, and that is what is said of it."""
    segue("keys", "create", "phone", "--user", "ada", "--database", told)
    tried = segue("forget", "ada", "--dry-run", "--database", told)
    assert "would be revoked, but not deleted: 1." in tried.stdout
    gone = segue("forget", "ada", "--yes", "--database", told)
    assert "api_keys" not in gone.stdout
    assert "are revoked, but not deleted: 1." in gone.stdout


@pytest.mark.parametrize("how", [["--yes"], ["--dry-run"], ["--yes", "--json"], []])
def test_who_would_come_back_by_a_migration_is_told(
    segue: Segue, database: str, tmp_path: Path, how: list[str]
) -> None:
    """The source still has what was migrated from it, and the next run brings it in again."""
    chat = {"id": "a1", "user": "ann", "messages": [{"role": "user", "content": "Hello!"}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat) + "\n", encoding="utf-8")
    segue("migrate", "chats.jsonl", "--database", database)
    gone = segue("forget", "ann", *how, "--database", database)
    assert gone.stderr.count("`segue migrate`") == 1


def test_who_was_not_migrated_does_not_come_back(segue: Segue, told: str) -> None:
    """Of them nothing is said of migrations."""
    assert "migrate" not in segue("forget", "ada", "--yes", "--database", told).output


def test_a_user_is_forgotten_only_if_that_is_meant(segue: Segue, told: str) -> None:
    """It asks first, says what it deleted, and leaves others alone."""
    asked = segue("forget", "ada", "--database", told)
    assert asked.exit_code == 1
    assert "cannot be undone" in asked.stderr
    gone = segue("forget", "ada", "--yes", "--json", "--database", told)
    counted = json.loads(gone.stdout)
    assert counted["threads"] > 0 < counted["memories"]
    assert '"ada"' not in segue("export", "--full", "--database", told).stdout
    again = segue("forget", "ada", "--yes", "--database", told)
    assert again.stdout == "ada has no data here.\n"
    assert '"Bö"' in segue("export", "--full", "--database", told).stdout


def test_an_export_on_a_terminal_has_no_control_characters(
    segue: Segue, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON escapes C0 but not C1, which a terminal obeys; a file and a pipe get everything."""

    async def store() -> None:
        async with open_journal(Settings(database=database), make=True) as journal:
            await journal.threads.create(
                "t", agent_id="ada", user_id="ann", now=datetime(2026, 5, 4, tzinfo=UTC)
            )
            await journal.threads.update("t", title="Clear \x9b2J")

    asyncio.run(store())
    assert "Clear \x9b2J" in segue("export", "--full", "--database", database).stdout
    monkeypatch.setattr("segue.cli.transfer.is_piped", lambda: False)
    assert "Clear 2J" in segue("export", "--full", "--database", database).stdout
