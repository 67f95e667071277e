"""Making messages, and the one way out to a person."""

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)

from segue import (
    TRIGGER_PROMPTS,
    MessageMetadata,
    TriggerType,
    UsageError,
    assign_batches,
    is_synthetic,
    settle,
    synthetic_message,
    user_message,
    visible_messages,
)
from segue.core.batch import group_batches
from segue.core.messages import (
    CONTINUATION_PROMPT,
    continuation_message,
    origin_of,
    spoken_text,
)
from segue.core.stamp import stamp
from segue.errors import MetadataError, UnknownTrigger
from tests.histories import calling, result, ticking_generator

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
OLD_MARKER = "[AUTONOMOUS_FOLLOWUP: check_in]"
PROMPTS = list(TRIGGER_PROMPTS.values())

text_blocks = st.builds(lambda text: {"type": "text", "text": text}, st.text())
# Random words, and words that a filter by content would fall for.
contents = st.one_of(
    st.text(),
    st.sampled_from([*PROMPTS, OLD_MARKER, "synthetic: true"]),
    st.lists(st.one_of(st.text(), text_blocks, st.just(PICTURE)), max_size=3),
    st.sampled_from(PROMPTS).map(lambda text: [{"type": "text", "text": text}, PICTURE]),
)


class Sealed(HumanMessage):
    """A message that fails the test of whoever looks at what it says."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"content", "content_blocks", "text"}:
            raise AssertionError(f"{name} was read")
        return super().__getattribute__(name)


def tagged(content: str | list[Any], trigger: str = "check_in") -> HumanMessage:
    kwargs = {"synthetic": True, "trigger_type": trigger}
    return HumanMessage(content, additional_kwargs=kwargs)


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_trigger_becomes_a_human_message_with_its_prompt_and_tags(trigger: TriggerType) -> None:
    """Content is the natural prompt and nothing else; flag and type are in metadata."""
    message = synthetic_message(trigger)
    assert type(message) is HumanMessage
    assert message.content == TRIGGER_PROMPTS[trigger]
    assert message.additional_kwargs == {"synthetic": True, "trigger_type": trigger.value}


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_given_reason_is_kept_in_metadata_and_out_of_the_content(trigger: TriggerType) -> None:
    """An operator can read why the agent spoke; the model cannot."""
    message = synthetic_message(trigger, reason="No activity for 30 seconds")
    assert message.additional_kwargs == {
        "synthetic": True,
        "trigger_type": trigger.value,
        "trigger_reason": "No activity for 30 seconds",
    }
    assert message.content == TRIGGER_PROMPTS[trigger]


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_trigger_may_be_named_by_its_text(trigger: TriggerType) -> None:
    """A stored timer knows its trigger as text and gets the same message."""
    assert synthetic_message(trigger.value, "idle") == synthetic_message(trigger, "idle")


@pytest.mark.parametrize("unknown", ["agent_decision", "CHECK_IN", ""])
def test_an_unknown_trigger_makes_no_message(unknown: str) -> None:
    """A trigger that does not exist is refused, and the error lists those that do."""
    with pytest.raises(UnknownTrigger) as refused:
        synthetic_message(unknown)
    assert all(trigger.value in str(refused.value) for trigger in TriggerType)


def test_an_agents_own_prompt_replaces_the_fixed_one() -> None:
    """Wording may vary per agent and per message; tags stay the same."""
    message = synthetic_message("check_in", prompt="How is the garden doing?")
    assert message.content == "How is the garden doing?"
    assert message.additional_kwargs == synthetic_message("check_in").additional_kwargs


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_prompt_without_words_is_refused(blank: str) -> None:
    """Providers refuse empty messages, so one is never made, nor replaced behind one's back."""
    with pytest.raises(UsageError, match="'task_incomplete' is empty"):
        synthetic_message("task_incomplete", prompt=blank)


def test_a_reason_that_is_no_text_is_refused() -> None:
    """A reason is for people to read; an object there is a mistake of the caller."""
    reason: Any = {"idle_for": 30}
    with pytest.raises(MetadataError, match="trigger_reason"):
        synthetic_message("check_in", reason)


