"""What the LangGraph wire costs next to Segue's own API: `python -m bench.wire`.

The same server, the same conversation, and lanes that take turns: a slow minute slows all of them,
and what counts is the ratio. Then one thread with many listeners on its stream.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

from bench.server import SOCKETS, _ask, _ms, _p99, server
from bench.table import print_columns, progress, scaled

RUNS = scaled(300, least=20)
SAID = 5  # to the listeners
OPEN_AT_ONCE = 50


async def _own(http: httpx.AsyncClient, thread: str) -> None:
    """A message over `/api`, whose reply is streamed."""
    path, accept = f"/api/threads/{thread}/messages", {"Accept": "text/event-stream"}
    async with http.stream("POST", path, json={"content": "Hello"}, headers=accept) as response:
        assert "event: done" in [line async for line in response.aiter_lines()]  # noqa: S101


async def _wire(http: httpx.AsyncClient, thread: str, mode: str) -> None:
    body = {
        "assistant_id": "guide",
        "input": {"messages": [{"role": "user", "content": "Hello"}]},
        "stream_mode": mode,
    }
    async with http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
        assert "event: end" in [line async for line in response.aiter_lines()]  # noqa: S101


async def runs() -> list[tuple[str, str, str]]:
    modes = ("values", "messages-tuple")
    with tempfile.TemporaryDirectory() as folder, server(folder) as (address, _):
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            lanes = ["/api", *modes]
            made = {lane: (await http.post("/api/threads", json={})).json()["id"] for lane in lanes}
            taken: dict[str, list[float]] = {lane: [] for lane in lanes}
            progress(f"{RUNS} runs in each of {len(lanes)} lanes")
            for _ in range(RUNS):
                for lane, thread in made.items():
                    began = time.perf_counter()
                    await (_own(http, thread) if lane == "/api" else _wire(http, thread, lane))
                    taken[lane].append(time.perf_counter() - began)
    peer = statistics.median(taken["/api"])
    return [
        (lane, _ms(statistics.median(times)), f"{statistics.median(times) / peer:.2f}")
        for lane, times in taken.items()
    ]


class Listener:
    """A raw connection, because a thousand clients of a library would be what is measured."""

    def __init__(self, address: str, path: str) -> None:
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port, self._path = int(port), path
        self.late: list[float] = []
        self.ends = 0

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        head = f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self._writer.write(head.encode())
        async for line in self._lines():
            if line.startswith(b": listening"):
                return

    async def listen(self) -> None:
        async for line in self._lines():
            if b"run_done" in line or line == b"event: done\n":
                self.ends += 1
                if self.ends == SAID:
                    return
            elif line.startswith((b"data: [{", b'data: {"type":"token"')):
                told = json.loads(line[6:])
                word = told["text"] if isinstance(told, dict) else told[0]["content"]
                self.late.append((time.monotonic_ns() - int(word)) / 1e9)

    async def _lines(self) -> AsyncIterator[bytes]:
        while line := await self._reader.readline():
            yield line

    def close(self) -> None:
        self._writer.close()


async def listeners(stream: str) -> list[str]:
    """All of them hear one thread by the same kind of stream."""
    with tempfile.TemporaryDirectory() as folder, server(folder) as (address, pipe):
        async with httpx.AsyncClient(base_url=address, timeout=120) as http:
            thread: Any = (await http.post("/api/threads", json={})).json()["id"]
            await _wire(http, thread, "values")
            before = await _ask(pipe)
            progress(f"{SOCKETS - 1:,} listeners of {stream}")
            found = [Listener(address, stream.format(thread)) for _ in range(SOCKETS - 1)]
            for start in range(0, len(found), OPEN_AT_ONCE):
                await asyncio.gather(*(each.open() for each in found[start : start + OPEN_AT_ONCE]))
            memory = (await _ask(pipe) - before) / len(found)
            heard = asyncio.gather(*(each.listen() for each in found))
            for _ in range(SAID):
                await _wire(http, thread, "messages-tuple")
            await heard
        for each in found:
            each.close()
    late = [each for listener in found for each in listener.late]
    return [
        stream.format("…"),
        str(min(each.ends for each in found)),
        f"{memory / 1024:.0f} kB",
        _ms(statistics.median(late)),
        _ms(_p99(late)),
    ]


async def main() -> None:
    header = ("lane", "a run, median", "next to /api")
    print_columns("Runs, one after the other, SQLite", header, await runs())
    streams = [await listeners(each) for each in ("/api/threads/{}/events", "/threads/{}/stream")]
    title = f"A thread with {SOCKETS - 1:,} listeners, SQLite"
    columns = ("stream", "runs heard by each", "memory of a listener", "word heard, p50", "p99")
    print_columns(title, columns, streams)


if __name__ == "__main__":
    asyncio.run(main())
