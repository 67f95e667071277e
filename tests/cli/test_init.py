"""`segue init`: a settings file that changes nothing, and an agent that runs."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from segue.cli.output import program
from segue.facade import Segue as RunningSegue
from segue.server.settings import ServedSettings
from segue.settings import load_settings
from segue.settings.agents import AgentConfig
from tests.cli.conftest import Segue

_COMMENTED = re.compile(r"^# (\w+ = .+)$", re.MULTILINE)


@pytest.fixture(params=["local", "scripted"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The model of a new file, with the local one installed or not."""
    monkeypatch.setattr("segue.cli.init.has_local_model", lambda: request.param == "local")
    return str(request.param)


def test_every_value_of_the_file_is_the_default(segue: Segue, tmp_path: Path, model: str) -> None:
    """As it is written, and with all comments taken away: it documents, and changes nothing."""
    assert segue("init").exit_code == 0
    file = tmp_path / "segue.toml"
    written = file.read_text(encoding="utf-8")
    assert len(_COMMENTED.findall(written)) > 15
    expected = AgentConfig(id="companion", model=model)
    for text in (written, _COMMENTED.sub(r"\1", written)):
        file.write_text(text, encoding="utf-8")
        settings = load_settings(kind=ServedSettings, environ={})
        assert settings.agents == (expected,)
        assert settings.model_dump(exclude={"agents"}) == ServedSettings(
            agents=(expected,)
        ).model_dump(exclude={"agents"})


@pytest.mark.parametrize("taken", ["segue.toml", "my_agent.py"])
def test_nothing_is_overwritten_without_force(segue: Segue, tmp_path: Path, taken: str) -> None:
    """Neither file is written if one of them is there."""
    (tmp_path / taken).write_text("mine")
    result = segue("init", "--graph")
    assert result.exit_code == 2
    assert f"{taken} exists already; --force overwrites it." in result.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(taken, "mine")]
    assert segue("init", "--graph", "--force").exit_code == 0
    assert (tmp_path / taken).read_text() != "mine"


def test_it_says_what_it_wrote_and_what_comes_next(segue: Segue, tmp_path: Path) -> None:
    """In another folder, which is made."""
    result = segue("init", "my shop")
    assert result.stdout == "Wrote my shop/segue.toml.\nNext: cd 'my shop' && segue serve\n"
    assert (tmp_path / "my shop" / "segue.toml").is_file()
    assert json.loads(segue("init", "--graph", "--force", "--json").stdout) == [
        "segue.toml",
        "my_agent.py",
    ]


@pytest.mark.parametrize("folder", ["taken", "taken/shop"])
def test_a_folder_that_cannot_be_made_is_named(segue: Segue, tmp_path: Path, folder: str) -> None:
    """Such as one below a file."""
    (tmp_path / "taken").write_text("mine")
    result = segue("init", folder)
    assert result.exit_code == 2
    assert f"Error: '{folder}' cannot be written to: " in result.stderr


def test_the_short_delays_of_the_file_are_valid(segue: Segue, tmp_path: Path) -> None:
    """Taken out of their comments, a follow-up comes after half a minute at any hour."""
    assert segue("init", "--graph").exit_code == 0
    file = tmp_path / "segue.toml"
    text = re.sub(r"^#   (\w+ = .+)$", r"\1", file.read_text("utf-8"), flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    [agent] = load_settings(environ={}).agents
    assert {str(delay) for delay in asdict(agent.autonomy.delays).values()} == {"0:00:30"}
    assert agent.autonomy.policy.quiet_hours is None


@pytest.mark.anyio
async def test_the_agent_runs_as_it_is(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key or a model, with state of its own."""
    assert segue("init", "--graph").exit_code == 0
    monkeypatch.syspath_prepend(tmp_path)
    settings = load_settings(environ={})
    async with RunningSegue.open(settings) as running:
        thread = await running.create_thread("sam")
        first = await running.reply(thread, "guitars")
        assert first == "I noted 'guitars' as topic 1. What would you like to do first?"
        second = await running.reply(thread, "pianos")
        assert second == "I noted 'pianos' as topic 2. What would you like to do first?"


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["I want to learn guitar", "guitar", "Hi", "Ich lerne Gitarre."])
async def test_the_agent_speaks_first_after_any_first_message(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A newcomer who writes something and waits sees a follow-up."""
    assert segue("init", "--graph").exit_code == 0
    monkeypatch.syspath_prepend(tmp_path)
    async with RunningSegue.open(load_settings(environ={})) as running:
        thread = await running.create_thread("sam")
        await running.reply(thread, text)
        [timer] = await running.inspector.list_timers(thread.id, limit=10)
        assert (timer["state"], timer["trigger_type"]) == ("pending", "question_unanswered")


def test_the_next_command_runs_from_the_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was called by a relative path is named by its whole one."""
    typed = tmp_path / ".venv/bin/segue"
    typed.parent.mkdir(parents=True)
    typed.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [".venv/bin/segue", "init"])
    assert program() == ".venv/bin/segue"
    assert program(elsewhere=True) == str(typed)
