"""What to type to run the program again."""

import sys
from pathlib import Path

import pytest

from segue.cli.chat import way_back
from segue.cli.program import program


def test_a_program_off_the_path_is_named_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone it lies in `.venv/bin`; on the PATH, its name is enough, unless it is another."""
    ours, other = (tmp_path / name / "segue" for name in (".venv/bin", "bin"))
    for file in (ours, other):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/segue", "serve"])
    for path, typed in (
        ("/nowhere", ".venv/bin/segue"),
        (str(other.parent), ".venv/bin/segue"),
        (str(ours.parent), "segue"),
    ):
        monkeypatch.setenv("PATH", path)
        assert program() == typed
    monkeypatch.setenv("PATH", "/nowhere")
    assert way_back(None, None, None, None, None) == ".venv/bin/segue chat"


@pytest.mark.parametrize("typed", ["-c", "/nowhere/segue", "pytest"])
def test_without_a_program_of_its_own_it_goes_by_its_name(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """As where it runs inside another one."""
    monkeypatch.setattr(sys, "argv", [typed])
    assert program() == "segue"
