"""What a turn costs at turn 10 and at turn 3,000.

The journal stores the user's message, reads the context, queues, claims and finishes the turn. The
peer is a bare LangGraph graph that keeps the conversation in its `messages` channel on the official
saver. The peer is not driven through all turns, which takes many minutes and gigabytes: its thread
is filled in one update and then measured at that length.

Every length has a database of its own, and they take turns. They do so for 512 turns: SQLite merges
its index of words every so often, most of it every 512 turns, and a window with one merge more than
another would show the merge and not the turn.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.stores import AGENT, THREAD, NewStore, Store, Writer, now
from bench.table import Work, print_columns, progress, rotated, scaled
from segue import SnowflakeGenerator, user_message

TURNS = sorted({scaled(turns, least=10) for turns in (10, 100, 1_000, 3_000)})
WINDOW = scaled(512, least=20)
PEER_EVERY = max(1, WINDOW // 30)  # not more often: each turn of a peer makes its next one larger
LEASE = timedelta(seconds=30)
# Ten turns fill it, so that all of them have the same to read.
BUDGET = 1_000


@dataclass
class Lane:
    """A thread of some length, the work of one turn on it, and what a turn costs there."""

    store: Store
    turn: Work
    every: int = 1
    times: list[float] = field(default_factory=list)
    added: int = 0
    written: int = 0

    async def take_turn(self) -> None:
        written = await self.store.written()
        began = time.perf_counter()
        await self.turn()
        self.times.append(time.perf_counter() - began)
        self.written += await self.store.written() - written

    @property
    def cost(self) -> tuple[float, float, float]:
        """Milliseconds, kB added to the disk, kB written."""
        kilobytes = 1_024 * len(self.times)
        return median(self.times) * 1_000, self.added / kilobytes, self.written / kilobytes


async def our_lane(store: Store, turns: int) -> Lane:
    ids, writer, thread = SnowflakeGenerator(node=1), Writer(), THREAD.format(turns)
    journal = store.journal
    await journal.threads.create(thread, agent_id=AGENT, user_id="user", now=now())

    async def turn() -> None:
        accepted = await journal.inbox.accept(
            thread, user_message(writer.question()), ids=ids, now=now()
        )
        await journal.messages.tail(thread, max_tokens=BUDGET, current_batch=accepted.turn.batch)
        lease = await journal.turns.claim_one("bench", now=now(), lease_for=LEASE)
        if lease is None:
            raise RuntimeError("The turn that was just queued cannot be claimed.")
        await journal.turns.finish(lease, [AIMessage(writer.answer())], ids=ids, now=now())

    for _ in range(turns):
        await turn()
    return Lane(store, turn)


async def their_lane(store: Store, saver: Any, turns: int) -> Lane:
    writer = Writer()
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [AIMessage(writer.answer())]})
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": THREAD.format(turns)}}
    history = [
        message
        for _ in range(turns)
        for message in (HumanMessage(writer.question()), AIMessage(writer.answer()))
    ]
    await graph.aupdate_state(config, {"messages": history}, as_node="model")

    async def turn() -> None:
        await graph.ainvoke({"messages": [HumanMessage(writer.question())]}, config)

    return Lane(store, turn, PEER_EVERY)


async def measure(lanes: list[Lane]) -> None:
    for lane in lanes:
        await lane.store.rest()
    sizes = [await lane.store.size() for lane in lanes]
    for number in range(WINDOW):
        for lane in rotated(lanes, number):
            if number % lane.every == 0:
                await lane.take_turn()
    for lane, size in zip(lanes, sizes, strict=True):
        lane.added = await lane.store.size() - size


async def measure_turns(name: str, new_store: NewStore) -> None:
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = new_store()
            await store.open()
            stack.push_async_callback(store.close)
            return store

        progress(f"{name}: driving threads to turn {TURNS[-1]:,}")
        stores = [await opened() for _ in TURNS]
        own = await asyncio.gather(*map(our_lane, stores, TURNS))
        peers = []
        for turns in TURNS:
            store = await opened()
            saver = await stack.enter_async_context(store.saver())
            peers.append(await their_lane(store, saver, turns))
        progress(f"{name}: timing turns")
        await measure(own + peers)
        print_turns(name, store.saver_name, own, peers)


def print_turns(name: str, peer: str, own: list[Lane], peers: list[Lane]) -> None:
    print_columns(
        f"One turn on {name}: ms, kB added to the disk, kB written; {WINDOW} turns from there "
        f"for the journal, {len(peers[0].times)} for the peer",
        (
            *("turn", "journal, ms", "disk", "written"),
            *(f"{peer}, ms", "disk", "written"),
            *("x ms", "x disk"),
        ),
        [
            (
                f"{turns:,}",
                *(f"{figure:,.1f}" for figure in (*ours.cost, *theirs.cost)),
                f"{ours.cost[0] / theirs.cost[0]:.3f}",
                f"{ours.cost[1] / theirs.cost[1]:.4f}",
            )
            for turns, ours, theirs in zip(TURNS, own, peers, strict=True)
        ],
    )
    growth = [last / first for first, last in zip(own[0].cost, own[-1].cost, strict=True)]
    print(
        f"\njournal, turn {TURNS[-1]:,} against turn {TURNS[0]:,}: "
        "x{:.2f} time, x{:.2f} disk, x{:.2f} written".format(*growth)
    )
