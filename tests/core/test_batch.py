"""Batches read from their messages: grouping, order, completeness and its reasons."""

import logging
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage

from segue import (
    Batch,
    BatchType,
    MessageMetadata,
    UsageError,
    build_context,
    group_batches,
    stamp,
    synthetic_message,
)
from segue.core.batch import BATCH_TIMEOUT, BatchState
from segue.core.messages import continuation_message
from segue.core.snowflake import time_of
from segue.errors import MetadataError
from tests.histories import (
    START_MILLIS,
    calling,
    exchange,
    result,
    stamped_cycle,
    ticking_generator,
    tool_exchange,
)


def batch_of(*messages: BaseMessage) -> Batch:
    [batch] = group_batches(stamped_cycle(list(messages), ticking_generator()))
    return batch


def asked_to_go_on(call_id: str) -> BaseMessage:
    return MessageMetadata(continue_requested=True).onto(result(call_id, "will go on"))


def contents(messages: list[BaseMessage]) -> list[object]:
    return [m.content for m in messages]


def test_interleaved_batches_are_told_apart() -> None:
    """Messages of two batches mixed in one list come out as two batches, oldest first."""
    generator = ticking_generator()
    one, two = stamp(tool_exchange("a"), generator), stamp(tool_exchange("a"), generator)
    mixed = [m for pair in zip(one, two, strict=True) for m in pair]
    assert [b.messages for b in group_batches(mixed)] == [one, two]


def test_order_is_batch_then_sequence_whatever_the_positions() -> None:
    """A backdated message stays where its sequence number puts it."""
    human, reply = stamp(exchange(), ticking_generator(node=5))
    metadata = MessageMetadata.of(reply)
    older = human.additional_kwargs["position"] - 2
    backdated = MessageMetadata(
        position=older, batch=metadata.batch, sequence_num=1, batch_type=metadata.batch_type
    ).onto(reply)
    [batch] = group_batches([backdated, human])
    assert contents(batch.messages) == [human.content, reply.content]


def test_ids_of_different_lengths_sort_as_numbers() -> None:
    """A short id comes before a long one, unlike in text order."""
    small = MessageMetadata(position=9, batch=9, sequence_num=0).onto(HumanMessage("old"))
    large = MessageMetadata(position=10, batch=10, sequence_num=0).onto(HumanMessage("new"))
    assert [b.id for b in group_batches([large, small])] == [9, 10]


def test_a_repeated_sequence_number_falls_back_to_the_position() -> None:
    """Two messages with one sequence number both stay, in the order of their positions."""
    generator = ticking_generator()
    first = stamp([HumanMessage("a")], generator)
    batch_id = first[0].additional_kwargs["batch"]
    second = stamp([HumanMessage("b")], generator, batch_id)
    [batch] = group_batches(second + first)
    assert contents(batch.messages) == ["a", "b"]


def test_a_message_given_twice_counts_once() -> None:
    """Reading overlapping pages repeats nothing."""
    stamped = stamp(exchange(), ticking_generator())
    assert group_batches([*stamped, *stamped]) == group_batches(stamped)


def test_two_messages_at_one_position_are_an_error() -> None:
    """A position claimed twice is reported with both ids instead of losing a message."""
    human, reply = stamp(exchange(), ticking_generator())
    other = reply.model_copy(update={"content": "No.", "id": "other"})
    with pytest.raises(MetadataError, match="'other' both claim position"):
        group_batches([human, reply, other])


def test_a_message_without_a_batch_is_an_error_that_says_what_to_do() -> None:
    """An unstamped message is never dropped silently."""
    with pytest.raises(MetadataError, match=r"has no batch; give it one with stamp\(\)"):
        group_batches([HumanMessage("hi", id="m1")])


def test_metadata_of_the_wrong_type_names_the_message() -> None:
    """A batch that is text is refused with the message's id and the expected type."""
    bad = HumanMessage("hi", id="m7", additional_kwargs={"batch": "abc", "position": 1})
    with pytest.raises(MetadataError, match=r"Message 'm7' \(human\): .*'batch'.*'abc'"):
        group_batches([bad])


def test_no_messages_are_no_batches() -> None:
    """An empty list groups into nothing, and an empty batch cannot be made."""
    assert group_batches([]) == []
    with pytest.raises(UsageError, match="Batch 5 has no messages"):
        Batch(5, [])


def test_a_question_and_its_answer_are_complete() -> None:
    """The assistant's last word without calls completes a batch, and there is nothing to say."""
    batch = batch_of(*exchange())
    assert batch.state is BatchState.COMPLETE
    assert batch.reasons == []


def test_an_unanswered_question_is_open() -> None:
    """A batch that holds only the user's words says that the reply is missing."""
    batch = batch_of(HumanMessage("hi"))
    assert batch.state is BatchState.OPEN
    assert batch.reasons == ["The last message is a human message; no reply followed."]


