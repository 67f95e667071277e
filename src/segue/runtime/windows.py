"""Reading a thread's window, back to the last exchange however long what came after it is."""

from typing import Final

from segue.core.window import has_exchange
from segue.journal.ports import Journal
from segue.journal.records import Window

# A message that is larger than the window hides what came before it.
_FURTHER: Final = 4
_READS: Final = 4


async def read_window(
    journal: Journal, thread_id: str, *, max_tokens: int, current_batch: int | None = None
) -> Window:
    """The journal's window; a larger one if the last exchange is not in that of the budget."""
    for _ in range(_READS):
        window = await journal.window(thread_id, max_tokens=max_tokens, current_batch=current_batch)
        earlier = [batch for batch in window.batches if batch.id != current_batch]
        if has_exchange(earlier) or sum(b.tokens for b in window.batches) < max_tokens:
            break
        max_tokens *= _FURTHER
    return window
