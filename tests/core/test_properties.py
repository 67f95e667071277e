"""What holds for every history, however it was broken."""

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from segue import (
    Batch,
    build_context,
    group_batches,
    is_synthetic,
    settle,
    stamp,
    strip_metadata,
    synthetic_message,
    visible_messages,
)
from segue.core.metadata import KEYS
from segue.testing.providers import request_problems
from tests.histories import broken_threads, long_threads, threads, ticking_generator

histories = st.one_of(threads(), broken_threads())


def own_words(messages: list[BaseMessage]) -> list[str]:
    return [str(m.content) for m in messages if isinstance(m, HumanMessage) and not is_synthetic(m)]


def finished_results(messages: list[BaseMessage]) -> list[str]:
    return [str(m.content) for m in messages if isinstance(m, ToolMessage)]


@given(histories)
def test_any_history_gives_a_valid_request(messages: list[BaseMessage]) -> None:
    """Whatever was permuted, doubled, lost or cut, every provider accepts the context."""
    assert request_problems(build_context(messages).messages) == []


@given(histories, st.data())
def test_any_current_batch_gives_a_valid_request(
    messages: list[BaseMessage], data: st.DataObject
) -> None:
    """A batch that is asked about half-way is valid too, and it is always in."""
    current = data.draw(st.sampled_from(group_batches(messages))).id
    context = build_context(messages, current_batch=current)
    assert request_problems(context.messages) == []
    assert context.batches[-1] == current


@given(histories, st.integers(1, 400), st.data())
def test_a_budget_keeps_whole_batches_without_a_hole(
    messages: list[BaseMessage], max_tokens: int, data: st.DataObject
) -> None:
    """However small the budget, batches stay whole and only the oldest are missing."""
    batches = group_batches(messages)
    current = data.draw(st.sampled_from([None, batches[-1].id]))
    whole = build_context(messages, current_batch=current)
    tight = build_context(messages, current_batch=current, max_tokens=max_tokens)
    assert request_problems(tight.messages) == []
    assert tight.batches == whole.batches[len(whole.batches) - len(tight.batches) :]
    spoken = [m for m in tight.messages if not isinstance(m, SystemMessage)]
    everything = [m for m in whole.messages if not isinstance(m, SystemMessage)]
    if not tight.shortened:
        # By words: an id whose first use fell out of the window is no longer renamed.
        said = [(m.type, m.text) for m in spoken]
        assert said == [(m.type, m.text) for m in everything][len(everything) - len(spoken) :]
    if current is None:
        assert tight.tokens <= max_tokens - tight.reserved


@given(long_threads(), st.integers(50, 3_000), st.data())
def test_no_request_is_over_budget_unless_its_batch_is(
    messages: list[BaseMessage], max_tokens: int, data: st.DataObject
) -> None:
    """However long the texts before it are, they fit or are cut; the current batch is not."""
    current = data.draw(st.sampled_from(group_batches(messages)))
    context = build_context(messages, current, max_tokens)
    assert request_problems(context.messages) == []
    alone = build_context(current.messages, current, max_tokens)
    if own_words(current.messages):
        assert context.over_budget == alone.over_budget
    assert context.over_budget == (context.tokens > max_tokens - context.reserved)
    assert {s.batch for s in context.shortened} <= {*context.batches} - {current.id}
    assert build_context(messages, current).shortened == []


@given(long_threads(), st.integers(50, 3_000))
def test_a_follow_up_has_a_piece_of_what_it_follows(
    messages: list[BaseMessage], max_tokens: int
) -> None:
    """The last message of a person and the last reply are in its request, whole or in part."""
    last = max(m.additional_kwargs["position"] for m in messages)
    generator = ticking_generator()
    [trigger] = stamp([synthetic_message("check_in")], generator)
    while trigger.additional_kwargs["position"] <= last:
        [trigger] = stamp([synthetic_message("check_in")], generator)
    [batch] = group_batches([trigger])
    context = build_context([*messages, trigger], batch, max_tokens)
    assert request_problems(context.messages) == []
    sent = [m.text for m in context.messages]
    whole = [b for b in group_batches(messages) if b.is_whole]
    said = [m for b in whole for m in visible_messages(b.arranged)]
    for kind in (HumanMessage, AIMessage):
        if found := [m for m in said if isinstance(m, kind)]:
            assert any(found[-1].text.strip()[:20] in text for text in sent)


