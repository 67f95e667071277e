"""A provider that runs on this machine: it keeps what real clients send and answers in shape.

It judges nothing; `tests.providers.wire` does. One recorder serves all four APIs, told apart by
path, so a client needs no more than its address.
"""

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

REPLY: Final = "Noted."


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request: its path, its bytes as they came, and the same bytes read as JSON."""

    path: str
    raw: bytes
    body: dict[str, Any]


class Recorder:
    """A context manager; leaving it ends every connection and every thread it started."""

    def __init__(self) -> None:
        self._server = _Server()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def take(self) -> list[Recorded]:
        """The requests since the last `take`, oldest first."""
        taken, self._server.requests = self._server.requests, []
        return taken

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()
        if self._server.failures and error is None:
            raise self._server.failures[0]


class _Server(ThreadingHTTPServer):
    # Joined on close: a thread left behind would outlive its test.
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Recorded] = []
        self.failures: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End idle keep-alive connections, whose threads wait for a request that never comes."""
        with self._lock:
            for connection in self._open:
                # The client may have gone first.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # not ours
        error = sys.exception()
        # A client that leaves without a goodbye is its own affair.
        if error is not None and not isinstance(error, ConnectionError):
            self.failures.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave in one packet; apart, each answer waits 40 ms for a delayed ACK.
    wbufsize = -1

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            self._answer(411, {"error": {"message": "A request states its length."}})
            return
        raw = self.rfile.read(int(length))
        path = urlsplit(self.path).path
        reply = next((make for end, make in _REPLIES.items() if path.endswith(end)), None)
        if reply is None:
            self._answer(404, {"error": {"message": f"No API answers at {path}."}})
            return
        try:
            body = json.loads(raw, parse_constant=_refuse)
        except ValueError:
            self._answer(400, {"error": {"message": "The body is not JSON."}})
            return
        cast("_Server", self.server).requests.append(Recorded(path, raw, body))
        self._answer(200, reply(body))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: requests are kept, not printed."""


def _refuse(constant: str) -> None:
    """NaN and its like are Python's, not JSON's."""
    raise ValueError(constant)


def _chat_completion(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": REPLY, "refusal": None},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _response(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": body["model"],
        "status": "completed",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": REPLY, "annotations": []}],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _anthropic_message(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": REPLY}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _generated_content(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "candidates": [
            {
                "index": 0,
                "finishReason": "STOP",
                "content": {"role": "model", "parts": [{"text": REPLY}]},
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "recorder",
    }


_REPLIES: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = MappingProxyType(
    {
        "/chat/completions": _chat_completion,
        "/responses": _response,
        "/v1/messages": _anthropic_message,
        ":generateContent": _generated_content,
    }
)
