"""A small chat model that runs in this process: no key, no network, no server.

SmolLM2-135M-Instruct streams, can be cancelled and counts its tokens. It is a tiny model for trying
Segue out: it forgets, repeats itself and calls no tools. For real conversations use a provider's
model.

`LocalEngine` holds the weights. One thread generates for the whole process, one request at a time,
in order, and calls the request's listener. No network port is open. `LocalChatModel` adapts that to
LangChain and event loops.
"""

import asyncio
import atexit
import logging
import os
import queue
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
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

from segue.errors import BackendError, SegueError, UsageError
from segue.settings.settings import LOCAL_ENGINE, LOCAL_MODEL_NOTE, require_local

logger = logging.getLogger(__name__)

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
CONTEXT_TOKENS: Final = 8192
# A prompt is read in steps of this size, and a request can be cancelled only between two steps. On
# a CPU small steps are nearly as fast as large ones.
_STEP_TOKENS: Final = 8
# Size of the cache of prompts that were already read.
_PROMPT_CACHE_MIB: Final = 256
# Some systems allow 104 bytes for the path of a Unix socket.
_LONGEST_SOCKET_PATH: Final = 100
_CLOSING_SECONDS: Final = 5.0
_SETTINGS: Final = ("max_tokens", "temperature", "seed")
_ROLES: Final[Mapping[type[BaseMessage], str]] = {
    HumanMessage: "user",
    AIMessage: "assistant",
    SystemMessage: "system",
}


# The last chunk has `chunk_position="last"`.
EngineEvent = AIMessageChunk | SegueError
Listener = Callable[[EngineEvent], None]


@dataclass(eq=False, slots=True)
class Generation:
    """A request; its listener gets chunks, or an error in the end, unless cancelled."""

    request: dict[str, Any]
    listener: Listener
    cancelled: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False
    reason: str = "stop"

    def parse(self, event: dict[str, Any]) -> Iterator[EngineEvent]:
        """An event of the engine, which has the format of OpenAI's chat stream."""
        if error := event.get("error"):
            self.is_done = True
            yield _refused(error)
        for choice in event.get("choices", ()):
            self.reason = choice.get("finish_reason") or self.reason
            if text := choice["delta"].get("content"):
                yield AIMessageChunk(content=text)
        if usage := event.get("usage"):
            self.is_done = True
            yield AIMessageChunk(
                content="",
                usage_metadata=_usage(usage),
                response_metadata={"finish_reason": self.reason, "model_name": MODEL_NAME},
                chunk_position="last",
            )


