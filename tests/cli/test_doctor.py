"""`segue doctor`: what it finds, and what it says to do."""

import asyncio
import json
import socket
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from segue.core.messages import user_message
from segue.core.stamp import stamp
from segue.runtime.ids import SnowflakeGenerator
from segue.settings import Settings
from segue.stores import open_journal
from tests.cli.conftest import Segue
from tests.cli.programs import running, write_config

OWN_CODE = """
[agents.ada]
model = "scripted"
memory.enabled = false
tools = ["own_code:count"]
autonomy.decider = "own_code:decide"
"""

GRAPHS = "tests.stories.graphs"
OWN_MEMORY = "graph = 'x:y'\nmemory = { enabled = true, embedder = 'openai:x' }"

_SHORT = 'url = "https://example.org/hook"\nsecret = "short"'


def outcomes(segue: Segue, *args: str) -> tuple[int, dict[str, str]]:
    result = segue("doctor", "--json", *args)
    found = json.loads(result.stdout)
    return result.exit_code, {check["name"]: check["outcome"] for check in found}


def test_all_is_well_and_nothing_is_made(segue: Segue, tmp_path: Path) -> None:
    """A folder that can be written to is enough, and stays empty."""
    write_config(tmp_path)
    code, found = outcomes(segue)
    assert code == 0
    assert found["database"] == "ok"
    assert found["time zones"] == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["segue.toml"]


def test_a_database_is_tested_and_left_as_it_was(
    segue: Segue, tmp_path: Path, database: str
) -> None:
    """It answers, is up to date, writable, and true to metadata."""
    write_config(tmp_path)
    assert segue("keys", "create", "laptop", "--database", database).exit_code == 0
    code, found = outcomes(segue, "--database", database)
    assert code == 0
    assert {name: found[name] for name in ("database", "migrations", "self-test", "clock")} == {
        "database": "ok",
        "migrations": "ok",
        "self-test": "ok",
        "clock": "ok",
    }
    assert json.loads(segue("threads", "--json", "--database", database).stdout) == []


def test_a_file_that_is_no_database(segue: Segue, tmp_path: Path) -> None:
    """Fails with the file's name."""
    write_config(tmp_path)
    (tmp_path / "segue-data").mkdir()
    (tmp_path / "segue-data" / "journal.db").write_bytes(b"This is no database. " * 100)
    result = segue("doctor")
    assert result.exit_code == 1
    assert "FAIL  database: SQLite file" in result.stdout


def test_what_retention_deletes_is_reported(segue: Segue, tmp_path: Path) -> None:
    """With the time after which it goes; without retention there is no such line."""
    file = write_config(tmp_path)
    assert "retention" not in outcomes(segue)[1]
    with file.open("a", encoding="utf-8") as settings:
        settings.write('[retention]\nolder_than = "90d"\n')
    line = "Deletes at each start and once a day: batches with no new message for 90 days."
    assert f"ok    retention: {line}" in segue("doctor").stdout


