"""Runs an app: opens the `Segue` behind it, and serves it on a socket.

The socket is opened first: its address is known, and errors come early. The `Segue` is given open,
or opened while the server already answers.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from typing import Any

import uvicorn
from fastapi import FastAPI

from segue.errors import BackendError, SegueError, UsageError
from segue.facade import Segue
from segue.server.problems import ApiError, ResponseCut
from segue.server.settings import ServerSettings
from segue.server.transport import IDLE_SECONDS, HttpProtocol, Listener, WebSocketProtocol

logger = logging.getLogger(__name__)
_STOP_SECONDS = 5

SegueFactory = Callable[[], AbstractAsyncContextManager[Segue]]


class Lifespan:
    """Holds a `Segue` once it is open; until then every request gets 503."""

    def __init__(self, source: Segue | SegueFactory) -> None:
        self._source = source
        self._segue = source if isinstance(source, Segue) else None
        self._has_begun = False
        # Whether to listen only once the Segue is open: until then another process answers.
        self.opens_first = False
        # Off if the program prints a `SegueError` itself.
        self.logs_segue_errors = True
        # Why the Segue could not be opened.
        self.failure: Exception | None = None
        # Set when the Segue is open, or opening failed.
        self.started = asyncio.Event()
        # Set when a Segue that was opened here is closed, or opening failed.
        self.closed = asyncio.Event()
        # Set when the server is about to stop: streams end then.
        self.stopping = asyncio.Event()

    @property
    def segue(self) -> Segue:
        if self._segue is None:
            # A mounted app gets no lifespan events.
            detail = (
                "The server is still starting; try again in a moment."
                if self._has_begun
                else "This app was never started. An app that is mounted in another one needs an "
                "open Segue: create_app(segue), in the lifespan of the other one."
            )
            raise ApiError(503, "starting", detail, {"Retry-After": "1"})
        return self._segue

    @property
    def is_ready(self) -> bool:
        return self._segue is not None and not self.stopping.is_set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """From the server's start to its end. A `Segue` that was given is left open."""
        self._has_begun = True
        task = None
        if isinstance(self._source, Segue):
            self.started.set()
        else:
            task = asyncio.create_task(self._keep_open(self._source))
            if self.opens_first:
                await self.started.wait()
        try:
            yield
        finally:
            self.stopping.set()
            if task is not None:
                await task

    async def _keep_open(self, factory: SegueFactory) -> None:
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            async with factory() as segue:
                self._segue = segue
                self.started.set()
                await stopped
        except Exception as error:
            self.failure = error
            if self.logs_segue_errors or not isinstance(error, SegueError):
                logger.exception("Segue failed")
        finally:
            self._segue = None
            self.started.set()
            self.closed.set()
            stopped.cancel()


def check_bind(settings: ServerSettings, *, has_keys: bool) -> None:
    """`UsageError` if a server without keys would listen to other machines."""
    if has_keys or settings.jwt is not None or is_loopback(settings.host):
        return
    raise UsageError(
        f"The server has no key: anyone who can reach {settings.host} could read every "
        "conversation. Create a key with `segue keys create`, set server.jwt, or listen on "
        "127.0.0.1."
    )


def open_socket(settings: ServerSettings, descriptor: int | None = None) -> Listener:
    """A socket bound to the address of the settings; port 0 is any free port. With a `descriptor`,
    the bound socket that was inherited.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Each connection inherits the protocol, and asyncio sets TCP_NODELAY only if it is TCP;
    # otherwise the kernel delays the last piece by up to 40 ms.
    most = settings.max_connections_per_address
    bound = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, most, descriptor)
    if descriptor is not None:
        return bound
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        place = f"{settings.host}:{settings.port}"
        raise BackendError(
            f"Cannot listen on {place}: {error.strerror}. Set another server.port (--port); 0 "
            "takes any free port."
        ) from error
    bound.set_inheritable(True)
    return bound


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(app: FastAPI, bound: socket.socket) -> AsyncIterator[str]:
    """Serve until the block is left; yields the address. For programs that run their own loop."""
    server = _Server(config_of(app))
    task = asyncio.create_task(server.serve([bound]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        yield address_of(bound)
    finally:
        app.state.lifespan.stopping.set()
        server.should_exit = True
        await task


def config_of(app: FastAPI) -> uvicorn.Config:
    settings: ServerSettings = app.state.settings
    every = settings.ping_every.total_seconds()
    logging.getLogger("uvicorn.error").addFilter(_filter_log)
    return uvicorn.Config(
        app,
        log_config=None,  # `configure_logging` has set it
        access_log=False,  # `RequestMiddleware` logs requests, without queries
        server_header=False,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=settings.max_frame_bytes,
        # Compressing a picture of 10 MB would block the event loop for a third of a second.
        ws_per_message_deflate=False,
        ws_ping_interval=every,
        ws_ping_timeout=every,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


def _filter_log(record: logging.LogRecord) -> bool:
    """Uvicorn logs the URL of a socket with its query, in which clients put keys, and a traceback
    for each text that is not UTF-8, and for each response that a stop cuts.
    """
    if record.exc_info and isinstance(record.exc_info[1], ResponseCut):
        return False
    if str(record.msg).startswith("Invalid UTF-8"):
        logger.info("A socket is closed: its client sent invalid UTF-8")
        return False
    if "WebSocket %s" in str(record.msg) and isinstance(record.args, tuple):
        record.args = tuple(
            each.partition("?")[0] if isinstance(each, str) else each for each in record.args
        )
    return True


class EventLoop(asyncio.SelectorEventLoop):
    """Forgets the context of a timer that is cancelled.

    asyncio keeps a cancelled timer until it would be due, and with it the context in which it was
    set: each model call with a timeout of minutes would keep the pictures of its conversation.
    """

    def __init__(self) -> None:
        super().__init__()
        self._no_context = Context()

    def call_at(  # type: ignore[override]  # typeshed ties the arguments to the callback's
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # Cancelling drops the callback and its arguments, and here the context is one of them.
        run = (copy_context() if context is None else context).run
        return super().call_at(when, run, callback, *args, context=self._no_context)


class _Server(uvicorn.Server):
    """Leaves signals to the calling program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def is_loopback(host: str) -> bool:
    """Whether a host can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
