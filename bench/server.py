"""The server under many sockets and behind a long history: `python -m bench.server`.

The server is a process of its own and this one is all its clients, so half of what is measured is
the clients' work. Its model says the moment at which it speaks; how much later a client hears that
is the delivery.
"""

import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
from langchain_core.messages import AIMessage
from websockets.asyncio.client import ClientConnection, connect

from bench.stores import SqliteStore
from bench.table import print_columns, progress, scaled
from bench.threads import filled
from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides
from segue.facade import Segue
from segue.server.app import create_app
from segue.server.serving import open_socket, serving
from segue.server.settings import ServerSettings
from segue.settings import Settings
from segue.simulate.world import plain_agent
from segue.stores import JOURNAL_FILE

SOCKETS = scaled(1_000, least=20)
MESSAGES = 3  # said by each
HISTORY = scaled(1_000_000, least=10_000)
PAGES = scaled(500, least=50)
OPEN_AT_ONCE = 50
USER = "long"


def serve(database: str, pipe: Connection) -> None:
    """The server's process: says its address, and how much memory it has when asked."""

    async def run() -> None:
        model = ScriptedChatModel(script=lambda _: AIMessage(f"{time.monotonic_ns()}"), keep=0)
        settings = Settings(database=database, agents=(plain_agent(),), slots=32)
        limits = ServerSettings(
            port=0,
            rate_per_minute=None,
            max_sockets_per_user=SOCKETS,
            max_connections_per_address=None,
        )
        given = Overrides(models={"guide": model})
        async with (
            Segue.open(settings, given) as segue,
            serving(create_app(segue, limits), open_socket(limits)) as address,
        ):
            pipe.send(address)
            while await asyncio.to_thread(pipe.recv) == "memory":
                pipe.send(_memory())

    asyncio.run(run())


@contextmanager
def server(database: str) -> Iterator[tuple[str, Connection]]:
    ours, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=serve, args=(database, theirs))
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        ours.send("stop")
        process.join()


class Client:
    """One tab: says its lines one after the other, and checks what it hears."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.late: list[float] = []
        self.answered: list[float] = []
        # What came twice, or not.
        self.wrong = 0

    async def talk(self) -> None:
        for number in range(MESSAGES):
            began = time.perf_counter()
            await self._socket.send(json.dumps({"type": "message", "content": f"Line {number}"}))
            await self._hear()
            self.answered.append(time.perf_counter() - began)

    async def _hear(self) -> None:
        """Everything up to the reply: the user's own line once, and the reply once."""
        own, words = 0, ""
        async for text in self._socket:
            frame = json.loads(text)
            if frame["type"] == "token":
                self.late.append((time.monotonic_ns() - int(frame["text"])) / 1e9)
                self.wrong += frame["offset"] != len(words)
                words += frame["text"]
            elif frame["type"] == "message" and frame["message"]["role"] == "user":
                own += 1
            elif frame["type"] == "message":
                self.wrong += (own, words) != (1, frame["message"]["text"])
                return


async def sockets() -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder, server(folder) as (address, pipe):
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            made = [(await http.post("/api/threads", json={})).json() for _ in range(SOCKETS)]
        before = await _ask(pipe)
        progress(f"{SOCKETS:,} sockets")
        clients: list[Client] = []
        opened: list[ClientConnection] = []
        gate = asyncio.Semaphore(OPEN_AT_ONCE)

        async def open_one(thread: str) -> None:
            async with gate:
                url = f"{address.replace('http', 'ws', 1)}/api/threads/{thread}/ws"
                opened.append(await connect(url, ping_interval=None))
                clients.append(Client(opened[-1]))

        await asyncio.gather(*(open_one(thread["id"]) for thread in made))
        memory = (await _ask(pipe) - before) / SOCKETS
        began = time.perf_counter()
        await asyncio.gather(*(client.talk() for client in clients))
        seconds = time.perf_counter() - began
        await asyncio.gather(*(socket.close() for socket in opened))
    late = [each for client in clients for each in client.late]
    answered = [each for client in clients for each in client.answered]
    return [
        ("sockets, each on its own thread", f"{SOCKETS:,}"),
        ("messages answered", f"{len(answered):,}"),
        ("messages answered per second", f"{len(answered) / seconds:.0f}"),
        ("frames lost, doubled or out of place", str(sum(client.wrong for client in clients))),
        ("memory of an idle socket", f"{memory / 1024:.0f} kB"),
        ("model's word to client, p50", _ms(statistics.median(late))),
        ("model's word to client, p99", _ms(_p99(late))),
        ("message to reply, all at once, p50", _ms(statistics.median(answered))),
    ]


async def history() -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "data"
        store = SqliteStore(place)
        await store.open()
        progress(f"a thread of {HISTORY:,} messages")
        async with store.indexing_later():
            long = await filled(store, USER, HISTORY)
        await store.close()
        (place / "data.db").rename(place / JOURNAL_FILE)
        with server(str(place)) as (address, _):
            headers = {"Segue-User": USER}
            async with httpx.AsyncClient(base_url=address, timeout=60, headers=headers) as http:
                path = f"/api/threads/{long.thread}/history"
                cursor, taken = None, []
                for _ in range(PAGES):
                    began = time.perf_counter()
                    query: dict[str, str] = {} if cursor is None else {"before": cursor}
                    page = (await http.get(path, params=query)).raise_for_status().json()
                    taken.append(time.perf_counter() - began)
                    cursor = page["before"]
                    assert len(page["items"]) == 50  # noqa: S101 - a page that is not full
    return [
        (f"history page, {HISTORY:,} messages, p50", _ms(statistics.median(taken))),
        (f"history page, {HISTORY:,} messages, p99", _ms(_p99(taken))),
    ]


def _memory() -> int:
    """What this process holds in memory now, in bytes."""
    words = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(words[1]) * resource.getpagesize()


async def _ask(pipe: Connection) -> int:
    await asyncio.sleep(1)
    pipe.send("memory")
    answer: int = await asyncio.to_thread(pipe.recv)
    return answer


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:.1f} ms"


async def main() -> None:
    wanted = sys.argv[1:] or ["sockets", "history"]
    if "sockets" in wanted:
        print_columns("Sockets on one process, SQLite", ("what", "figure"), await sockets())
    if "history" in wanted:
        print_columns("History over HTTP, SQLite", ("what", "figure"), await history())


if __name__ == "__main__":
    asyncio.run(main())
