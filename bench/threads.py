"""What reading costs in a thread of 1,000 messages and in one of 1,000,000.

The short thread is measured twice: in a database of its own, and beside the long one, to see what
one user's messages cost another. Rows come from the journal's own codec; only their ids are new.
One message in ten is synthetic.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage

from bench.stores import AGENT, THREAD, NewStore, Store, Writer, now
from bench.table import Work, medians, print_columns, progress, scaled
from segue import SnowflakeGenerator, stamp, synthetic_message, user_message
from segue.core.metadata import BatchType
from segue.core.snowflake import millis_of, next_snowflake, time_of
from segue.journal.journal import Journal
from segue.journal.rows import MessageRow, encode_message
from segue.journal.search import owner_mark

SHORT = 1_000
LONG = scaled(1_000_000, least=2_000)
THREADS_OF_A_USER = 60
HITS = 20
FIRST = next_snowflake(0, millis_of(now() - timedelta(days=360)), node=1)
STEP = 30_000 << 22  # half a minute between two messages

Cycle = list[dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """A filled thread, with a position in its middle."""

    journal: Journal
    user: str
    thread: str
    middle: int


READS: dict[str, Callable[[Place], Awaitable[object]]] = {
    "history, newest 50": lambda at: at.journal.messages.history(at.thread),
    "history, 50 before the middle": lambda at: at.journal.messages.history(
        at.thread, before=at.middle
    ),
    "history, 50 after the middle": lambda at: at.journal.messages.history(
        at.thread, after=at.middle
    ),
    "tail, 4,000 tokens": lambda at: at.journal.messages.tail(at.thread, max_tokens=4_000),
    "list_threads, 50": lambda at: at.journal.threads.list_of(at.user),
    f"search, a word in {HITS} messages": lambda at: at.journal.search.find(at.user, "rarely"),
    "search, in 1 of 1,000": lambda at: at.journal.search.find(at.user, "seldom"),
    "search, in 1 of 10": lambda at: at.journal.search.find(at.user, "everyday"),
}


def new_cycle(store: Store, writer: Writer, words: str) -> Cycle:
    """Ten messages as rows: four questions with answers, and a follow-up with its trigger."""
    ids = SnowflakeGenerator(node=1)
    questions = [f"{words} {writer.question()}", *(writer.question() for _ in range(3))]
    messages = [
        message
        for question in questions
        for message in stamp([user_message(question), AIMessage(writer.answer())], ids)
    ]
    follow_up = [synthetic_message("check_in"), AIMessage(writer.answer())]
    messages += stamp(follow_up, ids, batch_type=BatchType.SYSTEM_TRIGGER)
    return [as_columns(store, encode_message(message)) for message in messages]


def as_columns(store: Store, row: MessageRow) -> dict[str, Any]:
    words = store.indexed(row.text) if row.visible else dict.fromkeys(("words", "word_count"))
    return {**asdict(row), "agent_id": AGENT, **words}


def cycles(store: Store, count: int) -> Iterator[Cycle]:
    writer = Writer()
    ordinary = [new_cycle(store, writer, "everyday") for _ in range(99)]
    ordinary.append(new_cycle(store, writer, "everyday seldom"))
    marked = new_cycle(store, writer, "everyday rarely")
    total = count // 10
    apart = max(total // HITS, 1)
    for number in range(total):
        yield marked if number % apart == apart // 2 else ordinary[number % 100]


def message_rows(store: Store, thread: str, user: str, count: int) -> Iterator[dict[str, Any]]:
    position = FIRST
    for cycle in cycles(store, count):
        for row in cycle:
            batch = position - row["sequence_num"] * STEP
            body = row["body"].replace(str(row["position"]), str(position))
            if row.get("words"):
                row = {**row, "words": row["words"].replace("~", owner_mark(user))}  # noqa: PLW2901 - the same row
            yield {
                **row,
                "thread_id": thread,
                "position": position,
                "message_id": str(position),
                "batch": batch,
                "body": body.replace(str(row["batch"]), str(batch)),
                "created_at": store.moment(time_of(position)),
            }
            position += STEP


async def filled(store: Store, user: str, count: int) -> Place:
    threads = [THREAD.format(count + n) for n in range(THREADS_OF_A_USER)]
    for thread in threads:
        await store.journal.threads.create(thread, agent_id=AGENT, user_id=user, now=now())
    await store.fill("messages", message_rows(store, threads[0], user, count))
    last = FIRST + (count - 1) * STEP
    await store.execute(
        "UPDATE threads SET message_count = %s, last_position = %s, updated_at = %s WHERE id = %s",
        (count * 9 // 10, last, store.moment(time_of(last)), threads[0]),
    )
    return Place(store.journal, user, threads[0], FIRST + count // 2 * STEP)


async def measure_threads(name: str, new_store: NewStore) -> None:
    async with AsyncExitStack() as stack:
        alone, shared = new_store(), new_store()
        for store in (alone, shared):
            await store.open()
            stack.push_async_callback(store.close)
        progress(f"{name}: filling a thread with {LONG:,} messages")
        began = time.perf_counter()
        async with alone.indexing_later(), shared.indexing_later():
            places = [
                await filled(alone, "short", SHORT),
                await filled(shared, "short", SHORT),
                await filled(shared, "long", LONG),
            ]
        for store in (alone, shared):
            await store.rest()
        progress(f"{name}: filled in {time.perf_counter() - began:.0f} s; reading")
        rows = []
        for what, read in READS.items():
            works: list[Work] = [partial(read, place) for place in places]
            await medians(*works, rounds=1)
            short, beside, long = await medians(*works)
            rows.append(
                (
                    what,
                    f"{short:.2f}",
                    f"{beside:.2f}",
                    f"{long:.2f}",
                    f"{beside / short:.2f}",
                    f"{long / short:.2f}",
                )
            )
    print_columns(
        f"Reading on {name}, ms: {SHORT:,} messages, the same beside {LONG:,}, and those",
        ("what", f"{SHORT:,}", "beside", f"{LONG:,}", "x beside", f"x {LONG:,}"),
        rows,
    )
