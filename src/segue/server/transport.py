"""Bounds connections: how many one client address may hold, how long each may keep the server
waiting, and in how many pieces it may send.

uvicorn itself waits for ever, answers every ping, and closes only connections that it can flush.
"""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

from segue.server.auth import Bucket

logger = logging.getLogger(__name__)

# File descriptors reserved for the database, models and files.
_RESERVED_DESCRIPTORS: Final = 64
# Connections refused in one go before the event loop runs other work.
_REFUSED_AT_ONCE: Final = 50
_WARN_EVERY_SECONDS: Final = 60.0

HEAD_SECONDS: Final = 10.0
# Plus 1 s for each 20 kB received.
BODY_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 20_000
# Timeout for a client that does not read.
READ_SECONDS: Final = 30.0
# Keep-alive between two requests.
IDLE_SECONDS: Final = 5

# Frames allowed per frame of the rate limit: control frames, fragments and refused frames count.
FRAMES_PER_RATED: Final = 4
# An idle client with a low rate limit still sends pings and pongs.
LEAST_FRAMES: Final = 600
# Bytes parsed in one go; 256 kB may be 40,000 frames.
_PIECE: Final = 4_096

# A body may have this many chunks, plus one for each 256 bytes: a chunk of one byte costs as much
# to parse as a large one.
FREE_CHUNKS: Final = 500
_BYTES_PER_CHUNK: Final = 256


class Listener(socket.socket):
    """Counts open connections by client address, and refuses those over the limit."""

    def __init__(
        self,
        family: int,
        kind: int,
        protocol: int,
        most_per_address: int | None,
        descriptor: int | None = None,
    ) -> None:
        super().__init__(family, kind, protocol, descriptor)
        self._most_descriptors = _most_descriptors()
        # One address may not use all descriptors, however few there are.
        self._most = most_per_address and min(most_per_address, self._most_descriptors // 2)
        self._held: Counter[str] = Counter()
        self._is_out = False
        self._quiet_until = 0.0

    @property
    def held(self) -> int:
        """Number of open connections that have a client address."""
        return self._held.total()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection within the limits; `BlockingIOError` if there is none."""
        if self._is_out:
            # asyncio retries 2,000 times at once and logs each failure; this makes it stop. It has
            # already scheduled a retry in a second.
            self._is_out = False
            raise BlockingIOError
        for _ in range(_REFUSED_AT_ONCE):
            try:
                made, address = super().accept()
            except OSError as error:
                self._is_out = error.errno in {errno.EMFILE, errno.ENFILE}
                raise
            source = _source(address)
            if (reason := self._reason_against(made, source)) is None:
                return self._count(made, source), address
            made.close()
            self._warn(reason)
        raise BlockingIOError

    def _reason_against(self, made: socket.socket, source: str | None) -> str | None:
        # The kernel assigns the lowest free number, so it shows how many are in use.
        if made.fileno() >= self._most_descriptors:
            return "the process has few file descriptors left (ulimit -n)"
        if source is not None and self._most is not None and self._held[source] >= self._most:
            return f"{source} already has {self._most} (server.max_connections_per_address)"
        return None

    def _count(self, made: socket.socket, source: str | None) -> socket.socket:
        if source is None:
            return made
        self._held[source] += 1
        return _Connection(self, made, lambda: self._release(source))

    def _release(self, source: str) -> None:
        self._held[source] -= 1
        if not self._held[source]:
            del self._held[source]

    def _warn(self, reason: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _WARN_EVERY_SECONDS
            logger.warning("Connections are refused: %s", reason)


class _Connection(socket.socket):
    """An accepted connection that reports when it is closed."""

    def __init__(
        self, listener: socket.socket, made: socket.socket, on_close: Callable[[], None]
    ) -> None:
        super().__init__(listener.family, listener.type, listener.proto, made.detach())
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        super().close()
        if self._on_close is not None:
            self._on_close()
        self._on_close = None


def _most_descriptors() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return sys.maxsize
    return allowed - min(_RESERVED_DESCRIPTORS, allowed // 4)


def _source(address: Any) -> str | None:
    """The IPv4 address or the IPv6 /64 network that connections are counted for; None for a Unix
    socket, whose clients have no address.
    """
    if not isinstance(address, tuple):
        return None
    found = ipaddress.ip_address(address[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


class _ReadTimeout(asyncio.Protocol):
    """Cuts the connection of a client that does not read, which asyncio reports as a pause."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self._cut, "does not read")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_read_timeout()
        super().connection_lost(exc)

    def _stop_read_timeout(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def _cut(self, why: str) -> None:
        logger.info("A connection is cut: its client %s", why)
        if self.transport.get_write_buffer_size():
            # The kernel also buffers what the client has not read; reset the connection instead.
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class WebSocketProtocol(_ReadTimeout, WebSocketsSansIOProtocol):
    """Limits the rate of frames of any kind, pings included."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app: Any = self.config.app
        rate: int | None = app.state.settings.rate_per_minute
        self._frames = rate and Bucket(max(LEAST_FRAMES, FRAMES_PER_RATED * rate), self.loop.time())

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _PIECE])

    def handle_events(self) -> None:
        if not self._frames or self._frames.take(len(self.conn.events), self.loop.time()):
            super().handle_events()
        elif self.conn.state is State.OPEN:
            self.conn.fail(CloseCode.POLICY_VIOLATION, "Too many frames.")
            self.handle_parser_exception()  # sends the close frame and informs the app
        else:
            self._cut("sends too many frames")


class _LimitedChunks(h11.Connection):
    """Refuses a body of many small chunks."""

    _chunks = 0
    _size = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._size = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._size += len(event.data)
            if self._chunks > FREE_CHUNKS + self._size // _BYTES_PER_CHUNK:
                raise h11.RemoteProtocolError("The chunks of the body are too small.")
        return event


class HttpProtocol(_ReadTimeout, H11Protocol):
    """Sets a deadline for the head and the body of each request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _LimitedChunks(h11.SERVER)
        self._deadline: asyncio.TimerHandle | None = None
        self._body_began: float | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Report a pause for any unsent byte, so that a client that leaves a few bytes unread is cut
        # as well.
        transport.set_write_buffer_limits(0)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        if self.transport.get_protocol() is not self:  # upgraded to a WebSocket
            self._await_nothing()
        elif state is h11.SEND_BODY:
            self._await_body(len(data))
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_head()
        else:
            self._await_nothing()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        # A response is still unread: asyncio will report to the new protocol when it is read.
        if self._unread is not None and isinstance(protocol, WebSocketProtocol):
            self._stop_read_timeout()
            protocol.pause_writing()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:  # answered before its body was complete
            self._cut("sends an invalid body")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await_nothing()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._cut, "sends half a request")

    def _await_body(self, size: int) -> None:
        self._received += size
        if self._body_began is None:
            self._await_nothing()
            self._received, self._body_began = size, self.loop.time()
            self._deadline = self.loop.call_later(BODY_SECONDS, self._check_body)

    def _check_body(self) -> None:
        assert self._body_began is not None  # noqa: S101 - set with the deadline
        left = self._body_began + BODY_SECONDS - self.loop.time()
        left += self._received / _BYTES_PER_SECOND
        if self.flow.read_paused:  # the server is the one that does not read
            left = max(left, BODY_SECONDS)
        if left <= 0:
            self._cut("sends its body too slowly")
        else:
            self._deadline = self.loop.call_later(left, self._check_body)

    def _await_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._body_began = None, None
