"""The context: the messages that the model gets, in order, within a budget.

A whole batch or none of it: all complete batches that fit, newest first and without a gap, those
that only wait for their continuation, and the current batch even if it is unfinished. The last
exchange is always in; if it is too long, its texts are cut. The result is valid for OpenAI,
Anthropic and Google whatever crashed, repeated or arrived out of order, and the same input gives
the same bytes, so that prompt caches hit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, cast

from langchain_core.messages import BaseMessage, SystemMessage

from segue.core.batch import Batch, group_batches
from segue.core.request import with_unique_calls
from segue.core.snowflake import check_snowflake
from segue.core.text import storable
from segue.core.tokens import estimate_tokens
from segue.core.window import ContextWindow, Dropped, DropReason, Shortened, TokenCounter
from segue.errors import NotFoundError, UsageError

_MAX_ANSWER_TOKENS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Context:
    """What the model gets. `tokens` is its size; `reserved` is kept free for the reply."""

    messages: list[BaseMessage]
    dropped: list[Dropped]
    tokens: int
    reserved: int = 0
    batches: list[int] = field(default_factory=list)
    # The budget ended the walk back: there may be more history than `dropped` names.
    cut: bool = False
    # The minimum does not fit: the system text, the current batch and, for a follow-up, the last
    # exchange at its shortest.
    over_budget: bool = False
    # Batches of the last exchange whose texts were cut to fit.
    shortened: list[Shortened] = field(default_factory=list)


def build_context(  # noqa: PLR0913  # all but three are keywords, and each is one plain fact
    messages: Iterable[BaseMessage] | Iterable[Batch],
    current_batch: Batch | int | None = None,
    max_tokens: int | None = None,
    *,
    system: str | None = None,
    summary: str | None = None,
    memories: Sequence[str] = (),
    answer_tokens: int | None = None,
    extra_tokens: int = 0,
    count_tokens: TokenCounter = estimate_tokens,
) -> Context:
    """The context of stamped messages in any order, or of batches given newest first.

    Batches are read only as far as the budget reaches, so the cost grows with the budget and not
    with the history. `max_tokens` is the model's window; `answer_tokens` of it stay free (default:
    a quarter, at most 4,096), and `extra_tokens` are used by other parts of the request, such as
    tool schemas. The current batch is the one to answer: unlike other unfinished batches it is in,
    even if it alone is over the budget; `NotFoundError` if it is missing. The last exchange before
    it, the newest batches with a person's message and a reply, is in as well: whole if it fits,
    else with its long texts cut. Unchanged messages are the caller's own objects; do not modify
    them.
    """
    current = current_batch.id if isinstance(current_batch, Batch) else current_batch
    if current is not None:
        check_snowflake(current, "current batch")
    head = _head(system, summary, memories)
    reserved = _reserved(max_tokens, answer_tokens)
    room = None if max_tokens is None else max_tokens - reserved
    window = ContextWindow(count_tokens, room, tokens=sum(map(count_tokens, head)) + extra_tokens)
    batches, report_all = _newest_first(messages)
    for batch in _up_to_current(batches, current, window.dropped):
        window.take(batch, is_current=batch.id == current)
        if window.is_full:
            break
    window.close_exchange()
    if report_all:
        detail = "Older than the first batch that did not fit."
        window.dropped += [Dropped(b.id, DropReason.OVER_BUDGET, detail) for b in batches]
    return Context(
        messages=_assembled(head, window.views),
        dropped=window.dropped,
        tokens=window.tokens,
        reserved=reserved,
        batches=window.batches[::-1],
        cut=window.is_full,
        over_budget=room is not None and window.tokens > room,
        shortened=window.shortened,
    )


def _newest_first(
    messages: Iterable[BaseMessage] | Iterable[Batch],
) -> tuple[Iterator[Batch], bool]:
    """The batches, and whether all of them are in memory already."""
    given = iter(messages)
    first = next(given, None)
    if first is None:
        return iter(()), True
    whole = chain([first], given)
    if isinstance(first, Batch):
        return cast("Iterator[Batch]", whole), False
    return reversed(group_batches(cast("Iterator[BaseMessage]", whole))), True


def _up_to_current(
    newest_first: Iterator[Batch], current_batch: int | None, dropped: list[Dropped]
) -> Iterator[Batch]:
    """The current batch and the earlier ones; a running batch never sees a later one."""
    found = current_batch is None
    previous: int | None = None
    for batch in newest_first:
        if previous is not None and batch.id >= previous:
            raise UsageError(f"Batch {batch.id} came after {previous}; give batches newest first.")
        previous = batch.id
        if current_batch is not None and batch.id > current_batch:
            dropped.append(Dropped(batch.id, DropReason.LATER, "Started after the current batch."))
            continue
        if not found and batch.id != current_batch:
            break
        found = True
        yield batch
    if not found:
        raise NotFoundError(f"The current batch {current_batch} is not among the messages given.")


def _head(system: str | None, summary: str | None, memories: Sequence[str]) -> list[BaseMessage]:
    """One system message, since some providers refuse a second one.

    The part that changes most often is last, so that the prefix before it stays cached.
    """
    if isinstance(memories, str) or not all(isinstance(m, str) for m in memories):
        raise UsageError("memories is a list of texts.")
    for name, text in (("system", system), ("summary", summary)):
        if text is not None and not isinstance(text, str):
            raise UsageError(f"{name} is {type(text).__name__}; expected text.")
    parts = [
        system,
        summary and summary.strip() and f"Summary of the conversation so far:\n{summary}",
        memory_lines(memories),
    ]
    texts = [storable(part) for part in parts if part and part.strip()]
    return [SystemMessage("\n\n".join(texts))] if texts else []


def memory_lines(memories: Sequence[str]) -> str:
    """The memories as part of the system message; empty if there are none."""
    # One line each: a memory must not look like two, or like an instruction.
    lines = (" ".join(memory.split()) for memory in memories)
    listed = "\n".join(f"- {line}" for line in lines if line)
    return listed and f"What you remember about the user:\n{listed}"


def with_last_part(messages: Sequence[BaseMessage], part: str) -> list[BaseMessage]:
    """The messages with a text at the end of the one system message."""
    head = [m.text for m in messages if isinstance(m, SystemMessage)]
    rest = (m for m in messages if not isinstance(m, SystemMessage))
    return [SystemMessage("\n\n".join([*head, part])), *rest]


def _assembled(head: list[BaseMessage], newest_first: list[list[BaseMessage]]) -> list[BaseMessage]:
    """Oldest first, with stored system messages merged into the one at the front."""
    ordered = [message for view in reversed(newest_first) for message in view]
    instructions = [m for m in ordered if isinstance(m, SystemMessage)]
    if instructions:
        ordered = [m for m in ordered if not isinstance(m, SystemMessage)]
        texts = [m.text for m in (*head, *instructions)]
        head = [SystemMessage("\n\n".join(texts))]
    return [*head, *with_unique_calls(ordered)]


def _reserved(max_tokens: int | None, answer_tokens: int | None) -> int:
    for name, value in (("max_tokens", max_tokens), ("answer_tokens", answer_tokens)):
        if value is not None and type(value) is not int:
            raise UsageError(f"{name} is {value!r}; expected a whole number.")
    if max_tokens is None:
        return answer_tokens or 0
    if max_tokens <= 0:
        raise UsageError(f"max_tokens is {max_tokens}; expected a positive number of tokens.")
    reserved = min(_MAX_ANSWER_TOKENS, max_tokens // 4) if answer_tokens is None else answer_tokens
    if not 0 <= reserved < max_tokens:
        raise UsageError(
            f"answer_tokens is {reserved}; expected 0 or more and less than {max_tokens}."
        )
    return reserved
