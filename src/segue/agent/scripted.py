"""A chat model that says what its script says: for tests, and for a demo without a key.

It streams as providers do, tool calls and usage included, and keeps the requests it got, so a
test can look at what a model would have seen. It never looks at tools: the script decides.
"""

import asyncio
import inspect
import json
import re
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation

from segue.core.calls import calls_of
from segue.core.errors import UsageError
from segue.core.tokens import estimate_tokens

Reply = AIMessage | str | BaseException
# An async function lets a test hold a reply back until something else has happened.
Answer = Callable[[list[BaseMessage]], Reply | Awaitable[Reply]]
Line = Reply | Answer
Script = Sequence[Line] | Answer

_WORDS: Final = re.compile(r"\S+\s*|\s+")


class ScriptedChatModel(BaseChatModel):
    """Answers each request with the next line of its script, or by a function of the messages.

    A line is a message, a text, an error to raise, or a function that makes one of these from
    the messages; a function as the whole script answers for ever. Requests may run in parallel;
    each takes its own line, in the order in which they came. `UsageError` when no line is left.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    # Checked below: pydantic would try to make a message of every text.
    script: SkipValidation[Script]
    # Seconds before each piece of a reply.
    delay: Annotated[float, Field(ge=0)] = 0.0
    # How many of the latest requests `seen` keeps; none means all.
    keep: Annotated[int, Field(ge=0)] | None = None

    _requests: deque[list[BaseMessage]] = PrivateAttr()
    _tools: list[Any] = PrivateAttr(default_factory=list)
    _taken: int = PrivateAttr(default=0)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._requests = deque(maxlen=self.keep)
        lines = [self.script] if callable(self.script) else self.script
        if isinstance(lines, str) or not isinstance(lines, Sequence):
            raise UsageError(f"A script is a list of lines, not {type(lines).__name__}.")
        for line in lines:
            if not callable(line):
                _check_reply(line)

    @property
    def seen(self) -> list[list[BaseMessage]]:
        """The messages of each request, oldest first."""
        with self._lock:
            return list(self._requests)

    @property
    def tools(self) -> list[Any]:
        """What was bound last."""
        return list(self._tools)

    @property
    def _llm_type(self) -> str:
        return "segue-scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """The model itself: what it calls is in its script."""
        del tool_choice, kwargs
        self._tools = list(tools)
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  # a script knows where it stops
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  # the caller tells it
        **kwargs: Any,  # noqa: ARG002
    ) -> ChatResult:
        reply = self._reply(messages)
        time.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> ChatResult:
        reply = await self._areply(messages)
        await asyncio.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> Iterator[ChatGenerationChunk]:
        for piece in _pieces(self._reply(messages)):
            time.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in _pieces(await self._areply(messages)):
            # Even without a delay: a reply can be cancelled, and others go on meanwhile.
            await asyncio.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        said = line(list(messages)) if callable(line) else line
        if inspect.isawaitable(said):
            raise UsageError("A line that is an async function needs ainvoke or astream.")
        return _finished(said, messages)

    async def _areply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        said = line(list(messages)) if callable(line) else line
        return _finished(await said if inspect.isawaitable(said) else said, messages)

    def _next_line(self, messages: list[BaseMessage]) -> Line:
        with self._lock:
            self._requests.append(list(messages))
            if callable(self.script):
                return self.script
            if self._taken == len(self.script):
                raise UsageError(
                    f"The script has {self._taken} lines and all are spoken; the model was asked "
                    "once more. Give it another line, or a function that answers for ever."
                )
            self._taken += 1
            return self.script[self._taken - 1]


def _check_reply(said: object) -> Reply:
    if isinstance(said, AIMessage | str | BaseException):
        return said
    raise UsageError(
        f"A line of a script is {type(said).__name__}; expected an AIMessage, a text, an error, "
        "or a function that returns one of these."
    )


def _finished(said: object, messages: list[BaseMessage]) -> AIMessage:
    """The reply as a message of its own, with what it costs; raises a line that is an error."""
    said = _check_reply(said)
    if isinstance(said, BaseException):
        raise said
    if isinstance(said, str):
        said = AIMessage(said)
    reason = "tool_calls" if calls_of(said) else "stop"
    metadata = {"finish_reason": reason, "model_name": "scripted"} | said.response_metadata
    usage = said.usage_metadata or _usage(said, messages)
    # A copy, since LangChain gives it an id, and the same line may be spoken twice.
    kwargs = dict(said.additional_kwargs)
    return said.model_copy(
        update={
            "response_metadata": metadata,
            "usage_metadata": usage,
            "additional_kwargs": kwargs,
        }
    )


def _usage(reply: AIMessage, messages: list[BaseMessage]) -> UsageMetadata:
    read, written = sum(map(estimate_tokens, messages)), estimate_tokens(reply)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _pieces(reply: AIMessage) -> list[AIMessageChunk]:
    """The reply in the pieces that a provider would stream: words, calls, and a closing one."""
    content = reply.content
    texts: list[Any] = _WORDS.findall(content) if isinstance(content, str) else [content]
    pieces = [AIMessageChunk(content=text, id=reply.id) for text in texts]
    pieces += [
        AIMessageChunk(content="", id=reply.id, tool_call_chunks=[chunk])
        for chunk in _call_chunks(reply)
    ]
    closing = AIMessageChunk(
        content="" if isinstance(content, str) else [],
        id=reply.id,
        name=reply.name,
        additional_kwargs=reply.additional_kwargs,
        response_metadata=reply.response_metadata,
        usage_metadata=reply.usage_metadata,
        chunk_position="last",
    )
    return [*pieces, closing]


def _call_chunks(reply: AIMessage) -> Iterator[ToolCallChunk]:
    """Name first, arguments after: whoever reads a stream has to put them together."""
    calls = [(call["name"], json.dumps(call["args"]), call["id"]) for call in reply.tool_calls]
    calls += [(c["name"] or "", c["args"] or "", c["id"]) for c in reply.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate(calls):
        yield tool_call_chunk(name=name, args="", id=call_id, index=index)
        yield tool_call_chunk(name=None, args=args, id=None, index=index)
