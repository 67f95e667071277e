"""What the state of a custom graph costs a turn: `python -m bench.state`.

Ours is the whole runtime: inbox, queue, context, the graph, and the end of the turn with its state.
The peer is the same graph alone on LangGraph's saver for the same database, which keeps messages
and state in its checkpoints. The graph has two steps.

The lanes run one after the other, each in a process and on a server of its own: what the peer
writes must not slow its neighbour. So run it on an idle machine; it takes up to five minutes.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from bench.compression import apart
from bench.stores import AGENT, Writer
from bench.table import Work, medians, print_columns, progress, scaled
from segue.facade import Segue
from segue.settings import Settings
from segue.settings.agents import Limits
from segue.simulate.world import plain_agent, with_graph
from segue.testing.postgres import PostgresServer

SIZES = (1_000, 100_000, 1_000_000)
ROUNDS = scaled(20, least=5)
TURNS = scaled(1_000, least=40)
PART = TURNS // 10
# A lane that takes longer ends with the part that it is in.
LONGEST = 90.0
STORES = ("SQLite", "PostgreSQL")
# Ten turns fill it, so that what is measured is the state.
BUDGET = 1_000
SMALL = SIZES[0]


class State(MessagesState):
    turns: int
    files: dict[str, str]


def graph_of(size: int, *, rewrites: bool, saver: Any = None) -> Any:
    """Counts its turns, and keeps files of this size, which it rewrites each turn or not at all."""
    writer = Writer()

    def work(state: State) -> dict[str, Any]:
        turns = state.get("turns", 0) + 1
        if state.get("files") and not rewrites:
            return {"turns": turns}
        return {"turns": turns, "files": {f"{turns}.txt": "x" * size}}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_node("answer", lambda _: {"messages": [AIMessage(writer.answer())]})
    builder.add_edge(START, "work")
    builder.add_edge("work", "answer")
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def ours(database: str, size: int, *, rewrites: bool) -> AsyncIterator[Work]:
    writer = Writer()
    plain = plain_agent(AGENT, context_tokens=BUDGET, autonomy={"enabled": False})
    agent = with_graph(plain, graph_of(size, rewrites=rewrites))
    agent = agent.model_copy(update={"limits": Limits(state_bytes=2 * size)})
    async with Segue.open(Settings(database=database, agents=(agent,))) as segue:
        thread = await segue.create_thread("user")

        async def turn() -> None:
            accepted = await segue.send(thread, writer.question())
            await segue.wait_turn(accepted.turn)

        yield turn


@asynccontextmanager
async def theirs(address: str, size: int, *, rewrites: bool) -> AsyncIterator[Work]:
    writer = Writer()
    kind = AsyncSqliteSaver if address.endswith(".db") else AsyncPostgresSaver
    async with kind.from_conn_string(address) as saver:
        await saver.setup()
        graph = graph_of(size, rewrites=rewrites, saver=saver)
        config: Any = {"configurable": {"thread_id": "thread"}}

        async def turn() -> None:
            await graph.ainvoke({"messages": [HumanMessage(writer.question())]}, config)

        yield turn


LANES: dict[str, Callable[..., AbstractAsyncContextManager[Work]]] = {
    "whole runtime": ours,
    "bare graph": theirs,
}


class Place:
    """New databases of one kind, for one lane."""

    def __init__(self, store: str, lane: str, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        is_file = store == "SQLite"
        self._server = None if is_file else stack.enter_context(PostgresServer.start())
        self._open = LANES[lane]
        self._suffix = "" if lane == "whole runtime" else ".db"
        self._count = 0

    def lane(self, size: int, *, rewrites: bool) -> AbstractAsyncContextManager[Work]:
        self._count += 1
        file = str(self._folder / f"{self._count}{self._suffix}")
        database = self._server.create_database() if self._server else file
        return self._open(database, size, rewrites=rewrites)


def by_size(store: str, lane: str) -> list[float]:
    """The median turn for each size, that changes a counter, and that rewrites all of it."""

    async def measure(place: Place) -> list[float]:
        found: list[float] = []
        for size in SIZES:
            for rewrites in (False, True):
                async with place.lane(size, rewrites=rewrites) as turn:
                    found += await medians(turn, rounds=ROUNDS, seconds=5)
        return found

    with ExitStack() as stack:
        return asyncio.run(measure(Place(store, lane, stack)))


def over_turns(store: str, lane: str) -> list[float]:
    """The medians of the parts of a long thread."""

    async def measure(place: Place) -> list[float]:
        began, found = time.perf_counter(), list[float]()
        async with place.lane(SMALL, rewrites=True) as turn:
            while len(found) * PART < TURNS and time.perf_counter() - began < LONGEST:
                times: list[float] = []
                for _ in range(PART):
                    start = time.perf_counter()
                    await turn()
                    times.append(time.perf_counter() - start)
                found.append(median(times) * 1_000)
        return found

    with ExitStack() as stack:
        return asyncio.run(measure(Place(store, lane, stack)))


def size_rows(store: str) -> list[tuple[str, ...]]:
    found: list[list[float]] = []
    for lane in LANES:
        progress(f"{store}: turns by size of the state, {lane}")
        found.append(apart(by_size, store, lane))
    kinds = [(f"{size:,}", what) for size in SIZES for what in ("a counter", "all of it")]
    return [
        (store, *kind, f"{mine:.1f}", f"{peer:.1f}", f"{mine / peer:.2f}")
        for kind, mine, peer in zip(kinds, *found, strict=True)
    ]


def turn_row(store: str, lane: str) -> tuple[str, ...]:
    progress(f"{store}: {TURNS:,} turns, {lane}")
    parts = apart(over_turns, store, lane)
    shown = [f"{part:.1f}" for part in parts] + ["-"] * (TURNS // PART - len(parts))
    return store, lane, *shown, f"{parts[-1] / parts[0]:.2f}"


def main() -> None:
    sizes = [row for store in STORES for row in size_rows(store)]
    header = ("store", "bytes of state", "changes", *LANES, "ratio")
    print_columns("One turn of a graph with state, ms", header, sizes)
    turns = [turn_row(store, lane) for store in STORES for lane in LANES]
    parts = [f"-{number * PART:,}" for number in range(1, TURNS // PART + 1)]
    title = f"Medians of each {PART} turns, with {SMALL:,} bytes that all change, ms"
    print_columns(title, ("store", "what", *parts, "last / first"), turns)


if __name__ == "__main__":
    main()
