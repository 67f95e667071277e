"""A turn with 100,000 messages behind it next to one with 10: `python -m bench.long_life`.

Through the whole runtime, with a model that takes no time. Both threads are in one database, and
both windows are as large: ten turns fill the agent's budget.
"""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from langchain_core.messages import AIMessage

from bench.stores import AGENT, PostgresStore, SqliteStore, Store, Writer
from bench.table import medians, print_columns, progress, scaled
from bench.threads import filled
from segue.agent.scripted import ScriptedChatModel
from segue.compose import Overrides
from segue.facade import Segue
from segue.settings import Settings
from segue.simulate.world import plain_agent
from segue.stores import JOURNAL_FILE
from segue.testing.postgres import PostgresServer

SHORT = 10
LONG = scaled(100_000, least=1_000)
ROUNDS = scaled(200, least=10)
BUDGET = 1_000
# A backlog of so many batches would be summed up beside what is measured.
OFF = {"enabled": False}


async def turn(segue: Segue, thread: str, writer: Writer) -> None:
    accepted = await segue.send(thread, writer.question())
    await segue.wait_turn(accepted.turn)


async def measure(name: str, store: Store, database: Callable[[], str]) -> tuple[str, ...]:
    progress(f"{name}: filling a thread with {LONG:,} messages")
    await store.open()
    async with store.indexing_later():
        short, long = await filled(store, "short", SHORT), await filled(store, "long", LONG)
    await store.rest()
    await store.close()
    writer = Writer()
    model = ScriptedChatModel(script=lambda _: AIMessage(writer.answer()), keep=0)
    settings = Settings(
        database=database(), agents=(plain_agent(AGENT, context_tokens=BUDGET, compression=OFF),)
    )
    async with Segue.open(settings, Overrides(models={AGENT: model})) as segue:
        works = [partial(turn, segue, place.thread, writer) for place in (short, long)]
        await medians(*works, rounds=SHORT)  # so that both windows are full
        first, second = await medians(*works, rounds=ROUNDS, seconds=60)
    return name, f"{first:.1f}", f"{second:.1f}", f"{second / first:.2f}"


async def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "long"

        def on_file() -> str:
            (folder / "data.db").rename(folder / JOURNAL_FILE)
            return str(folder)

        server = stack.enter_context(PostgresServer.start())
        postgres = PostgresStore(server)
        rows = [
            await measure("SQLite", SqliteStore(folder), on_file),
            await measure("PostgreSQL", postgres, lambda: postgres.address),
        ]
    print_columns(
        "One turn of the whole runtime, ms",
        ("store", f"{SHORT} messages before", f"{LONG:,} before", "ratio"),
        rows,
    )


if __name__ == "__main__":
    asyncio.run(main())
