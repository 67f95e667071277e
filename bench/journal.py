"""What the journal costs, on both databases: `python -m bench.journal [turns|threads|queues …]`.

`SEGUE_BENCH_SCALE=0.01` makes it a matter of seconds, with sizes that prove nothing.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from bench.queues import measure_queues
from bench.stores import NewStore, PostgresStore, SqliteStore
from bench.threads import measure_threads
from bench.turns import measure_turns
from segue.testing.postgres import PostgresServer

PARTS: dict[str, Callable[[str, NewStore], Awaitable[None]]] = {
    "turns": measure_turns,
    "threads": measure_threads,
    "queues": measure_queues,
}


async def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer.start(fsync=True) as server:
        numbers = count()
        stores: dict[str, NewStore] = {
            "SQLite": lambda: SqliteStore(Path(folder) / str(next(numbers))),
            "PostgreSQL": lambda: PostgresStore(server),
        }
        for part in wanted:
            for name, new_store in stores.items():
                await PARTS[part](name, new_store)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(PARTS)))
