"""What a model's failure means: real clients against a provider that fails in every way."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_google_genai import ChatGoogleGenerativeAI
from langgraph.errors import GraphRecursionError

from segue.agent.models import load_model
from segue.errors import BackendError, UsageError
from segue.runtime.model_failures import ModelFailure, explain_model_error, is_retryable
from tests.agent.failing import FailingProvider

KEY = "sk-very-secret"
WORDS = "my cat is called Minka"

MODELS = {
    "openai:gpt-absent": {"max_retries": 0},
    "anthropic:claude-absent": {"max_retries": 0},
    # One attempt: the client reads 0 as "as many as Google likes".
    "google_genai:gemini-absent": {"max_retries": 1},
}


@pytest.fixture
def provider() -> Iterator[FailingProvider]:
    # At an address of its own: Anthropic's client shares its connections by address.
    with FailingProvider() as running:
        yield running


def raised_by(name: str, url: str, **settings: Any) -> Exception:
    """What the client of a model raises when it is asked."""
    base_url = f"{url}/v1" if name.startswith("openai") else url
    given = {"api_key": KEY, "base_url": base_url, "timeout": 30} | MODELS[name] | settings
    with ExitStack() as closing:
        if name.startswith("openai"):
            # A connection pool of its own: the default one is shared and never closed.
            given["http_client"] = closing.enter_context(httpx.Client())
        model = load_model(name, given)
        close_with(closing, model)
        with pytest.raises(Exception) as caught:  # noqa: PT011  # any: it is what is tested
            model.invoke(WORDS)
    return caught.value


def close_with(closing: ExitStack, model: BaseChatModel) -> None:
    if isinstance(model, ChatAnthropic):
        closing.enter_context(model._client)
    elif isinstance(model, ChatGoogleGenerativeAI):
        assert model.client is not None
        closing.enter_context(model.client)


def explained(error: BaseException) -> ModelFailure:
    failure = explain_model_error(error)
    assert isinstance(failure, ModelFailure)
    assert isinstance(failure, BackendError)
    assert failure.code == "backend"
    assert KEY not in str(failure)
    assert "Minka" not in str(failure)
    assert is_retryable(error) is is_retryable(failure) is failure.retryable
    return failure


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "bad_request", False),
        (401, "authentication", False),
        (403, "permission", False),
        (404, "model_not_found", False),
        (413, "context_overflow", False),
        (418, "bad_request", False),
        (429, "rate_limit", True),
        (500, "server", True),
        (503, "server", True),
        (529, "server", True),
    ],
)
def test_a_refusal_is_told_by_its_status(
    provider: FailingProvider, name: str, status: int, kind: str, retryable: bool
) -> None:
    """Every provider's refusal means the same, and says nothing of the key or the words."""
    provider.answer(status, {"message": f"{KEY}: {WORDS}", "code": status, "status": "X"})
    failure = explained(raised_by(name, provider.url))
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert f"HTTP {status}" in str(failure)
    assert failure.retry_after == (7.0 if retryable else None)


@pytest.mark.parametrize("name", MODELS)
def test_silence_is_a_timeout(provider: FailingProvider, name: str) -> None:
    """A provider that never answers is worth another try."""
    provider.answer(None, {})
    failure = explained(raised_by(name, provider.url, timeout=0.2))
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert "did not answer in time" in str(failure)


@pytest.mark.parametrize("name", MODELS)
def test_an_address_where_nobody_listens_is_a_connection_error(name: str) -> None:
    """A provider that is down or misspelled says what to check."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        failure = explained(raised_by(name, f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert (failure.kind, failure.retryable) == ("connection", True)
    assert "base_url" in str(failure)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "openai:gpt-absent",
            {"message": "This model's maximum is 8192", "code": "context_length_exceeded"},
        ),
        ("anthropic:claude-absent", {"message": "prompt is too long: 9000 > 8192"}),
        (
            "google_genai:gemini-absent",
            {"message": "The input exceeds the maximum number of tokens allowed", "code": 400},
        ),
    ],
)
def test_a_conversation_that_is_too_long_is_told_apart(
    provider: FailingProvider, name: str, error: dict[str, Any]
) -> None:
    """A full window has a cure of its own, which the error names."""
    provider.answer(400, error)
    failure = explained(raised_by(name, provider.url))
    assert (failure.kind, failure.retryable) == ("context_overflow", False)
    assert "context_tokens" in str(failure)


def test_an_account_without_quota_is_not_asked_again(provider: FailingProvider) -> None:
    """OpenAI says 429 for an empty account too; waiting does not fill it."""
    provider.answer(429, {"message": "You exceeded your quota", "code": "insufficient_quota"})
    failure = explained(raised_by("openai:gpt-absent", provider.url))
    assert (failure.kind, failure.retryable) == ("quota", False)


def test_a_wrong_key_of_google_is_told_as_one(provider: FailingProvider) -> None:
    """Google answers 400 where others say 401."""
    provider.answer(400, {"message": "API key not valid.", "code": 400, "status": "INVALID"})
    failure = explained(raised_by("google_genai:gemini-absent", provider.url))
    assert failure.kind == "authentication"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (TimeoutError(WORDS), "timeout", True),
        (ConnectionResetError(WORDS), "connection", True),
        (httpx.RemoteProtocolError(WORDS), "connection", True),
        (GraphRecursionError(WORDS), "unknown", False),
        (KeyError(WORDS), "unknown", False),
    ],
)
def test_other_errors_are_told_too(error: Exception, kind: str, retryable: bool) -> None:
    """Whatever ends a reply, there is a sentence for it that gives nothing away."""
    failure = explained(error)
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert type(error).__name__ in str(failure)


def test_an_error_of_ours_stays_as_it_is() -> None:
    """What Segue raised on purpose already says what to do."""
    error = UsageError("Do it like this.")
    assert explain_model_error(error) is error
    assert not is_retryable(error)


def test_a_date_to_wait_for_is_not_misread() -> None:
    """A `Retry-After` that is not a number of seconds is ignored."""
    answer = httpx.Response(429, headers={"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"})
    request = httpx.Request("POST", "https://example.org")
    failure = explained(httpx.HTTPStatusError("busy", request=request, response=answer))
    assert (failure.kind, failure.retryable, failure.retry_after) == ("rate_limit", True, None)
