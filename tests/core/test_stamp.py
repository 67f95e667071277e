"""Giving messages their position, batch and sequence number."""

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
)

from segue import (
    Batch,
    BatchType,
    ConflictError,
    MessageMetadata,
    UsageError,
    group_batches,
    stamp,
    synthetic_message,
)
from segue.core.messages import continuation_message
from segue.core.snowflake import parse
from segue.errors import UnknownTrigger
from tests.histories import calling, exchange, positions, result, ticking_generator, tool_exchange


def test_a_cycle_becomes_one_batch_named_after_its_first_message() -> None:
    """All messages share the first one's position as batch id and are numbered from zero."""
    stamped = stamp(tool_exchange("a", "b"), ticking_generator())
    metadata = [MessageMetadata.of(m) for m in stamped]
    assert {m.batch for m in metadata} == {metadata[0].position}
    assert [m.sequence_num for m in metadata] == [0, 1, 2, 3, 4]
    assert positions(stamped) == sorted(set(positions(stamped)))


def test_every_message_has_all_fields_at_once() -> None:
    """Nothing of a stamped message is filled in later, the last reply included."""
    for message in stamp(tool_exchange("a"), ticking_generator()):
        metadata = MessageMetadata.of(message)
        assert None not in (
            metadata.position,
            metadata.batch,
            metadata.sequence_num,
            metadata.batch_type,
        )


def test_two_requests_are_two_batches() -> None:
    """A new message never joins a batch that is still running."""
    generator = ticking_generator()
    running = stamp([HumanMessage("first"), calling("a")], generator)
    arrived = stamp([HumanMessage("second")], generator)
    assert len(group_batches(running + arrived)) == 2


@pytest.mark.parametrize("kind", list(BatchType))
def test_the_type_of_a_batch_can_be_given(kind: BatchType) -> None:
    """Each of the four types is stored as plain text and read back."""
    [message] = stamp([HumanMessage("hi")], ticking_generator(), batch_type=kind.value)
    assert message.additional_kwargs["batch_type"] == kind.value
    assert type(message.additional_kwargs["batch_type"]) is str
    assert group_batches([message])[0].type is kind


def test_a_trigger_makes_a_batch_of_its_own_type() -> None:
    """A synthetic first message gives a system-trigger batch, a real one a user request."""
    generator = ticking_generator()
    trigger = stamp([synthetic_message("check_in")], generator)
    real = stamp([HumanMessage("hi")], generator)
    assert [b.type for b in group_batches(trigger + real)] == ["system_trigger", "user_request"]


def test_a_continuation_goes_on_in_the_same_batch() -> None:
    """Continuing a batch keeps its id and type and counts on without gap or repetition."""
    generator = ticking_generator()
    first = stamp(tool_exchange("a"), generator)
    [batch] = group_batches(first)
    more = stamp([continuation_message()], generator, batch, BatchType.CONTINUATION)
    [batch] = group_batches(first + more)
    reply = stamp([AIMessage("Finished now.")], generator, batch)
    [batch] = group_batches(first + more + reply)
    assert batch.id == first[0].additional_kwargs["batch"]
    assert [m.additional_kwargs["sequence_num"] for m in batch.messages] == [0, 1, 2, 3, 4, 5]
    assert batch.type is BatchType.USER_REQUEST


def test_a_batch_id_and_the_next_number_are_enough_to_go_on() -> None:
    """A worker that knows only the id and the count appends in the right place."""
    generator = ticking_generator()
    first = stamp(exchange(), generator)
    batch_id = first[0].additional_kwargs["batch"]
    more = stamp([HumanMessage("and?"), AIMessage("Yes.")], generator, batch_id, start=2)
    [batch] = group_batches(more + first)
    assert [m.content for m in batch.messages] == [m.content for m in first + more]