@given(histories)
def test_every_batch_is_in_or_reported(messages: list[BaseMessage]) -> None:
    """No batch vanishes: it is in the context, or the report says why not."""
    context = build_context(messages, max_tokens=120)
    accounted = sorted([*context.batches, *(d.batch for d in context.dropped)])
    assert accounted == [batch.id for batch in group_batches(messages)]
    assert all(dropped.detail for dropped in context.dropped)


@given(histories, st.randoms())
def test_order_of_arrival_does_not_matter(messages: list[BaseMessage], random: Random) -> None:
    """The same messages in any order give the same batches and the same context."""
    shuffled = list(messages)
    random.shuffle(shuffled)
    assert group_batches(shuffled) == group_batches(messages)
    assert build_context(shuffled) == build_context(messages)


@given(histories)
def test_building_a_context_of_a_context_changes_nothing(messages: list[BaseMessage]) -> None:
    """A context that goes through the builder again comes out the same, so caches hit."""
    # A stored system message is folded into the front one and does not come back.
    assume(not any(isinstance(m, SystemMessage) for m in messages))
    once = build_context(messages)
    again = build_context(once.messages)
    assert again.messages == once.messages
    assert again.tokens == once.tokens


@given(histories)
def test_settling_closes_any_batch_for_good(messages: list[BaseMessage]) -> None:
    """A settled batch is complete and valid, and settling it again changes nothing."""
    for batch in group_batches(messages):
        settled = settle(batch)
        assert settled.is_complete
        assert settled.reasons == []
        assert settle(settled) == settled
        assert request_problems(build_context(settled.messages).messages) == []


@given(histories)
def test_settling_keeps_every_word_and_result(messages: list[BaseMessage]) -> None:
    """What the user said and what tools finished is still there, and a person sees no more."""
    for batch in group_batches(messages):
        settled = settle(batch)
        assert settled.messages[: len(batch.messages)] == batch.messages
        assert visible_messages(settled.messages) == visible_messages(batch.messages)
        given_to_model = build_context(settled.messages).messages
        assert own_words(given_to_model) == own_words(batch.messages)
        kept = [exchange.result for exchange in batch.pairing.exchanges if exchange.result]
        for finished in kept:
            assert str(finished.content) in finished_results(given_to_model)


@given(histories)
def test_settled_history_has_every_user_word_in_context(messages: list[BaseMessage]) -> None:
    """Once all abandoned batches are settled, nothing that a user said is missing."""
    settled: list[BaseMessage] = []
    for batch in group_batches(messages):
        settled += settle(batch).messages
    context = build_context(settled)
    assert own_words(context.messages) == own_words(
        [m for batch in group_batches(messages) for m in batch.messages]
    )
    assert context.dropped == []


@given(histories)
def test_a_request_carries_no_metadata(messages: list[BaseMessage]) -> None:
    """No key of ours is left on anything that goes to a provider."""
    for message in strip_metadata(build_context(messages).messages):
        assert KEYS.isdisjoint(message.additional_kwargs)


@given(histories)
def test_inputs_are_never_changed(messages: list[BaseMessage]) -> None:
    """Reading, building and settling leave the caller's messages as they were."""
    before = [m.model_dump_json() for m in messages]
    batches: list[Batch] = group_batches(messages)
    for batch in batches:
        settle(batch)
    build_context(messages, current_batch=batches[-1].id, max_tokens=50)
    strip_metadata(messages)
    assert [m.model_dump_json() for m in messages] == before
