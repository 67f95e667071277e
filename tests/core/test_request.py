"""Making messages acceptable to every provider."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from segue.core.calls import calls_of, has_content
from segue.core.request import clean_message, with_calls_joined, with_unique_calls
from tests.histories import calling, malformed, result

TOOL_USE = {"type": "tool_use", "id": "a", "name": "find", "input": {"q": 1}}


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
    signatures = call.additional_kwargs["__gemini_function_call_thought_signatures__"]
    assert signatures == {"call_77_0": "sig"}
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


def test_a_made_up_tool_name_is_sent_in_letters_all_providers_take() -> None:
    """The call and its result carry the same name, without signs that one provider refuses."""
    call = AIMessage("", tool_calls=[{"name": "multi tool.use", "args": {}, "id": "a"}])
    sent, answer = with_unique_calls([call, result("a", "no such tool", name="multi tool.use")])
    assert isinstance(sent, AIMessage)
    assert sent.tool_calls[0]["name"] == "multi_tool_use" == answer.name


def test_an_id_too_long_for_one_provider_is_renamed() -> None:
    """An id of more than 40 characters is replaced on the call and on its result."""
    sent, answer = with_unique_calls([calling("x" * 41), result("x" * 41)])
    assert isinstance(sent, AIMessage)
    assert isinstance(answer, ToolMessage)
    assert sent.tool_calls[0]["id"] == answer.tool_call_id
    assert len(answer.tool_call_id) <= 40


def test_arguments_are_what_every_json_writer_takes() -> None:
    """Not-a-number and half an emoji in arguments do not poison the request."""
    args = {"size": float("nan"), "note": "\ud83d", "tags": ["ok", float("inf")]}
    [sent] = with_unique_calls([AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "a"}])])
    assert isinstance(sent, AIMessage)
    assert sent.tool_calls[0]["args"] == {"size": None, "note": "\ufffd", "tags": ["ok", None]}


@pytest.mark.parametrize("kind", ["tool_call", "custom_tool_call"])
def test_blocks_that_repeat_a_parsed_call_are_left_out(kind: str) -> None:
    """A call that `tool_calls` holds is not also sent as a block that other clients refuse."""
    block = {"type": kind, "id": "a", "name": "f", "input": "Oslo", "args": {}}
    message = AIMessage(
        [{"type": "text", "text": "Well."}, block],
        tool_calls=[{"name": "f", "args": {}, "id": "a"}],
    )
    [sent] = with_unique_calls([message])
    assert sent.content == [{"type": "text", "text": "Well."}]
    assert [call.id for call in calls_of(sent)] == ["a"]


def test_free_text_of_a_custom_call_is_kept() -> None:
    """A call whose input is plain words, known by its block only, is sent with those words."""
    block = {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "Oslo"}
    [sent] = with_unique_calls([AIMessage([block])])
    assert isinstance(sent, AIMessage)
    assert list(sent.tool_calls[0]["args"].values()) == ["Oslo"]


@pytest.mark.parametrize(
    ("content", "clean"),
    [
        ("fine", "fine"),
        (" \n", ""),
        ("half \ud83d", "half \ufffd"),
        (["bare", " "], [{"type": "text", "text": "bare"}]),
        ([{"type": "text", "text": ""}, TOOL_USE], [TOOL_USE]),
        ([{"type": "refusal", "refusal": "No."}], [{"type": "text", "text": "No."}]),
        ([{"type": "output_text", "text": "Yes."}], [{"type": "text", "text": "Yes."}]),
        ([{"type": "text", "text": "\ud83d!"}], [{"type": "text", "text": "\ufffd!"}]),
    ],
)
def test_content_becomes_plain(content: Any, clean: Any) -> None:
    """Blank, bare, broken and one provider's text blocks become what all of them take."""
    assert clean_message(AIMessage(content)).content == clean


