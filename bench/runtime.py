"""The whole runtime against a bare agent: `python -m bench.runtime`.

The peer is langchain's `create_agent` with the same zero-latency scripted model on the official
saver, a conversation per LangGraph thread. Ours does more per turn: it stores the message before
anything else, queues and leases the turn, streams to a listener, plans a follow-up, and can be
killed at any point.
"""

import asyncio
import gc
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from bench.stores import now
from bench.table import print_columns, scaled
from segue.agent.checkpoints.postgres import PostgresCheckpoints
from segue.agent.checkpoints.store import SqliteCheckpoints
from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides, compose
from segue.events import MessageDelta, MessageStored
from segue.facade import Segue
from segue.journal.records import NewTimer
from segue.settings import Settings
from segue.simulate.world import plain_agent
from segue.testing.postgres import PostgresServer

QUESTION = "Which of the two museums near the station is open today, and until when?"
ANSWER = "The first one is open until six; the second is closed on Mondays."
TURNS = scaled(200, least=10)
THREADS = 100
PENDING = scaled(100_000, least=1_000)

Talk = Callable[[str], Awaitable[object]]


def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=lambda _: AIMessage(ANSWER), keep=0)


@asynccontextmanager
async def bare_agent(database: str, model: ScriptedChatModel) -> AsyncIterator[Any]:
    """An agent that keeps a conversation in the graph's own state, on the official saver."""
    is_server = Settings(database=database).is_postgres
    checkpoints: Any
    if is_server:
        checkpoints = PostgresCheckpoints(database)
    else:
        checkpoints = SqliteCheckpoints(Path(database) / "bare.db")
    await checkpoints.open()
    yield create_agent(model, system_prompt="You know.", checkpointer=checkpoints.saver())
    await checkpoints.close()


@asynccontextmanager
async def bare(database: str) -> AsyncIterator[Talk]:
    """A conversation with it; a turn is over when its stream is."""
    async with bare_agent(database, model()) as agent:

        async def talk(thread: str) -> None:
            config = {"configurable": {"thread_id": thread}}
            given = {"messages": [HumanMessage(QUESTION)]}
            async for _ in agent.astream(given, config, stream_mode=["messages", "updates"]):
                pass

        yield talk


@asynccontextmanager
async def ours(database: str) -> AsyncIterator[Talk]:
    """The same, through the whole runtime; a turn is over when the reply is stored."""
    settings = Settings(
        database=database, agents=(plain_agent(system_prompt="You know."),), slots=32
    )
    async with Segue.open(settings, Overrides(models={"guide": model()})) as segue:
        known: set[str] = set()

        async def talk(thread: str) -> None:
            if thread not in known:
                # A user each: the positions of one user rise over all threads, one turn at a time.
                await segue.create_thread(f"user of {thread}", thread_id=thread)
                known.add(thread)
            accepted = await segue.send(thread, QUESTION)
            await segue.wait_turn(accepted.turn)

        yield talk


