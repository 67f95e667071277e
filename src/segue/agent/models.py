"""Chat models by name: the local one, the scripted one, or any that LangChain knows.

A model that cannot be loaded raises a `UsageError` that says what to install, set or write instead,
and never contains a key.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import SecretStr, ValidationError

from segue.agent.local import LocalChatModel
from segue.agent.scripted import ScriptedChatModel, demo_reply
from segue.errors import UsageError
from segue.settings.settings import require_local
from segue.telemetry import count, is_observed

T = TypeVar("T")

_MODEL: Final = "ls_model_name"


def counting_callbacks() -> list[BaseCallbackHandler]:
    """Callbacks for the config of a run; none if metrics are off."""
    return [_ModelCalls()] if is_observed() else []


async def ask_aside(
    model: Runnable[LanguageModelInput, T],
    messages: LanguageModelInput,
    name: str,
    limit: timedelta,
) -> T:
    """Ask a model outside of a conversation, such as for a summary; `TimeoutError` if it is slow.

    Without the callbacks of a run, which would stream the answer to the user.
    """
    config = RunnableConfig(run_name=name, callbacks=counting_callbacks())
    async with asyncio.timeout(limit.total_seconds()):
        return await model.ainvoke(messages, config)


class _ModelCalls(BaseCallbackHandler):
    """Counts each finished model call of one run."""

    # It never blocks; another thread would cost more.
    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self._started: dict[UUID, tuple[float, str | None]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - named by LangChain
        messages: list[list[BaseMessage]],  # noqa: ARG002
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        self._started[run_id] = time.perf_counter(), (metadata or {}).get(_MODEL)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        self._count(run_id, "done", *_tokens(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        self._count(run_id, "failed")

    def _count(self, run_id: UUID, outcome: str, tokens_in: int = 0, tokens_out: int = 0) -> None:
        started, model = self._started.pop(run_id, (time.perf_counter(), None))
        count(
            "model_called",
            outcome=outcome,
            model=model,
            seconds=time.perf_counter() - started,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
        )


def _tokens(response: LLMResult) -> tuple[int, int]:
    """Input and output tokens as the provider counted them."""
    all_made = [g for generations in response.generations for g in generations]
    messages = [g.message for g in all_made if isinstance(g, ChatGeneration)]
    usages = [m.usage_metadata for m in messages if isinstance(m, AIMessage) and m.usage_metadata]
    return sum(u["input_tokens"] for u in usages), sum(u["output_tokens"] for u in usages)


_POSSIBLE: Final = (
    "'local', 'scripted', or 'provider:model' such as 'openai:gpt-4o-mini' or "
    "'anthropic:claude-sonnet-4-5'"
)
_UNKNOWN_PROVIDER: Final = re.compile(r"Unsupported provider.*providers are: (.*)", re.DOTALL)


_KEY_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY\b")
_PACKAGE: Final = re.compile(r"pip install ([\w.-]+\w)")


@contextmanager
def loading(
    what: str, provider: str, describe: Callable[[str, str, Exception], str]
) -> Iterator[None]:
    """Any error of a provider's client is a `UsageError` that says what to do. The client's text
    may quote the settings, so it is never passed on, not even as a cause.
    """
    try:
        yield
    except ImportError as error:
        named = _PACKAGE.search(str(error))
        package = named[1] if named else f"langchain-{provider.replace('_', '-')}"
        raise UsageError(
            f"The {what} needs a package that is not installed: pip install {package}."
        ) from None
    except Exception as error:  # noqa: BLE001 - clients raise any error
        raise UsageError(describe(what, provider, error)) from None


def find_key_variable(error: Exception) -> str | None:
    """The environment variable of the key that a provider's client asks for, if it asks for one."""
    problems = error.errors(include_input=False) if isinstance(error, ValidationError) else []
    text = " ".join(problem["msg"] for problem in problems) or str(error)
    found = _KEY_VARIABLE.search(text)
    return found[0] if found else None


def can_call_tools(model: BaseChatModel) -> bool:
    """False for a model of your own without `bind_tools`: an agent with tools cannot use it."""
    return type(model).bind_tools is not BaseChatModel.bind_tools


def load_model(name: str, settings: Mapping[str, Any]) -> BaseChatModel:
    """The model of that name; `UsageError` if it cannot be loaded."""
    if name == "local":
        require_local()
        return _create(LocalChatModel, name, settings)
    if name == "scripted":
        # It may answer for as long as the process runs, so it keeps no requests.
        return _create(ScriptedChatModel, name, {**settings, "script": demo_reply, "keep": 0})
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise UsageError(f"There is no model {name!r}; a model is {_POSSIBLE}.")
    with loading(f"model {name!r}", provider, _describe):
        loaded: BaseChatModel = init_chat_model(model, model_provider=provider, **settings)
    if variable := _empty_key(loaded, settings):
        raise UsageError(_missing_key(f"model {name!r}", variable))
    return loaded


def _create(model: type[BaseChatModel], name: str, settings: Mapping[str, Any]) -> BaseChatModel:
    try:
        return model(**settings)
    except ValidationError as error:
        raise UsageError(_wrong_settings(f"model {name!r}", error)) from None


def _describe(what: str, provider: str, error: Exception) -> str:
    if unknown := _UNKNOWN_PROVIDER.match(str(error)):
        return (
            f"There is no provider {provider!r} for the {what}; a model is {_POSSIBLE}. "
            f"Providers are: {unknown[1]}."
        )
    if variable := find_key_variable(error):
        return _missing_key(what, variable)
    if isinstance(error, ValidationError):
        return _wrong_settings(what, error)
    return f"The {what} cannot be set up ({type(error).__name__}); check model_settings."


def _missing_key(what: str, variable: str) -> str:
    return (
        f"The {what} needs a key: set {variable} in the environment, or api_key in the agent's "
        "model_settings."
    )


def _wrong_settings(what: str, error: ValidationError) -> str:
    """Which settings are wrong, without their values: one of them may be a key."""
    wrong = []
    for problem in error.errors(include_url=False, include_input=False):
        place = ".".join(["model_settings", *map(str, problem["loc"])])
        # The provider's own validators may quote the value.
        free_text = problem["type"] in {"value_error", "assertion_error"}
        wrong.append(f"{place}: {'is not valid' if free_text else problem['msg']}")
    return f"The {what} cannot be set up: {'; '.join(wrong)}."


def _empty_key(model: BaseChatModel, settings: Mapping[str, Any]) -> str | None:
    """The variable of a missing key that the client did not complain about."""
    if "default_headers" in settings:  # they may carry the credentials
        return None
    for field, variable in model.lc_secrets.items():
        value = getattr(model, field, None)
        if isinstance(value, SecretStr) and not value.get_secret_value():
            return variable
    return None
