"""What the tests of the command line share: commands in an empty folder, and databases."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from segue.cli import app

Segue = Callable[..., Result]


@pytest.fixture
def segue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Segue]:
    """Calls a command in an empty folder, without settings or keys of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in ("SEGUE_DATABASE", "SEGUE_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    handlers, level = [*logging.root.handlers], logging.root.level
    runner = CliRunner()
    yield lambda *args: runner.invoke(app, [*map(str, args)], env={"COLUMNS": "100"})
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
