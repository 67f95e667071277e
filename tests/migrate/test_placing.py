"""Places for old messages: any history that a crash, a loss or an old app can leave."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.core.autonomy.decide import Sign, judge
from segue.core.batch import group_batches
from segue.core.context import build_context
from segue.core.messages import visible_messages
from segue.core.metadata import MessageMetadata, is_settled, is_synthetic
from segue.core.snowflake import time_of
from segue.migrate.placement import (
    NO_REPLY,
    DatedMessage,
    ThreadIds,
    place,
    prepare_messages,
    split_by_batches,
)
from segue.testing.providers import request_problems
from tests.histories import calling, cycle, exchange, positions, result

START = datetime(2024, 5, 1, 9, tzinfo=UTC)
IDS = ThreadIds("chat")
MARKER = "[AUTONOMOUS_FOLLOWUP: check_in]"


@st.composite
def old_conversations(draw: st.DrawFn) -> list[DatedMessage]:
    """Cycles one after the other, some of their messages lost, with markers and times."""
    messages: list[BaseMessage] = []
    for part in draw(st.lists(cycle(), min_size=1, max_size=5)):
        lost = draw(st.sets(st.integers(0, len(part) - 1), max_size=2))
        messages += [m for index, m in enumerate(part) if index not in lost]
        if draw(st.integers(0, 3)) == 0:
            messages += [HumanMessage(MARKER), AIMessage("Still there?")]
    steps = draw(st.lists(st.integers(0, 90_000), min_size=len(messages), max_size=len(messages)))
    time = START
    olds = []
    for message, step in zip(prepare_messages(messages, "chat"), steps, strict=True):
        time += timedelta(milliseconds=step)
        olds.append(DatedMessage(message, time))
    return olds


def dated(*messages: BaseMessage) -> list[DatedMessage]:
    ready = prepare_messages(messages, "chat")
    return [DatedMessage(message, START + timedelta(hours=n)) for n, message in enumerate(ready)]


def is_closing(message: BaseMessage) -> bool:
    """Whether the migration wrote it."""
    return isinstance(message, AIMessage | ToolMessage) and is_synthetic(message)


def check_sound(placed: list[BaseMessage], olds: list[DatedMessage]) -> None:
    """Nothing is lost or moved, each batch is whole, and every provider takes the context."""
    kept = sorted((m for m in placed if not is_closing(m)), key=lambda m: positions([m]))
    assert [m.id for m in kept] == [old.message.id for old in olds]
    assert all(batch.is_complete for batch in group_batches(placed))
    assert len(set(positions(placed))) == len(placed)
    assert not any(MARKER in m.text for m in placed)
    context = build_context(placed)
    assert context.dropped == []
    assert request_problems(context.messages) == []


@given(old_conversations())
def test_any_old_conversation_becomes_whole_batches(olds: list[DatedMessage]) -> None:
    """In order, complete, without a marker, and valid for every provider."""
    check_sound(place([], olds, IDS).messages, olds)


@given(old_conversations().filter(bool), st.data())
def test_a_conversation_in_two_parts_is_as_sound_as_in_one(
    olds: list[DatedMessage], data: st.DataObject
) -> None:
    """Wherever the first run ended, the second goes on behind it and moves nothing."""
    cut = data.draw(st.integers(1, len(olds)))
    first = place([], olds[:cut], IDS).messages
    stored = [m for batch in group_batches(first) for m in batch.messages]
    second = place(stored, olds[cut:], IDS).messages
    check_sound([*first, *second], olds)
    if second:
        assert min(positions(second)) > max(positions(first))


@given(old_conversations())
def test_the_same_conversation_gets_the_same_places(olds: list[DatedMessage]) -> None:
    """So that a run that was cut off can be repeated."""
    assert place([], olds, IDS) == place([], olds, IDS)


def test_a_late_result_that_asks_to_continue_does_not_reopen_its_batch() -> None:
    """Its batch was settled before, and no run of the old app continues here."""
    late = MessageMetadata(continue_requested=True).onto(ToolMessage("42", tool_call_id="a"))
    olds = dated(HumanMessage("Find it."), calling("a", "b"), *exchange(), late)
    check_sound(place([], olds, IDS).messages, olds)


def test_a_message_keeps_its_time() -> None:
    """Also one that settles a batch has the time of the batch, and not of the migration."""
    placed = place([], dated(HumanMessage("Find it."), calling("a"), *exchange()), IDS).messages
    hours = [(time_of(p) - START) // timedelta(hours=1) for p in positions(placed)]
    assert [*zip(hours, map(is_settled, placed), strict=True)] == [
        (0, False),
        (1, False),
        (1, True),
        (1, True),
        (2, False),
        (3, False),
    ]


def test_a_late_result_is_no_reason_to_settle_behind_the_next_batch() -> None:
    """What closes a batch stands before the next one, wherever its last result came."""
    olds = dated(HumanMessage("Find it."), calling("a"), *exchange(), result("a"))
    placed = place([], olds, IDS)
    first, second = group_batches(placed.messages)
    assert [m.type for m in first.messages] == ["human", "ai", "ai", "tool"]
    assert [m.text for m in visible_messages(second.messages)] == ["Is it open?", "Yes, until six."]
    assert (placed.repairs, placed.orphans) == (1, 0)


@pytest.mark.parametrize(
    "before",
    [
        [],
        exchange(),
        [HumanMessage("Hello.")],
        [HumanMessage("Find it."), calling("a", text="Hm."), result("a")],
    ],
)
def test_words_that_nobody_answered_are_closed_without_a_failure(
    before: list[BaseMessage],
) -> None:
    """A chat that ends with the user's words was not cut off, and leaves nothing to follow up."""
    placed = place([], dated(*before, HumanMessage("And now?")), IDS)
    *_, last = group_batches(placed.messages)
    assert [m.text for m in last.messages][-2:] == ["And now?", NO_REPLY]
    assert not any(map(is_settled, last.messages))
    assert judge(last) is Sign.SILENT
    assert request_problems(build_context(placed.messages).messages) == []


