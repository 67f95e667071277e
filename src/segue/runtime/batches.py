"""The newest batches of a thread and the turns that worked on them, for operators."""

from dataclasses import dataclass
from typing import Final

from segue.core.batch import Batch
from segue.core.errors import NotFoundError
from segue.journal.ports import Journal
from segue.journal.records import Turn

# Of batches without a turn, such as imported ones, those that a large window would hold.
_WINDOW_TOKENS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Worked:
    """A batch and its turns, newest first; an imported one has none."""

    batch: Batch
    turns: list[Turn]


async def newest_batches(journal: Journal, thread_id: str, *, limit: int) -> list[Worked]:
    """The newest batches, newest first. A turn whose batch retention removed has none to show."""
    await journal.get_thread(thread_id)  # raises if there is none
    turns = await journal.list_turns(thread_id, limit=limit)
    tail = await journal.tail(thread_id, max_tokens=_WINDOW_TOKENS)
    known = {batch.id: batch for batch in tail}
    found: list[Worked] = []
    for number in sorted({turn.batch for turn in turns} | known.keys(), reverse=True)[:limit]:
        try:
            batch = known.get(number) or await journal.load_batch(thread_id, number)
        except NotFoundError:
            continue
        found.append(Worked(batch, [turn for turn in turns if turn.batch == number]))
    return found
