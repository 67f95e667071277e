"""Gives the messages of an old conversation their batches: pure, the same for the same input.

`legacy` finds batch borders and old text markers. Here an unfinished batch is settled, so that its
text reaches the model, or held back while it may still be in progress.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from segue.core.batch import CUT_OFF_REPLY, Batch, BatchState, group_batches, interrupted_results
from segue.core.calls import calls_of
from segue.core.media import find_reference, media_in
from segue.core.messages import background_message
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.snowflake import MAX_NODE, next_snowflake
from segue.core.stamp import plain_type
from segue.core.text import LONGEST_MESSAGE_ID, is_deeper, is_name
from segue.migrate.legacy import assign_batches, convert_legacy_trigger
from segue.migrate.sources import UnreadableError
from segue.transfer.lines import DEEPEST

# Closes a batch that ends with a message of the user: it was not cut off, but never answered.
NO_REPLY: Final = "I did not reply to this."
TOO_DEEP: Final = "It holds something that is nested too deeply."
# LangChain's SummarizationMiddleware marks its summaries with these.
_SOURCE: Final = "lc_source"
_SUMMARY: Final = "summarization"
# Replaces a picture or a file that is an address or a provider's file id.
_NOT_TAKEN: Final = "[a picture or file that was given as a URL and was not imported]"


@dataclass(frozen=True, slots=True)
class Placement:
    """Messages with their places, oldest first, and what was converted or repaired."""

    messages: list[BaseMessage] = field(default_factory=list)
    markers: int = 0
    orphans: int = 0
    repairs: int = 0


@dataclass(frozen=True, slots=True)
class DatedMessage:
    """A message of a source, with its time."""

    message: BaseMessage
    time: datetime


class ThreadIds:
    """Ids that follow from times and a thread's name, whose hash keeps those of threads apart."""

    def __init__(self, thread_id: str) -> None:
        digest = hashlib.sha256(thread_id.encode(errors="replace")).digest()
        self.node = int.from_bytes(digest[:4]) & MAX_NODE

    def next(self, after: int = 0) -> int:
        return next_snowflake(after, 0, self.node)


def prepare_messages(messages: Sequence[BaseMessage], thread_id: str) -> list[BaseMessage]:
    """Of known types, each with a unique id; `UnreadableError` for one nested too deeply."""
    known: set[str] = set()
    ready = []
    for index, message in enumerate(messages):
        parts = [message.content, message.additional_kwargs, getattr(message, "tool_calls", None)]
        if is_deeper(parts, DEEPEST):
            raise UnreadableError(TOO_DEEP)
        plain = _without_references(_without_place(_as_system(plain_type(message))))
        name = plain.id
        if not name or not is_name(name, LONGEST_MESSAGE_ID) or name in known:
            name = f"{thread_id}-{index}"
        known.add(name)
        ready.append(plain.model_copy(update={"id": name}))
    return ready


def without_instructions(ready: Sequence[DatedMessage]) -> list[DatedMessage]:
    """All but system messages: instructions are the agent's own here."""
    return [
        old
        for old in ready
        if not isinstance(old.message, SystemMessage) or _is_summary(old.message)
    ]


