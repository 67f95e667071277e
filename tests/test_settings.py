"""Settings of a running Segue: defaults that work, and errors that name what is wrong."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from segue.core.errors import UsageError
from segue.runtime.inbox import DoubleTexting
from segue.settings import Settings
from segue.testing.world import Stage

pytestmark = pytest.mark.anyio

SECRET = "a secret for one test"  # noqa: S105  # it opens nothing
HOOK = {"url": "https://example.org/", "secret": SECRET}
TWINS = [{"id": "ada", "webhook": HOOK}, {"id": "ada"}]

BAD = [
    ({"slots": 0}, "settings.slots: .*greater than or equal to 1"),
    ({"slots": "many"}, "settings.slots: .*valid integer"),
    ({"max_attempts": 0}, "settings.max_attempts: .*greater than or equal to 1"),
    ({"retries": -1}, "settings.retries: .*greater than or equal to 0"),
    ({"double_texting": "shout"}, "settings.double_texting: .*'enqueue', 'interrupt'"),
    ({"poll": 0}, "settings.poll: .*greater than 0"),
    ({"collect_for": 0}, "settings.collect_for: .*greater than 0"),
    ({"lease_for": 0}, "settings.lease_for: .*greater than 0"),
    ({"lease_for": "soon"}, "settings.lease_for: .*valid timedelta"),
    ({"batch_time": -5}, "settings.batch_time: .*greater than 0"),
    ({"node_lease_for": 0}, "settings.node_lease_for: .*greater than 0"),
    ({"patience": -1}, "settings.patience: .*greater than or equal to 0"),
    ({"database": 5}, "settings.database: .*valid string"),
    ({"databse": "here"}, "settings.databse: Extra inputs are not permitted"),
    ({"agents": 5}, "settings.agents: "),
    ({"agents": []}, "agents: there is none; give at least one"),
    ({"agents": TWINS}, "agents: two have the same id: ada, ada"),
    (
        {"agents": [{"id": "ada", "may_ask": ["bob"]}]},
        "agents.ada.may_ask: there is no agent 'bob'",
    ),
    ({"agents": [{"id": "ada", "mode": "x"}]}, "settings.agents.0.mode: Extra inputs"),
    ({"agents": [{"id": ""}]}, "settings.agents.0.id: "),
    ({"agents": [{"id": "ada", "webhook": {"url": "x"}}]}, "agents.0.webhook.secret: Field requir"),
    (
        {"agents": [{"id": "ada", "autonomy": {"decider": "x"}}]},
        "autonomy.decider: There is no dec",
    ),
]


@pytest.mark.parametrize(("values", "said"), BAD)
def test_a_setting_that_cannot_be_meant_is_refused_by_its_name(
    values: dict[str, Any], said: str
) -> None:
    """The error says where the mistake is and what was expected, in one line."""
    with pytest.raises(UsageError, match=said) as caught:
        Settings.parse(values, "settings")
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody has to start it five times to get five settings right."""
    with pytest.raises(UsageError, match=r"settings\.slots: .*; settings\.poll: "):
        Settings.parse({"slots": 0, "poll": 0}, "settings")


@pytest.mark.parametrize("values", [values for values, _ in BAD])
def test_an_error_quotes_no_secret(values: dict[str, Any]) -> None:
    """Whatever is wrong beside it, the secret of a webhook is in no message."""
    agents = [*TWINS, *values.get("agents", [])] if values.get("agents") != 5 else TWINS
    given = {**values, "agents": agents}
    with pytest.raises(UsageError) as parsed:
        Settings.parse(given, "settings")
    with pytest.raises(ValidationError) as made:
        Settings(**given)
    for error in (parsed.value, made.value):
        assert SECRET not in str(error)
        assert SECRET not in repr(error)


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


def test_lengths_of_time_are_read_from_numbers_and_texts() -> None:
    """As a file can hold them."""
    settings = Settings.parse({"poll": 3, "lease_for": "PT2M", "patience": 0}, "settings")
    assert (settings.poll, settings.lease_for) == (timedelta(seconds=3), timedelta(minutes=2))
    assert Settings.parse({"poll": None}, "settings").poll is None


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


def test_settings_never_change() -> None:
    """What was checked stays as it was checked."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().slots = 5


async def test_a_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    """The first start needs no preparation."""
    folder = tmp_path / "deep" / "down"
    async with Stage(str(folder)).world():
        assert (folder / "journal.db").exists()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
