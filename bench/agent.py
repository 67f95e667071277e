"""What our agent layer adds to a turn: `python -m bench.agent`.

The peer is a bare `create_agent` with the same scripted model and the same saver. Ours does more:
it reads the window, searches memories, removes metadata, bounds time, and drops the checkpoints of
a finished turn. The last row stores the turn in the journal as well.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

from bench.stores import now
from bench.table import medians, print_columns, scaled
from segue import SnowflakeGenerator, stamp, user_message
from segue.agent.build import build_graph
from segue.agent.checkpoints.store import SqliteCheckpoints
from segue.agent.langgraph_agent import LangGraphAgent
from segue.agent.scripted import ScriptedChatModel
from segue.core.batch import Batch
from segue.journal.memories import FoundMemory, Memory
from segue.journal.sqlite import SqliteJournal
from segue.runtime.after_turn import AfterTurn
from segue.runtime.bus import Bus
from segue.runtime.clock import SystemClock
from segue.runtime.deps import Deps
from segue.runtime.gatekeeper import Gatekeeper
from segue.runtime.processor import SessionProcessor
from segue.runtime.run import Run
from segue.settings.agents import AgentConfig

QUESTION = "Which of the two museums near the station is open today, and until when?"
ANSWER = "The first one is open until six; the second is closed on Mondays."
EARLIER = 20
ROUNDS = scaled(60, least=5)


class KnownMemories:
    """Three memories that are always found, so that the search itself is not measured here."""

    async def search(self, agent_id: str, user_id: str, text: str) -> list[FoundMemory]:
        at = now()
        return [
            FoundMemory(
                Memory(n, agent_id, user_id, f"m{n}", f"{text} {n}", {}, None, at, at), 1, 1, 1
            )
            for n in range(3)
        ]


def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=lambda _: AIMessage(ANSWER), keep=0)


def exchange(ids: SnowflakeGenerator, *answers: str) -> Batch:
    messages = stamp([user_message(QUESTION), *map(AIMessage, answers)], ids)
    return Batch(messages[0].additional_kwargs["batch"], messages)


async def bare(checkpoints: SqliteCheckpoints) -> Callable[[], Awaitable[object]]:
    """A conversation of the same length, kept in the graph's own state."""
    agent: Any = create_agent(
        model(), system_prompt="You know the museums.", checkpointer=checkpoints.saver()
    )
    earlier = [m for _ in range(EARLIER) for m in (HumanMessage(QUESTION), AIMessage(ANSWER))]
    turn = iter(range(1_000_000))

    async def work() -> None:
        config = {"configurable": {"thread_id": f"bare-{next(turn)}"}}
        given = {"messages": [*earlier, HumanMessage(QUESTION)]}
        async for _ in agent.astream(given, config, stream_mode=["messages", "updates"]):
            pass

    return work


async def layer(
    checkpoints: SqliteCheckpoints, memories: KnownMemories | None
) -> Callable[[], Awaitable[object]]:
    config = AgentConfig(id="guide", system_prompt="You know the museums.")
    built = build_graph(config, model=model(), memories=memories is not None)
    agent = LangGraphAgent(config, built, checkpoints, memories)
    ids = SnowflakeGenerator(node=1)
    history = [exchange(ids, ANSWER) for _ in range(EARLIER)][::-1]

    async def work() -> None:
        run = Run("thread", "guide", "ada", exchange(ids), history, is_new=True)
        async for _ in agent.run(run):
            pass
        await agent.forget(run.batch.id)

    return work


async def whole(
    checkpoints: SqliteCheckpoints, folder: Path
) -> tuple[SqliteJournal, Callable[[], Awaitable[object]]]:
    journal = SqliteJournal(folder / "journal.db")
    await journal.open()
    config = AgentConfig(id="guide", system_prompt="You know the museums.")
    built = build_graph(config, model=model(), memories=True)
    agent = LangGraphAgent(config, built, checkpoints, KnownMemories())
    ids = SnowflakeGenerator(node=2)
    await journal.threads.create("thread", agent_id="guide", user_id="ada", now=now())
    deps = Deps(journal, ids, SystemClock(), Bus(journal), lambda _: agent, "bench")
    after_turn = AfterTurn(deps, Gatekeeper(journal), lambda _: None)
    processor = SessionProcessor(deps, after_turn)

    async def work() -> None:
        await journal.inbox.accept("thread", user_message(QUESTION), ids=ids, now=now())
        lease = await journal.turns.claim_one("bench", now=now(), lease_for=timedelta(seconds=30))
        if lease is None:
            raise RuntimeError("The turn that was just queued cannot be claimed.")
        await processor.process(lease)

    for _ in range(EARLIER):
        await work()
    return journal, work


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoints = await SqliteCheckpoints(folder / "runs.db").open()
        journal, stored = await whole(checkpoints, folder)
        names = (
            "bare create_agent",
            "agent layer",
            "agent layer with memories",
            "whole turn, stored in the journal",
        )
        works = (
            await bare(checkpoints),
            await layer(checkpoints, None),
            await layer(checkpoints, KnownMemories()),
            stored,
        )
        times = await medians(*works, rounds=ROUNDS, seconds=30)
        rows = [
            (what, f"{ms:.2f}", f"{ms / times[0]:.2f}")
            for what, ms in zip(names, times, strict=True)
        ]
        print_columns(f"One turn after {EARLIER} others, SQLite", ("what", "ms", "ratio"), rows)
        await journal.close()
        await checkpoints.close()


if __name__ == "__main__":
    asyncio.run(main())