def test_a_continuation_is_synthetic_and_human() -> None:
    """Going on is asked for by a human message that no person sees."""
    message = continuation_message("two more pages")
    assert type(message) is HumanMessage
    assert message.content == CONTINUATION_PROMPT
    assert message.additional_kwargs == {"synthetic": True, "trigger_reason": "two more pages"}


def test_a_clients_text_becomes_a_plain_message() -> None:
    """A user's message has no metadata at all."""
    message = user_message("Hello", id="c-1")
    assert type(message) is HumanMessage
    assert (message.content, message.id, message.additional_kwargs) == ("Hello", "c-1", {})


def test_only_the_content_of_a_clients_message_is_taken() -> None:
    """Tags, names, ids and provider data from outside never get in; the server gives the id."""
    sent = HumanMessage(
        "Hello",
        id="c-1",
        name="system",
        additional_kwargs={"synthetic": True, "batch": 7, "position": 7, "mood": "calm"},
        response_metadata={"created_at": "2031-01-01"},
        example=True,
    )
    assert user_message(sent) == HumanMessage("Hello")
    assert user_message(sent, id="c-2") == HumanMessage("Hello", id="c-2")


@given(
    st.text().filter(str.strip),
    st.dictionaries(st.sampled_from(["synthetic", "trigger_type", "batch"]), st.just(True)),
)
def test_a_client_can_never_make_a_message_synthetic(text: str, kwargs: dict[str, Any]) -> None:
    """Whatever a client attaches, its message is real, visible and without metadata."""
    message = user_message(HumanMessage(text, additional_kwargs=kwargs))
    assert not is_synthetic(message)
    assert message.additional_kwargs == {}
    assert visible_messages([message]) == [message]


@pytest.mark.parametrize("nothing", ["", " \n", [], [{"type": "text", "text": " "}], ["", ""]])
def test_an_empty_message_is_refused(nothing: Any) -> None:
    """A message that says nothing is an error for the client, not a turn for the model."""
    with pytest.raises(UsageError, match="The message is empty; send some text"):
        user_message(nothing)


def test_a_client_cannot_steer_the_cache() -> None:
    """What a request's cache keeps is not the client's to decide."""
    url = "https://example.org/cat.png"
    block = {"type": "image", "url": url, "cache_control": {"type": "ephemeral"}}
    assert user_message([block]).content == [{"type": "image", "url": url}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url"},
        {"type": "image_url", "image_url": 5},
        {"type": "image_url", "image_url": {"url": "not a url"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image"},
        {"type": "file", "file": {}},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
    ],
)
def test_a_block_that_holds_nothing_is_refused(block: dict[str, Any]) -> None:
    """One broken picture would make every later request of the thread fail."""
    with pytest.raises(UsageError, match="needs a url"):
        user_message(["look", block])


@pytest.mark.parametrize(
    "content", ["", [], [{"type": "thinking", "thinking": "hm", "signature": "s"}]]
)
def test_a_reply_without_words_is_not_visible(content: Any) -> None:
    """A person sees no empty bubble and no silent reasoning."""
    assert visible_messages([AIMessage(content)]) == []


def test_what_a_person_can_send_is_taken_as_it_is() -> None:
    """Text, pictures, sound, video and files pass in their order."""
    blocks: list[Any] = [
        {"type": "text", "text": "my cat"},
        PICTURE,
        {"type": "image", "url": "https://example.org/cat.png", "detail": "high"},
        {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video", "url": "https://example.org/cat.mp4"},
        {"type": "file", "file_id": "f-1"},
        {"type": "text-plain", "text": "notes"},
    ]
    assert user_message(blocks).content == blocks
    assert user_message(HumanMessage(blocks)).content == blocks


def test_a_bare_text_among_blocks_becomes_a_text_block() -> None:
    """Not every provider takes a string inside a list, so there is one way to write text."""
    assert user_message(["hi", PICTURE]).content == [{"type": "text", "text": "hi"}, PICTURE]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param("a\x00b", "a\ufffdb", id="NUL"),
        pytest.param("caf\xe9\x00", "caf\xe9\ufffd", id="NUL beside an accent"),
        pytest.param("a\ud83d", "a\ufffd", id="half an emoji"),
        pytest.param("\ude00 \U0001f355", "\ufffd \U0001f355", id="the other half"),
        pytest.param("\ufeffhi", "\ufeffhi", id="byte order mark"),
    ],
)
def test_what_cannot_be_stored_everywhere_is_replaced(sent: str, kept: str) -> None:
    """A character that no database or provider takes costs itself, not the whole message."""
    assert user_message(sent).content == kept
    assert user_message([sent]).content == [{"type": "text", "text": kept}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text-plain", "text": "a\x00b\ud83d"},
        {
            "type": "file",
            "file": {"file_id": "f-1", "filename": "a\x00b\ud83d", "tags": ["a\x00b\ud83d"]},
        },
    ],
    ids=["text", "name of a file"],
)
def test_what_cannot_be_stored_is_replaced_wherever_a_block_holds_it(block: object) -> None:
    """One bad character in a file's name must not make a message that no store takes."""
    kept = json.dumps(user_message([block]).content, ensure_ascii=False)
    assert kept.encode()
    assert "\\u0000" not in kept
    assert "a\ufffdb\ufffd" in kept


