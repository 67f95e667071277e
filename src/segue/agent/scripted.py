"""A chat model that answers from a script: for tests, and for a demo without a key.

It streams as providers do, with tool calls and usage, and keeps its requests, so that a test can
check what a model would have got. It ignores tools: the script decides.
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

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation

from segue.core.calls import calls_of
from segue.core.tokens import estimate_tokens
from segue.errors import UsageError

Reply = AIMessage | str | BaseException
# With an async function a test can delay a reply until something else has happened.
Answer = Callable[[list[BaseMessage]], Reply | Awaitable[Reply]]
Line = Reply | Answer
Script = Sequence[Line] | Answer

_WORDS: Final = re.compile(r"\S+\s*|\s+")


class ScriptedChatModel(BaseChatModel):
    """Answers each request with the next line of its script, or by a function of the messages.

    A line is a message, a text, an error to raise, or a function that makes one of these from
    the messages; a function as the whole script answers without end. Parallel requests take their
    lines in the order of arrival. `UsageError` when no line is left.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    # Checked below: pydantic would turn every text into a message.
    script: SkipValidation[Script]
    # Seconds before each piece of a reply.
    delay: Annotated[float, Field(ge=0)] = 0.0
    # Number of requests that `seen` keeps; None means all.
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
        """The tools that were bound last."""
        return list(self._tools)

    @property
    def _llm_type(self) -> str:
        return "segue-scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Self:
        """The model itself: its script says what it calls."""
        self._tools = list(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
        reply = self._reply(messages)
        time.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
        reply = await self._areply(messages)
        await asyncio.sleep(self.delay * len(_pieces(reply)))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **_options: Any
    ) -> Iterator[ChatGenerationChunk]:
        for piece in _pieces(self._reply(messages)):
            time.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **_options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in _pieces(await self._areply(messages)):
            # Even without a delay, so that a reply can be cancelled and others can run.
            await asyncio.sleep(self.delay)
            yield ChatGenerationChunk(message=piece)

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        reply = line(list(messages)) if callable(line) else line
        if inspect.isawaitable(reply):
            raise UsageError("A line that is an async function needs ainvoke or astream.")
        return _complete(reply, messages)

    async def _areply(self, messages: list[BaseMessage]) -> AIMessage:
        line = self._next_line(messages)
        reply = line(list(messages)) if callable(line) else line
        return _complete(await reply if inspect.isawaitable(reply) else reply, messages)

    def _next_line(self, messages: list[BaseMessage]) -> Line:
        with self._lock:
            self._requests.append(list(messages))
            if callable(self.script):
                return self.script
            if self._taken == len(self.script):
                raise UsageError(
                    f"The script has {self._taken} lines and all are used; the model was asked "
                    "once more. Add a line, or give it a function as its script."
                )
            self._taken += 1
            return self.script[self._taken - 1]


def _check_reply(reply: object) -> Reply:
    if isinstance(reply, AIMessage | str | BaseException):
        return reply
    raise UsageError(
        f"A line of a script is {type(reply).__name__}; expected an AIMessage, a text, an error, "
        "or a function that returns one of these."
    )


def _complete(given: object, messages: list[BaseMessage]) -> AIMessage:
    """The reply as a message with its metadata and usage; raises a line that is an error."""
    reply = _check_reply(given)
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, str):
        reply = AIMessage(reply)
    reason = "tool_calls" if calls_of(reply) else "stop"
    # A copy, since LangChain sets its id, and the same line may be used twice.
    return reply.model_copy(
        update={
            "response_metadata": {"finish_reason": reason, "model_name": "scripted"}
            | reply.response_metadata,
            "usage_metadata": reply.usage_metadata or _usage(reply, messages),
            "additional_kwargs": dict(reply.additional_kwargs),
        }
    )


def _usage(reply: AIMessage, messages: list[BaseMessage]) -> UsageMetadata:
    read, written = sum(map(estimate_tokens, messages)), estimate_tokens(reply)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _pieces(reply: AIMessage) -> list[AIMessageChunk]:
    """The reply in the chunks that a provider would stream: words, calls, and a last one."""
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
    """First the name, then the arguments, as providers stream them."""
    calls = [(call["name"], json.dumps(call["args"]), call["id"]) for call in reply.tool_calls]
    calls += [(c["name"] or "", c["args"] or "", c["id"]) for c in reply.invalid_tool_calls]
    for index, (name, args, call_id) in enumerate(calls):
        yield tool_call_chunk(name=name, args="", id=call_id, index=index)
        yield tool_call_chunk(name=None, args=args, id=None, index=index)
