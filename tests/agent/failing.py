"""A provider that never answers well: real clients show what they raise."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast


class FailingProvider:
    """Answers every request with `status` and `body`, or with silence if there is no status."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, status: int | None, error: Mapping[str, Any]) -> None:
        self._server.status = status
        self._server.body = {"error": dict(error)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    # Joined on close: a thread left behind would outlive its test.
    daemon_threads = False
    status: int | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.body: dict[str, Any] = {}
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("_Server", self.server)
        self.rfile.read(int(self.headers["Content-Length"]))
        if server.status is None:
            server.over.wait()
            return
        payload = json.dumps(server.body).encode()
        self.send_response(server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