def test_partly_answered_parallel_calls_wait_for_the_rest() -> None:
    """Every open call is named in the reasons, and only those."""
    batch = batch_of(HumanMessage("hi"), calling("a", "b", "c"), result("b"))
    assert batch.state is BatchState.AWAITING_TOOLS
    assert batch.reasons == [
        "Call 'a' to 'look_up' has no result.",
        "Call 'c' to 'look_up' has no result.",
    ]


def test_results_without_a_reply_leave_a_batch_open() -> None:
    """A crash after the last result is not mistaken for a finished turn."""
    batch = batch_of(HumanMessage("hi"), calling("a"), result("a"))
    assert batch.state is BatchState.OPEN
    assert batch.reasons == ["The results are in, but no reply followed."]


def test_text_and_calls_in_one_message_are_judged_by_the_calls() -> None:
    """Words beside a call do not make it the last word."""
    batch = batch_of(HumanMessage("hi"), calling("a", text="One moment."))
    assert batch.state is BatchState.AWAITING_TOOLS


def test_an_early_exit_that_skips_calls_stays_incomplete() -> None:
    """A final reply does not cover up a call that never got its result."""
    batch = batch_of(HumanMessage("hi"), calling("a", "b"), result("a"), AIMessage("Done."))
    assert batch.state is BatchState.AWAITING_TOOLS


def test_an_empty_reply_is_no_reply() -> None:
    """A model that returned nothing has not answered."""
    batch = batch_of(HumanMessage("hi"), AIMessage(""))
    assert batch.state is BatchState.OPEN
    assert not batch.is_complete


def test_a_reply_that_still_streams_is_not_complete() -> None:
    """Completeness is asked anew as a batch grows: open while it streams, complete after it."""
    stamped = stamp([HumanMessage("hi")], ticking_generator())
    batch_id = stamped[0].additional_kwargs["batch"]
    here = MessageMetadata(position=batch_id + 1, batch=batch_id, sequence_num=1)
    half = here.onto(AIMessageChunk(content="Hel"))
    whole = here.onto(AIMessage("Hello!"))
    assert Batch(batch_id, [*stamped, half]).reasons == ["The reply is still streaming."]
    assert Batch(batch_id, [*stamped, whole]).is_complete


def test_a_late_duplicate_result_does_not_reopen_a_batch() -> None:
    """A result delivered again after the reply leaves the batch complete."""
    batch = batch_of(*tool_exchange("a"), result("a", "again"))
    assert batch.is_complete
    assert "again" not in contents(batch.arranged)


def test_a_requested_continuation_keeps_a_batch_waiting() -> None:
    """A batch whose tool asked to go on is complete only after the continuation's own reply."""
    said = [HumanMessage("hi"), calling("a"), asked_to_go_on("a"), AIMessage("I will look.")]
    waiting = batch_of(*said)
    assert waiting.state is BatchState.AWAITING_CONTINUATION
    assert waiting.reasons == ["A requested continuation has not started."]
    assert batch_of(*said, continuation_message()).state is BatchState.OPEN
    assert batch_of(*said, continuation_message(), AIMessage("Found it.")).is_complete


def test_a_batch_that_only_waits_for_its_continuation_is_whole() -> None:
    """Its reply is in, so other turns may read it; without a reply or its head they may not."""
    said = [HumanMessage("hi"), calling("a"), asked_to_go_on("a"), AIMessage("I will look.")]
    waiting = batch_of(*said)
    assert (waiting.is_whole, waiting.is_complete) == (True, False)
    assert not Batch(waiting.id, waiting.messages[1:]).is_whole
    assert not batch_of(*said[:3]).is_whole
    assert not batch_of(*said, continuation_message()).is_whole
    assert not batch_of(*said[:2], AIMessage("I will look.")).is_whole
    assert batch_of(*said, continuation_message(), AIMessage("Found it.")).is_whole


def test_several_requests_of_one_turn_make_one_continuation() -> None:
    """Two tools that ask to go on are served by a single continuation."""
    said = [HumanMessage("hi"), calling("a", "b"), asked_to_go_on("a"), asked_to_go_on("b")]
    done = [*said, AIMessage("Later."), continuation_message(), AIMessage("Done.")]
    assert batch_of(*done).is_complete


def test_a_batch_with_open_calls_does_not_wait_for_its_continuation_yet() -> None:
    """Missing results come first: a continuation never starts before they are stored."""
    batch = batch_of(HumanMessage("hi"), calling("a", "b"), asked_to_go_on("a"))
    assert batch.state is BatchState.AWAITING_TOOLS


