"""Transports to an MCP server: the standard input and output of a program, or HTTP.

Both refuse a message that is too long before it is in memory. A program ends with its connection,
and with Segue, even if Segue is killed.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage
from pydantic import ValidationError

from segue.errors import BackendError, UsageError
from segue.settings.mcp import McpConfig

logger = logging.getLogger(__name__)

# Far more than a result may have, so that long results are cut and not refused.
MAX_MESSAGE: Final = 8_000_000
_GUARD: Final = Path(__file__).with_name("guard.py")
# How long a program may take to end once its input is closed.
_GRACE: Final = 1.0
# For an answer that never comes; a call has its own, shorter limit.
_READ_SECONDS: Final = 300.0

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


def connect(name: str, config: McpConfig) -> AbstractAsyncContextManager[tuple[Incoming, Outgoing]]:
    """Streams of messages from and to the server."""
    return _over_http(config) if config.url else _over_stdio(name, config)


@asynccontextmanager
async def _over_http(config: McpConfig) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    headers = {key: value.get_secret_value() for key, value in config.headers.items()}
    timeout = httpx.Timeout(config.connect_time.total_seconds(), read=_READ_SECONDS)
    client = create_mcp_http_client({**headers, "Accept-Encoding": "identity"}, timeout)
    client.event_hooks = {"response": [_bound]}
    async with client, streamable_http_client(config.url or "", http_client=client) as streams:
        yield streams[:2]


async def _bound(response: httpx.Response) -> None:
    # A few kilobytes can decompress to gigabytes.
    response.headers.pop("Content-Encoding", None)
    response.stream = _BoundedStream(cast("httpx.AsyncByteStream", response.stream))


class _BoundedStream(httpx.AsyncByteStream):
    """Fails at a line that is too long: a JSON body or an event's data is one line."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._stream:
            end = chunk.rfind(b"\n")
            length = len(chunk) - end - 1 if end >= 0 else length + len(chunk)
            if length > MAX_MESSAGE:
                raise BackendError(_TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


_TOO_LONG: Final = f"It sent a message of more than {MAX_MESSAGE // 1_000_000} MB."


@asynccontextmanager
async def _over_stdio(name: str, config: McpConfig) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    process = await _start(config)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks, incoming, read, write, outgoing:
        tasks.start_soon(_receive, name, process, incoming)
        tasks.start_soon(_send, process, outgoing)
        tasks.start_soon(_log_errors, name, process)
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await _to_its_end(_stop(process))


async def _start(config: McpConfig) -> asyncio.subprocess.Process:
    environment = get_default_environment()
    environment |= {key: value.get_secret_value() for key, value in config.env.items()}
    program = shutil.which(config.command or "", path=environment.get("PATH"))
    if program is None:
        raise UsageError(f"There is no program {config.command!r}; is it installed?")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), program, *config.args),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
        limit=MAX_MESSAGE,
    )


async def _receive(
    name: str,
    process: asyncio.subprocess.Process,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass messages on until the program ends; `BackendError` then, which ends the connection."""
    has_warned = False
    while line := await _read_line(cast("asyncio.StreamReader", process.stdout)):
        try:
            message = JSONRPCMessage.model_validate_json(line)
        except ValidationError:
            if not has_warned:
                # Not the line itself: it may quote the conversation.
                logger.warning("MCP server %s writes lines that are not messages", name)
            has_warned = True
            continue
        try:
            await incoming.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is closing
            return
    raise BackendError("The program has ended.")


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        raise BackendError(_TOO_LONG) from None


async def _send(
    process: asyncio.subprocess.Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    stdin = cast("asyncio.StreamWriter", process.stdin)
    # A program that has ended is noticed by its output.
    with suppress(ConnectionError):
        async with outgoing:
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_none=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()


async def _log_errors(name: str, process: asyncio.subprocess.Process) -> None:
    """The program's own log, only at DEBUG: it may quote the conversation."""
    stderr = cast("asyncio.StreamReader", process.stderr)
    while line := await stderr.read(4096):
        logger.debug("MCP server %s: %s", name, line.decode(errors="replace").rstrip())


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Close its input, as MCP prescribes; then end it, and the processes that it started."""
    cast("asyncio.StreamWriter", process.stdin).close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    await process.wait()
    # Its pipes; asyncio has no public way to close them.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Also if this task is cancelled in the meantime: a program must not be left running."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
