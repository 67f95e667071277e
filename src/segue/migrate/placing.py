"""Giving an old conversation's messages their batches: pure, and the same for the same input.

Batch borders and old text markers are `segue.core.legacy`'s. Here a batch that nobody finished is
settled, so that the words in it reach the model, or held back while it may still be going on.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from segue.core.batch import Batch, BatchState, group_batches
from segue.core.calls import calls_of
from segue.core.legacy import assign_batches, convert_legacy_trigger
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.settle import CUT_OFF_REPLY, interrupted_results
from segue.core.snowflake import MAX_NODE, next_snowflake
from segue.core.stamp import plain_type
from segue.migrate.report import Taken

# Closes a batch whose last words are the user's: nothing was cut off, nobody answered.
NO_REPLY: Final = "I did not reply to this."
# What LangChain's SummarizationMiddleware leaves in the place of what it removed.
_SUMMARY = "summarization"


@dataclass(frozen=True, slots=True)
class Placed:
    """Messages with their places, oldest first, and what had to be done for it."""

    messages: list[BaseMessage]
    markers: int = 0
    orphans: int = 0
    repairs: int = 0

    def as_taken(self, *, is_new: bool, is_held: bool, user: str) -> Taken:
        if not self.messages:
            return Taken("unchanged", is_held=is_held)
        return Taken(
            "migrated" if is_new else "continued",
            messages=len(self.messages),
            markers=self.markers,
            orphans=self.orphans,
            repairs=self.repairs,
            is_held=is_held,
            user=user,
        )


@dataclass(frozen=True, slots=True)
class Old:
    """A message of a source, with its time."""

    message: BaseMessage
    time: datetime


class OldIds:
    """Ids of one thread that depend on nothing but the thread and the messages' times.

    The node is made of the thread's name, so that threads of the same millisecond hardly meet.
    """

    def __init__(self, thread_id: str) -> None:
        digest = hashlib.sha256(thread_id.encode(errors="replace")).digest()
        self.node = int.from_bytes(digest[:4]) & MAX_NODE

    def next(self, after: int = 0) -> int:
        return next_snowflake(after, 0, self.node)


def readied(messages: Sequence[BaseMessage], thread_id: str) -> list[BaseMessage]:
    """The messages as they are stored: of known types, each with an id of its own."""
    known: set[str] = set()
    ready = []
    for index, message in enumerate(messages):
        plain = _without_place(_told_apart(plain_type(message)))
        name = plain.id if plain.id and plain.id not in known else f"{thread_id}-{index}"
        known.add(name)
        ready.append(plain.model_copy(update={"id": name}))
    return ready


def digest_of(messages: Sequence[BaseMessage]) -> str:
    """What was said, in a few letters. Without ids: a step that goes on gives some new ones."""
    said = [
        [
            message.type,
            message.content,
            [[call.id, call.name] for call in calls_of(message)],
            getattr(message, "tool_call_id", None),
        ]
        for message in messages
    ]
    text = json.dumps(said, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def unfinished(stored: Sequence[BaseMessage], new: Sequence[Old], ids: OldIds) -> int | None:
    """Where the newest batch begins among new messages, if nobody has finished it yet."""
    assigned = _assigned(stored, new, ids)[len(stored) :]
    newest = group_batches([*stored, *assigned])[-1]
    if newest.is_complete:
        return None
    return next((i for i, m in enumerate(assigned) if _batch(m) == newest.id), None)


def place(stored: Sequence[BaseMessage], new: Sequence[Old], ids: OldIds) -> Placed:
    """New messages of a thread behind the stored ones, with what settles their open batches."""
    assigned = _assigned(stored, new, ids)
    touched = {_batch(message) for message in assigned[len(stored) :]}
    batches = [batch for batch in group_batches(assigned) if batch.id in touched]
    whole, closing = _settled(new, _open_ends(assigned, batches, len(stored)))
    placed = _assigned(stored, whole, ids)[len(stored) :]
    for index, is_broken_off in closing.items():
        metadata = MessageMetadata.of(placed[index])
        closed = replace(metadata, synthetic=True, settled=is_broken_off)
        placed[index] = closed.onto(placed[index])
    return Placed(
        placed,
        markers=sum(_is_marker(old.message) for old in new),
        orphans=sum(len(batch.pairing.orphans) for batch in batches),
        repairs=sum(not batch.is_complete for batch in batches),
    )


def in_portions(messages: Sequence[BaseMessage], size: int) -> Iterator[list[BaseMessage]]:
    """The messages by whole batches, in portions of about a size."""
    portion: list[BaseMessage] = []
    for batch in group_batches(messages):
        portion += batch.messages
        if len(portion) >= size:
            yield portion
            portion = []
    if portion:
        yield portion


def _assigned(stored: Sequence[BaseMessage], new: Sequence[Old], ids: OldIds) -> list[BaseMessage]:
    times = iter([*(None for _ in stored), *(old.time for old in new)])
    messages = [*stored, *(old.message for old in new)]
    return assign_batches(messages, ids, time_of=lambda _: next(times))


def _open_ends(
    assigned: Sequence[BaseMessage], batches: Sequence[Batch], stored: int
) -> dict[int, Batch]:
    """The batches that nobody finished, by the place among new messages where they end.

    Late results may follow behind it; what settles a batch stands before the next one begins.
    """
    begins: dict[int, int] = {}
    for index, message in enumerate(assigned):
        begins.setdefault(_batch(message), index)
    ends = dict(pairwise([*sorted(begins), 0]))
    begins[0] = len(assigned)
    return {max(0, begins[ends[b.id]] - stored): b for b in batches if not b.is_complete}


def _settled(new: Sequence[Old], ends: dict[int, Batch]) -> tuple[list[Old], dict[int, bool]]:
    """The messages with what closes those batches, where that stands, and whether it stands for
    work that broke off.
    """
    whole: list[Old] = []
    closing: dict[int, bool] = {}
    for index in range(len(new) + 1):
        if batch := ends.get(index):
            time = new[max(0, index - 1)].time
            is_broken_off = not _is_unanswered(batch)
            words = CUT_OFF_REPLY if is_broken_off else NO_REPLY
            for message in (*interrupted_results(batch), AIMessage(words)):
                closing[len(whole)] = is_broken_off
                whole.append(Old(message, time))
        whole += new[index : index + 1]
    return whole, closing


def _is_unanswered(batch: Batch) -> bool:
    """Whether all work in a batch was done, and then somebody wrote and got no reply."""
    is_open = batch.state is BatchState.OPEN and bool(batch.arranged)
    return is_open and isinstance(batch.arranged[-1], HumanMessage)


def _batch(message: BaseMessage) -> int:
    return MessageMetadata.of(message).batch or 0


def _is_marker(message: BaseMessage) -> bool:
    return not is_synthetic(message) and is_synthetic(convert_legacy_trigger(message))


def _without_place(message: BaseMessage) -> BaseMessage:
    """In an app that stamps its messages they have places, which may leave no room to settle."""
    known = MessageMetadata.of(message)
    if known.position is None and known.batch is None:
        return message
    return replace(known, position=None, batch=None, sequence_num=None, batch_type=None).onto(
        message
    )


def _told_apart(message: BaseMessage) -> BaseMessage:
    """A summary that was written as if the user had said it is the system's."""
    source = message.additional_kwargs.get("lc_source")
    if isinstance(message, HumanMessage) and source == _SUMMARY:
        return SystemMessage(message.content, id=message.id)
    return message