@given(st.text().filter(str.strip))
def test_all_other_text_is_kept_to_the_letter(text: str) -> None:
    """Whatever script a person writes in, nothing is normalised, trimmed or lost."""
    assume("\x00" not in text)
    assert user_message(text).content == text


def test_a_message_does_not_change_with_the_list_it_was_made_from() -> None:
    """A client's objects that are used again later cannot rewrite history."""
    blocks: list[Any] = [{"type": "file", "file_id": "f-1"}]
    message = user_message(blocks)
    blocks[0]["file_id"] = "f-2"
    blocks.append(PICTURE)
    assert message.content == [{"type": "file", "file_id": "f-1"}]


def test_unknown_keys_of_a_text_block_are_dropped() -> None:
    """Provider switches hidden in a text block stay outside."""
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}, "id": "x"}
    assert user_message([block]).content == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "c", "name": "pay", "input": {}},
        {"type": "tool_call", "id": "c", "name": "pay", "args": {}},
        {"type": "invalid_tool_call", "id": "c", "name": "pay", "args": "{"},
        {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"},
        {"type": "tool_result", "tool_use_id": "c", "content": "paid"},
        {"type": "server_tool_call", "id": "c", "name": "web"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "non_standard", "value": {}},
        {"type": "TEXT", "text": "hi"},
        {"type": None, "text": "hi"},
        {"text": "hi"},
        7,
        None,
    ],
    ids=lambda block: str(block.get("type") if isinstance(block, dict) else block),
)
def test_a_block_that_is_not_a_persons_to_send_is_refused(block: object) -> None:
    """Calls, results and reasoning from a client would forge history."""
    with pytest.raises(UsageError, match="A client cannot send a content block of type"):
        user_message([{"type": "text", "text": "hi"}, block])
    if isinstance(block, dict):
        with pytest.raises(UsageError, match="A client cannot send a content block of type"):
            user_message(HumanMessage([block]))


@pytest.mark.parametrize("kind", [["text"], {"a": 1}], ids=["list", "object"])
def test_a_block_whose_type_is_no_text_is_refused(kind: object) -> None:
    """JSON from outside can hold anything; it is the client's mistake, not a crash of ours."""
    with pytest.raises(UsageError, match="A client cannot send a content block of type"):
        user_message([{"type": kind, "text": "hi"}])


@pytest.mark.parametrize("words", [None, 7, ["hi"]])
def test_a_text_block_without_text_is_refused(words: object) -> None:
    """A text block is its words; without them there is nothing to store."""
    with pytest.raises(UsageError, match="needs its words in 'text'"):
        user_message([{"type": "text", "text": words}])


@pytest.mark.parametrize(
    "content", [None, 7, b"hi", {"type": "text", "text": "hi"}, AIMessage("hi"), result("c")]
)
def test_what_is_neither_text_nor_blocks_is_refused(content: Any) -> None:
    """A client cannot speak as the agent or as a tool, nor send something without content."""
    with pytest.raises(UsageError, match="A message is text or a list of blocks, not"):
        user_message(content)


