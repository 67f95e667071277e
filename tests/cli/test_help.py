"""The commands, their help, and the page that tells of them."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.cli import COMMANDS, load_command
from segue.core.messages import user_message
from segue.runtime.ids import SnowflakeGenerator
from segue.settings import Settings
from segue.simulate.world import START
from segue.stores import open_journal
from tests.cli.conftest import Segue

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(command: Any, name: str = "") -> dict[str, Any]:
    """All commands by their full names."""
    inside: dict[str, Any] | None = getattr(command, "commands", None)
    if inside is None:
        return {name: command}
    return {
        full: found
        for each, inner in inside.items()
        for full, found in commands(inner, f"{name} {each}".strip()).items()
    }


ALL = {
    full: found for each in COMMANDS for full, found in commands(load_command(each), each).items()
}


@pytest.mark.parametrize("name", ALL)
def test_every_command_explains_itself(segue: Segue, name: str) -> None:
    """With a sentence, and one for each of its options."""
    result = segue(*name.split(), "--help")
    assert result.exit_code == 0
    assert (ALL[name].help or "").strip()
    for parameter in ALL[name].params:
        assert getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("name", ["", *ALL])
def test_flags_and_arguments_are_shown_alike(segue: Segue, name: str) -> None:
    """A flag takes no value, and what has to be given is in capitals."""
    printed = segue(*name.split(), "--help").stdout
    assert "<bool>" not in printed
    [usage] = [line for line in printed.splitlines() if "Usage:" in line]
    arguments = usage.partition("[OPTIONS]")[2]
    assert arguments == arguments.upper()


def test_commands_are_listed_in_groups(segue: Segue) -> None:
    """What one talks with, looks with, what changes data, and what runs it all."""
    printed = segue("--help").stdout
    titles = ["Talk", "Look", "Data", "Operate"]
    places = [printed.index(f"─ {title} ─") for title in titles]
    assert places == sorted(places)
    assert "─ Commands ─" not in printed
    assert places[1] < printed.index("│ why") < places[2]
    assert places[3] < printed.index("│ keys")


@pytest.mark.parametrize("name", ALL)
def test_every_command_is_on_its_page(name: str) -> None:
    """By its name, with every option that is not the same everywhere; `simulate` has its own."""
    assert name.rpartition(" ")[2] in PAGE
    if name == "simulate":
        return
    options = {option for p in ALL[name].params for option in p.opts if option.startswith("--")}
    assert [option for option in options - {"--help"} if option not in PAGE] == []


def _loaded(code: str, folder: Path) -> str:
    heavy = (
        *("langchain_core", "langchain_core.language_models.chat_models", "langgraph"),
        *("langsmith", "fastapi", "httpx", "segue.compose", "numpy", "structlog"),
    )
    told = f"print(*[name for name in {heavy} if name in sys.modules])"
    call = [sys.executable, "-c", f"import sys\n{code}\n{told}"]
    result = subprocess.run(  # noqa: S603 - ours
        call, check=False, capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def test_help_does_not_wait_for_the_system(tmp_path: Path) -> None:
    """LangChain and the server take seconds to load; help does not need them."""
    assert _loaded("import segue.cli", tmp_path) == ""


def test_looking_does_not_wait_for_models(tmp_path: Path) -> None:
    """LangChain's messages are needed; its models, the server, HTTP and numpy are not."""
    looks = [["threads"], ["timers"], ["stats"]]
    looks += [[name, "trip"] for name in ("history", "batches", "context", "why", "export")]
    code = "from segue.cli import app\n"
    code += (
        f"for args in {looks}:\n  try: app(args)\n  except SystemExit as end: assert not end.code"
    )

    async def store() -> None:
        settings = Settings(database=str(tmp_path / "segue-data"))
        async with open_journal(settings, make=True) as journal:
            await journal.threads.create(
                "trip", agent_id=settings.agents[0].id, user_id="me", now=START
            )
            said = user_message("Where is Oslo?")
            await journal.inbox.accept("trip", said, ids=SnowflakeGenerator(node=1), now=START)

    asyncio.run(store())
    loaded = _loaded(code, tmp_path).split()
    assert loaded == ["langchain_core"]
