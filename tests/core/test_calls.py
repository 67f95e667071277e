"""Finding tool calls and pairing them with results."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.core.calls import calls_of, has_content, pair
from tests.histories import calling, malformed, result


def paired(messages: list[BaseMessage]) -> list[tuple[str, Any]]:
    return [(e.call.id, e.result.content if e.result else None) for e in pair(messages).exchanges]


TOOL_USE = {"type": "tool_use", "id": "a", "name": "find", "input": {"q": 1}}
TOOL_CALL = {"type": "tool_call", "id": "a", "name": "find", "args": {"q": 1}}
FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_9",
    "call_id": "a",
    "name": "find",
    "arguments": '{"q": 1}',
}


@pytest.mark.parametrize("block", [TOOL_USE, TOOL_CALL, FUNCTION_CALL])
def test_a_call_in_a_content_block_counts(block: dict[str, Any]) -> None:
    """A call is found in each provider's content block, with its id, name and arguments."""
    [call] = calls_of(AIMessage([block]))
    assert (call.id, call.name, call.args) == ("a", "find", {"q": 1})


@pytest.mark.parametrize("block", [TOOL_USE, TOOL_CALL, FUNCTION_CALL])
def test_a_call_written_twice_in_one_message_counts_once(block: dict[str, Any]) -> None:
    """The parsed call and its content block are one call."""
    message = AIMessage([block], tool_calls=[{"name": "find", "args": {"q": 1}, "id": "a"}])
    assert [call.id for call in calls_of(message)] == ["a"]


def test_the_same_id_twice_in_one_message_is_two_calls() -> None:
    """Repeated ids are counted, in either place that holds them."""
    assert [c.id for c in calls_of(calling("a", "a"))] == ["a", "a"]
    assert [c.id for c in calls_of(AIMessage([TOOL_USE, TOOL_USE]))] == ["a", "a"]
    partly_parsed = AIMessage(
        [TOOL_USE, TOOL_USE], tool_calls=[{"name": "find", "args": {}, "id": "a"}]
    )
    assert [c.id for c in calls_of(partly_parsed)] == ["a", "a"]


def test_malformed_calls_count() -> None:
    """A call whose arguments do not parse still waits for a result."""
    [call] = calls_of(malformed("a"))
    assert call.malformed
    assert call.args == {}


def test_arguments_that_never_end_are_no_arguments() -> None:
    """A model that loops on a bracket does not break the thread."""
    calls = [{"name": "t", "args": '{"a":' + "[" * 5_000, "id": "x", "error": None}]
    [call] = calls_of(AIMessage("", invalid_tool_calls=calls))
    assert call.args == {}


def test_tools_run_by_the_provider_are_not_ours_to_answer() -> None:
    """A server-side tool's block asks nobody for a result."""
    block = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    assert calls_of(AIMessage([block, {"type": "text", "text": "Found it."}])) == []


def test_only_the_assistant_calls() -> None:
    """A call block in a human message is no call."""
    assert calls_of(HumanMessage([TOOL_USE])) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("hello", True),
        ("  \n", False),
        ([], False),
        ([{"type": "text", "text": " "}], False),
        (["", "hi"], True),
        ([{"type": "image_url", "image_url": {"url": "x"}}], True),
        ([TOOL_USE], False),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}], False),
    ],
)
def test_what_counts_as_saying_something(content: Any, says: bool) -> None:
    """Text and media speak; blanks, calls and silent reasoning do not."""
    assert has_content(AIMessage(content)) is says


def test_results_find_their_calls_in_any_order() -> None:
    """Parallel results pair by id whatever order they come in."""
    messages = [calling("a", "b", "c"), result("c", "3"), result("a", "1"), result("b", "2")]
    assert paired(messages) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_a_reused_id_pairs_with_the_nearest_call_before_it() -> None:
    """Two assistant messages that use the same id each keep their own result."""
    messages = [calling("a"), result("a", "first"), calling("a"), result("a", "second")]
    assert paired(messages) == [("a", "first"), ("a", "second")]


def test_a_lost_result_does_not_take_the_next_ones_place() -> None:
    """With the first result lost, the second call keeps its own and the first stays open."""
    messages = [calling("a"), calling("a"), result("a", "second")]
    assert paired(messages) == [("a", None), ("a", "second")]


def test_one_id_twice_in_a_message_pairs_by_occurrence() -> None:
    """The first result goes to the first of two calls with one id."""
    messages = [calling("a", "a"), result("a", "1"), result("a", "2")]
    assert paired(messages) == [("a", "1"), ("a", "2")]


def test_the_first_of_two_results_counts() -> None:
    """A result delivered twice is kept once, and the second is reported."""
    pairing = pair([calling("a"), result("a", "once"), result("a", "twice")])
    assert [e.result.content for e in pairing.exchanges if e.result] == ["once"]
    assert [m.content for m in pairing.duplicates] == ["twice"]


def test_a_repeated_result_is_not_kept_for_a_later_call_of_its_id() -> None:
    """A result delivered twice does not answer the next call that happens to use its id."""
    messages = [calling("a"), result("a", "1"), result("a", "1 again"), calling("a")]
    assert paired(messages) == [("a", "1"), ("a", None)]


def test_a_result_stored_before_its_call_is_still_its_result() -> None:
    """Arrival before the call loses nothing."""
    assert paired([result("a", "early"), calling("a")]) == [("a", "early")]


def test_a_result_without_a_call_is_an_orphan() -> None:
    """A result nobody asked for is set apart, not dropped silently."""
    pairing = pair([HumanMessage("hi"), result("ghost", "boo"), calling("a"), result("a")])
    assert [m.content for m in pairing.orphans] == ["boo"]
    assert pairing.unanswered == []


def test_error_results_are_results() -> None:
    """A tool that failed has answered."""
    assert pair([calling("a"), result("a", "boom", status="error")]).unanswered == []
