"""What `segue compress` costs, and that its memory does not grow with the conversation.

The same work on 10,000 and on 100,000 messages of one thread, down to the target of a window of
8,000 tokens, each in a process of its own, whose peak is all that it ever had in memory. Batches
are four messages long, and the model that sums up takes no time.
"""

import asyncio
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.stores import AGENT, now
from bench.table import print_columns, progress
from bench.transfer import SIZES, THREAD, peak, write_export
from segue.cli.housekeeping import compress_thread
from segue.core.compression import Strategy
from segue.offline import open_offline
from segue.settings import Settings
from segue.settings.agents import AgentConfig, CompressionConfig
from segue.stores import JOURNAL_FILE
from segue.testing.postgres import PostgresServer
from segue.transfer.imports import ImportOptions, import_file

WINDOW = 8_000
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """How long it took, what left and what was stored, and the most that was in memory."""

    seconds: float
    batches: int
    summaries: int
    idle: int
    peak: int


def fill(database: str, messages: int) -> None:
    asyncio.run(_fill(Settings(database=database), messages))


async def _fill(settings: Settings, messages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        write_export(path, messages)
        async with open_offline(settings, make=True) as segue:
            with path.open("rb") as file:
                await import_file(segue.journal, file, ImportOptions(), now=now())


def measured(database: str, strategy: Strategy) -> Cost:
    """In a process of its own: the memory of an earlier one would hide what this one needs."""
    wanted = CompressionConfig(strategy=strategy)
    agent = AgentConfig(id=AGENT, model="scripted", context_tokens=WINDOW, compression=wanted)
    return asyncio.run(_measured(Settings(database=database, agents=(agent,))))


async def _measured(settings: Settings) -> Cost:
    async with open_offline(settings) as segue:
        thread = await segue.get_thread(THREAD)
        idle = peak()
        began = time.perf_counter()
        outcome = await compress_thread(segue, thread, dry_run=False)
        taken = time.perf_counter() - began
    return Cost(taken, len(outcome.leaving), len(outcome.summaries), idle, peak())


def apart(work: Callable[..., T], *args: object) -> T:
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=processes) as pool:
        return pool.submit(work, *args).result()


def _cells(name: str, messages: int, strategy: Strategy, cost: Cost) -> list[str]:
    mega = 1e6
    return [
        f"{name}, {messages:,} messages",
        strategy.value,
        f"{messages / cost.seconds:,.0f}",
        f"{cost.batches:,}",
        f"{cost.summaries:,}",
        f"{cost.idle / mega:,.0f}",
        f"{cost.peak / mega:,.0f}",
    ]


def _on_file(folder: Path) -> tuple[str, Callable[[], str]]:
    """Where to fill a database, and a copy of it as often as one is asked for."""
    first, copy = folder / "first", folder / "copy"

    def copied() -> str:
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        shutil.copy(first / JOURNAL_FILE, copy)
        return str(copy)

    return str(first), copied


def _on_server(server: PostgresServer) -> tuple[str, Callable[[], str]]:
    first = server.create_database()
    return first, lambda: server.create_database(like=first)


def main() -> None:
    rows = []
    with PostgresServer.start() as server:
        for name in ("SQLite", "PostgreSQL"):
            for messages in SIZES:
                with tempfile.TemporaryDirectory() as folder:
                    first, copied = (
                        _on_file(Path(folder)) if name == "SQLite" else _on_server(server)
                    )
                    progress(f"{name}: filling a thread with {messages:,} messages")
                    apart(fill, first, messages)
                    for strategy in Strategy:
                        progress(f"{name}, {messages:,} messages, {strategy.value}")
                        cost = apart(measured, copied(), strategy)
                        rows.append(_cells(name, messages, strategy, cost))
    header = ("", "strategy", "per s", "batches", "summaries", "idle, MB", "peak, MB")
    print_columns("Compression of a whole thread, messages", header, rows)


if __name__ == "__main__":
    main()