def test_of_a_real_a_synthetic_and_an_agents_message_two_are_visible() -> None:
    """The person sees the own message and the reply, the same objects in the same order."""
    real, reply = HumanMessage("User: Hello"), AIMessage("Agent: Hi there!")
    assert visible_messages([real, tagged("Continue naturally"), reply]) == [real, reply]
    assert visible_messages(iter([real, tagged("x"), reply]))[0] is real


def test_of_seven_messages_with_two_triggers_five_are_visible() -> None:
    """In a mixed conversation exactly the triggers are missing."""
    messages = [
        user_message("Hello"),
        AIMessage("Hi there!"),
        synthetic_message("check_in"),
        AIMessage("Still around?"),
        user_message("Yes."),
        synthetic_message("question_unanswered"),
        AIMessage("So, which one is it?"),
    ]
    visible = visible_messages(messages)
    assert [m.content for m in visible] == [
        "Hello",
        "Hi there!",
        "Still around?",
        "Yes.",
        "So, which one is it?",
    ]


def test_a_thread_of_triggers_only_shows_nothing() -> None:
    """Nothing is left when nobody said anything, and an empty thread stays empty."""
    assert visible_messages([synthetic_message(trigger) for trigger in TriggerType]) == []
    assert visible_messages([]) == []


def test_a_thread_without_triggers_is_shown_unchanged() -> None:
    """Filtering takes nothing else away and changes no message."""
    messages = [user_message("Hello"), AIMessage("Hi!"), user_message("Bye"), AIMessage("Bye!")]
    before = copy.deepcopy(messages)
    assert visible_messages(messages) == before
    assert messages == before


@pytest.mark.parametrize("flag", [False, None, "true", "True", 1, 0, "", [True]], ids=repr)
def test_a_flag_that_is_not_true_keeps_a_message_visible(flag: object) -> None:
    """Lookalikes of the flag never hide what a person wrote."""
    message = HumanMessage("Hello", additional_kwargs={"synthetic": flag})
    assert visible_messages([message]) == [message]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("Continue our conversation naturally.", id="text"),
        pytest.param("Bonjour", id="other words"),
        pytest.param(["Continue our", "conversation"], id="list"),
        pytest.param([{"type": "text", "text": "Continue"}, PICTURE], id="text and picture"),
        pytest.param([PICTURE], id="picture only"),
        pytest.param([], id="nothing"),
    ],
)
@pytest.mark.parametrize("trigger", TriggerType)
def test_every_trigger_is_hidden_in_every_shape(trigger: TriggerType, content: Any) -> None:
    """All four types are hidden by their flag; the same content without it is shown."""
    real = HumanMessage(content)
    assert visible_messages([tagged(content, trigger.value), real]) == [real]


@pytest.mark.parametrize("trigger_type", ["not_invented_yet", None, 7])
def test_a_new_kind_of_synthetic_message_is_hidden_too(trigger_type: object) -> None:
    """The filter asks for the flag alone, so types to come need no change."""
    kwargs = {"synthetic": True, "trigger_type": trigger_type}
    assert visible_messages([HumanMessage("psst", additional_kwargs=kwargs)]) == []
    assert visible_messages([continuation_message()]) == []


def test_whether_a_message_is_shown_is_decided_without_reading_it() -> None:
    """The content of a user's or a trigger's message is not even touched."""
    trigger = Sealed(content=PROMPTS[0], additional_kwargs={"synthetic": True})
    real = Sealed(content=PROMPTS[0])
    assert [m is real for m in visible_messages([trigger, real])] == [True]


@given(contents, contents, st.sampled_from([True, False, None, "true", 1]))
def test_equal_metadata_gives_equal_verdicts_for_any_content(
    one: str | list[Any], other: str | list[Any], flag: object
) -> None:
    """Whatever two messages say, with the same metadata both are shown or both are hidden."""
    pair = [HumanMessage(c, additional_kwargs={"synthetic": flag}) for c in (one, other)]
    assert visible_messages(pair) == ([] if flag is True else pair)


@pytest.mark.parametrize("words", [*PROMPTS, OLD_MARKER, "synthetic: true"])
def test_a_user_who_types_a_triggers_words_still_sees_them(words: str) -> None:
    """The same text is visible when a person wrote it."""
    message = user_message(words)
    assert visible_messages([synthetic_message("check_in", prompt=words), message]) == [message]