@pytest.mark.parametrize(
    ("version", "outcome", "code"), [(1, "warn", 0), (99, "fail", 1)], ids=["older", "newer"]
)
def test_another_schema_is_told_and_not_changed(
    segue: Segue, tmp_path: Path, version: int, outcome: str, code: int
) -> None:
    """An older one is brought up to date by the next start, a newer one needs a newer Segue."""
    write_config(tmp_path)
    segue("keys", "create", "laptop")
    with closing(sqlite3.connect(tmp_path / "segue-data" / "journal.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        assert outcomes(segue)[0] == code
        assert outcomes(segue)[1]["migrations"] == outcome
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def test_the_documentation_shows_the_schema_of_today(segue: Segue, tmp_path: Path) -> None:
    """Its example is compared with what a new database has."""
    write_config(tmp_path)
    segue("keys", "create", "laptop")
    [line] = [line for line in segue("doctor").stdout.splitlines() if "migrations:" in line]
    shown = Path(__file__).parents[2] / "docs" / "cli.md"
    assert line in shown.read_text(encoding="utf-8").splitlines()


def test_a_clock_that_is_behind(segue: Segue, tmp_path: Path) -> None:
    """What is stored is from the future: timers would go by a wrong clock."""
    write_config(tmp_path)
    future = datetime(2040, 1, 1, tzinfo=UTC)
    ids = SnowflakeGenerator(1, clock=lambda: int(future.timestamp() * 1000))

    async def store() -> None:
        async with open_journal(Settings(), make=True) as journal:
            await journal.threads.create("t", agent_id="ada", user_id="me", now=future)
            await journal.messages.import_messages("t", stamp([user_message("Hi")], ids))

    asyncio.run(store())
    result = segue("doctor")
    assert result.exit_code == 1
    assert "FAIL  clock:" in result.stdout
    assert "2040-01-01" in result.stdout


@pytest.mark.parametrize(
    ("config", "name", "outcome", "words"),
    [
        ("model = 'openai:gpt-4o-mini'", "model of ada", "fail", "set OPENAI_API_KEY"),
        ("model = 'nobody:x'", "model of ada", "fail", "no provider 'nobody'"),
        ("graph = 'nowhere:graph'", "graph of ada", "fail", "nowhere"),
        ("graph = 'json:__name__'", "graph of ada", "fail", "graph is str"),
        (f"graph = '{GRAPHS}:with_checkpointer'", "graph of ada", "warn", "InMemorySaver"),
        ("memory.embedder = 'openai:x'", "embedder of ada", "fail", "set OPENAI_API_KEY"),
        ("model = 'scripted'", "model of ada", "warn", "by rules"),
        ("tools = ['nowhere:tool']", "tools of ada", "fail", "nowhere"),
        ("autonomy.decider = 'nowhere:decide'", "tools of ada", "fail", "nowhere"),
        ("autonomy.decider = 'model'", "settings of ada", "fail", "decider: The local model"),
        ("autonomy.decider = 'json:JSONDecoder'", "settings of ada", "fail", "decider is <class"),
        (
            "compression.model = 'nobody:x'",
            "settings of ada",
            "fail",
            "compression.model: There is no",
        ),
        ("context_tokens = 900", "settings of ada", "fail", "memory.max_tokens is 500"),
        (
            "graph = 'x:y'\nmay_ask = ['ada']",
            "settings",
            "fail",
            "may_ask: the agent has its own graph",
        ),
        ("graph = 'x:y'\nlimits.tool_time = '5s'", "settings", "fail", "limits.tool_time: the"),
        ("graph = 'x:y'\nmemory.limit = 3", "settings", "fail", "unless memory.enabled is set"),
        (OWN_MEMORY, "embedder of ada", "fail", "set OPENAI_API_KEY"),
        ("modl = 'scripted'", "settings", "fail", "did you mean model?"),
    ],
)
def test_what_is_wrong_with_an_agent_is_named(
    segue: Segue, tmp_path: Path, config: str, name: str, outcome: str, words: str
) -> None:
    """A key, a package or a name that is missing, before anybody talks with it."""
    (tmp_path / "segue.toml").write_text(f"[agents.ada]\n{config}\n", encoding="utf-8")
    result = segue("doctor", "--json")
    [check] = [check for check in json.loads(result.stdout) if check["name"] == name]
    assert check["outcome"] == outcome
    assert words in check["detail"]
    assert "?." not in check["detail"]
    assert check["fix"]
    assert result.exit_code == (1 if outcome == "fail" else 0)


def test_what_keeps_the_server_from_starting_is_found(segue: Segue, tmp_path: Path) -> None:
    """Its own section, and webhooks that cannot be sent to."""
    path = write_config(tmp_path)
    agent = path.read_text(encoding="utf-8")
    path.write_text(f'{agent}[server]\nport = "x"\n', encoding="utf-8")
    assert outcomes(segue) == (1, {"settings": "fail"})
    for webhook in ('url = "127.0.0.1/hook"\nsecret = "long enough a secret"', _SHORT):
        path.write_text(f"{agent}[agents.ada.webhook]\n{webhook}\n", encoding="utf-8")
        code, found = outcomes(segue)
        assert (code, found["settings"], found["webhook of ada"]) == (1, "ok", "fail")


def test_each_mistake_of_the_settings_has_a_line(segue: Segue, tmp_path: Path) -> None:
    """With its place; what to do stands once, below the last."""
    (tmp_path / "segue.toml").write_text("slots = 0\nretries = -1\n", encoding="utf-8")
    result = segue("doctor")
    assert result.exit_code == 1
    first, second, fix = result.stdout.splitlines()
    assert first.startswith("FAIL  settings: segue.toml: slots: ")
    assert second.startswith("FAIL  settings: segue.toml: retries: ")
    assert fix == "      docs/settings.md lists all settings."


def test_addresses_are_tried_only_on_request(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers is ok and one that does not fails; without `--live` neither is called."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # and does not listen
        alive, gone = (f"127.0.0.1:{each.getsockname()[1]}" for each in (server, dead))
        (tmp_path / "segue.toml").write_text(
            f"""
            [agents.ada]
            model = "openai:gpt-4o-mini"
            model_settings.base_url = "http://{gone}/v1"
            memory.enabled = false
            webhook.url = "http://{alive}/hook"
            webhook.secret = "long enough a secret"
            """,
            encoding="utf-8",
        )
        code, found = outcomes(segue)
        assert (code, found["model of ada"], found["webhook of ada"]) == (0, "ok", "ok")
        assert not any(name.endswith("live") for name in found)
        code, found = outcomes(segue, "--live")
        assert (code, found["model of ada, live"]) == (1, "fail")
        assert found["webhook of ada, live"] == "ok"
        assert f"{gone} does not answer" in segue("doctor", "--live").stdout


def test_the_channels_that_a_graph_keeps_are_listed(segue: Segue, tmp_path: Path) -> None:
    config = f"[agents.ada]\ngraph = '{GRAPHS}:commands'\n"
    (tmp_path / "segue.toml").write_text(config, encoding="utf-8")
    [check] = [c for c in json.loads(segue("doctor", "--json").stdout) if "graph of" in c["name"]]
    assert check["outcome"] == "ok"
    assert "It keeps from turn to turn, beside its messages: notes." in check["detail"]


@pytest.mark.anyio
async def test_code_beside_the_settings_is_found(tmp_path: Path) -> None:
    """Tools, deciders and graphs may be modules of the working directory; those that are
    installed are not hidden by them.
    """
    (tmp_path / "segue.toml").write_text(OWN_CODE, encoding="utf-8")
    (tmp_path / "own_code.py").write_text(
        "def count(words: str) -> int:\n"
        '    """Count words."""\n'
        "    return len(words.split())\n"
        "def decide(*_):\n"
        "    return None\n",
        encoding="utf-8",
    )
    (tmp_path / "fastapi.py").write_text('raise SystemExit("Mine!")\n', encoding="utf-8")
    async with running(tmp_path, "doctor", "--json") as doctor:
        assert await doctor.ended() == 0, doctor.complained
        found = {check["name"]: check for check in json.loads(doctor.printed)}
    assert found["tools of ada"]["outcome"] == "ok"
    assert "count" in found["tools of ada"]["detail"]


def test_missing_time_zones_are_found(
    segue: Segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without them cannot keep quiet hours."""
    write_config(tmp_path)

    def nowhere(name: str) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr("segue.cli.doctor.zoneinfo.ZoneInfo", nowhere)
    code, found = outcomes(segue)
    assert (code, found["time zones"]) == (1, "fail")


def test_the_tools_of_mcp_servers_are_listed(segue: Segue, tmp_path: Path) -> None:
    """By name; a server that cannot be started fails, with the reason."""
    server = Path(__file__).parents[1] / "agent" / "mcp_server.py"
    path = write_config(tmp_path)
    more = f"""
        [agents.ada.mcp.notes]
        command = "{sys.executable}"
        args = ["-I", "-S", "{server}", "polite", "{tmp_path}"]
        connect_time = "100s"
        [agents.ada.mcp.gone]
        command = "no-such-program"
        """
    path.write_text(path.read_text() + more)
    result = segue("doctor")
    assert result.exit_code == 1
    assert "ok    mcp server notes of ada: Tools: notes__read." in result.stdout
    missing = (
        "FAIL  mcp server gone of ada: There is no program 'no-such-program'; is it installed?"
    )
    assert missing in result.stdout
