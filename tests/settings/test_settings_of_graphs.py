"""For an agent with its own graph, every setting works or is refused, as its guide says."""

import re
from pathlib import Path
from typing import Any

import pytest

from segue.settings.agents import AgentConfig
from tests.stories import graphs

GUIDE = Path(__file__).parents[2] / "docs" / "agent.md"
# A value of each setting that is not its default.
GIVEN: dict[str, Any] = {
    "model": "openai:gpt-4o-mini",
    "model_settings": {"temperature": 0},
    "system_prompt": "You are kind.",
    "tools": ("json:loads",),
    "checkpoint_types": ("shop.types:Basket",),
    "context_tokens": 4_000,
    "memory": {"enabled": True, "limit": 3},
    "limits": {"steps": 9, "state_bytes": 9},
    "autonomy": {"enabled": False},
    "compression": {"model": "scripted"},
    "continuations": 1,
    "may_ask": ("other",),
    "mcp": {"files": {"command": "files"}},
    "webhook": {"url": "https://example.org/hook", "secret": "s" * 32},
}
WITHOUT = {"id", "name", "graph"}


def rows() -> dict[str, str]:
    """The settings of the guide's table, with what it says of each."""
    text = GUIDE.read_text(encoding="utf-8").partition("### Settings\n")[2].partition("\n### ")[0]
    found = re.findall(r"^\| (`.*) \| (.*) \|$", text, re.MULTILINE)
    return {name: says for names, says in found for name in re.findall(r"`([a-z_.*]+)`", names)}


def accepts(**given: Any) -> bool:
    try:
        AgentConfig(id="guide", graph=graphs.commands(), **given)
    except ValueError as error:
        if "own graph" not in str(error):
            raise
        return False
    return True


def test_the_guide_names_every_setting_of_an_agent() -> None:
    named = {name.partition(".")[0] for name in rows()}
    assert named - {"batch_time"} == AgentConfig.model_fields.keys() - WITHOUT == GIVEN.keys()


@pytest.mark.parametrize("name", GIVEN)
def test_a_setting_works_or_is_refused_as_the_guide_says(name: str) -> None:
    says = {key: text for key, text in rows().items() if key.partition(".")[0] == name}
    is_refused = all(text.startswith("refused") for text in says.values())
    assert accepts(**{name: GIVEN[name]}) is not is_refused


@pytest.mark.parametrize(
    "given",
    [
        {"limits": {"model_time": 5}},
        {"limits": {"tool_time": 5}},
        {"memory": {"limit": 3}},
        {"compression": {"enabled": True}},
    ],
    ids=str,
)
def test_parts_of_settings_are_refused_as_the_guide_says(given: dict[str, Any]) -> None:
    assert not accepts(**given)