def test_an_old_marker_is_shown_until_it_is_converted() -> None:
    """Without metadata it is a real message; conversion tags it, and the tag hides it."""
    old = [HumanMessage("Hello"), AIMessage("Hi!"), HumanMessage(OLD_MARKER), AIMessage("Still?")]
    assert visible_messages(old) == old
    converted = assign_batches(old, ticking_generator())
    assert [m.content for m in visible_messages(converted)] == ["Hello", "Hi!", "Still?"]


@pytest.mark.parametrize(
    "message",
    [
        SystemMessage("Be kind."),
        result("call_1", "42"),
        ChatMessage(content="hm", role="critic"),
        RemoveMessage("m-1"),
        calling("call_1"),
        AIMessage([{"type": "tool_use", "id": "c", "name": "look_up", "input": {}}]),
        AIMessage(
            "", invalid_tool_calls=[{"name": "look_up", "args": "{", "id": "c", "error": ""}]
        ),
    ],
    ids=["system", "result", "other role", "removal", "call", "call as block", "malformed call"],
)
def test_the_machinery_of_a_turn_is_not_visible(message: BaseMessage) -> None:
    """System messages, tool traffic and messages that only call tools are not conversation."""
    assert visible_messages([message]) == []


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("It is noon."),
        calling("call_1", text="Let me look."),
        AIMessage(
            [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c", "name": "look_up", "input": {}},
            ]
        ),
    ],
    ids=["reply", "words and calls", "words and calls as blocks"],
)
def test_what_the_agent_says_is_visible_even_beside_calls(message: BaseMessage) -> None:
    """Words that come with a call were said to the user."""
    assert visible_messages([message]) == [message]


def test_what_settling_adds_is_not_visible() -> None:
    """The closing words for the model are tagged, so the person sees only the real talk."""
    stored = assign_batches([HumanMessage("Look it up"), calling("call_1")], ticking_generator())
    settled = settle(group_batches(stored)[0])
    assert len(settled.messages) == 4
    assert visible_messages(settled.messages) == stored[:1]


real_messages = st.one_of(st.builds(HumanMessage, contents), st.text(min_size=1).map(AIMessage))
triggers = st.builds(tagged, contents, st.sampled_from(TriggerType))


@given(st.lists(st.one_of(real_messages, triggers), max_size=12))
def test_of_any_thread_exactly_the_synthetic_messages_are_missing(
    messages: list[BaseMessage],
) -> None:
    """In every mix of real and synthetic messages all real words are shown, in order."""
    real = [
        m for m in messages if m.additional_kwargs == {} and (m.type == "human" or m.text.strip())
    ]
    visible = visible_messages(messages)
    assert [id(m) for m in visible] == [id(m) for m in real]
    assert all(MessageMetadata.of(m) == MessageMetadata() for m in visible)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (user_message("Hello"), "Hello"),
        (AIMessage([{"type": "text", "text": "Hi!"}, PICTURE]), "Hi!"),
        (AIMessage("", additional_kwargs={"refusal": "I can't help."}), "I can't help."),
        (AIMessage("", additional_kwargs={"audio": {"id": "x", "transcript": "Hi!"}}), "Hi!"),
        (AIMessage([{"type": "refusal", "refusal": "I can't help."}]), "I can't help."),
        (AIMessage([PICTURE, {"type": "output_text", "text": "Hi!"}]), "Hi!"),
    ],
)
def test_what_a_message_says_is_told_wherever_the_words_are(
    message: BaseMessage, text: str
) -> None:
    """Some providers keep a refusal or a spoken reply beside the content or in blocks of theirs."""
    assert spoken_text(message) == text


def test_who_spoke_first_is_known_by_the_batch() -> None:
    """An answer is a reply, what follows a trigger a follow-up, and a user's message neither."""
    ids = ticking_generator()
    asked = stamp([user_message("Hello"), AIMessage("Hi!")], ids)
    nudged = stamp([synthetic_message("check_in"), AIMessage("Still there?")], ids)
    assert [origin_of(m) for m in asked] == [None, "reply"]
    assert origin_of(nudged[1]) == "follow_up"
