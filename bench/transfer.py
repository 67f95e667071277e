"""What an export and an import cost, and that their memory does not grow with the conversation.

The same work on 10,000 and on 100,000 messages of one thread, each in a process of its own, whose
peak is all that it ever had in memory. Batches are four messages long.
"""

import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from langchain_core.messages import AIMessage, ToolMessage

from bench.stores import AGENT, Writer, now
from bench.table import print_columns, progress, scaled
from segue import stamp, user_message
from segue.journal.journal import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.rows import encode_message
from segue.journal.sqlite import SqliteJournal
from segue.journal.tables import MESSAGES, THREADS, Row
from segue.runtime.ids import SnowflakeGenerator
from segue.testing.postgres import PostgresServer
from segue.transfer.export import Scope, export_all
from segue.transfer.imports import ImportOptions, import_file
from segue.transfer.lines import ExportWriter

SIZES = (scaled(10_000, least=400), scaled(100_000, least=4_000))
BATCH = 4
THREAD = "long"


@dataclass(frozen=True)
class Cost:
    """Seconds each way, the size of the file, and the most that the process had in memory."""

    taken_in: float
    taken_out: float
    size: int
    idle: int
    peak: int


def measured(address: str, messages: int) -> Cost:
    """In a process of its own: the memory of an earlier one would hide what this one needs."""
    return asyncio.run(_measured(address, messages))


async def _measured(address: str, messages: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        journal: Journal = (
            PostgresJournal(address) if address else SqliteJournal(Path(folder) / "data.db")
        )
        await journal.open()
        path = Path(folder) / "export.jsonl"
        write_export(path, messages)
        idle = peak()
        began = time.perf_counter()
        with path.open("rb") as file:
            await import_file(journal, file, ImportOptions(), now=now())
        taken_in = time.perf_counter() - began
        began = time.perf_counter()
        with (Path(folder) / "again.jsonl").open("wb") as out:
            async for line in _exported(journal):
                out.write(line)
        taken_out = time.perf_counter() - began
        cost = Cost(taken_in, taken_out, path.stat().st_size, idle, peak())
        await journal.close()
    return cost


def _exported(journal: Journal) -> AsyncIterator[bytes]:
    return export_all(journal, Scope(), ExportWriter(), created_at=now())


def write_export(path: Path, messages: int) -> None:
    """A file as an export writes it, without a database to export it from."""
    began = now() - timedelta(days=360)
    ticks = iter(range(int(began.timestamp() * 1000), 1 << 62, 1_000))
    ids = SnowflakeGenerator(node=1, clock=lambda: next(ticks))
    writer, writing = Writer(), ExportWriter()
    thread: Row = {
        **{column.name: None for column in THREADS.read},
        "id": THREAD,
        "agent_id": AGENT,
        "user_id": "ann",
        "title_is_set": False,
        "preview_position": 0,
        "read_position": 0,
        "changed_position": 0,
        "unread": 0,
        "message_count": messages,
        "epoch": 0,
        "last_position": 0,
        "settings": {},
        "created_at": began,
        "updated_at": began,
    }
    with path.open("wb") as file:
        file.write(writing.header("full", began))
        file.write(writing.row(THREADS, thread))
        for number in range(messages // BATCH):
            file.write(writing.batch(THREAD, _batch(writer, ids, number)))
        file.write(writing.footer())


def _batch(writer: Writer, ids: SnowflakeGenerator, number: int) -> list[Row]:
    call = {"name": "look_up", "args": {"about": writer.text(3)}, "id": f"call-{number}"}
    said = [
        user_message(writer.question()),
        AIMessage("", tool_calls=[call]),
        ToolMessage(writer.answer(), tool_call_id=call["id"]),
        AIMessage(writer.answer()),
    ]
    rows: list[Row] = []
    for message in stamp(said, ids):
        row = encode_message(message)
        known = {name: getattr(row, name) for name in ("position", "batch", "sequence_num")}
        beside = {"client_message_id": None, "archived": False, "created_at": now()}
        rows.append({**known, **beside, "body": json.loads(row.body)})
    assert {column.name for column in MESSAGES.read} == set(rows[0])  # noqa: S101 - or all is lost
    return rows


def peak() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cells(name: str, messages: int, cost: Cost) -> list[str]:
    mega = 1e6
    return [
        f"{name}, {messages:,} messages",
        f"{messages / cost.taken_out:,.0f}",
        f"{messages / cost.taken_in:,.0f}",
        f"{cost.size / mega:,.1f}",
        f"{cost.idle / mega:,.0f}",
        f"{cost.peak / mega:,.0f}",
    ]


def main() -> None:
    rows = []
    processes = multiprocessing.get_context("spawn")
    with PostgresServer.start() as server:
        for name in ("SQLite", "PostgreSQL"):
            for messages in SIZES:
                progress(f"{name}, {messages:,} messages")
                address = "" if name == "SQLite" else server.create_database()
                with ProcessPoolExecutor(1, mp_context=processes) as pool:
                    cost = pool.submit(measured, address, messages).result()
                rows.append(_cells(name, messages, cost))
    header = ("", "out per s", "in per s", "file, MB", "idle, MB", "peak, MB")
    print_columns("Export and import", header, rows)


if __name__ == "__main__":
    main()
