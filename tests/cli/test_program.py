"""What to type to run the program again."""

import sys
from pathlib import Path

import pytest

from segue.cli.chat import resume_command
from segue.cli.output import program
from tests.cli.programs import running


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
    assert resume_command(None, None, None, None, None) == ".venv/bin/segue chat"


@pytest.mark.parametrize("typed", ["-c", "/nowhere/segue", "pytest"])
def test_without_a_program_of_its_own_it_goes_by_its_name(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """As where it runs inside another one."""
    monkeypatch.setattr(sys, "argv", [typed])
    assert program() == "segue"


@pytest.mark.anyio
async def test_ctrl_c_while_it_loads_shows_no_traceback(tmp_path: Path) -> None:
    """It ends as shells expect of a program that was interrupted."""
    slow = tmp_path / "typer.py"  # which the command line imports first
    slow.write_text("raise KeyboardInterrupt\n")
    async with running(tmp_path, "--help", path=tmp_path) as loading:
        assert await loading.ended() == 130
    assert (loading.printed, loading.complained) == ("", b"")
