"""Finding tool calls, pairing them with results, making their ids unique."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.core.calls import calls_of, has_content, pair, with_unique_calls
from tests.histories import calling, result


def paired(messages: list[BaseMessage]) -> list[tuple[str, Any]]:
    return [(e.call.id, e.result.content if e.result else None) for e in pair(messages).exchanges]


def malformed(*ids: str) -> AIMessage:
    calls = [
        {"name": "find", "args": "{not json", "id": i, "error": "bad", "type": "invalid_tool_call"}
        for i in ids
    ]
    return AIMessage("", invalid_tool_calls=calls)


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


def test_malformed_calls_count() -> None:
    """A call whose arguments do not parse still waits for a result."""
    [call] = calls_of(malformed("a"))
    assert call.malformed
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


def test_fine_messages_are_passed_on_untouched() -> None:
    """Messages whose ids are unique stay the same objects."""
    messages = [calling("a", "b"), result("a"), result("b"), AIMessage("done")]
    assert all(x is y for x, y in zip(with_unique_calls(messages), messages, strict=True))


def test_repeated_ids_become_unique_with_their_results() -> None:
    """A second use of an id is renamed on the call and on its result alike."""
    messages = [calling("a"), result("a", "1"), calling("a"), result("a", "2")]
    _, first, call, second = with_unique_calls(messages)
    assert isinstance(first, ToolMessage)
    assert isinstance(second, ToolMessage)
    assert first.tool_call_id == "a"
    assert second.tool_call_id == calls_of(call)[0].id != "a"
    assert second.content == "2"


def test_renaming_reaches_content_blocks_and_signatures() -> None:
    """Blocks, the block's own result and Google's signatures follow a new id."""
    message = AIMessage(
        [{"type": "text", "text": "again"}, TOOL_USE],
        tool_calls=[{"name": "find", "args": {"q": 1}, "id": "a"}],
        additional_kwargs={
            "__gemini_function_call_thought_signatures__": {"a": "sig"},
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "find"}}],
            "position": 77,
        },
    )
    answer = ToolMessage(
        [{"type": "tool_result", "tool_use_id": "a", "content": "2"}], tool_call_id="a"
    )
    *_, call, second = with_unique_calls([calling("a"), result("a"), message, answer])
    assert isinstance(call, AIMessage)
    assert call.tool_calls[0]["id"] == "call_77_0"
    assert call.content[1]["id"] == "call_77_0"  # type: ignore[index]  # a list of blocks
    assert call.additional_kwargs == {
        "__gemini_function_call_thought_signatures__": {"call_77_0": "sig"},
        "position": 77,
    }
    assert second.content[0]["tool_use_id"] == "call_77_0"  # type: ignore[index]  # same


def test_calls_become_well_formed() -> None:
    """Malformed, nameless and id-less calls are sent as plain calls that match their results."""
    nameless = AIMessage("", tool_calls=[{"name": "", "args": {}, "id": None}])
    messages = [malformed("x"), result("x", "bad arguments"), nameless, result("", "no such tool")]
    first, answer, second, other = with_unique_calls(messages)
    assert isinstance(first, AIMessage)
    assert isinstance(second, AIMessage)
    assert isinstance(answer, ToolMessage)
    assert isinstance(other, ToolMessage)
    assert first.invalid_tool_calls == []
    assert [c["id"] for c in first.tool_calls] == ["x"] == [answer.tool_call_id]
    assert second.tool_calls[0]["name"]
    assert second.tool_calls[0]["id"] == other.tool_call_id != ""
