"""Batches as a tree: what agents asked each other stands inside of the batch that asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from segue.cli.messages import in_words, role_of
from segue.cli.output import when
from segue.core.batch import Batch
from segue.core.errors import NotFoundError
from segue.core.snowflake import to_text
from segue.journal.ports import Journal
from segue.journal.records import Turn, nested_id
from segue.runtime.asking import MAX_DEPTH
from segue.runtime.batches import newest_batches


@dataclass(frozen=True, slots=True)
class Node:
    """A batch, the turns that worked on it, and the batches nested in it."""

    thread_id: str
    batch: Batch
    turns: list[Turn]
    children: "list[Node]"


async def load_nodes(
    journal: Journal, thread_id: str, agents: Sequence[str], *, limit: int, depth: int = 0
) -> list[Node]:
    """The newest batches of a thread, oldest first; those of nested threads inside of them."""
    found = await newest_batches(journal, thread_id, limit=limit)
    nested: list[Node] = []
    for agent in agents if depth < MAX_DEPTH else ():
        try:
            name = nested_id(thread_id, agent)
            nested += await load_nodes(journal, name, agents, limit=limit, depth=depth + 1)
        except NotFoundError:
            continue
    return [
        Node(
            thread_id,
            each.batch,
            each.turns,
            [node for node in nested if node.batch.parent == each.batch.id],
        )
        for each in reversed(found)
    ]


def lines_of(node: Node, depth: int = 0) -> Iterator[str]:
    """A batch for people, what is nested in it further in."""
    batch, inset = node.batch, "    " * depth
    worked = ", ".join(f"{turn.kind.value} {turn.state.value}" for turn in reversed(node.turns))
    where = f", in thread {node.thread_id}" if depth else ""
    yield (
        f"{inset}{to_text(batch.id)}  {when(batch.started_at)}  {batch.type.value}, "
        f"{batch.state.value}{f' ({worked})' if worked else ''}{where}"
    )
    yield from (f"{inset}    ! {reason}" for reason in batch.reasons)
    yield from (f"{inset}    {role_of(m):7} {in_words(m)}" for m in batch.messages)
    for child in node.children:
        yield from lines_of(child, depth + 1)


def as_json_of(node: Node) -> dict[str, Any]:
    batch = node.batch
    return {
        "id": to_text(batch.id),
        "thread_id": node.thread_id,
        "type": batch.type.value,
        "state": batch.state.value,
        "reasons": batch.reasons,
        "parent": None if batch.parent is None else to_text(batch.parent),
        "began_at": batch.started_at,
        "turns": [{"id": to_text(t.id), "kind": t.kind, "state": t.state} for t in node.turns],
        "messages": [
            {"id": m.id, "role": role_of(m), "text": in_words(m, 10_000)} for m in batch.messages
        ],
        "nested": [as_json_of(child) for child in node.children],
    }