def test_a_batch_cut_at_the_front_is_not_whole() -> None:
    """A row limit that loses the first message does not leave a complete-looking rest."""
    [batch] = group_batches(stamp(tool_exchange("a"), ticking_generator())[1:])
    assert batch.state is BatchState.OPEN
    assert batch.reasons == ["The first message is missing."]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_results_stand_right_after_their_calls_in_call_order(order: tuple[int, ...]) -> None:
    """Every order of arrival of parallel results gives one and the same arrangement."""
    results = [result("a", "1"), result("b", "2"), result("c", "3")]
    arrived = [results[n] for n in order]
    batch = batch_of(HumanMessage("hi"), calling("a", "b", "c"), *arrived, AIMessage("Done."))
    assert batch.is_complete
    assert contents(batch.arranged) == ["hi", "", "1", "2", "3", "Done."]


def test_arranging_changes_no_message() -> None:
    """Putting results in order hands out the very messages that are stored."""
    batch = batch_of(
        HumanMessage("hi"), calling("a", "b"), result("b"), result("a"), AIMessage("k")
    )
    assert {id(m) for m in batch.arranged} == {id(m) for m in batch.messages}


def test_what_came_between_call_and_result_moves_behind_them() -> None:
    """A reminder or an interjected message does not separate a call from its result."""
    batch = batch_of(
        HumanMessage("hi"),
        calling("a"),
        HumanMessage("quickly please"),
        result("a", "1"),
        AIMessage("Done."),
    )
    assert contents(batch.arranged) == ["hi", "", "1", "quickly please", "Done."]


def test_an_orphan_result_is_kept_but_not_arranged() -> None:
    """A result of a call nobody made stays in the batch and out of the model's view."""
    batch = batch_of(HumanMessage("hi"), result("ghost", "boo"), AIMessage("Hello."))
    assert batch.is_complete
    assert "boo" in contents(batch.messages)
    assert "boo" not in contents(batch.arranged)


def test_an_empty_tool_result_stays() -> None:
    """A tool that returned nothing has answered, and its result is not taken away."""
    batch = batch_of(HumanMessage("hi"), calling("a"), result("a", ""), AIMessage("Nothing."))
    assert [m.type for m in batch.arranged] == ["human", "ai", "tool", "ai"]


def test_asking_for_the_state_changes_nothing() -> None:
    """State, reasons and arrangement can be read in any order, any number of times."""
    batch = batch_of(HumanMessage("hi"), calling("a"))
    before = batch.messages.copy()
    assert (batch.state, batch.reasons, len(batch.arranged)) == (batch.state, batch.reasons, 2)
    batch.reasons.append("mine")
    assert batch.reasons == ["Call 'a' to 'look_up' has no result."]
    assert batch.messages == before


def test_times_are_read_from_the_ids() -> None:
    """A batch began with its first message and was last active with its newest."""
    batch = batch_of(*exchange())
    assert batch.started_at == datetime.fromtimestamp(START_MILLIS / 1000, UTC)
    assert batch.last_activity_at == time_of(batch.last_position) > batch.started_at


def test_an_unfinished_batch_expires_after_its_timeout() -> None:
    """Whether a batch is abandoned depends on its last activity and the time given, only."""
    batch = batch_of(HumanMessage("hi"), calling("a"), result("a"))
    last = batch.last_activity_at
    assert not batch.is_expired(last + BATCH_TIMEOUT)
    assert batch.is_expired(last + BATCH_TIMEOUT + timedelta(milliseconds=1))
    assert batch.is_expired(last + timedelta(seconds=31), timeout=timedelta(seconds=30))


def test_a_complete_batch_never_expires() -> None:
    """However long ago it was, a finished cycle is not abandoned."""
    batch = batch_of(*exchange())
    assert not batch.is_expired(batch.last_activity_at + timedelta(days=3650))


def test_a_trigger_of_another_version_leaves_its_batch_readable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stored trigger type that is unknown here is logged, and its batch stays in context."""
    trigger, reply = stamp(
        [synthetic_message("check_in"), AIMessage("Hello!")], ticking_generator()
    )
    trigger.additional_kwargs["trigger_type"] = "birthday"
    with caplog.at_level(logging.WARNING):
        [batch] = group_batches([trigger, reply])
        assert build_context([trigger, reply]).batches == [batch.id]
    assert batch.type is BatchType.SYSTEM_TRIGGER
    assert "birthday" in caplog.text


def test_a_longer_batch_does_not_read_known_metadata_again() -> None:
    """A batch that gets its reply keeps what was read of the question, and judges both."""
    generator = ticking_generator()
    [batch] = group_batches(stamp([HumanMessage("Where is Oslo?")], generator))
    assert batch.state is BatchState.OPEN
    reply = stamp([AIMessage("In Norway.")], generator, batch)
    batch.messages[0].additional_kwargs["batch"] = "damaged"
    assert batch.with_messages(reply).state is BatchState.COMPLETE
