"""Processes that use a journal file as a whole system does, until they are killed."""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from itertools import count

from langchain_core.messages import AIMessage, ToolMessage

from segue import SnowflakeGenerator, synthetic_message, user_message
from segue.journal.records import NewEffect, NewMemory, NewTimer
from segue.journal.sqlite import SqliteJournal

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
LEASE = timedelta(seconds=30)
THREADS = ("red", "green", "blue")


async def _work(path: str, start: datetime) -> None:
    """Work for ever, and say every message as soon as its acceptance has returned."""
    journal = SqliteJournal(path)
    await journal.open()
    node = await journal.lease_node(f"life of {start}", now=start, lease_for=timedelta(minutes=5))
    ids = SnowflakeGenerator(node, last=await journal.last_position())
    for thread_id in THREADS:
        await journal.create_thread(thread_id, agent_id="guide", user_id="ada", now=start)
    for n in count():
        now = start + n * timedelta(seconds=1)
        thread_id = THREADS[n % len(THREADS)]
        accepted = await journal.accept_message(
            thread_id, user_message(f"Question {n}?"), ids=ids, now=now, client_message_id=f"{now}"
        )
        _say(f"{thread_id} {accepted.message.id}")
        await _answer(journal, ids, now)
        await _follow_up(journal, thread_id, ids, now)
        if n % 5 == 4:
            old = await journal.tail(thread_id, max_tokens=1_000)
            done = [batch.id for batch in old[1:] if batch.is_complete]
            if done:
                await journal.save_summary(thread_id, "They talked.", done, ids=ids, now=now)


async def _answer(journal: SqliteJournal, ids: SnowflakeGenerator, now: datetime) -> None:
    """Take the next turn, whose ever it is, through a tool call to its end."""
    lease = await journal.claim_turn("worker", now=now, lease_for=LEASE)
    if lease is None:
        return
    call = AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}])
    result = ToolMessage("found", tool_call_id="call_1")
    await journal.append(lease, [call], ids=ids, now=now)
    await journal.append(lease, [result], ids=ids, now=now)
    effect = NewEffect("webhook", {}, f"turn {lease.turn.id} at attempt {lease.turn.attempts}")
    await journal.finish_turn(lease, [AIMessage("Yes.")], ids=ids, now=now, effects=[effect])
    memory = NewMemory("guide", "ada", "last", f"Asked at {now}.")
    await journal.put_memory(memory, ids=ids, now=now)


async def _follow_up(
    journal: SqliteJournal, thread_id: str, ids: SnowflakeGenerator, now: datetime
) -> None:
    await journal.arm_timer(NewTimer(thread_id, now, "check_in"), ids=ids, now=now)
    for lease in await journal.claim_due_timers("worker", now=now, lease_for=LEASE):
        await journal.fire_timer(lease, synthetic_message("check_in"), ids=ids, now=now)


async def _open_and_close(path: str) -> None:
    journal = SqliteJournal(path)
    await journal.open()
    await journal.close()


def main() -> None:
    """Fork a process for every order, since importing takes longer than all the rest.

    `write <life> <path>` answers with the writer's number, then with what it accepts, then with
    `ended` when it was killed. `open <number> <path>` answers with the exit codes of that many
    processes that opened the file at the same moment.
    """
    for line in sys.stdin:
        order, number, path = line.rstrip("\n").split(" ", 2)
        if order == "write":
            pid = os.fork()
            if pid == 0:
                asyncio.run(_work(path, START + int(number) * timedelta(hours=1)))
            _say(f"{pid}")
            os.waitpid(pid, 0)
            _say("ended")
        else:
            _say(" ".join(map(str, _open_at_once(path, int(number)))))


def _open_at_once(path: str, number: int) -> list[int]:
    starting_line, gun = os.pipe()
    runners = []
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            os.close(gun)
            os.read(starting_line, 1)
            asyncio.run(_open_and_close(path))
            os._exit(0)
        runners.append(pid)
    os.close(gun)
    os.close(starting_line)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in runners]


def _say(line: str) -> None:
    # Unbuffered and in one piece: what was said is out even if the next instant is the last.
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