async def rate(talk: Talk, threads: int, turns: int) -> float:
    """Turns per second, of so many threads that talk at the same time."""

    async def converse(number: int) -> None:
        for _ in range(max(turns // threads, 1)):
            await talk(f"thread-{threads}-{number}")

    await talk("warm")
    gc.collect()
    gc.freeze()  # a full collection takes as long as several turns, and may fall into any lane
    began = time.perf_counter()
    await asyncio.gather(*(converse(number) for number in range(threads)))
    return max(turns // threads, 1) * threads / (time.perf_counter() - began)


async def turn_rows(name: str, database: Callable[[], str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for threads, turns in ((1, TURNS), (THREADS, 2 * max(TURNS, THREADS))):
        async with bare(database()) as talk:
            theirs = await rate(talk, threads, turns)
        async with ours(database()) as talk:
            own = await rate(talk, threads, turns)
        rows.append((name, str(threads), f"{theirs:.0f}", f"{own:.0f}", f"{own / theirs:.2f}"))
    return rows


async def thinking(_: list[BaseMessage]) -> str:
    """As long as a quick model takes for its first token."""
    await asyncio.sleep(0.3)
    return ANSWER


async def first_token_row(name: str, database: Callable[[], str]) -> tuple[str, ...]:
    """From the user's message to the first token, where the model takes its time."""
    theirs, own = [], []
    async with bare_agent(database(), ScriptedChatModel(script=thinking, keep=0)) as agent:
        for number in range(TOKENS):
            config = {"configurable": {"thread_id": f"first-{number}"}}
            began = time.perf_counter()
            given = {"messages": [HumanMessage(QUESTION)]}
            async with aclosing(agent.astream(given, config, stream_mode="messages")) as pieces:
                await anext(pieces)
                theirs.append(time.perf_counter() - began)
    settings = Settings(database=database(), agents=(plain_agent(system_prompt="You know."),))
    models = Overrides(models={"guide": ScriptedChatModel(script=thinking, keep=0)})
    async with Segue.open(settings, models) as segue:
        for number in range(TOKENS):
            thread = await segue.create_thread("ada", thread_id=f"first-{number}")
            stream: Any = segue.listen(thread)
            async with aclosing(stream) as events:
                first = asyncio.create_task(_first_piece(events, MessageDelta))
                await asyncio.sleep(0)
                began = time.perf_counter()
                accepted = await segue.send(thread, QUESTION)
                await first
                own.append(time.perf_counter() - began)
            await segue.wait_turn(accepted.turn)
    before, after = statistics.median(theirs), statistics.median(own)
    return name, _ms(before), _ms(after), f"{after / before:.2f}"


TOKENS = scaled(30, least=3)


async def latency_rows(name: str, database: str) -> list[tuple[str, ...]]:
    """From the due time to the first token, and from a reply to the end of the follow-up."""
    agent = plain_agent(autonomy={"policy": {"cooldown": 0, "max_per_day": 10_000_000}})
    settings = Settings(database=database, agents=(agent,))
    stops: list[float] = []
    held = asyncio.Event()
    asked = asyncio.Event()
    stopped = asyncio.Event()

    async def line(messages: list[BaseMessage]) -> str:
        # Follow-ups alone: the answer to the message that stopped one is not held up.
        if held.is_set() and messages[-1].text != QUESTION:
            asked.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stops.append(time.perf_counter())
                stopped.set()
                raise
        return ANSWER

    given = Overrides(models={"guide": ScriptedChatModel(script=line, keep=0)})
    async with compose(settings, given) as system:
        segue, parts = Segue(system), system.deps
        await _fill(system, PENDING)
        late = [await _lateness(segue, system, f"late-{n}") for n in range(ROUNDS)]
        held.set()
        cancels = []
        for number in range(ROUNDS):
            thread = await segue.create_thread("bob", thread_id=f"stop-{number}")
            timer = NewTimer(thread.id, now(), "check_in")
            asked.clear()
            await parts.journal.timers.arm(timer, ids=parts.ids, now=now())
            parts.wakeups.timers.at(timer.due_at)
            await asked.wait()
            began = time.perf_counter()
            held.clear()
            await segue.send(thread, QUESTION)
            await stopped.wait()
            stopped.clear()
            cancels.append(stops[-1] - began)
            held.set()
    return [
        (name, "due time to first token, p50", _ms(statistics.median(late))),
        (name, "due time to first token, p99", _ms(_p99(late))),
        (name, "user's message to stopped model, p99", _ms(_p99(cancels))),
    ]


ROUNDS = scaled(100, least=5)


async def bare_lateness_rows(name: str, database: str) -> list[tuple[str, ...]]:
    """The baseline: a timer of the event loop and a bare agent, both lost if the process ends."""
    late = []
    async with bare_agent(database, model()) as agent:
        for number in range(ROUNDS):
            config = {"configurable": {"thread_id": f"late-{number}"}}
            given = {"messages": [HumanMessage(QUESTION)]}
            due = now() + timedelta(milliseconds=50)
            await asyncio.sleep((due - now()).total_seconds())
            async with aclosing(agent.astream(given, config, stream_mode="messages")) as pieces:
                await anext(pieces)
            late.append((now() - due).total_seconds())
    return [
        (name, "bare timer and agent, due time to first token, p50", _ms(statistics.median(late))),
        (name, "bare timer and agent, due time to first token, p99", _ms(_p99(late))),
    ]


async def _fill(system: Any, pending: int) -> None:
    """Threads that wait for their time, far away."""
    parts = system.deps
    later = now() + timedelta(days=30)
    limit = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with limit:
            await parts.journal.threads.create(
                f"pending-{number}", agent_id="guide", user_id=f"u{number}", now=now()
            )
            await parts.journal.timers.arm(
                NewTimer(f"pending-{number}", later, "check_in"), ids=parts.ids, now=now()
            )

    for first in range(0, pending, 500):
        await asyncio.gather(*(one(n) for n in range(first, min(first + 500, pending))))


async def _lateness(segue: Segue, system: Any, thread_id: str) -> float:
    parts = system.deps
    thread = await segue.create_thread(f"user-{thread_id}", thread_id=thread_id)
    due = now() + timedelta(milliseconds=50)
    stream: Any = segue.listen(thread)
    async with aclosing(stream) as events:
        first = asyncio.create_task(_first_piece(events))
        await asyncio.sleep(0)
        await parts.journal.timers.arm(
            NewTimer(thread.id, due, "check_in"), ids=parts.ids, now=now()
        )
        parts.wakeups.timers.at(due)
        await first
    return (now() - due).total_seconds()


async def _first_piece(
    events: AsyncIterator[Any], kind: Any = MessageDelta | MessageStored
) -> None:
    async for heard in events:
        if isinstance(heard.payload, kind):
            return


async def idle_row(name: str, database: str) -> tuple[str, ...]:
    """Processor time of a runtime that waits for a far-away timer."""
    settings = Settings(database=database, agents=(plain_agent(),))
    async with compose(settings, Overrides()) as system:
        await _fill(system, 100)
        await asyncio.sleep(1)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(IDLE_SECONDS)
        after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return name, "processor time while idle", f"{100 * used / IDLE_SECONDS:.2f} %"


IDLE_SECONDS = scaled(20, least=1)


def _p99(values: list[float]) -> float:
    return sorted(values)[max(int(len(values) * 0.99) - 1, 0)]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


async def main() -> None:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(PostgresServer.start())

        def folder() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory())

        rows = [
            *await turn_rows("SQLite", folder),
            *await turn_rows("PostgreSQL", server.create_database),
        ]
        print_columns(
            "Turns per second, zero-latency model",
            ("store", "threads", "bare", "ours", "ratio"),
            rows,
        )
        if "--turns" in sys.argv:
            return
        firsts = [
            await first_token_row("SQLite", folder),
            await first_token_row("PostgreSQL", server.create_database),
        ]
        print_columns(
            "User's message to first token, p50, of a model that takes 300 ms",
            ("store", "bare", "ours", "ratio"),
            firsts,
        )
        times = [
            *await latency_rows("SQLite", folder()),
            *await bare_lateness_rows("SQLite", folder()),
            await idle_row("SQLite", folder()),
            *await latency_rows("PostgreSQL", server.create_database()),
            *await bare_lateness_rows("PostgreSQL", server.create_database()),
            await idle_row("PostgreSQL", server.create_database()),
        ]
        print_columns(f"With {PENDING:,} timers pending", ("store", "what", "figure"), times)


if __name__ == "__main__":
    asyncio.run(main())
