"""Chat models by name: the local one, the scripted one, or any that LangChain knows.

What cannot be loaded is a `UsageError` that says what to install, to set or to write instead,
and never holds a key. What a model raises when it is asked is explained by `model_errors`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr, ValidationError

from segue.agent.demo import demo_reply
from segue.agent.local_engine import require_local
from segue.agent.local_model import LocalChatModel
from segue.agent.model_errors import explain_model_error, is_retryable
from segue.agent.scripted import ScriptedChatModel
from segue.core.errors import UsageError

__all__ = ["explain_model_error", "is_retryable", "load_model"]

_POSSIBLE: Final = (
    "'local', 'scripted', or 'provider:model' such as 'openai:gpt-4o-mini' or "
    "'anthropic:claude-sonnet-4-5'"
)
_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY\b")
_PACKAGE: Final = re.compile(r"pip install ([\w.-]+\w)")
_UNKNOWN_PROVIDER: Final = re.compile(r"Unsupported provider.*providers are: (.*)", re.DOTALL)


def load_model(name: str, settings: Mapping[str, Any]) -> BaseChatModel:
    """The model of that name. `UsageError` says what to install, to set or to write instead."""
    if name == "local":
        require_local()
        return _checked(LocalChatModel, name, settings)
    if name == "scripted":
        # It answers for as long as the process runs, so it keeps nothing of what it was asked.
        return _checked(ScriptedChatModel, name, {**settings, "script": demo_reply, "keep": 0})
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise UsageError(f"There is no model {name!r}; a model is {_POSSIBLE}.")
    try:
        loaded: BaseChatModel = init_chat_model(model, model_provider=provider, **settings)
    except ImportError as error:
        raise UsageError(_missing_package(name, provider, error)) from None
    # Providers raise errors of their own here. Their texts may quote the settings, so none is
    # passed on, not even as a cause.
    except Exception as error:  # noqa: BLE001
        raise UsageError(_refused(name, provider, error)) from None
    if variable := _empty_key(loaded, settings):
        raise UsageError(_missing_key(name, variable))
    return loaded


def _checked(model: type[BaseChatModel], name: str, settings: Mapping[str, Any]) -> BaseChatModel:
    try:
        return model(**settings)
    except ValidationError as error:
        raise UsageError(_wrong_settings(name, error)) from None


def _missing_package(name: str, provider: str, error: ImportError) -> str:
    named = _PACKAGE.search(str(error))
    package = named[1] if named else f"langchain-{provider.replace('_', '-')}"
    return f"The model {name!r} needs a package that is not installed: pip install {package}."


def _refused(name: str, provider: str, error: Exception) -> str:
    if unknown := _UNKNOWN_PROVIDER.match(str(error)):
        return (
            f"There is no provider {provider!r} for the model {name!r}; a model is {_POSSIBLE}. "
            f"Providers are: {unknown[1]}."
        )
    problems = error.errors(include_input=False) if isinstance(error, ValidationError) else []
    said = " ".join(problem["msg"] for problem in problems) or str(error)
    if variable := _VARIABLE.search(said):
        return _missing_key(name, variable[0])
    if isinstance(error, ValidationError):
        return _wrong_settings(name, error)
    return f"The model {name!r} cannot be set up ({type(error).__name__}); check model_settings."


def _missing_key(name: str, variable: str) -> str:
    return (
        f"The model {name!r} needs a key: set {variable} in the environment, or api_key in the "
        "agent's model_settings."
    )


def _wrong_settings(name: str, error: ValidationError) -> str:
    """Which settings are wrong, without what they hold: one of them may be a key."""
    wrong = []
    for problem in error.errors(include_url=False, include_input=False):
        place = ".".join(["model_settings", *map(str, problem["loc"])])
        # A validator of the provider's own may quote what it was given.
        free_text = problem["type"] in {"value_error", "assertion_error"}
        wrong.append(f"{place}: {'is not valid' if free_text else problem['msg']}")
    return f"The model {name!r} cannot be set up: {'; '.join(wrong)}."


def _empty_key(model: BaseChatModel, settings: Mapping[str, Any]) -> str | None:
    """The variable of a key that is missing, though the client was made without a complaint."""
    if "default_headers" in settings:  # they may carry the credentials
        return None
    for field, variable in model.lc_secrets.items():
        value = getattr(model, field, None)
        if isinstance(value, SecretStr) and not value.get_secret_value():
            return variable
    return None
