"""What retention reads and removes, for both databases."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from segue.core.retention import KeptBatch
from segue.journal.records import NESTING


@dataclass(frozen=True, slots=True)
class ThreadBatches:
    """All batches of a thread."""

    thread_id: str
    user_id: str
    agent_id: str
    batches: Sequence[KeptBatch]


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed of a thread; of batches that agents asked each other in, the messages."""

    batches: int = 0
    messages: int = 0


def asked_from(thread_id: str) -> str | None:
    """The conversation that a thread belongs to in which agents ask each other."""
    root, is_nested, _ = thread_id.partition(NESTING)
    return root if is_nested else None


def held(batches: Iterable[KeptBatch]) -> list[KeptBatch]:
    """Batches that somebody may still need: who goes on with a batch looks for what it asked."""
    return [replace(batch, is_unfinished=True) for batch in batches]


def removable(stored: Sequence[KeptBatch], wanted: Collection[int]) -> list[int]:
    """Of the batches that somebody wants gone, those that may go. Asked again by the step that
    removes them: since they were chosen, the thread may have gone on.
    """
    may_go = {batch.id for batch in stored[:-1] if not batch.is_unfinished}
    return sorted(may_go & set(wanted))


def nested_in(
    batches: Collection[int], nested: Iterable[tuple[str, int, int]]
) -> list[tuple[str, int]]:
    """Of nested batches, each a thread, its batch and that one's parent, those that were asked for
    in some batches, however deep.
    """
    children: dict[int, set[tuple[str, int]]] = {}
    for thread_id, batch, parent in nested:
        children.setdefault(parent, set()).add((thread_id, batch))
    found: list[tuple[str, int]] = []
    parents = list(batches)
    while parents:
        inner = sorted(children.pop(parents.pop(), ()))
        found += inner
        parents += [batch for _, batch in inner]
    return found