def test_a_reply_that_came_after_all_takes_the_place_of_what_closed_its_batch() -> None:
    """The model is not told that it did not reply where it did."""
    olds = dated(*exchange(), HumanMessage("And now?"), AIMessage("It is closed."))
    first = place([], olds[:3], IDS).messages
    second = place(first, olds[3:], IDS).messages
    told = [m.text for m in build_context([*first, *second]).messages]
    assert told == ["Is it open?", "Yes, until six.", "And now?", "It is closed."]


def test_what_had_to_be_done_is_counted() -> None:
    """Markers, results without a call, and batches that nobody had finished."""
    olds = dated(
        HumanMessage(MARKER), AIMessage("Hi!"), HumanMessage("Well?"), result("x"), calling("a")
    )
    placed = place([], olds, IDS)
    assert (placed.markers, placed.orphans, placed.repairs) == (1, 1, 1)


def test_messages_without_an_id_of_their_own_get_one_by_their_place() -> None:
    """A repeated id is not the same message twice."""
    ready = prepare_messages(
        [HumanMessage("a"), HumanMessage("b", id="m"), AIMessage("c", id="m")], "t"
    )
    assert [message.id for message in ready] == ["t-0", "m", "t-2"]


def test_places_of_another_system_are_given_anew() -> None:
    """An app that stamps its messages may have left no room to settle a batch."""
    stamped = place([], dated(HumanMessage("Well?"), *exchange()), IDS).messages
    [first, *_] = prepare_messages(stamped, "t")
    assert MessageMetadata.of(first).position is None


def test_portions_end_where_a_batch_does() -> None:
    """A run that is cut off between two of them leaves whole batches."""
    placed = place([], dated(*exchange(), *exchange(), *exchange()), IDS).messages
    sizes = [len(group_batches(portion)) for portion in split_by_batches(placed, 3)]
    assert sizes == [2, 1]