def test_a_message_that_names_its_batch_keeps_it() -> None:
    """A request to go on carries the batch id, and stamping takes it from there."""
    generator = ticking_generator()
    batch_id = generator.next()
    request = MessageMetadata(batch=batch_id, sequence_num=4).onto(HumanMessage("go on"))
    [message] = stamp([request], generator)
    assert message.additional_kwargs["batch"] == batch_id
    assert message.additional_kwargs["sequence_num"] == 4


def test_a_message_never_moves() -> None:
    """A stored message is refused, and so is one that names another batch."""
    generator = ticking_generator()
    stored = stamp(exchange(), generator)
    with pytest.raises(ConflictError, match="already belongs to batch"):
        stamp(stored, generator)
    elsewhere = MessageMetadata(batch=generator.next()).onto(HumanMessage("hi"))
    with pytest.raises(ConflictError, match="never moves"):
        stamp([elsewhere], generator, batch=generator.next())


def test_a_refused_list_uses_up_no_message() -> None:
    """After a refusal the caller's messages are as they were and can be stamped properly."""
    generator = ticking_generator()
    fresh = HumanMessage("hi")
    with pytest.raises(ConflictError):
        stamp([fresh, *stamp(exchange(), generator)], generator)
    assert fresh.additional_kwargs == {}
    assert stamp([fresh], generator)[0].content == "hi"


def test_ids_are_kept_or_made_of_the_position() -> None:
    """A message with an id keeps it; one without gets the text of its position."""
    named, unnamed = stamp([HumanMessage("a", id="mine"), AIMessage("b")], ticking_generator())
    assert named.id == "mine"
    assert unnamed.id is not None
    assert parse(unnamed.id) == unnamed.additional_kwargs["position"]


def test_metadata_of_a_trigger_survives_stamping() -> None:
    """Stamping adds to what a synthetic message carries and takes nothing away."""
    [message] = stamp([synthetic_message("task_incomplete", "quiet")], ticking_generator())
    metadata = MessageMetadata.of(message)
    assert metadata.synthetic
    assert (metadata.trigger_type, metadata.trigger_reason) == ("task_incomplete", "quiet")


def test_a_streamed_reply_is_stored_as_a_finished_message() -> None:
    """A chunk becomes a message, since merging stamped chunks would add up their numbers."""
    chunk = AIMessageChunk(content="hello", id="run-1")
    [message] = stamp([chunk], ticking_generator())
    assert type(message) is AIMessage
    assert (message.content, message.id) == ("hello", "run-1")


def test_a_nested_batch_names_its_parent() -> None:
    """A batch that another one started carries that one's id on every message."""
    generator = ticking_generator()
    parent = stamp([HumanMessage("ask the other one"), calling("a")], generator)
    parent_id = parent[0].additional_kwargs["batch"]
    kind = BatchType.AGENT_TO_AGENT
    child = stamp(exchange(), generator, batch_type=kind, parent_batch=parent_id)
    outer, inner = group_batches(parent + child)
    assert (inner.parent, inner.type) == (outer.id, kind)
    assert outer.parent is None
    assert not outer.is_complete
    assert inner.is_complete


def test_positions_rise_above_what_another_process_stored() -> None:
    """A batch begun by a process with a fast clock is continued above its positions."""
    fast = stamp([HumanMessage("hi")], ticking_generator(node=2))
    [batch] = group_batches(fast)
    slow = ticking_generator(node=1)
    [reply] = stamp([AIMessage("hello")], slow, batch)
    assert reply.additional_kwargs["position"] > batch.last_position


def test_no_messages_make_no_batch() -> None:
    """An empty list is nothing to stamp."""
    assert stamp([], ticking_generator()) == []


@pytest.mark.parametrize("batch", [0, -1, True, "0000000000000000001", 2**63])
def test_a_batch_id_that_is_no_snowflake_is_refused(batch: int) -> None:
    """A bad batch id is named in the error, and nothing is stamped."""
    with pytest.raises(UsageError, match=r"batch id .* is not a snowflake"):
        stamp([HumanMessage("hi")], ticking_generator(), batch=batch)


