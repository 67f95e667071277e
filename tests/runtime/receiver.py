"""A server on loopback that takes webhooks, for tests that send real requests."""

import threading
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from segue.runtime.delivery import WebhookTarget

SECRET = "a secret for one test"  # noqa: S105  # it opens nothing
Answer = Callable[["Handler"], None]


class Receiver(ThreadingHTTPServer):
    """A server on loopback that keeps what it got and answers as it is told."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, Message, bytes]] = []
        self.connections = 0
        self.answer: Answer = status(200)
        self.asked, self.over = threading.Event(), threading.Event()
        self._serving = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def target(self) -> WebhookTarget:
        url = f"http://127.0.0.1:{self.server_port}/hooks/segue?key=hush"
        return WebhookTarget(url, SECRET)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self._serving.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A client that keeps its connection open would hold the test's end up.
    timeout = 2

    @property
    def receiver(self) -> Receiver:
        return cast("Receiver", self.server)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.receiver.got.append((self.path, self.headers, body))
        self.receiver.asked.set()
        # A client that has heard enough hangs up.
        with suppress(ConnectionError):
            self.receiver.answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer
