"""Serves an app on a socket: opened first, so that the address is known and a refusal is early."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from segue.core.errors import BackendError, UsageError
from segue.server.patience import PatientHttp, PatientSocket
from segue.server.settings import ServerSettings

_STOP_SECONDS = 5


def check_bind(settings: ServerSettings, *, has_keys: bool) -> None:
    """Without keys the server listens to this machine alone; `UsageError` says what to do."""
    if has_keys or settings.jwt is not None or is_home(settings.host):
        return
    raise UsageError(
        f"The server would listen on {settings.host} to anyone who can reach it, and there is no "
        "key: everybody could read every conversation. Make a key with `segue keys create`, set "
        "server.jwt, or listen on 127.0.0.1."
    )


def open_socket(settings: ServerSettings) -> socket.socket:
    """A socket that listens as the settings say; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named, the protocol is passed on to each connection, and asyncio then sends every frame at
    # once; otherwise the kernel holds the last piece back for up to 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        place = f"{settings.host}:{settings.port}"
        raise BackendError(
            f"{place} cannot be listened on: {error.strerror}. Set another server.port (--port); 0 "
            "takes any free one."
        ) from error
    bound.set_inheritable(True)
    return bound


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(app: FastAPI, bound: socket.socket) -> AsyncIterator[str]:
    """Serve until the block is left; its address. For programs with a loop of their own."""
    server = _Quiet(config_of(app))
    task = asyncio.create_task(server.serve([bound]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.005)
        yield address_of(bound)
    finally:
        app.state.running.stopping.set()
        server.should_exit = True
        await task


def config_of(app: FastAPI) -> uvicorn.Config:
    settings: ServerSettings = app.state.settings
    every = settings.ping_every.total_seconds()
    logging.getLogger("uvicorn.error").addFilter(_without_query)
    return uvicorn.Config(
        app,
        log_config=None,  # ours is set already
        access_log=False,  # the entrance writes a line without queries
        server_header=False,
        http=PatientHttp,
        ws=PatientSocket,
        ws_max_size=settings.max_frame_bytes,
        ws_ping_interval=every,
        ws_ping_timeout=every,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


def _without_query(record: logging.LogRecord) -> bool:
    """Uvicorn logs a socket's address with its query, in which clients put keys."""
    if "WebSocket %s" in str(record.msg) and isinstance(record.args, tuple):
        record.args = tuple(
            each.partition("?")[0] if isinstance(each, str) else each for each in record.args
        )
    return True


class _Quiet(uvicorn.Server):
    """Leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def is_home(host: str) -> bool:
    """Whether only this machine can mean it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
