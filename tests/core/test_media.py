"""Pictures, sound and files: what no model's client could be given comes neither in nor out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from segue.core.context import build_context
from segue.core.media import is_convertible
from segue.core.messages import user_message
from segue.core.request import clean_message
from segue.core.stamp import stamp
from segue.errors import UsageError
from segue.runtime.ids import SnowflakeGenerator
from tests.histories import calling

BROKEN: list[Any] = [
    {"type": "image", "base64": "x"},
    {"type": "image", "text": "x"},
    {"type": "image", "source_type": "base64", "data": "x"},
    {"type": "image", "source_type": "url", "id": "x"},
    {"type": "image", "source_type": ["url"], "url": "data:x"},
    {"type": "audio", "source_type": "base64", "id": "x"},
    {"type": "file", "source_type": "text", "text": "x"},
    {"type": "file", "source_type": "id", "id": "x", "file": {"file_id": None, "file_data": "x"}},
]
GOOD: list[Any] = [
    {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    {"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png"},
    {"type": "image", "source_type": "url", "url": "https://example.org/cat.png"},
    {"type": "image", "source_type": "id", "id": "f-1"},
    {"type": "image", "file_id": "f-1"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_data": "data:a/b;base64,AAAA", "filename": "a"}},
    {"type": "file", "source_type": "base64", "data": "AAAA", "mime_type": "application/pdf"},
    {"type": "video", "base64": "AAAA", "mime_type": "video/mp4"},
    # As two providers write them; their own clients know how to read these.
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    {"type": "image", "source": {"bytes": "AAAA"}, "format": "png"},
]
words = st.sampled_from(["x", "", "data:image/png;base64,AAAA", "https://example.org", None, 5])
media = st.fixed_dictionaries(
    {"type": st.sampled_from(["image", "image_url", "audio", "input_audio", "video", "file"])},
    optional={
        "source_type": st.sampled_from(["url", "base64", "id", "text", "other", None, 5])
        | st.just(["url"]),
        **dict.fromkeys(("url", "base64", "data", "mime_type", "id", "text", "file_id"), words),
        **dict.fromkeys(
            ("file", "image_url", "input_audio", "extras", "metadata"),
            st.dictionaries(
                st.sampled_from(["file_data", "file_id", "url", "data", "format"]), words
            )
            | words,
        ),
    },
)


def ask(*messages: BaseMessage) -> str:
    """Go through all that LangChain does with messages before a client gets them."""
    return FakeListChatModel(responses=["Fine."]).invoke([*messages]).text


@given(block=media)
def test_what_counts_as_convertible_reaches_a_model(block: dict[str, Any]) -> None:
    """Whatever is in a block: if it is let through, no call fails for it."""
    if is_convertible(block):
        assert ask(HumanMessage([block])) == "Fine."


@pytest.mark.parametrize("block", BROKEN, ids=str)
def test_a_user_cannot_send_what_no_model_could_be_given(block: dict[str, Any]) -> None:
    """It is refused before it is stored, in words that say what is missing."""
    with pytest.raises((ValueError, LookupError, TypeError)):
        ask(HumanMessage([block]))
    with pytest.raises(UsageError, match="cannot be read by models"):
        user_message(["look", block])


@pytest.mark.parametrize("block", GOOD, ids=str)
def test_what_can_be_converted_stays_as_it_is(block: dict[str, Any]) -> None:
    """In the request too."""
    message = HumanMessage([block])
    assert clean_message(message) is message
    assert ask(message) == "Fine."


@pytest.mark.parametrize("block", BROKEN, ids=str)
def test_a_broken_block_in_a_history_breaks_no_later_turn(block: dict[str, Any]) -> None:
    """The model is told that there was something, whoever sent it: a user or a tool."""
    ids = SnowflakeGenerator()
    shown = ToolMessage([block], tool_call_id="a")
    old = stamp([HumanMessage(["look", block]), calling("a"), shown, AIMessage("Hm.")], ids)
    new = stamp([HumanMessage([block, "and now?"])], ids)
    context = build_context([*old, *new], new[0].additional_kwargs["batch"])
    assert ask(*context.messages) == "Fine."
    told = [str(message.content).count("that cannot be read]") for message in context.messages]
    assert told == [1, 0, 1, 0, 1]


def test_the_words_in_its_place_say_what_it_was() -> None:
    """A picture, a recording or a file."""
    blocks = [BROKEN[0], BROKEN[5], BROKEN[6]]
    content: Any = clean_message(HumanMessage(blocks)).content
    assert [block["text"] for block in content] == [
        "[a picture that cannot be read]",
        "[a recording that cannot be read]",
        "[a file that cannot be read]",
    ]