def test_an_unknown_trigger_cannot_be_stamped() -> None:
    """A message is refused when it is made, not when it is read back."""
    bad = HumanMessage("hi", additional_kwargs={"synthetic": True, "trigger_type": "birthday"})
    with pytest.raises(UnknownTrigger, match="'birthday'; valid are: check_in"):
        stamp([bad], ticking_generator())


def test_other_bad_arguments_are_refused() -> None:
    """An unknown type, a negative start and a thing that is no message give clear errors."""
    generator = ticking_generator()
    with pytest.raises(UsageError, match="valid are: user_request, agent_to_agent"):
        stamp([HumanMessage("hi")], generator, batch_type="party")
    with pytest.raises(UsageError, match="one message; put it into a list"):
        stamp(HumanMessage("hi"), generator)  # type: ignore[arg-type]  # wanted
    with pytest.raises(UsageError, match="a new batch starts at 0"):
        stamp([HumanMessage("hi")], generator, start=3)
    with pytest.raises(UsageError, match="start is -1"):
        stamp([HumanMessage("hi")], generator, start=-1)
    with pytest.raises(UsageError, match="Expected LangChain messages, got dict at place 0"):
        stamp([{"role": "user", "content": "hi"}], generator)  # type: ignore[list-item]  # wanted


def test_a_bare_batch_id_never_mixes_up_the_order() -> None:
    """Without a count, numbers repeat; the order of arrival is kept all the same."""
    generator = ticking_generator()
    stored = stamp([HumanMessage("q"), calling("a"), result("a", "r")], generator)
    batch_id = stored[0].additional_kwargs["batch"]
    stored += stamp([AIMessage("final")], generator, batch_id)
    [batch] = group_batches(stored)
    assert [m.content for m in batch.messages] == ["q", "", "r", "final"]
    assert batch.is_complete


def test_what_a_caller_changes_later_does_not_reach_a_stamped_message() -> None:
    """Lists and dictionaries of the original are copied, not shared."""
    original = HumanMessage(["a"], additional_kwargs={"other": {"n": 1}})
    call = AIMessage("", tool_calls=[{"name": "f", "args": {"n": 1}, "id": "a"}])
    human, calls = stamp([original, call], ticking_generator())
    original.content.append("later")  # type: ignore[union-attr]  # a list of blocks
    original.additional_kwargs["other"]["n"] = 2
    call.tool_calls[0]["args"]["n"] = 2
    assert human.content == ["a"]
    assert human.additional_kwargs["other"] == {"n": 1}
    assert isinstance(calls, AIMessage)
    assert calls.tool_calls[0]["args"] == {"n": 1}


def test_a_chat_message_is_stored_by_its_role() -> None:
    """Messages of the generic type become a person's, the agent's or the system's."""
    roles = ["user", "assistant", "system"]
    stamped = stamp([ChatMessage(content="hi", role=role) for role in roles], ticking_generator())
    assert [m.type for m in stamped] == ["human", "ai", "system"]
    with pytest.raises(UsageError, match="has the unknown role 'critic'"):
        stamp([ChatMessage(content="hi", role="critic")], ticking_generator())
    with pytest.raises(UsageError, match="a command to LangGraph"):
        stamp([RemoveMessage(id="x")], ticking_generator())


def test_results_can_be_stored_one_by_one_as_they_arrive() -> None:
    """Each parallel result is appended on its own, in its order of arrival."""
    generator = ticking_generator()
    stored = stamp([HumanMessage("hi"), calling("a", "b")], generator)
    for message in (result("b", "2"), result("a", "1"), AIMessage("Both done.")):
        batch = Batch(stored[0].additional_kwargs["batch"], stored)
        assert not batch.is_complete
        stored = [*stored, *stamp([message], generator, batch)]
    [batch] = group_batches(stored)
    assert batch.is_complete
    assert [m.content for m in batch.arranged[2:4]] == ["1", "2"]
