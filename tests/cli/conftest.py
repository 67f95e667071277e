"""What the tests of the command line share: commands in an empty folder, and databases."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from segue.cli import app

Segue = Callable[..., Result]


@pytest.fixture
def segue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Segue:
    """Calls a command in an empty folder, without settings or keys of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in ("SEGUE_DATABASE", "SEGUE_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner()
    return lambda *args: runner.invoke(app, [*map(str, args)], env={"COLUMNS": "100"})
