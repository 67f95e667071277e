"""What taking work costs, and what it costs to find that there is none.

Claiming due timers has a peer: the same in one statement on a plain table in the same database, so
that the ratio says what leases that fence and rows that are checked one by one cost.
"""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from bench.stores import AGENT, THREAD, NewStore, Store, now
from bench.table import Work, medians, print_columns, progress, scaled
from segue import SnowflakeGenerator
from segue.journal.records import TurnLease
from segue.journal.rows import to_micros

FEW_TIMERS = 100
TIMERS = scaled(100_000, least=1_000)
DUE = scaled(1_000, least=100)
FEW_TURNS = 10
TURNS = scaled(10_000, least=100)
LIMIT = 100
LEASE = timedelta(minutes=5)
START = now()
LATER = START + timedelta(hours=1)

CLAIM_PLAIN = (
    "UPDATE plain SET owner = %s, wake_at = %s WHERE id IN (SELECT id FROM plain "
    "WHERE wake_at <= %s ORDER BY wake_at, id LIMIT %s {}) RETURNING id, thread_id, payload"
)

Cells = tuple[str, str, str, str]


def thread_rows(store: Store, count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        at = store.moment(START - timedelta(days=1) + n * timedelta(milliseconds=1))
        yield {
            "id": THREAD.format(n),
            "agent_id": AGENT,
            "user_id": f"user-{n}",
            "served_at": at,
            "created_at": at,
            "updated_at": at,
        }


def timer_rows(store: Store, pending: int, due: int) -> Iterator[dict[str, Any]]:
    ids = SnowflakeGenerator(node=1)
    at = store.moment(START)
    for n in range(pending):
        when = store.moment(START if n < due else LATER + n * timedelta(milliseconds=1))
        yield {
            "id": ids.next(),
            "thread_id": THREAD.format(n),
            "agent_id": AGENT,
            "user_id": f"user-{n}",
            "kind": "follow_up",
            "state": "pending",
            "trigger_type": "check_in",
            "epoch": 0,
            "due_at": when,
            "missed": "run",
            "payload": "{}",
            "wake_at": when,
            "created_at": at,
            "updated_at": at,
        }


def turn_rows(store: Store, count: int) -> Iterator[dict[str, Any]]:
    ids = SnowflakeGenerator(node=1)
    for thread in thread_rows(store, count):
        turn = ids.next()
        yield {
            "id": turn,
            "thread_id": thread["id"],
            "agent_id": AGENT,
            "user_id": thread["user_id"],
            "batch": turn,
            "kind": "reply",
            "state": "queued",
            "epoch": 0,
            "queued_at": store.moment(START),
            "available_at": store.moment(START),
            "wake_at": thread["served_at"],
        }


async def measure_queues(name: str, new_store: NewStore) -> None:
    async with AsyncExitStack() as stack:

        async def opened(threads: int) -> Store:
            store = new_store()
            await store.open()
            stack.push_async_callback(store.close)
            await store.fill("threads", thread_rows(store, threads))
            return store

        progress(f"{name}: filling {TIMERS:,} timers and {TURNS:,} turns")
        few, many = await opened(FEW_TIMERS), await opened(TIMERS)
        await few.fill("timers", timer_rows(few, FEW_TIMERS, due=0))
        await many.fill("timers", timer_rows(many, TIMERS, due=DUE))
        await add_plain_table(many)
        short, long = await opened(FEW_TURNS), await opened(TURNS)
        for store, threads in ((short, FEW_TURNS), (long, TURNS)):
            await store.fill("turns", turn_rows(store, threads))
        for store in (few, many, short, long):
            await store.rest()
        progress(f"{name}: claiming")
        header = ("what", "few, ms", "many, ms", "ratio")
        print_columns(
            f"Nothing to do on {name}: {FEW_TIMERS} timers pending, and {TIMERS:,}",
            header,
            await idle_timers(few, many),
        )
        await print_claims(name, many)
        print_columns(
            f"The next turn on {name}: {FEW_TURNS} threads with a turn, and {TURNS:,}",
            header,
            await next_turns(short, long),
        )


async def idle_timers(few: Store, many: Store) -> list[Cells]:
    """What a worker does that was woken for nothing."""
    early = START - timedelta(hours=1)

    def claim(store: Store) -> Work:
        return lambda: store.journal.timers.claim_due("bench", now=early, lease_for=LEASE)

    return [
        await compared("next_due_at", few.journal.timers.next_at, many.journal.timers.next_at),
        await compared("claim_due_timers, none due", claim(few), claim(many)),
    ]


async def print_claims(name: str, store: Store) -> None:
    async def ours() -> None:
        claimed = 0
        while leases := await store.journal.timers.claim_due(
            "bench", now=START, lease_for=LEASE, limit=LIMIT
        ):
            claimed += len(leases)
        expect(claimed, DUE)

    async def plain() -> None:
        claimed = 0
        values = ("bench", to_micros(START + LEASE), to_micros(START), LIMIT)
        while rows := await store.execute(CLAIM_PLAIN.format(store.claim_lock), values):
            claimed += len(rows)
        expect(claimed, DUE)

    async def again() -> None:
        await store.execute(
            "UPDATE timers SET state = 'pending', owner = NULL, wake_at = due_at "
            "WHERE state = 'claimed'"
        )
        await store.execute("UPDATE plain SET owner = NULL, wake_at = due_at WHERE owner = 'bench'")

    own, peer = await medians(ours, plain, rounds=7, seconds=30, between=again)
    print_columns(
        f"Claiming {DUE:,} due of {TIMERS:,} timers on {name}, {LIMIT} at a time",
        ("journal, ms", "timers/s", "plain table, ms", "rows/s", "ratio"),
        [
            (
                f"{own:.0f}",
                f"{DUE / own * 1_000:,.0f}",
                f"{peer:.0f}",
                f"{DUE / peer * 1_000:,.0f}",
                f"{own / peer:.1f}",
            )
        ],
    )


async def next_turns(short: Store, long: Store) -> list[Cells]:
    leases: list[tuple[Store, TurnLease]] = []

    def claim(store: Store, *, finds: bool = True) -> Work:
        async def work() -> None:
            lease = await store.journal.turns.claim_one("bench", now=now(), lease_for=LEASE)
            expect(lease is not None, finds)
            if lease:
                leases.append((store, lease))

        return work

    def ask(store: Store) -> Work:
        return lambda: store.journal.turns.next_at(now=now())

    async def release() -> None:
        while leases:
            store, lease = leases.pop()
            await store.journal.turns.release(lease, now=now())

    stores = (short, long)
    cells = [
        await compared("claim_turn, all can be taken", claim(short), claim(long), release),
        await compared("next_turn_at", ask(short), ask(long)),
    ]
    for store in stores:
        await retry_later(store)
        await store.rest()
    none = [claim(store, finds=False) for store in stores]
    cells.append(await compared("claim_turn, all wait for a retry", *none))
    for store in stores:
        await free_the_last_served(store)
    cells += [
        await compared("claim_turn, all but one do", claim(short), claim(long), release),
        await compared("next_turn_at, all but one do", ask(short), ask(long)),
    ]
    return cells


async def compared(what: str, few: Work, many: Work, between: Work | None = None) -> Cells:
    await medians(few, many, rounds=3, between=between)
    short, long = await medians(few, many, rounds=scaled(200, least=10), between=between)
    return what, f"{short:.2f}", f"{long:.2f}", f"{long / short:.2f}"


async def add_plain_table(store: Store) -> None:
    await store.execute(
        "CREATE TABLE plain (id bigint PRIMARY KEY, thread_id text NOT NULL, "
        "payload text NOT NULL, owner text, due_at bigint NOT NULL, wake_at bigint NOT NULL)"
    )
    await store.execute("CREATE INDEX plain_awake ON plain (wake_at, id)")
    rows = timer_rows(store, TIMERS, due=DUE)
    due = ((to_micros(START if n < DUE else LATER), row) for n, row in enumerate(rows))
    await store.insert(
        "plain",
        ("id", "thread_id", "payload", "due_at", "wake_at"),
        ((row["id"], row["thread_id"], row["payload"], at, at) for at, row in due),
    )


async def retry_later(store: Store) -> None:
    later = store.moment(now() + timedelta(hours=1))
    await store.execute("UPDATE turns SET available_at = %s, wake_at = %s", (later, later))


async def free_the_last_served(store: Store) -> None:
    at = store.moment(START)
    await store.execute(
        "UPDATE turns SET available_at = %s, wake_at = %s WHERE id = (SELECT max(id) FROM turns)",
        (at, at),
    )


def expect(got: object, wanted: object) -> None:
    if got != wanted:
        raise RuntimeError(f"Got {got}, expected {wanted}: this run measured something else.")
