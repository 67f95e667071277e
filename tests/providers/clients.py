"""Real clients of the big providers, wired to a recorder on this machine."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import httpx
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.providers.recorder import REPLY, Recorded, Recorder
from tests.providers.wire import (
    anthropic_problems,
    google_problems,
    openai_problems,
    responses_problems,
)

KEY: Final = SecretStr("no-key-needed")

Making = Callable[[str], AbstractContextManager[BaseChatModel]]


@dataclass(frozen=True)
class Provider:
    connect: Making
    problems: Callable[[dict[str, Any]], list[str]]


@contextmanager
def openai(url: str, model: type[ChatOpenAI] = ChatOpenAI, **more: Any) -> Iterator[ChatOpenAI]:
    # A connection pool of its own: the default one is shared by address and never closed.
    with httpx.Client() as pool:
        yield model(
            model="gpt-recorded",
            base_url=f"{url}/v1",
            api_key=KEY,
            max_retries=0,
            http_client=pool,
            **more,
        )


@contextmanager
def anthropic(url: str) -> Iterator[ChatAnthropic]:
    model = ChatAnthropic(
        model_name="claude-recorded",
        base_url=url,
        api_key=KEY,
        max_retries=0,
        timeout=30,
        stop=None,
    )
    with model._client:
        yield model


@contextmanager
def google(url: str) -> Iterator[ChatGoogleGenerativeAI]:
    # One attempt: the client reads 0 as "as many as Google likes".
    model = ChatGoogleGenerativeAI(
        model="gemini-recorded", base_url=url, api_key=KEY, max_retries=1
    )
    assert model.client is not None
    with model.client:
        yield model


PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "openai": Provider(openai, openai_problems),
        "openai responses": Provider(partial(openai, use_responses_api=True), responses_problems),
        "anthropic": Provider(anthropic, anthropic_problems),
        "google": Provider(google, google_problems),
    }
)


@dataclass(frozen=True)
class Client:
    """One provider's real client, wired to the recorder."""

    model: BaseChatModel
    recorder: Recorder
    problems: Callable[[dict[str, Any]], list[str]]

    def send(self, messages: list[BaseMessage]) -> Recorded:
        self.recorder.take()
        answer = self.model.invoke(messages)
        (request,) = self.recorder.take()
        assert answer.text == REPLY
        return request
