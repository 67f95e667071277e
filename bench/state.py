"""What the state of a custom graph costs a turn: `python -m bench.state`.

Ours is the whole runtime: inbox, queue, context, the graph, and the end of the turn with its state.
The peer is the same graph alone on LangGraph's saver for the same database, which keeps messages
and state in its checkpoints. The graph has two steps.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from bench.stores import AGENT, Writer
from bench.table import Work, medians, print_columns, progress, scaled
from segue.facade import Segue
from segue.settings import Settings
from segue.settings.agents import Limits
from segue.simulate.world import plain_agent, with_graph
from segue.testing.postgres import PostgresServer

SIZES = (1_000, 100_000, 1_000_000)
ROUNDS = scaled(40, least=5)
TURNS = scaled(1_000, least=40)
PART = TURNS // 10
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


class Places:
    """New databases of one kind."""

    def __init__(self, name: str, folder: Path, server: PostgresServer | None) -> None:
        self.name = name
        self._folder = folder
        self._server = server
        self._count = 0

    def new(self) -> tuple[str, str]:
        """One for the runtime and one for a saver."""
        self._count += 1
        if self._server is not None:
            return self._server.create_database(), self._server.create_database()
        folder = self._folder / str(self._count)
        folder.mkdir()
        return str(folder / "segue"), str(folder / "peer.db")


async def by_size(places: Places, size: int, *, rewrites: bool) -> tuple[str, ...]:
    progress(f"{places.name}: {size:,} bytes")
    mine, peer = places.new()
    async with (
        ours(mine, size, rewrites=rewrites) as our_turn,
        theirs(peer, size, rewrites=rewrites) as their_turn,
    ):
        first, second = await medians(our_turn, their_turn, rounds=ROUNDS, seconds=20)
    what = "all of it" if rewrites else "a counter"
    return places.name, f"{size:,}", what, f"{first:.1f}", f"{second:.1f}", f"{first / second:.2f}"


async def over_turns(places: Places) -> list[tuple[str, ...]]:
    """One after the other: what the peer writes by its last turns would slow down its neighbour."""
    mine, peer = places.new()
    lanes = {
        "whole runtime": ours(mine, SMALL, rewrites=True),
        "bare graph": theirs(peer, SMALL, rewrites=True),
    }
    rows: list[tuple[str, ...]] = []
    for name, lane in lanes.items():
        progress(f"{places.name}: {TURNS:,} turns, {name}")
        times: list[float] = []
        async with lane as turn:
            for _ in range(TURNS):
                began = time.perf_counter()
                await turn()
                times.append(time.perf_counter() - began)
        # Not the first ones, which also load code and fill caches.
        early, late = (median(part) * 1_000 for part in (times[PART : 2 * PART], times[-PART:]))
        rows.append((places.name, name, f"{early:.1f}", f"{late:.1f}", f"{late / early:.2f}"))
    return rows


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer.start() as server:
        kinds = [
            Places("SQLite", Path(folder), None),
            Places("PostgreSQL", Path(folder), server),
        ]
        sizes = [
            await by_size(places, size, rewrites=rewrites)
            for places in kinds
            for size in SIZES
            for rewrites in (False, True)
        ]
        header = ("store", "bytes of state", "changes", "whole runtime", "bare graph", "ratio")
        print_columns("One turn of a graph with state, ms", header, sizes)
        turns = [row for places in kinds for row in await over_turns(places)]
        parts = (f"turns {PART}-{2 * PART}", f"the last {PART} of {TURNS:,}", "ratio")
        print_columns(f"The same with {SMALL:,} bytes, ms", ("store", "what", *parts), turns)


if __name__ == "__main__":
    asyncio.run(main())
