"""What a turn costs at turn 10 and at turn 3,000: `python -m bench.journal`.

The journal stores the user's message, queues, claims and finishes the turn. The peer is a bare
LangGraph graph that keeps the conversation in its `messages` channel on the official saver. The
peer is not driven through all turns, which takes many minutes and gigabytes: its thread is filled
in one update and then measured at that length.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from segue import SnowflakeGenerator, user_message
from segue.journal.ports import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.records import NewTimer
from segue.journal.sqlite import SqliteJournal
from segue.testing.postgres import PostgresServer

QUESTION = "Which of the two museums near the station is open today, and until when? " * 2
ANSWER = "The first one is open until six; the second is closed on Mondays. " * 5
TURNS = (10, 100, 1_000, 3_000)
SAMPLES = 30
LEASE = timedelta(seconds=30)


@dataclass(frozen=True)
class Cost:
    """The median time of one turn and what each turn added to the disk."""

    millis: float
    kilobytes: float


def now() -> datetime:
    return datetime.now(UTC)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def cost_of(
    turn: Callable[[], Awaitable[Any]], size: Callable[[], Awaitable[int]], samples: int = SAMPLES
) -> Cost:
    before = await size()
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        await turn()
        times.append(time.perf_counter() - start)
    return Cost(median(times) * 1_000, (await size() - before) / samples / 1_024)


async def ours(journal: Journal, size: Callable[[], Awaitable[int]]) -> list[Cost]:
    ids = SnowflakeGenerator(node=1)
    await journal.create_thread("thread", agent_id="agent", user_id="user", now=now())

    async def turn() -> None:
        accepted = await journal.accept_message(
            "thread", user_message(QUESTION), ids=ids, now=now()
        )
        await journal.tail("thread", max_tokens=4_000, current_batch=accepted.turn.batch)
        lease = await journal.claim_turn("bench", now=now(), lease_for=LEASE)
        if lease is None:
            raise RuntimeError("The turn that was just queued cannot be claimed.")
        await journal.finish_turn(lease, [AIMessage(ANSWER)], ids=ids, now=now())

    costs, done = [], 0
    for wanted in TURNS:
        for _ in range(wanted - done):
            await turn()
        costs.append(await cost_of(turn, size, samples=100))
        done = wanted + 100
    return costs


async def theirs(saver: Any, size: Callable[[], Awaitable[int]]) -> list[Cost]:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [AIMessage(ANSWER)]})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    graph = builder.compile(checkpointer=saver)
    costs = []
    for turns in TURNS:
        config: Any = {"configurable": {"thread_id": f"thread-{turns}"}}
        history = [m for _ in range(turns) for m in (HumanMessage(QUESTION), AIMessage(ANSWER))]
        await graph.aupdate_state(config, {"messages": history}, as_node="model")

        async def turn(config: Any = config) -> None:
            await graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, config)

        costs.append(await cost_of(turn, size))
    return costs


def print_costs(title: str, columns: dict[str, list[Cost]]) -> None:
    print(f"\n{title}\n")
    print(
        "| turn | " + " | ".join(f"{name}, ms | {name}, kB" for name in columns) + " | ratio, ms |"
    )
    print("|---" * (2 * len(columns) + 2) + "|")
    for index, turn in enumerate(TURNS):
        costs = [column[index] for column in columns.values()]
        cells = " | ".join(f"{cost.millis:.2f} | {cost.kilobytes:.1f}" for cost in costs)
        print(f"| {turn:,} | {cells} | {costs[0].millis / costs[-1].millis:.3f} |")
    own = next(iter(columns.values()))
    growth = own[-1].millis / own[0].millis, own[-1].kilobytes / own[0].kilobytes
    print(f"\nours, turn {TURNS[-1]:,} against turn {TURNS[0]}: ", end="")
    print(f"x{growth[0]:.2f} time, x{growth[1]:.2f} disk")


async def on_sqlite(folder: Path) -> None:
    async def folded(name: str) -> int:
        """The size of the files with the log folded in, so that it does not count twice."""
        with sqlite3.connect(folder / name / "data.db") as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return size_of(folder / name)

    for name in ("ours", "theirs"):
        (folder / name).mkdir()
    journal = SqliteJournal(folder / "ours" / "data.db")
    await journal.open()
    own = await ours(journal, lambda: folded("ours"))
    await journal.close()
    async with AsyncSqliteSaver.from_conn_string(str(folder / "theirs" / "data.db")) as saver:
        peer = await theirs(saver, lambda: folded("theirs"))
    print_costs("One turn on SQLite", {"journal": own, "AsyncSqliteSaver": peer})


async def on_postgres(server: PostgresServer) -> None:
    addresses = {name: server.create_database() for name in ("ours", "theirs")}

    async def size(name: str) -> int:
        async with await psycopg.AsyncConnection.connect(addresses[name]) as connection:
            cursor = await connection.execute("SELECT pg_database_size(current_database())")
            row = await cursor.fetchone()
        return int(row[0]) if row else 0

    journal = PostgresJournal(addresses["ours"])
    await journal.open()
    own = await ours(journal, lambda: size("ours"))
    await journal.close()
    async with AsyncPostgresSaver.from_conn_string(addresses["theirs"]) as saver:
        await saver.setup()
        peer = await theirs(saver, lambda: size("theirs"))
    print_costs("One turn on PostgreSQL", {"journal": own, "AsyncPostgresSaver": peer})


async def timers_on_sqlite(folder: Path) -> None:
    journal = SqliteJournal(folder / "timers.db")
    await journal.open()
    ids, start = SnowflakeGenerator(node=1), now()
    began = time.perf_counter()
    for n in range(20_000):
        thread = f"thread-{n}"
        await journal.create_thread(thread, agent_id="agent", user_id=thread, now=start)
        due = start if n < 1_000 else start + timedelta(hours=1)
        await journal.arm_timer(NewTimer(thread, due, "check_in"), ids=ids, now=start)
    armed = time.perf_counter() - began
    began = time.perf_counter()
    claimed = 0
    while leases := await journal.claim_due_timers("bench", now=now(), lease_for=LEASE):
        claimed += len(leases)
    took = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(100):
        await journal.next_due_at()
    asked = (time.perf_counter() - began) / 100
    print(f"\n20,000 timers armed at {20_000 / armed:,.0f}/s (with their threads); ")
    print(f"{claimed:,} due of them claimed in {took * 1_000:.0f} ms; ", end="")
    print(f"next due time in {asked * 1e6:.0f} µs")
    await journal.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await on_sqlite(Path(folder))
        await timers_on_sqlite(Path(folder))
    with PostgresServer.start(fsync=True) as server:
        await on_postgres(server)


if __name__ == "__main__":
    asyncio.run(main())