def test_tidy_messages_stay_the_same_object() -> None:
    """A message that breaks no rule is not copied."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for message in (HumanMessage("hi"), HumanMessage([{"type": "text", "text": "hi"}, picture])):
        assert clean_message(message) is message


def test_a_custom_calls_output_becomes_text() -> None:
    """A result in one provider's own block is sent as its words."""
    block = {"type": "custom_tool_call_output", "output": "12 degrees"}
    answer = clean_message(ToolMessage([block], tool_call_id="a"))
    assert answer.content == [{"type": "text", "text": "12 degrees"}]


def test_only_a_calling_message_joins_the_words_before_it() -> None:
    """Two replies in a row stay two; a call is sent with the words that led to it."""
    first, second = AIMessage("One."), AIMessage("Two.")
    assert with_calls_joined([first, second]) == [first, second]
    [joined] = with_calls_joined([first, calling("a")])
    assert joined.text == "One."
    assert [call.id for call in calls_of(joined)] == ["a"]


def test_all_words_before_a_call_join_it() -> None:
    """However many messages an agent wrote before it called, the call follows a human message."""
    joined = with_calls_joined([HumanMessage("q"), AIMessage("a"), AIMessage("b"), calling("x")])
    assert [m.type for m in joined] == ["human", "ai"]
    assert joined[1].text == "a\n\nb"


def test_a_finished_batch_holds_words_and_calls_only() -> None:
    """One provider's private blocks are not sent again once their turn is over."""
    blocks: list[str | dict[Any, Any]] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "text", "text": "I look", "id": "msg_1"},
        {"type": "tool_use", "id": "a", "name": "find", "input": {"q": 1}},
    ]
    message = AIMessage(blocks)
    plain = clean_message(message, is_current=False)
    assert isinstance(plain, AIMessage)
    assert plain.content == "I look"
    assert [(c["id"], c["args"]) for c in plain.tool_calls] == [("a", {"q": 1})]
    assert clean_message(message, is_current=True) is message


def test_raw_calls_beside_the_message_are_not_sent() -> None:
    """Calls that somebody cleared do not come back through a client's own copy of them."""
    raw = [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}]
    message = AIMessage("Sure.", additional_kwargs={"tool_calls": raw, "other": 1})
    cleared = message.model_copy(update={"tool_calls": []})
    assert clean_message(cleared).additional_kwargs == {"other": 1}


@pytest.mark.parametrize(
    "kwargs", [{"refusal": "I can't help."}, {"audio": {"id": "x", "transcript": "I can't help."}}]
)
def test_words_beside_the_content_are_words(kwargs: dict[str, Any]) -> None:
    """A refusal or a spoken reply completes a turn and is sent as text."""
    message = AIMessage("", additional_kwargs=kwargs)
    assert has_content(message)
    assert clean_message(message).content == "I can't help."


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"type": "text", "text": None},
        {"type": "tool_result", "tool_use_id": "q", "content": "x"},
        TOOL_USE,
        {"type": ["text"]},
    ],
)
def test_what_a_human_message_cannot_hold_is_left_out(block: dict[str, Any]) -> None:
    """Calls, results and unknown shapes in a human message are not sent."""
    assert clean_message(HumanMessage(["hi", block])).content == [{"type": "text", "text": "hi"}]


def test_a_result_without_words_is_sent_as_empty_text() -> None:
    """A list with nothing in it is refused by one provider."""
    empty = ToolMessage([{"type": "text", "text": ""}], tool_call_id="a")
    assert clean_message(empty).content == ""


def test_a_persons_name_is_sent_in_letters_that_pass() -> None:
    """Names with spaces are refused by one provider."""
    assert clean_message(HumanMessage("hi", name="Sam Smith")).name == "Sam_Smith"
    assert clean_message(HumanMessage("hi", name="Sam")).name == "Sam"


def test_a_made_up_id_never_meets_a_providers() -> None:
    """An id that happens to look like ours is not used for a second call."""
    first = calling("a", "call_77_0")
    second = calling("a").model_copy(update={"additional_kwargs": {"position": 77}})
    messages = [first, result("a"), result("call_77_0"), second, result("a")]
    ids = [call.id for message in with_unique_calls(messages) for call in calls_of(message)]
    assert len(ids) == len(set(ids)) == 3
