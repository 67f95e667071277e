"""Closing an abandoned batch."""

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue import (
    Batch,
    BatchType,
    MessageMetadata,
    build_context,
    group_batches,
    is_synthetic,
    settle,
    stamp,
    synthetic_message,
    visible_messages,
)
from segue.core.batch import CUT_OFF_REPLY, NOT_CONTINUED
from segue.core.messages import continuation_message
from segue.testing.providers import request_problems
from tests.histories import calling, exchange, result, stamped_cycle, ticking_generator


def batch_of(*messages: BaseMessage) -> Batch:
    [batch] = group_batches(stamped_cycle(list(messages), ticking_generator()))
    return batch


def added(batch: Batch) -> list[BaseMessage]:
    return settle(batch).messages[len(batch.messages) :]


def test_a_complete_batch_needs_no_settling() -> None:
    """A finished cycle is handed back as it is."""
    batch = batch_of(*exchange())
    assert settle(batch) is batch


def test_open_calls_get_an_error_result_each() -> None:
    """Every call without a result is answered with an error that says it was interrupted."""
    batch = batch_of(HumanMessage("hi"), calling("a", "b", "c"), result("b", "finished"))
    *results, closing = added(batch)
    assert [m.tool_call_id for m in results if isinstance(m, ToolMessage)] == ["a", "c"]
    assert all(isinstance(m, ToolMessage) and m.status == "error" for m in results)
    assert all("Interrupted" in str(m.content) for m in results)
    assert isinstance(closing, AIMessage)


def test_a_reply_that_is_whole_was_not_cut_off() -> None:
    """Of a continuation that does not come, the model reads that it was called off."""
    wish = MessageMetadata(continue_requested=True).onto(result("a"))
    asked = (HumanMessage("hi"), calling("a"), wish)
    assert [m.text for m in added(batch_of(*asked, AIMessage("More soon.")))] == [NOT_CONTINUED]
    assert [m.text for m in added(batch_of(*asked))] == [CUT_OFF_REPLY]


def test_finished_results_are_kept_beside_the_interrupted_ones() -> None:
    """The model learns which calls took effect and which are uncertain."""
    batch = batch_of(HumanMessage("hi"), calling("a", "b"), result("b", "booked"))
    tools = [m.content for m in build_context(settle(batch).messages).messages if m.type == "tool"]
    assert tools[1] == "booked"
    assert "not known whether" in str(tools[0])


def test_a_failed_turn_keeps_the_users_words_in_context() -> None:
    """A message whose reply never came is in context once its batch is settled."""
    batch = batch_of(HumanMessage("My flight is at nine."))
    assert build_context(batch.messages).messages == []
    settled = build_context(settle(batch).messages).messages
    assert settled[0].content == "My flight is at nine."
    assert request_problems(settled) == []


def test_the_closing_message_tells_the_model_and_nobody_else() -> None:
    """What settling adds is synthetic: the model reads it, a person does not."""
    batch = batch_of(HumanMessage("hi"), calling("a"))
    assert all(is_synthetic(m) for m in added(batch))
    assert visible_messages(settle(batch).messages) == visible_messages(batch.messages)
    assert "cut off" in str(added(batch)[-1].content)


def test_a_lost_continuation_is_ended() -> None:
    """A batch that waits for a continuation that will not come is whole again when settled."""
    wants_more = MessageMetadata(continue_requested=True).onto(result("a"))
    batch = batch_of(HumanMessage("hi"), calling("a"), wants_more, AIMessage("I will look."))
    assert batch.state == "awaiting_continuation"
    assert settle(batch).is_complete


def test_a_batch_that_ends_in_a_continuation_returns_whole() -> None:
    """A crash right after the continuation was stored hides none of the work before it."""
    wants_more = MessageMetadata(continue_requested=True).onto(result("a", "half of it"))
    batch = batch_of(HumanMessage("hi"), calling("a"), wants_more, continuation_message())
    contents = [m.content for m in build_context(settle(batch).messages).messages]
    assert {"hi", "half of it"} <= set(contents)


def test_an_abandoned_follow_up_stays_invisible() -> None:
    """Settling a follow-up that never spoke shows a person nothing at all."""
    batch = batch_of(synthetic_message("check_in", "quiet"))
    settled = settle(batch)
    assert visible_messages(settled.messages) == []
    assert settled.type is BatchType.SYSTEM_TRIGGER


def test_settling_twice_changes_nothing() -> None:
    """A repair that runs again adds nothing and breaks nothing."""
    once = settle(batch_of(HumanMessage("hi"), calling("a", "b"), result("a")))
    assert settle(once) == once
    assert settle(Batch(once.id, list(once.messages))) == once


def test_settling_is_the_same_every_time() -> None:
    """Without a generator the added ids follow from the batch alone, so caches hit."""
    batch = batch_of(HumanMessage("hi"), calling("a"))
    assert settle(batch).messages == settle(Batch(batch.id, list(batch.messages))).messages


def test_stored_positions_come_from_the_generator() -> None:
    """With a generator the new messages get fresh ids above the batch's own."""
    generator = ticking_generator()
    [batch] = group_batches(stamp([HumanMessage("hi"), calling("a")], generator))
    later = generator.next()
    settled = settle(batch, generator)
    fresh = [MessageMetadata.of(m).position or 0 for m in settled.messages[2:]]
    assert min(fresh) > later
    assert fresh == sorted(set(fresh))
    assert [m.additional_kwargs["sequence_num"] for m in settled.messages] == [0, 1, 2, 3]


def test_a_real_result_counts_more_than_what_settling_put_in_its_place() -> None:
    """A result that comes in late tells the model what happened, and the batch stays whole."""
    settled = settle(batch_of(HumanMessage("hi"), calling("a")))
    late = stamp([result("a", "late")], ticking_generator(), settled)
    [batch] = group_batches([*settled.messages, *late])
    assert batch.is_complete
    tools = [m.content for m in build_context(batch.messages).messages if m.type == "tool"]
    assert tools == ["late"]


def test_a_late_request_to_go_on_reopens_nothing() -> None:
    """A worker that lost its batch cannot take the user's words out of the context again."""
    settled = settle(batch_of(HumanMessage("please"), calling("a"), result("a", "1")))
    wants_more = MessageMetadata(continue_requested=True).onto(result("a", "again"))
    late = stamp([wants_more], ticking_generator(), settled)
    [batch] = group_batches([*settled.messages, *late])
    assert batch.is_complete


def test_an_early_result_stays_with_its_call() -> None:
    """What settling adds for one call never pushes a finished result to another."""
    batch = batch_of(HumanMessage("hi"), result("a", "REAL"), calling("a", "a"))
    before = [e.result and e.result.content for e in batch.pairing.exchanges]
    after = [e.result and e.result.content for e in settle(batch).pairing.exchanges]
    assert before == ["REAL", None]
    assert after[0] == "REAL"


def test_a_call_with_an_odd_id_is_settled_for_good() -> None:
    """A number where a provider's id should be does not keep a batch open for ever."""
    block = {"type": "tool_use", "id": 5, "name": "t", "input": {}}
    settled = settle(batch_of(HumanMessage("hi"), AIMessage([block])))
    assert settled.is_complete
    assert settle(settled) == settled


def test_the_original_batch_is_untouched() -> None:
    """Settling gives a new batch and leaves the one it was asked about open."""
    batch = batch_of(HumanMessage("hi"), calling("a"))
    settle(batch)
    assert batch.state == "awaiting_tools"
    assert len(batch.messages) == 2