class LocalEngine:
    """Loads the weights at the first request, and serves requests in order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Generation] = deque()
        self._closing = threading.Event()
        self._worker: threading.Thread | None = None
        self._server: Any = None

    def submit(self, request: dict[str, Any], listener: Listener) -> Generation:
        """Queue a request in the format of OpenAI's chat API."""
        generation = Generation(request, listener)
        with self._changed:
            self._queue.append(generation)
            self._changed.notify()
            if self._worker is None:
                # A daemon, so that an idle engine does not block the exit. A busy one must stop
                # before the interpreter does, since it calls back into it.
                atexit.register(self.close)
                self._worker = threading.Thread(target=self._work, name=LOCAL_ENGINE, daemon=True)
                self._worker.start()
        return generation

    def cancel(self, generation: Generation) -> None:
        """Remove from the queue, or stop at the next token; no effect on a finished request."""
        generation.cancelled.set()
        with self._changed:
            if generation in self._queue:
                self._queue.remove(generation)

    def close(self) -> None:
        """Stop the running request, fail the waiting ones, and free the memory."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
            worker = self._worker
        if worker is not None:
            worker.join(_CLOSING_SECONDS)
        atexit.unregister(self.close)
        with self._changed:
            waiting = list(self._queue)
            self._queue.clear()
            self._server = self._worker = None
            self._closing.clear()
        for generation in waiting:
            _notify(generation, BackendError("The local model was closed."))

    def _work(self) -> None:
        while (generation := self._take()) is not None:
            try:
                self._generate(generation)
            except SegueError as error:
                _notify(generation, error)
            except Exception as error:  # noqa: BLE001  # others wait in the queue
                logger.warning("The local model failed: %s", type(error).__name__)
                _notify(generation, BackendError(f"The local model failed: {error}"))

    def _take(self) -> Generation | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            return None if self._closing.is_set() else self._queue.popleft()

    def _generate(self, generation: Generation) -> None:
        if self._server is None:
            self._server = _load()

        def on_event(event: dict[str, Any]) -> bool:
            """Called for each step of the prompt and each token; true means stop."""
            if generation.cancelled.is_set() or self._closing.is_set():
                return True
            for parsed in generation.parse(event):
                _notify(generation, parsed)
            return False

        self._server.handle_chat_completions(
            {
                **generation.request,
                "stream": True,
                "stream_options": {"include_usage": True},
                # Calls `on_event` while the prompt is read, so that it can be cancelled.
                "return_progress": True,
            },
            on_event,
        )
        # The engine swallows errors of the callback; the caller must still get an end.
        if not generation.is_done and not generation.cancelled.is_set():
            raise BackendError("The local model stopped before the end of its reply.")


def _usage(usage: dict[str, Any]) -> UsageMetadata:
    read, written = usage["prompt_tokens"], usage["completion_tokens"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return UsageMetadata(
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        input_token_details=InputTokenDetails(cache_read=cached),
    )


def _notify(generation: Generation, event: EngineEvent) -> None:
    try:
        generation.listener(event)
    except Exception:  # noqa: BLE001  # the caller's event loop may be closed
        generation.cancelled.set()


def _refused(error: dict[str, Any]) -> SegueError:
    if "n_prompt_tokens" in error:
        return UsageError(
            f"The prompt has {error['n_prompt_tokens']} tokens and the local model reads "
            f"{error['n_ctx']} at most; shorten it, or lower the agent's context_tokens."
        )
    return BackendError(f"The local model refused the request: {error.get('message', error)}")


def _load() -> Any:
    """Load the weights. Blocks the interpreter for most of a second."""
    file = require_local()
    started = time.perf_counter()
    engine = import_module(LOCAL_ENGINE)
    params = engine.CommonParams()
    params.model.path = str(file)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _STEP_TOKENS
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    # One core stays free: the threads wait for each other by spinning, so one that shares its core
    # would slow down all.
    threads = max(1, (os.cpu_count() or 1) - 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # An assistant's message at the end is history, not the start of the reply.
    params.prefill_assistant = False
    params.verbosity = -1
    server = _without_network(engine, params)
    logger.info(
        "Loaded SmolLM2-135M in %.1f s: %s.", time.perf_counter() - started, LOCAL_MODEL_NOTE
    )
    return server


def _without_network(engine: Any, params: Any) -> Any:
    """Start the engine on a private socket, since it always listens on one."""
    params.ui = params.endpoint_slots = False
    params.n_threads_http = 1
    params.api_keys = [secrets.token_urlsafe()]
    # The socket's folder is deleted as soon as the engine has started.
    with tempfile.TemporaryDirectory(prefix="segue-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "engine.sock")
        if os.name == "posix" and len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            params.hostnames = [path]
        else:
            params.hostnames, params.port = ["127.0.0.1"], 0
        try:
            return engine.Server(params)
        except RuntimeError as error:
            raise BackendError(f"The local model cannot be loaded: {error}") from error


ENGINE: Final = LocalEngine()


class LocalChatModel(BaseChatModel):
    """A tiny model for trying Segue out. All instances share one engine, one reply at a time."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    max_tokens: Annotated[int, Field(ge=1)] = 256
    # Lower ones repeat the last reply as a follow-up, word for word.
    temperature: Annotated[float, Field(ge=0)] = 0.4
    # The same seed and prompt give the same reply; None means a random seed.
    seed: int | None = None

    @property
    def _llm_type(self) -> str:
        return "segue-local"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": MODEL_NAME, **self.model_dump(include={*_SETTINGS})}

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **_: Any) -> Self:
        """The model itself; `UsageError` if a call is required, as for structured output."""
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
        return await agenerate_from_stream(self._astream(*args, **options))

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, *_: Any, **options: Any
    ) -> Iterator[ChatGenerationChunk]:
        events: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        generation = ENGINE.submit(self._request(messages, stop, options), events.put)
        try:
            chunk = AIMessageChunk(content="")
            while chunk.chunk_position != "last":
                chunk = _chunk_of(events.get())
                yield ChatGenerationChunk(message=chunk)
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
            chunk = AIMessageChunk(content="")
            while chunk.chunk_position != "last":
                chunk = _chunk_of(await events.get())
                yield ChatGenerationChunk(message=chunk)
        finally:
            # Also reached if the reader is cancelled or stops early.
            ENGINE.cancel(generation)

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        settings = {name: given.get(name, getattr(self, name)) for name in _SETTINGS}
        return {
            "messages": [turn for m in messages if (turn := _as_request(m)) is not None],
            "stop": stop or [],
            # Without it small models repeat themselves.
            "repeat_penalty": 1.1,
            "top_p": 0.9,
            **{name: value for name, value in settings.items() if value is not None},
        }


@cache
def _log_that_tools_are_ignored() -> None:
    """Once per process: agents bind their tools again at every call."""
    logger.info("The local model is a tiny model for trying out; it does not call tools.")


def _as_request(message: BaseMessage) -> dict[str, str] | None:
    """The role and text of a message; None for tool results and messages without text."""
    role = next((role for kind, role in _ROLES.items() if isinstance(message, kind)), None)
    return {"role": role, "content": message.text} if role and message.text else None


def _chunk_of(event: EngineEvent) -> AIMessageChunk:
    if isinstance(event, SegueError):
        raise event
    return event
