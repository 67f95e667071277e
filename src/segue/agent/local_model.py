"""A small chat model that runs in this process: no key, no network, no server.

SmolLM2-135M-Instruct streams, stops when it is told to and counts its tokens, so everything
around a model can be tried. It is a tiny model for trying out: it forgets, repeats itself and
calls no tools. For real conversations name a model of a provider.
"""

import asyncio
import logging
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
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
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field

from segue.agent.local_engine import ENGINE, Ended, Outcome, Piece
from segue.core.errors import SegueError, UsageError

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
    # The same seed and the same prompt give the same reply; none means a new one each time.
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

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """The model itself, without the tools: agents bind them always, and it calls none.

        `UsageError` where a call is demanded, as it is for structured output.
        """
        del kwargs
        if tool_choice not in (None, "auto", "none"):
            raise UsageError(
                f"The local model does not call tools, so tool_choice={tool_choice!r} and "
                "structured output cannot be had from it; use a model of a provider."
            )
        if tools:
            _say_that_tools_are_ignored()
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        chunks = [chunk async for chunk in self._astream(messages, stop, run_manager, **kwargs)]
        return generate_from_stream(iter(chunks))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  # the caller tells it
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        generation = ENGINE.submit(self._request(messages, stop, kwargs), outcomes.put)
        try:
            ended = False
            while not ended:
                outcome = outcomes.get()
                ended = not isinstance(outcome, Piece)
                yield _chunk(outcome)
        finally:
            ENGINE.cancel(generation)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002  # as above
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(outcome: Outcome) -> None:
            loop.call_soon_threadsafe(outcomes.put_nowait, outcome)

        generation = ENGINE.submit(self._request(messages, stop, kwargs), tell)
        try:
            ended = False
            while not ended:
                outcome = await outcomes.get()
                ended = not isinstance(outcome, Piece)
                yield _chunk(outcome)
        finally:
            # Reached when the reply is whole, and when its reader is cancelled or walks away.
            ENGINE.cancel(generation)

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        settings = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        settings |= {key: given[key] for key in ("max_tokens", "temperature") if key in given}
        seed = given.get("seed", self.seed)
        return {
            "messages": [told for m in messages if (told := _told(m)) is not None],
            "stop": stop or [],
            # Small models fall into a loop without it.
            "repeat_penalty": 1.1,
            **settings,
            **({} if seed is None else {"seed": seed}),
        }


@cache
def _say_that_tools_are_ignored() -> None:
    """Once per process: agents bind their tools again at every call."""
    logger.info("The local model is a tiny model for trying out; it does not call tools.")


def _told(message: BaseMessage) -> dict[str, str] | None:
    """A message in the model's words. It knows no tools and no pictures: only text is told."""
    role = next((role for kind, role in _ROLES.items() if isinstance(message, kind)), None)
    return {"role": role, "content": message.text} if role and message.text else None


def _chunk(outcome: Outcome) -> ChatGenerationChunk:
    match outcome:
        case Piece(text):
            message = AIMessageChunk(content=text)
        case Ended():
            message = AIMessageChunk(
                content="",
                usage_metadata=_usage(outcome),
                response_metadata={"finish_reason": outcome.reason, "model_name": MODEL_NAME},
                chunk_position="last",
            )
        case SegueError():
            raise outcome
    return ChatGenerationChunk(message=message)


def _usage(ended: Ended) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=ended.input_tokens,
        output_tokens=ended.output_tokens,
        total_tokens=ended.input_tokens + ended.output_tokens,
        input_token_details=InputTokenDetails(cache_read=ended.cached_tokens),
    )
