"""The scenarios of the feature specification that the core can show, as short transcripts.

What one function proves by itself is in the tests of its module; here several work together:
a thread is stored on a clock the test moves, and the request a provider would get is read.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    convert_to_openai_messages,
)

from segue import (
    TRIGGER_PROMPTS,
    SnowflakeGenerator,
    TriggerType,
    assign_batches,
    build_context,
    group_batches,
    is_synthetic,
    memory_query,
    stamp,
    strip_metadata,
    synthetic_message,
    user_message,
    visible_messages,
)
from segue.core.metadata import KEYS
from segue.testing.providers import request_problems
from tests.histories import calling, result

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CHECK_IN = "Continue our conversation naturally."


class Talk:
    """One thread as a store keeps it: batches of stamped messages."""

    def __init__(self) -> None:
        self.now = datetime(2025, 11, 10, 18, 0, tzinfo=UTC)
        self.messages: list[BaseMessage] = []
        self._generator = SnowflakeGenerator(clock=lambda: int(self.now.timestamp()) * 1000)

    def wait(self, **delay: float) -> None:
        self.now += timedelta(**delay)

    def user(self, content: str | list[Any]) -> None:
        self.messages += stamp([user_message(content)], self._generator)

    def follow_up(self, trigger: str, reason: str | None = None) -> None:
        self.messages += stamp([synthetic_message(trigger, reason)], self._generator)

    def agent(self, *messages: BaseMessage | str) -> None:
        turn = [AIMessage(m) if isinstance(m, str) else m for m in messages]
        self.messages += stamp(turn, self._generator, group_batches(self.messages)[-1])

    def request(self) -> list[dict[str, Any]]:
        """What a provider gets for the newest batch, in the form that most of them share."""
        current = group_batches(self.messages)[-1].id
        context = build_context(self.messages, current_batch=current)
        assert request_problems(context.messages) == []
        request = convert_to_openai_messages(strip_metadata(context.messages))
        assert isinstance(request, list)
        return request

    def history(self) -> list[tuple[str, str]]:
        """What the user sees."""
        return [(m.type, m.text) for m in visible_messages(self.messages)]


def pizza() -> Talk:
    talk = Talk()
    talk.user("What is the best pizza topping?")
    talk.agent("Basil, if you ask me.")
    return talk


def test_us1_t_a_check_in_after_30_seconds_reaches_the_model_as_plain_words() -> None:
    """The model reads a natural sentence; reason, flag and type stay behind."""
    talk = pizza()
    talk.wait(seconds=30)
    talk.follow_up("check_in", reason="No activity for 30 seconds")
    assert talk.request()[-1] == {"role": "user", "content": CHECK_IN}
    assert "30 seconds" not in json.dumps(talk.request())


def test_us1_1_an_idle_pizza_talk_is_continued_with_its_own_words() -> None:
    """The request is the talk and the prompt, and nothing tells of a timer."""
    talk = pizza()
    talk.wait(seconds=30)
    talk.follow_up("check_in")
    assert talk.request() == [
        {"role": "user", "content": "What is the best pizza topping?"},
        {"role": "assistant", "content": "Basil, if you ask me."},
        {"role": "user", "content": CHECK_IN},
    ]


def test_us1_2_an_open_question_is_taken_up_without_a_request_in_brackets() -> None:
    """After a minute without an answer the request ends with the natural prompt."""
    talk = Talk()
    talk.user("I want to learn programming.")
    talk.agent("Which language do you have in mind?")
    talk.wait(seconds=60)
    talk.follow_up("question_unanswered")
    assert [m["content"] for m in talk.request()] == [
        "I want to learn programming.",
        "Which language do you have in mind?",
        "The user asked a question but hasn't responded. Follow up on it.",
    ]


def test_us1_3_several_follow_ups_in_a_row_keep_the_talk_in_order() -> None:
    """Each prompt stands in front of its reply, also when one trigger comes several times."""
    talk = pizza()
    for reply in ("Do you like olives?", "Or perhaps mushrooms?"):
        talk.wait(minutes=5)
        talk.follow_up("check_in", reason=f"before {reply}")
        talk.agent(reply)
    talk.follow_up("question_unanswered")
    request = talk.request()
    assert [m["role"] for m in request] == ["user", "assistant"] * 3 + ["user"]
    assert [m["content"] for m in request[2:]] == [
        CHECK_IN,
        "Do you like olives?",
        CHECK_IN,
        "Or perhaps mushrooms?",
        "The user asked a question but hasn't responded. Follow up on it.",
    ]
    reasons = [m.additional_kwargs.get("trigger_reason") for m in talk.messages if is_synthetic(m)]
    assert reasons == ["before Do you like olives?", "before Or perhaps mushrooms?", None]


@pytest.mark.parametrize("trigger", TriggerType)
def test_us2_t_a_follow_up_on_the_work_project_is_searched_by_the_project(
    trigger: TriggerType,
) -> None:
    """Memories are sought by what the user said, so "incomplete" finds no prompt's words."""
    talk = Talk()
    talk.user("My work project for the museum is late.")
    talk.agent("What is missing?")
    talk.follow_up(trigger)
    query = memory_query(talk.messages, summary="Talk about check-ins.")
    assert query is not None
    assert query.text == "My work project for the museum is late."


