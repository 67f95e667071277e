"""What one hostile client costs the others: `python -m bench.attacks [NAME ...]`.

Each attack runs against a server of its own, started by `segue serve` with its default limits, over
loopback only. Meanwhile an honest user, in a process of its own, asks `GET /api/me` every 20 ms on
a new connection; what is measured is how long that takes, how much memory the server takes at most,
and when it lets go of the attacker's connections. It imports nothing of the server, so that
`PYTHONPATH=/path/to/older/src python -m bench.attacks` measures an older one.
"""

import asyncio
import http.client
import json
import multiprocessing
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from bench.table import print_columns, progress

CONFIG = """
[[agents]]
id = "guide"
model = "scripted"
memory.enabled = false
autonomy.enabled = false

[server]
port = 0
log_level = "error"
"""
ATTACKER = "127.0.0.2"
PROBE_EVERY = 0.02
PROBE_TIMEOUT = 2.0
# Nothing is waited for longer than this.
MOST_SECONDS = 40.0
SETTLE_SECONDS = 0.5
# The rate of each would not let one user ask so often.
HONEST_USERS = 20


@dataclass(frozen=True)
class Server:
    """A server process, and a key for any user of it."""

    pid: int
    port: int
    key: str

    def headers(self, user: str = "mallory") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", "Segue-User": user}

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        address = f"http://127.0.0.1:{self.port}"
        transport = httpx.AsyncHTTPTransport(local_address=ATTACKER)
        async with httpx.AsyncClient(
            base_url=address, headers=self.headers(), timeout=MOST_SECONDS, transport=transport
        ) as client:
            yield client

    async def new_thread(self) -> str:
        async with self.client() as client:
            made: str = (await client.post("/api/threads", json={})).raise_for_status().json()["id"]
            return made

    def head(self, method: str, path: str, *more: str) -> bytes:
        """A request up to its body, from the attacker who has a key."""
        given = [f"{name}: {value}" for name, value in self.headers().items()]
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *given, *more]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def connection(self, *, is_deaf: bool = False) -> socket.socket:
        made = socket.socket()
        if is_deaf:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.settimeout(MOST_SECONDS)
        made.bind((ATTACKER, 0))
        made.connect(("127.0.0.1", self.port))
        return made

    def memory(self, field: str) -> int:
        """`VmRSS` is what it has now, `VmHWM` the most it had, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found is not None  # noqa: S101 - Linux always has it
        return int(found[1]) // 1_024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def open_sockets(self) -> int:
        count = 0
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += each.readlink().name.startswith("socket:")
            except OSError:  # it was closed meanwhile
                continue
        return count


def _segue(folder: Path, *words: str) -> list[str]:
    """A command of `segue` on the data in a folder."""
    chosen = ["--config", str(folder / "segue.toml"), "--database", str(folder / "data")]
    # Older ones have no `python -m segue`.
    return [sys.executable, "-c", "from segue.cli import main; main()", *words, *chosen]


def new_key(folder: Path) -> str:
    """Settings and a database with one key, which stands for any user."""
    (folder / "segue.toml").write_text(CONFIG, encoding="utf-8")
    command = _segue(folder, "keys", "create", "bench", "--any-user")
    made = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    found = re.search(r"sgu_\S+", made.stdout)
    assert found is not None, made.stdout  # noqa: S101
    return found[0]


@contextmanager
def server(template: Path, key: str, descriptors: int) -> Iterator[Server]:
    """A server on a copy of the template."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = shutil.copytree(template, Path(temporary) / "copy")
        limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        process = subprocess.Popen(  # noqa: S603 - our own program
            [*limited, *_segue(folder, "serve")], stdout=subprocess.PIPE, text=True
        )
        try:
            yield Server(process.pid, _port(process), key)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    port = 0
    for line in process.stdout:
        if found := re.match(r"Starting at http://127\.0\.0\.1:(\d+)", line):
            port = int(found[1])
        if line.startswith("Ready."):
            return port
    raise RuntimeError("The server did not start.")


