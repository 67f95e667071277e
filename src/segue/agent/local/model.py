"""A small chat model that runs in this process: no key, no network, no server.

SmolLM2-135M-Instruct streams, can be cancelled and counts its tokens. It is a tiny model for trying
out: it forgets, repeats itself and calls no tools. For real conversations use a provider's model.
"""

import asyncio
import logging
import queue
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field

from segue.agent.local.engine import ENGINE, Completion, EngineEvent, TextChunk
from segue.errors import SegueError, UsageError

logger = logging.getLogger(__name__)

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
_ROLES: Final[Mapping[type[BaseMessage], str]] = MappingProxyType(
    {HumanMessage: "user", AIMessage: "assistant", SystemMessage: "system"}
)


class LocalChatModel(BaseChatModel):
    """A tiny model for trying out. All instances share one engine, one reply at a time."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    max_tokens: Annotated[int, Field(ge=1)] = 256
    temperature: Annotated[float, Field(ge=0)] = 0.4
    # The same seed and prompt give the same reply; None means a random seed.
    seed: int | None = None

    @property
    def _llm_type(self) -> str:
        return "segue-local"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model_name": MODEL_NAME,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **_: Any) -> Self:
        """The model without the tools, which it cannot call.

        `UsageError` if a call is required, as for structured output.
        """
        if tool_choice not in (None, "auto", "none"):
            raise UsageError(
                f"The local model does not call tools, so it supports neither "
                f"tool_choice={tool_choice!r} nor structured output; use a provider's model."
            )
        if tools:
            _log_that_tools_are_ignored()
        return self

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        return generate_from_stream(self._stream(*args, **options))

    async def _agenerate(self, *args: Any, **options: Any) -> ChatResult:
        chunks = [chunk async for chunk in self._astream(*args, **options)]
        return generate_from_stream(iter(chunks))

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, *_: Any, **options: Any
    ) -> Iterator[ChatGenerationChunk]:
        events: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        generation = ENGINE.submit(self._request(messages, stop, options), events.put)
        try:
            is_done = False
            while not is_done:
                event = events.get()
                is_done = not isinstance(event, TextChunk)
                yield _chunk(event)
        finally:
            ENGINE.cancel(generation)

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, *_: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(event: EngineEvent) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        generation = ENGINE.submit(self._request(messages, stop, options), put)
        try:
            is_done = False
            while not is_done:
                event = await events.get()
                is_done = not isinstance(event, TextChunk)
                yield _chunk(event)
        finally:
            # Also reached if the reader is cancelled or stops early.
            ENGINE.cancel(generation)

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        settings = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        settings |= {key: given[key] for key in ("max_tokens", "temperature") if key in given}
        seed = given.get("seed", self.seed)
        return {
            "messages": [turn for m in messages if (turn := _as_request(m)) is not None],
            "stop": stop or [],
            # Without it small models repeat themselves.
            "repeat_penalty": 1.1,
            **settings,
            **({} if seed is None else {"seed": seed}),
        }


@cache
def _log_that_tools_are_ignored() -> None:
    """Once per process: agents bind their tools again at every call."""
    logger.info("The local model is a tiny model for trying out; it does not call tools.")


def _as_request(message: BaseMessage) -> dict[str, str] | None:
    """The role and text of a message; None for tool results and messages without text."""
    role = next((role for kind, role in _ROLES.items() if isinstance(message, kind)), None)
    return {"role": role, "content": message.text} if role and message.text else None


def _chunk(event: EngineEvent) -> ChatGenerationChunk:
    match event:
        case TextChunk(text):
            message = AIMessageChunk(content=text)
        case Completion():
            message = AIMessageChunk(
                content="",
                usage_metadata=_usage(event),
                response_metadata={"finish_reason": event.reason, "model_name": MODEL_NAME},
                chunk_position="last",
            )
        case SegueError():
            raise event
    return ChatGenerationChunk(message=message)


def _usage(completion: Completion) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        total_tokens=completion.input_tokens + completion.output_tokens,
        input_token_details=InputTokenDetails(cache_read=completion.cached_tokens),
    )