def test_us2_3_two_minutes_after_a_vacation_question_the_query_is_that_question() -> None:
    """Time and the tools of the last turn do not move the search away from the user's words."""
    talk = Talk()
    talk.user("Where should we go on vacation, Crete or Madeira?")
    talk.agent(calling("c1"), result("c1", "Crete: sunny"), "Crete looks sunny.")
    talk.wait(minutes=2)
    talk.follow_up("waiting_for_decision", reason="two minutes without an answer")
    query = memory_query(talk.messages)
    assert query is not None
    assert query.text == "Where should we go on vacation, Crete or Madeira?"
    assert query.source == "last_real_user_message"


def test_us3_t_history_with_follow_ups_is_the_natural_conversation() -> None:
    """Triggers and tool traffic are stored in their order; the user sees none of them."""
    talk = pizza()
    talk.follow_up("check_in")
    talk.agent("Do you like olives?")
    talk.user("Yes. Which are in season?")
    talk.agent(calling("c1"), result("c1", "green ones"), "The green ones.")
    talk.follow_up("task_incomplete")
    talk.agent("Shall I order some?")
    assert [is_synthetic(m) for m in talk.messages] == [False] * 2 + [True] + [False] * 5 + [
        True,
        False,
    ]
    assert talk.history() == [
        ("human", "What is the best pizza topping?"),
        ("ai", "Basil, if you ask me."),
        ("ai", "Do you like olives?"),
        ("human", "Yes. Which are in season?"),
        ("ai", "The green ones."),
        ("ai", "Shall I order some?"),
    ]


def test_us3_1_after_a_check_in_history_shows_user_and_agent_only() -> None:
    """The reply to a check-in follows the earlier reply directly."""
    talk = pizza()
    talk.follow_up("check_in")
    talk.agent("Do you like olives?")
    assert talk.history() == [
        ("human", "What is the best pizza topping?"),
        ("ai", "Basil, if you ask me."),
        ("ai", "Do you like olives?"),
    ]


def test_us3_2_every_stored_trigger_is_marked_in_its_metadata() -> None:
    """A developer who looks at the stored messages finds each trigger by its flag."""
    talk = pizza()
    for trigger in TriggerType:
        talk.follow_up(trigger)
        talk.agent("Yes?")
    marked = [m for m in talk.messages if m.additional_kwargs.get("synthetic") is True]
    assert [m.additional_kwargs["trigger_type"] for m in marked] == list(TriggerType)
    assert [m.content for m in marked] == list(TRIGGER_PROMPTS.values())


def test_us3_4_multimodal_content_is_filtered_by_flag_alone() -> None:
    """Of two messages with the same text and picture the tagged one is hidden."""
    content: list[Any] = [{"type": "text", "text": CHECK_IN}, PICTURE]
    talk = Talk()
    talk.user(content)
    tagged = HumanMessage(content, additional_kwargs={"synthetic": True})
    assert visible_messages([*talk.messages, tagged]) == talk.messages