def ask(server: Server, pipe: Connection) -> None:
    """The honest user: how long each request took until it was answered, tries that failed
    included.
    """
    waits: list[float] = []
    pipe.send("ready")
    while not pipe.poll(PROBE_EVERY):
        began = time.perf_counter()
        user = f"honest-{len(waits) % HONEST_USERS}"
        while not _is_answered(server, user) and not pipe.poll(PROBE_EVERY):
            pass
        waits.append(time.perf_counter() - began)
    pipe.send(waits)


def _is_answered(server: Server, user: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PROBE_TIMEOUT)
    try:
        connection.request("GET", "/api/me", headers=server.headers(user))
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Meanwhile:
    """The honest user's process: what others waited while a block ran."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    @asynccontextmanager
    async def measured(self, server: Server) -> AsyncIterator[None]:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=ask, args=(server, theirs))
        process.start()
        await asyncio.to_thread(ours.recv)
        try:
            yield
        finally:
            await asyncio.sleep(SETTLE_SECONDS)
            ours.send("stop")
            self.waits = await asyncio.to_thread(ours.recv)
            process.join()


# What came of it, in a few words.
Attack = Callable[[Server], Awaitable[str]]


def fields(count: int) -> bytes:
    names = ",".join(f'"f{number}":1' for number in range(count))
    return f'{{"type":"message","content":"Hi",{names}}}'.encode()


def file_message(size: int) -> bytes:
    block = {"type": "file", "base64": "A" * size, "mime_type": "application/pdf"}
    return json.dumps({"content": [block]}).encode()


async def post(server: Server, body: bytes, times: int, *, with_key: bool = True) -> str:
    thread = await server.new_thread()
    statuses: list[int] = []
    async with server.client() as client:
        for _ in range(times):
            headers = {"Content-Type": "application/json"}
            headers |= {} if with_key else {"Authorization": ""}
            try:
                answer = await client.post(
                    f"/api/threads/{thread}/messages", content=body, headers=headers
                )
                statuses.append(answer.status_code)
            except httpx.HTTPError:  # it was refused while it was still being sent
                statuses.append(0)
    return ", ".join(str(status or "cut") for status in sorted({*statuses}))


async def lists_of_a_stranger(server: Server) -> str:
    body = b"[" + b"[]," * 3_300_000 + b"[]]"
    head = "POST /api/threads/1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    statuses = [await asyncio.to_thread(_answer_to, server, request) for _ in range(5)]
    return ", ".join(sorted({*statuses}))


def _answer_to(server: Server, request: bytes) -> str:
    """The status of an answer that may come before the request was sent."""
    with server.connection() as made:
        sent = 0
        while True:
            readable, writable, _ = select.select([made], [made], [], MOST_SECONDS)
            if readable or not writable:
                break
            sent += made.send(request[sent : sent + 65_536])
            if sent == len(request):
                break
        try:
            return made.recv(12)[-3:].decode() or "cut"
        except OSError:
            return "cut"


async def unknown_fields(server: Server) -> str:
    return await post(server, fields(640_000), 3)


async def many_lists(server: Server) -> str:
    block = '{"type":"file","x":[' + "[]," * 29_999 + "[]]}"
    return await post(server, f'{{"content":[{",".join([block] * 99)}]}}'.encode(), 3)


async def big_frame(server: Server) -> str:
    return await asyncio.to_thread(_frames, server, await server.new_thread(), fields(70_000), 5)


def _frames(server: Server, thread: str, body: bytes, times: int) -> str:
    with _socket(server, thread) as made:
        frame = b"\x81\xff" + len(body).to_bytes(8, "big") + bytes(4) + body
        heard = b""
        for _ in range(times):
            made.sendall(frame)
            heard = made.recv(65_536)
        return "an error frame" if b'"error"' in heard else "something else"


def _socket(
    server: Server, thread: str, query: str = "", *, is_deaf: bool = False
) -> socket.socket:
    made = server.connection(is_deaf=is_deaf)
    made.sendall(
        server.head(
            "GET",
            f"/api/threads/{thread}/ws{query}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
    )
    if not is_deaf:
        heard = b""
        while b"\r\n\r\n" not in heard:
            heard += made.recv(1)
    return made


async def big_messages(server: Server) -> str:
    return await post(server, file_message(9_800_000), 30)


async def reading_big_messages(server: Server) -> str:
    """Six at once: the newest page, a search and the whole thread, twice each."""
    async with server.client() as client:
        threads = (await client.get("/api/threads")).raise_for_status().json()["items"]
        path = f"/api/threads/{threads[0]['id']}"
        wanted = [f"{path}/history", "/api/search?q=pdf", f"{path}/events?since=0"]
        sizes = await asyncio.gather(*(_size_of(client, each) for each in 2 * wanted))
    return f"{sum(sizes) // 10**6} MB sent"


async def _size_of(client: httpx.AsyncClient, path: str) -> int:
    """How many bytes come until there is none for a while."""
    size = 0
    async with client.stream("GET", path) as answer:
        pieces = answer.aiter_raw()
        try:
            while True:
                async with asyncio.timeout(3):
                    size += len(await anext(pieces))
        except (TimeoutError, StopAsyncIteration):
            return size


async def some_history(server: Server) -> str:
    return await post(server, file_message(1_000_000), 24)


async def deaf_listeners(server: Server) -> str:
    async with server.client() as client:
        thread = (await client.get("/api/threads")).raise_for_status().json()["items"][0]["id"]
    with ExitStack() as stack:
        before = server.open_sockets()
        for _ in range(40):
            stack.enter_context(_socket(server, thread, "?since=0", is_deaf=True))
        for _ in range(5):
            made = stack.enter_context(server.connection(is_deaf=True))
            made.sendall(server.head("GET", f"/api/threads/{thread}/events?since=0"))
        return await _let_go(server, before, 45)


async def ping_flood(server: Server) -> str:
    thread = await server.new_thread()
    return await asyncio.to_thread(_flood, server, thread, b"\x89\xfd" + bytes(4 + 125))


async def pong_flood(server: Server) -> str:
    thread = await server.new_thread()
    return await asyncio.to_thread(_flood, server, thread, b"\x8a\x80" + bytes(4))


def _flood(server: Server, thread: str, frame: bytes, seconds: float = 10) -> str:
    pieces, moved, began = frame * (65_536 // len(frame)), 0, time.perf_counter()
    with _socket(server, thread) as made:
        made.setblocking(False)
        while (taken := time.perf_counter() - began) < seconds:
            readable, writable, _ = select.select([made], [made], [], seconds)
            try:
                if readable:
                    heard = made.recv(2**20)
                    moved += len(heard)
                    if not heard:
                        return f"closed after {taken:.1f} s and {moved / 1e6:.1f} MB"
                if writable:
                    moved += made.send(pieces)
            except BlockingIOError:
                continue
            except OSError:
                return f"closed after {taken:.1f} s and {moved / 1e6:.1f} MB"
    return f"not closed in {seconds:.0f} s, {moved / 1e6:.0f} MB"


async def half_heads(server: Server) -> str:
    with ExitStack() as stack:
        before = server.open_sockets()
        for _ in range(300):
            made = stack.enter_context(server.connection())
            try:
                made.sendall(b"GET /api/me HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            except OSError:
                continue
        return await _let_go(server, before, 300, seconds=20)


async def slow_bodies(server: Server) -> str:
    thread = await server.new_thread()
    with ExitStack() as stack:
        before = server.open_sockets()
        head = server.head(
            "POST",
            f"/api/threads/{thread}/messages",
            "Content-Type: application/json",
            "Content-Length: 1000000",
        )
        opened = [stack.enter_context(server.connection()) for _ in range(100)]
        for made in opened:
            made.sendall(head)

        def drip() -> None:
            for made in opened:
                try:
                    made.send(b" ")
                except OSError:
                    continue

        return await _let_go(server, before, 100, each_second=drip)


async def tiny_chunks(server: Server) -> str:
    """A body in chunks of one byte, each of which the server has to parse."""
    thread = await server.new_thread()
    path = f"/api/threads/{thread}/messages"
    more = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    request = server.head("POST", path, *more) + b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n"
    return await asyncio.to_thread(_answer_to, server, request)


async def open_quotes(server: Server) -> str:
    return await post(server, b'"\\' * 140_000, 1)


async def _let_go(
    server: Server,
    before: int,
    count: int,
    *,
    seconds: float = MOST_SECONDS,
    each_second: Callable[[], None] = lambda: None,
) -> str:
    """How long the server holds connections that the attacker keeps open."""
    began, most = time.perf_counter(), 0
    # The honest user has one or two of its own.
    while (held := server.open_sockets() - before) > 2 or not most:
        most = max(most, held)
        taken = time.perf_counter() - began
        if taken > seconds:
            return f"{held} of {count} held after {seconds:.0f} s"
        await asyncio.to_thread(each_second)
        await asyncio.sleep(0.5 if seconds < MOST_SECONDS else 1)
    return f"at most {most} held, none after {time.perf_counter() - began:.0f} s"


@dataclass(frozen=True)
class Case:
    """Attacks on one server, one after the other, each with its own row."""

    name: str
    attacks: dict[str, Attack]
    # Runs before, without being measured.
    prepare: Attack | None = None
    descriptors: int = 1_024


CASES = [
    Case("stranger", {"9.9 MB of `[],` without a key, 5 times": lists_of_a_stranger}),
    Case("fields", {"640,000 unknown fields, 3 times": unknown_fields}),
    Case("lists", {"99 blocks of 30,000 lists, 3 times": many_lists}),
    Case("frame", {"a frame of 70,000 fields, 5 times": big_frame}),
    Case(
        "messages",
        {
            "30 messages of 9.8 MB": big_messages,
            "history, search, since=0 of these, twice": reading_big_messages,
        },
    ),
    Case("deaf", {"45 listeners that never read 24 MB": deaf_listeners}, some_history),
    Case("pings", {"pings for 10 s on one socket": ping_flood}),
    Case("pongs", {"empty pongs for 10 s on one socket": pong_flood}),
    Case("heads", {"300 half heads, 256 descriptors": half_heads}, descriptors=256),
    Case("bodies", {"100 bodies, a byte a second each": slow_bodies}),
    Case("chunks", {"a body of 1,000,000 chunks": tiny_chunks}),
    Case("quotes", {"a body of 140,000 open quotes": open_quotes}),
]


async def run(case: Case, template: Path, key: str) -> list[tuple[str, ...]]:
    with server(template, key, case.descriptors) as started:
        await started.new_thread()
        if case.prepare:
            await case.prepare(started)
            await asyncio.sleep(2)
        return [await measure(started, *each) for each in case.attacks.items()]


async def measure(started: Server, what: str, attack: Attack) -> tuple[str, ...]:
    progress(what)
    started.forget_peak()
    idle = started.memory("VmRSS")
    others = Meanwhile()
    async with others.measured(started):
        try:
            outcome = await attack(started)
        except (httpx.HTTPError, OSError) as error:
            outcome = f"no answer: {type(error).__name__}"
    return (
        what,
        _ms(statistics.median(others.waits)),
        _ms(max(others.waits)),
        f"{idle} MB",
        f"{started.memory('VmHWM')} MB",
        outcome,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms"


async def main() -> None:
    wanted = sys.argv[1:]
    load, rows = os.getloadavg()[0], list[tuple[str, ...]]()
    with tempfile.TemporaryDirectory() as template:
        key = new_key(Path(template))
        for case in CASES:
            if not wanted or case.name in wanted:
                rows += await run(case, Path(template), key)
                progress(f"  {rows[-1]}")
    header = ("attack", "others waited, p50", "max", "idle", "peak", "what came of it")
    title = f"Attacks on one server, SQLite, {os.cpu_count()} cores, load before: {load:.1f}"
    print_columns(title, header, rows)


if __name__ == "__main__":
    asyncio.run(main())
