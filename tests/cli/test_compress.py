"""`segue compress`: what would leave, what left, and taking it back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from segue.journal.records import Thread
from segue.settings import Settings
from segue.simulate.world import Stage
from segue.stores import open_journal
from tests.cli.conftest import Play, Segue
from tests.runtime.compressing import Speaker, small_agent, talk

CONFIG = """
[agents.guide]
model = "scripted"
context_tokens = 4000
memory.enabled = false
[agents.guide.compression]
enabled = false
strategy = "{strategy}"
keep = 2
"""
COUNT = 14

Shown = Callable[..., str]


@pytest.fixture
def story(database: str, tmp_path: Path, play: Play) -> Thread:
    """A long talk with an agent that compresses nothing by itself."""

    async def tell() -> Thread:
        agent = small_agent(enabled=False)
        async with Stage(database).world(agent, models={"guide": Speaker().model}) as world:
            thread = await world.segue.create_thread("ann")
            await talk(world, thread.id, COUNT)
            return thread

    (tmp_path / "segue.toml").write_text(CONFIG.format(strategy="truncate"), encoding="utf-8")
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


def live(database: str, thread: Thread) -> list[str]:
    """The batches that are not archived, oldest first."""

    async def read() -> list[int]:
        async with open_journal(Settings(database=database)) as journal:
            return await journal.messages.list_live_batches(thread.id)

    return [str(batch) for batch in asyncio.run(read())]


def test_a_dry_run_shows_what_would_leave_and_changes_nothing(
    shown: Shown, story: Thread, database: str
) -> None:
    """The oldest, as many as it takes."""
    found = json.loads(shown("compress", story.id, "--dry-run", "--json"))
    assert found["is_dry_run"]
    assert found["tokens"] > found["target"] == 1_200
    assert found["leaving"] == live(database, story)[: len(found["leaving"])]
    assert found["summaries"] == []
    assert len(live(database, story)) == COUNT
    assert "Fact 0 is the number 0." in shown("compress", story.id, "--dry-run")


def test_a_dry_run_shows_all_that_would_leave(shown: Shown, story: Thread, database: str) -> None:
    """Also where it takes several summaries; the run says that each of them is taken back alone."""
    summing_up = CONFIG.format(strategy="summarise").replace("4000", "500")
    Path("segue.toml").write_text(summing_up, encoding="utf-8")
    would = json.loads(shown("compress", story.id, "--dry-run", "--json"))
    count, rounds = len(would["leaving"]), would["rounds"]
    assert 1 < rounds <= count == COUNT - 2
    assert would["certain"] == count
    forecast = f"Batches that would leave: {count}; rounds: {rounds}."
    assert forecast in shown("compress", story.id, "--dry-run")
    printed = shown("compress", story.id)
    assert all(batch in printed for batch in would["leaving"])
    assert f"{rounds} summaries were stored; --undo undoes the newest" in printed
    assert len(live(database, story)) == COUNT - count
    assert "--undo once more" in shown("compress", story.id, "--undo")
    assert COUNT - count < len(live(database, story)) < COUNT


def test_a_dry_run_says_what_depends_on_the_summaries(shown: Shown, story: Thread) -> None:
    """Short ones leave room for more batches in the window."""
    summing_up = CONFIG.format(strategy="summarise").replace("4000", "2250")
    Path("segue.toml").write_text(summing_up, encoding="utf-8")
    would = json.loads(shown("compress", story.id, "--dry-run", "--json"))
    least, most = would["certain"], len(would["leaving"])
    assert 0 < least < most
    told = shown("compress", story.id, "--dry-run")
    assert f"Batches that would leave: {least} to {most}, depending on" in told
    done = json.loads(shown("compress", story.id, "--json"))
    assert least <= len(done["leaving"]) <= most


def test_what_leaves_can_be_taken_back(shown: Shown, story: Thread, database: str) -> None:
    """History shows all of it throughout; a second time nothing has to leave."""
    told = shown("history", story.id)
    everything = live(database, story)
    done = json.loads(shown("compress", story.id, "--json"))
    [summary] = done["summaries"]
    assert summary["batches"] == done["leaving"] == everything[: len(done["leaving"])]
    assert live(database, story) == everything[len(done["leaving"]) :]
    assert "Nothing can leave" in shown("compress", story.id)
    would = json.loads(shown("compress", story.id, "--undo", "--dry-run", "--json"))
    assert would["undone"]["id"] == summary["id"]
    assert live(database, story) != everything
    undone = shown("compress", story.id, "--undo")
    assert undone == f"Batches that are in the window again: {len(done['leaving'])}.\n"
    assert live(database, story) == everything
    assert shown("history", story.id) == told


def test_a_summary_is_shown(shown: Shown, story: Thread) -> None:
    """As the agent's own model writes it; the scripted one repeats what was said."""
    Path("segue.toml").write_text(CONFIG.format(strategy="summarise"), encoding="utf-8")
    printed = shown("compress", story.id)
    [words] = printed.split("Summary:\n")[1:]
    assert words.startswith("The user said: Fact ")
    assert words.splitlines()[0] in shown("context", story.id)


def test_there_may_be_nothing_to_undo(segue: Segue, story: Thread, database: str) -> None:
    """That is told in one line."""
    result = segue("compress", story.id, "--undo", "--database", database)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no summary that could be undone" in result.stderr