def digest_of(messages: Sequence[BaseMessage]) -> str:
    """A hash of the messages, without their ids: a step that resumes gives some new ones."""
    parts = [
        [
            message.type,
            message.content,
            [[call.id, call.name] for call in calls_of(message)],
            getattr(message, "tool_call_id", None),
        ]
        for message in messages
    ]
    text = json.dumps(parts, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_unfinished(
    stored: Sequence[BaseMessage], new: Sequence[DatedMessage], ids: ThreadIds
) -> int | None:
    """Where the newest batch begins among the new messages, if it is unfinished."""
    assigned = _assigned(stored, new, ids)[len(stored) :]
    newest = group_batches([*stored, *assigned])[-1]
    if newest.is_complete:
        return None
    return next((i for i, m in enumerate(assigned) if _batch(m) == newest.id), None)


def place(stored: Sequence[BaseMessage], new: Sequence[DatedMessage], ids: ThreadIds) -> Placement:
    """Place new messages after the stored ones, with what settles their open batches."""
    assigned = _assigned(stored, new, ids)
    touched = {_batch(message) for message in assigned[len(stored) :]}
    batches = [batch for batch in group_batches(assigned) if batch.id in touched]
    whole = _settled(new, _open_ends(assigned, batches, len(stored)))
    placed = _assigned(stored, whole, ids)[len(stored) :]
    return Placement(
        [background_message(m) if isinstance(m, SystemMessage) else m for m in placed],
        markers=sum(_is_marker(old.message) for old in new),
        orphans=sum(len(batch.pairing.orphans) for batch in batches),
        repairs=sum(not batch.is_complete for batch in batches),
    )


def split_by_batches(messages: Sequence[BaseMessage], size: int) -> Iterator[list[BaseMessage]]:
    """Whole batches, in portions of about a size."""
    portion: list[BaseMessage] = []
    for batch in group_batches(messages):
        portion += batch.messages
        if len(portion) >= size:
            yield portion
            portion = []
    if portion:
        yield portion


def _assigned(
    stored: Sequence[BaseMessage], new: Sequence[DatedMessage], ids: ThreadIds
) -> list[BaseMessage]:
    times = iter([*(None for _ in stored), *(old.time for old in new)])
    messages = [*stored, *(old.message for old in new)]
    return assign_batches(messages, ids, time_of=lambda _: next(times))


def _open_ends(
    assigned: Sequence[BaseMessage], batches: Sequence[Batch], stored: int
) -> dict[int, Batch]:
    """Unfinished batches by where they end among new messages; late results may follow there."""
    begins: dict[int, int] = {}
    for index, message in enumerate(assigned):
        begins.setdefault(_batch(message), index)
    ends = dict(pairwise([*sorted(begins), 0]))
    begins[0] = len(assigned)
    return {max(0, begins[ends[b.id]] - stored): b for b in batches if not b.is_complete}


def _settled(new: Sequence[DatedMessage], ends: dict[int, Batch]) -> list[DatedMessage]:
    """The messages with those that close the batches."""
    whole: list[DatedMessage] = []
    for index in range(len(new) + 1):
        if batch := ends.get(index):
            time = new[max(0, index - 1)].time
            whole += [DatedMessage(message, time) for message in _closing(batch)]
        whole += new[index : index + 1]
    return whole


def _closing(batch: Batch) -> list[BaseMessage]:
    is_cut_off = not _is_unanswered(batch)
    metadata = MessageMetadata(synthetic=True, settled=is_cut_off)
    reply = AIMessage(CUT_OFF_REPLY if is_cut_off else NO_REPLY)
    return [metadata.onto(message) for message in (*interrupted_results(batch), reply)]


def _is_unanswered(batch: Batch) -> bool:
    """Whether all work in a batch was done, and the user then wrote and got no reply."""
    is_open = batch.state is BatchState.OPEN and bool(batch.arranged)
    return is_open and isinstance(batch.arranged[-1], HumanMessage)


def _batch(message: BaseMessage) -> int:
    return MessageMetadata.of(message).batch or 0


def _is_marker(message: BaseMessage) -> bool:
    return not is_synthetic(message) and is_synthetic(convert_legacy_trigger(message))


def _without_place(message: BaseMessage) -> BaseMessage:
    """Drop what an app has stamped: its places may leave no room to settle, and a request to
    continue, in a late result, would open a settled batch again.
    """
    known = MessageMetadata.of(message)
    bare = replace(
        known,
        position=None,
        batch=None,
        sequence_num=None,
        batch_type=None,
        continue_requested=False,
    )
    return message if bare == known else bare.onto(message)


def _as_system(message: BaseMessage) -> BaseMessage:
    """A summary that an app stored as the user's, as a system message: it begins no batch."""
    if isinstance(message, HumanMessage) and _is_summary(message):
        return SystemMessage(message.content, id=message.id, additional_kwargs={_SOURCE: _SUMMARY})
    return message


def _is_summary(message: BaseMessage) -> bool:
    return message.additional_kwargs.get(_SOURCE) == _SUMMARY


def _without_references(message: BaseMessage) -> BaseMessage:
    """The message with a text in place of each address that a provider would fetch."""
    if isinstance(message.content, str):
        return message
    is_users = isinstance(message, HumanMessage)
    content = [
        {"type": "text", "text": _NOT_TAKEN}
        if find_reference([block] if is_users else media_in([block]))
        else block
        for block in message.content
    ]
    return message.model_copy(update={"content": content})