@pytest.mark.parametrize("trigger", TriggerType)
def test_sc_001_no_request_tells_of_the_machinery(trigger: TriggerType) -> None:
    """Neither a marker nor a metadata key nor a word about triggers and timers is sent."""
    talk = pizza()
    talk.follow_up(trigger, reason="timer 91 fired")
    talk.agent("Do you like olives?")
    talk.follow_up(trigger, reason="timer 92 fired")
    sent = json.dumps(talk.request()).lower()
    told = {*KEYS, "autonomous_followup", "trigger", "timer", "fired", "system", "automatic"}
    assert [word for word in told if word in sent] == []


@pytest.mark.parametrize("trigger", TriggerType)
def test_sc_002_a_follow_up_searches_with_the_words_of_the_turn_before(
    trigger: TriggerType,
) -> None:
    """The user's turn and the follow-up after it find the same memories."""
    talk = pizza()
    of_the_user = memory_query(talk.messages)
    talk.follow_up(trigger)
    of_the_follow_up = memory_query(talk.messages)
    assert of_the_user is not None
    assert of_the_follow_up is not None
    assert of_the_follow_up.text == of_the_user.text == "What is the best pizza topping?"


@pytest.mark.parametrize("trigger", TriggerType)
def test_sc_004_every_trigger_goes_all_the_way(trigger: TriggerType) -> None:
    """Message, request and query work for each type, and its reply is shown without it."""
    talk = pizza()
    talk.follow_up(trigger)
    assert talk.request()[-1] == {"role": "user", "content": TRIGGER_PROMPTS[trigger]}
    assert memory_query(talk.messages) is not None
    talk.agent("Do you like olives?")
    assert talk.history()[-2:] == [("ai", "Basil, if you ask me."), ("ai", "Do you like olives?")]


def test_sp_1_a_trigger_copies_nothing_from_the_user() -> None:
    """Its metadata holds flag, type, the given reason and its place, no word of the talk."""
    talk = Talk()
    talk.user("My address is 12 Elm Street.")
    talk.agent("Noted.")
    talk.follow_up("check_in", reason="idle")
    kwargs = talk.messages[-1].additional_kwargs
    place = {"position", "batch", "sequence_num", "batch_type"}
    assert {key: value for key, value in kwargs.items() if key not in place} == {
        "synthetic": True,
        "trigger_type": "check_in",
        "trigger_reason": "idle",
    }


def test_cl_1_a_trigger_in_a_new_conversation_has_no_query_and_a_valid_request() -> None:
    """Misfired on an empty thread, the agent can still answer; only the search is left out."""
    talk = Talk()
    talk.follow_up("check_in")
    assert memory_query(talk.messages) is None
    assert talk.request() == [{"role": "user", "content": CHECK_IN}]


def test_nf_6_a_conversation_from_before_the_metadata_reads_naturally_once_converted() -> None:
    """Old markers vanish from history, request and search, and the user's words stay."""
    old = [
        HumanMessage("What should I eat for dinner?"),
        AIMessage("How about soup?"),
        HumanMessage("[AUTONOMOUS_FOLLOWUP: question_unanswered]"),
        AIMessage("Or pasta?"),
    ]
    talk = Talk()
    talk.messages = assign_batches(old, SnowflakeGenerator(clock=lambda: 1_700_000_000_000))
    assert talk.history() == [
        ("human", "What should I eat for dinner?"),
        ("ai", "How about soup?"),
        ("ai", "Or pasta?"),
    ]
    talk.follow_up("check_in")
    assert [m["content"] for m in talk.request()] == [
        "What should I eat for dinner?",
        "How about soup?",
        "The user asked a question but hasn't responded. Follow up on it.",
        "Or pasta?",
        CHECK_IN,
    ]
    query = memory_query(talk.messages)
    assert query is not None
    assert query.text == "What should I eat for dinner?"
