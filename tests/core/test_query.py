"""What memories are searched for: the user's own words, never a trigger's."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)

from segue import MemoryQuery, TriggerType, memory_query, synthetic_message, user_message
from segue.core.query import QuerySource
from tests.histories import calling, result

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


class Sealed(HumanMessage):
    """A message that fails the test of whoever looks at what it says."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"content", "content_blocks", "text"}:
            raise AssertionError(f"{name} of a trigger was read")
        return super().__getattribute__(name)


def sealed_trigger() -> HumanMessage:
    kwargs = {"synthetic": True, "trigger_type": "check_in"}
    return Sealed(content="Continue our conversation naturally.", additional_kwargs=kwargs)


def test_a_real_message_is_its_own_query() -> None:
    """What the user just asked is what is searched, and the source says so."""
    query = memory_query([user_message("What should I eat for dinner?")], summary="Likes pasta.")
    assert query == MemoryQuery("What should I eat for dinner?", QuerySource.CURRENT_MESSAGE)


def test_a_trigger_is_searched_by_the_last_real_message() -> None:
    """A follow-up on Paris looks for Paris."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Paris is the capital of France."),
        synthetic_message("check_in"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Tell me about Paris", QuerySource.LAST_REAL_USER_MESSAGE)


def test_the_newest_of_two_real_messages_is_searched() -> None:
    """A follow-up belongs to where the talk is now, not to where it began."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Gladly."),
        user_message("What about the museums there?"),
        AIMessage("The Louvre comes first."),
        synthetic_message("question_unanswered"),
    ]
    query = memory_query(messages, summary="A talk about France.")
    assert query is not None
    assert query.text == "What about the museums there?"


def test_several_triggers_in_a_row_are_all_passed_over() -> None:
    """However often the agent spoke on its own, the search goes back to the user."""
    messages: list[BaseMessage] = [user_message("Tell me about Paris")]
    for trigger in TriggerType:
        messages += [synthetic_message(trigger), AIMessage("Anything else?")]
    query = memory_query([*messages, synthetic_message("check_in")])
    assert query == MemoryQuery("Tell me about Paris", QuerySource.LAST_REAL_USER_MESSAGE)


def test_a_thread_of_triggers_only_is_searched_by_its_summary() -> None:
    """Without any real message the summary stands in, without the blanks around it."""
    messages = [AIMessage("Welcome back!"), synthetic_message("check_in")]
    query = memory_query(messages, summary="  User is planning to travel to Japan.\n")
    assert query == MemoryQuery(
        "User is planning to travel to Japan.", QuerySource.CONVERSATION_SUMMARY
    )


def test_a_real_message_is_preferred_to_a_summary_that_talks_of_triggers() -> None:
    """A summary spoiled by trigger words is never used while the user's words are there."""
    messages = [user_message("Tell me about Paris"), synthetic_message("check_in")]
    query = memory_query(messages, summary="The system sent an autonomous check_in trigger.")
    assert query is not None
    assert query.text == "Tell me about Paris"


@pytest.mark.parametrize("summary", [None, "", "   ", "\n\t "])
def test_without_any_source_there_is_no_query(summary: str | None) -> None:
    """A trigger on an empty thread is searched by nothing; a blank summary is no source."""
    assert memory_query([synthetic_message("check_in")], summary) is None
    assert memory_query([], summary) is None


def test_an_empty_thread_with_a_summary_is_searched_by_it() -> None:
    """When all messages are summarised away the summary is still there."""
    query = memory_query([], summary="Likes pasta.")
    assert query == MemoryQuery("Likes pasta.", QuerySource.CONVERSATION_SUMMARY)


def test_the_text_parts_of_a_multimodal_message_are_the_query() -> None:
    """Pictures are left out, and text parts stand one per line without blanks around them."""
    content: list[Any] = [
        "Look at this:",
        PICTURE,
        {"type": "text", "text": "  my cat  "},
        {"type": "text", "text": "   "},
        {"type": "text-plain", "text": "on the sofa"},
    ]
    query = memory_query([HumanMessage(content)])
    assert query == MemoryQuery("Look at this:\nmy cat\non the sofa", QuerySource.CURRENT_MESSAGE)


