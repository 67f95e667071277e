"""What a step refuses before it begins, for both databases."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_core.messages import BaseMessage, HumanMessage

from segue.core.errors import ConflictError, UsageError
from segue.core.metadata import MessageMetadata, is_synthetic
from segue.core.triggers import parse_trigger
from segue.journal.records import (
    SEEN_AFTER,
    Arrival,
    Ending,
    NewMemory,
    NewTimer,
    Summary,
    Thread,
    Turn,
    TurnKind,
)
from segue.journal.rows import aware

Vector = npt.NDArray[np.float32]
LONGEST_LEASE: Final = timedelta(days=366)
LONGEST_COLLECT: Final = timedelta(days=1)
COLLECT_AT_MOST: Final = 5  # times
# How far the clocks of two healthy hosts may differ. A lease that was taken longer than that after
# now is one of a clock that was ahead: it lasts from now on, and an owner that is alive extends it.
CLOCK_SKEW: Final = timedelta(seconds=10)

# How deep a value may be nested.
_DEEPEST: Final = 64


def lease_end(now: datetime, lease_for: timedelta) -> datetime:
    """When a lease ends. One without an end would never be taken over from a dead worker."""
    if not timedelta(0) < lease_for <= LONGEST_LEASE:
        raise UsageError(f"A lease lasts more than nothing and at most a year, not {lease_for}.")
    return aware(now) + lease_for


def seen_before(now: datetime) -> datetime:
    """The user has seen a follow-up that was shown until then."""
    return aware(now) - SEEN_AFTER


def check_real(message: BaseMessage) -> None:
    """What a user says is a human message without a trigger's mark and without a place."""
    _check_new(message)
    if not isinstance(message, HumanMessage) or is_synthetic(message):
        raise UsageError(
            f"Only a user's own message can be accepted, not {_named(message)}. Make it with "
            "user_message(); a timer's message is stored by fire_timer(). Nothing was written."
        )


def check_synthetic(message: BaseMessage) -> None:
    """What a timer says is marked: without the mark the user would see it."""
    _check_new(message)
    if not isinstance(message, HumanMessage) or not is_synthetic(message):
        raise UsageError(
            f"A timer fires a synthetic message, not {_named(message)}. Make it with "
            "synthetic_message() or continuation_message(). Nothing was written."
        )


def check_newest(thread_id: str, newest: Summary | None, follows: int | None) -> None:
    """A summary that was made from another one takes its place, and no other's."""
    if follows is not None and follows != (newest.id if newest else 0):
        raise ConflictError(
            f"The summary of thread {thread_id!r} is another one by now; read it again. "
            "Nothing was written."
        )


def check_timer(timer: NewTimer) -> None:
    """A follow-up has a trigger and begins a batch; a continuation goes on in one."""
    if timer.kind is TurnKind.FOLLOW_UP and timer.batch is None:
        parse_trigger(timer.trigger_type)
    elif timer.kind is not TurnKind.CONTINUATION or timer.batch is None:
        raise UsageError(
            f"A {timer.kind} timer {'with' if timer.batch else 'without'} a batch cannot be armed: "
            "a follow_up begins its own, a continuation goes on in one. Nothing was written."
        )


def check_epoch(thread: Thread, epoch: int | None) -> None:
    """What was decided for an epoch counts in that one alone."""
    if epoch is not None and thread.epoch != epoch:
        raise ConflictError(
            f"The user wrote in thread {thread.id!r} or dropped its follow-ups since this was "
            "decided. Nothing was written."
        )


def check_arrival(arrival: Arrival) -> None:
    """A turn is held back for a time that is one, and that ends."""
    if arrival.collect is not None and not timedelta(0) < arrival.collect <= LONGEST_COLLECT:
        raise UsageError(
            f"Messages are collected for more than nothing and at most {LONGEST_COLLECT}, not for "
            f"{arrival.collect}. Nothing was written."
        )


def collected_until(collect: timedelta, *, now: datetime, queued_at: datetime) -> datetime:
    """Until when a turn waits for more messages: each one starts the wait anew, up to an end."""
    return min(aware(now) + collect, queued_at + COLLECT_AT_MOST * collect)


def check_ending(turn: Turn, ending: Ending) -> None:
    """A turn's end reaches into its own thread only."""
    for timer in ending.timers:
        check_timer(timer)
        if timer.thread_id != turn.thread_id:
            raise UsageError(
                f"The end of a turn of thread {turn.thread_id!r} cannot arm a timer of thread "
                f"{timer.thread_id!r}. Nothing was written."
            )


def answered(asked: Turn, answer: Any) -> dict[str, Any]:
    """What the turn that goes on is given: the answer, and the ids of the questions it is for.

    What the answer leads to may ask again before a crash, and gets no answer that was not for it.
    """
    ids = sorted((asked.ending or {}).get("questions", ()))
    is_by_id = isinstance(answer, Mapping) and answer and answer.keys() <= set(ids)
    if len(ids) > 1 and not is_by_id:
        raise UsageError(
            f"There are {len(ids)} questions; give the answers by their ids: {ids}. "
            "Nothing was written."
        )
    return {"answer": answer} | ({"asked": ids} if ids else {})


def check_answer(answer: Any) -> None:
    """A person's answer comes back to the agent as it was given, so JSON has to say all of it."""
    if answer is None:  # LangGraph takes it for none, and would ask again
        raise UsageError("None is no answer; give a text or a value. Nothing was written.")
    try:
        json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"An answer is a JSON value, and this one is not: {error}. Nothing was written."
        ) from error
    if _is_deeper(answer, _DEEPEST):
        raise UsageError(
            f"An answer is nested {_DEEPEST} deep at most: an export of a deeper one could not be "
            "read again. Nothing was written."
        )


def _is_deeper(value: Any, most: int) -> bool:
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(most):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [v for values in inside for v in values if isinstance(v, dict | list | tuple)]
    return bool(level)


def embedding_of(memory: NewMemory) -> Vector | None:
    """A new memory's vector. A model's name without one would pass for an embedding."""
    if memory.embedding is not None:
        return vector_of(memory.embedding, memory.embedding_model)
    if memory.embedding_model is not None:
        raise UsageError("An embedding_model without an embedding; give both or neither.")
    return None


def vector_of(embedding: Sequence[float], model: str | None) -> Vector:
    """The numbers as they are stored, in 32 bits each; all finite, and of a known model."""
    if not model:
        raise UsageError("An embedding needs the name of the model that made it.")
    with np.errstate(over="ignore"):
        vector = np.asarray(embedding, dtype=np.float32)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise UsageError("An embedding is a list of finite numbers, at least one.")
    return vector


def check_room(memory: NewMemory, count: int, capacity: int) -> None:
    """A full namespace takes no more: what to forget is not for a store to choose."""
    if count >= capacity:
        raise ConflictError(
            f"Agent {memory.agent_id!r} knows {count:,} facts about user {memory.user_id!r}, and "
            f"its memory.capacity is {capacity:,}. Forget some or raise it. Nothing was written."
        )


def _check_new(message: BaseMessage) -> None:
    metadata = MessageMetadata.of(message)
    if metadata.batch is not None or metadata.position is not None:
        raise UsageError(
            f"Message {message.id!r} names a batch of its own; the journal gives it a new one. "
            "Nothing was written."
        )


def _named(message: BaseMessage) -> str:
    kind = "a synthetic" if is_synthetic(message) else "a real"
    return f"{kind} {type(message).__name__}"
