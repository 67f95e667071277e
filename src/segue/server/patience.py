"""How long a connection may keep the server waiting: for the head of a request, for its body, and
for a client that does not read what it is sent. Then it is cut, and nothing is left of it.

uvicorn itself waits for ever, and closes politely only what can still be flushed.
"""

import asyncio
import logging
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

logger = logging.getLogger(__name__)

HEAD_SECONDS: Final = 10.0
# A body gets so long, and longer by what has come of it.
BODY_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 20_000
# What a client has not read meanwhile it is not going to read.
READ_SECONDS: Final = 30.0


class _Cutting(asyncio.Protocol):
    """Cuts the connection of a client that does not read: asyncio tells when its buffer is full."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self._cut, "does not read")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _cut(self, why: str) -> None:
        logger.info("A connection is cut: its client %s", why)
        self.transport.abort()


class PatientSocket(_Cutting, WebSocketsSansIOProtocol):
    """A socket."""


class PatientHttp(_Cutting, H11Protocol):
    """Requests of one connection, one after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._body_began: float | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        if self.transport.get_protocol() is not self:  # it is a socket from here on
            self._await_nothing()
        elif state is h11.SEND_BODY:
            self._await_body(len(data))
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_head()
        else:
            self._await_nothing()

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
        if self.flow.read_paused:  # it is the server who does not read
            left = max(left, BODY_SECONDS)
        if left <= 0:
            self._cut("sends its body too slowly")
        else:
            self._deadline = self.loop.call_later(left, self._check_body)

    def _await_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._body_began = None, None