@pytest.mark.parametrize(
    "wordless",
    [
        pytest.param([PICTURE], id="picture only"),
        pytest.param([PICTURE, {"type": "text", "text": " "}], id="picture and blank text"),
        pytest.param([{"type": "text", "text": None}], id="text block without words"),
        pytest.param(" \n", id="blank"),
        pytest.param("", id="empty"),
    ],
)
def test_a_message_without_words_is_passed_over(wordless: str | list[Any]) -> None:
    """What cannot be searched for leaves the word to the message before it."""
    messages = [user_message("Which cat is this?"), AIMessage("Show me."), HumanMessage(wordless)]
    query = memory_query(messages)
    assert query == MemoryQuery("Which cat is this?", QuerySource.LAST_REAL_USER_MESSAGE)
    assert memory_query([HumanMessage(wordless)]) is None


def test_the_turns_message_stays_current_while_its_tools_run() -> None:
    """Half-way through a turn, after calls and results, the query is still the turn's own."""
    messages = [
        user_message("Tell me about Paris"),
        AIMessage("Gladly."),
        user_message("Is the Louvre open?"),
        calling("call_1"),
        result("call_1", "open until six"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Is the Louvre open?", QuerySource.CURRENT_MESSAGE)


def test_a_follow_ups_query_stays_the_users_while_its_tools_run() -> None:
    """Calls and results after a trigger do not make the trigger's words the query."""
    messages = [
        user_message("Is the Louvre open?"),
        AIMessage("Let me see."),
        synthetic_message("task_incomplete"),
        calling("call_1"),
        result("call_1", "open until six"),
    ]
    query = memory_query(messages)
    assert query == MemoryQuery("Is the Louvre open?", QuerySource.LAST_REAL_USER_MESSAGE)


@pytest.mark.parametrize(
    "other",
    [AIMessage("I am an agent."), SystemMessage("Be kind."), result("call_1", "a tool's words")],
    ids=lambda message: message.type,
)
def test_only_people_are_searched_for(other: BaseMessage) -> None:
    """Words of the agent, of a tool or of the system are never a query."""
    assert memory_query([other]) is None


def test_a_trigger_is_known_by_its_flag_without_reading_it() -> None:
    """The content of a synthetic message is not looked at, not even to compare it."""
    messages = [user_message("Tell me about Paris"), sealed_trigger(), sealed_trigger()]
    query = memory_query(messages)
    assert query is not None
    assert query.text == "Tell me about Paris"
    assert memory_query([sealed_trigger()]) is None


def test_a_user_who_types_a_prompts_words_is_searched_by_them() -> None:
    """The same words are a query when a person wrote them."""
    query = memory_query([user_message("Continue our conversation naturally.")])
    assert query == MemoryQuery("Continue our conversation naturally.", QuerySource.CURRENT_MESSAGE)


def test_the_search_stops_at_the_first_real_message() -> None:
    """A long history behind the user's last words is never walked through."""

    class Endless(list[BaseMessage]):
        def __reversed__(self) -> Iterator[BaseMessage]:
            yield synthetic_message("check_in")
            yield AIMessage("Gladly.")
            yield user_message("Tell me about Paris")
            raise AssertionError("went on behind the message that was found")

    query = memory_query(Endless())
    assert query is not None
    assert query.text == "Tell me about Paris"


def test_the_sources_have_stable_names() -> None:
    """Logs and statistics tell the three sources apart by these texts."""
    assert [source.value for source in QuerySource] == [
        "current_message",
        "last_real_user_message",
        "conversation_summary",
    ]


words = st.text(min_size=1).filter(str.strip)
triggers = st.builds(
    synthetic_message,
    st.sampled_from(TriggerType),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), words),
)
not_the_users = st.one_of(triggers, st.builds(AIMessage, words), st.builds(SystemMessage, words))
talk = st.lists(st.one_of(not_the_users, st.builds(HumanMessage, words)), max_size=6)


@given(talk, words, st.lists(not_the_users, max_size=6), st.text())
def test_whatever_follows_the_users_last_words_they_are_the_query(
    before: list[BaseMessage], own: str, after: list[BaseMessage], summary: str
) -> None:
    """No trigger, prompt or summary ever takes the place of what the user said last."""
    query = memory_query([*before, HumanMessage(own), *after], summary)
    assert query is not None
    assert query.text == own.strip()


@given(st.lists(not_the_users, max_size=8), words)
def test_a_thread_without_the_user_is_never_searched_by_a_triggers_words(
    messages: list[BaseMessage], summary: str
) -> None:
    """However a trigger is worded, its words are no query: the summary is, or nothing."""
    query = memory_query(messages, summary)
    assert query == MemoryQuery(summary.strip(), QuerySource.CONVERSATION_SUMMARY)
    assert memory_query(messages) is None
