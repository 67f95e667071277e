"""What the tests of the command line share: commands in an empty folder, and databases."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from segue.cli import app

Segue = Callable[..., Result]
Play = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def segue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Segue:
    """Calls a command in an empty folder, without settings or keys of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in ("SEGUE_DATABASE", "SEGUE_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner()
    return lambda *args: runner.invoke(app, [*map(str, args)], env={"COLUMNS": "100"})


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """What the story of a module returned, and the files that it filled."""
    return {}


@pytest.fixture
def play(database: str, played: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Fill the test's database with a story; for later tests of the module, its files are copied.

    Returns what the story returned.
    """

    def fill(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if not Path(database).is_dir():
            return asyncio.run(story())
        if not played:
            played["told"] = asyncio.run(story())
            played["files"] = shutil.copytree(database, tmp_path_factory.mktemp("played") / "data")
        else:
            shutil.copytree(played["files"], database, dirs_exist_ok=True)
        return played["told"]

    return fill
