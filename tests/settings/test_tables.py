"""The page about settings says what the code says, and what it shows works."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from segue import TriggerType
from segue.compose import Overrides, compose
from segue.facade import Segue
from segue.server.settings import ServedSettings
from segue.settings import Settings, load_settings
from segue.simulate.world import START, VirtualClock
from tests.settings.tables import PAGE, make_tables, rewrite

pytestmark = pytest.mark.anyio

SECRET = {"SEGUE_AGENTS__CLERK__WEBHOOK__SECRET": "sixteen characters"}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_tables_are_those_of_the_code() -> None:
    """A page that is old fails; `make docs` writes it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert rewrite(page) == page


def test_every_setting_says_what_it_means() -> None:
    """No row has an empty meaning."""
    rows = [line for line in make_tables().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.split(" | ")[3].strip() == ""] == []


def test_variables_of_named_sections_set_what_they_say(tmp_path: Path) -> None:
    """With the name of a hook or a trigger in the place that the tables show."""
    made = make_tables()
    places = {
        "SEGUE_SERVER__HOOKS__NAME__SECRET": f"whsec_{'QUJD' * 8}",
        "SEGUE_AGENTS__ID__AUTONOMY__TRIGGERS__NAME__PROMPT": "Tell me.",
        "SEGUE_AGENTS__ID__AUTONOMY__TRIGGERS__NAME__DELAY": "5m",
    }
    assert all(f"`{name}`" in made for name in places)
    environ = {name.replace("NAME", "SHOP").replace("ID", "ADA"): v for name, v in places.items()}
    file = tmp_path / "segue.toml"
    file.write_text('[agents.ada]\nmodel = "scripted"\n', encoding="utf-8")
    settings = load_settings(file, environ, kind=ServedSettings)
    assert settings.server.hooks["shop"].secret.get_secret_value() == f"whsec_{'QUJD' * 8}"
    [agent] = settings.agents
    own = agent.autonomy.triggers["shop"]
    assert (own.prompt[0].text, own.delay) == ("Tell me.", timedelta(minutes=5))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of the page's example, with its tool where Python finds it."""
    [file] = blocks("toml")
    [tools] = [block for block in blocks("python") if "def opening_hours" in block]
    (tmp_path / "segue.toml").write_text(file, encoding="utf-8")
    (tmp_path / "shop_tools.py").write_text(tools, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return load_settings(environ=SECRET)


async def test_the_example_runs(shop: Settings) -> None:
    """Its two agents open, with their tool and their prompts, and answer."""
    clock = VirtualClock(START)
    async with compose(shop, Overrides(clock=clock)) as system:
        segue = Segue(system)
        for agent in ("clerk", "gardener"):
            thread = await segue.create_thread("sam", agent)
            await segue.send(thread, "Hello!")
            await clock.advance(shop.collect_for)
            asked, answered = (await segue.history(thread)).messages
            assert (asked.text, answered.type) == ("Hello!", "ai")


def test_the_example_sets_what_it_shows(shop: Settings) -> None:
    """No line of it is without effect: each value differs from its default."""
    clerk, gardener = shop.agents
    default = Settings().agents[0]
    assert (clerk.id, gardener.id) == ("clerk", "gardener")
    for name in ("policy", "delays", "prompts", "missed", "expires_after"):
        assert getattr(clerk.autonomy, name) != getattr(default.autonomy, name)
    variants = clerk.autonomy.prompts[TriggerType.CHECK_IN]
    assert [variant.name for variant in variants] == ["warm", "brief"]
    assert clerk.webhook is not None
    assert clerk.webhook.secret.get_secret_value() == next(iter(SECRET.values()))


def test_the_variables_of_the_page_are_read(shop: Settings) -> None:
    """Those of the example, with what they say."""
    [shown] = blocks("console")
    pairs = re.findall(r"export (\w+)='?([^'\n]+)'?", shown)
    environ = {name: value.replace("gardener,florist", "gardener") for name, value in pairs}
    assert len(environ) == shown.count("export")
    settings = load_settings(environ=environ)
    clerk = settings.agents[0]
    assert settings.is_postgres
    assert settings.poll is None
    assert clerk.autonomy.policy.cooldown.total_seconds() == 45 * 60
    assert clerk.model_settings == {"delay": 0, "temperature": 0}
    assert shop.poll is not None
