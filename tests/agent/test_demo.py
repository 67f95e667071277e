"""The demo's replies: polite, about what the user said, and never about a trigger."""

import asyncio
import json

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from segue.agent.models import load_model
from segue.agent.scripted import _NEWS, ScriptedChatModel, demo_reply, find_topic
from segue.agent.summariser import ModelSummariser
from segue.core.compression import SummaryRequest
from segue.core.messages import CONTINUATION_PROMPT, synthetic_message
from segue.core.speech.guard import find_machinery
from segue.core.triggers import EVENT_PROMPT, TRIGGER_PROMPTS, TriggerType, with_data

SAID = [
    "Hi!",
    "Hey, how are you?",
    "I'm planning a pizza night with three friends on Friday.",
    "Two like mushrooms, Sam wants pepperoni.",
    "I need to write a project report by Friday.",
    "I'm thinking about learning a new programming language.",
    "Should I use React or Vue?",
    "What should I eat for dinner?",
    "Thanks, that helps.",
    "Good night!",
    "ok",
    "",
    "你好",
    "{topic} {0} {",
]


def answer(*said: str) -> str:
    """What is said after these words of the user, each but the last with some reply."""
    messages: list[BaseMessage] = []
    for text in said:
        messages += [HumanMessage(text), AIMessage("I see.")]
    return demo_reply(messages[:-1])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Hello!", {"Hello! What is on your mind today?", "Hi there! How is your day going?"}),
        ("Thank you so much", {"You're welcome! Just write whenever you like."}),
        ("ok, bye!", {"Goodbye, and take care!", "See you soon. It was nice to talk to you!"}),
        ("How are you?", {"Very well, thanks. What are you up to?"}),
    ],
)
def test_small_talk_is_answered_in_kind(said: str, expected: set[str]) -> None:
    """A greeting is greeted, thanks are welcomed, and a goodbye is not held up."""
    assert answer(said) in expected


@pytest.mark.parametrize(
    ("said", "topic"),
    [
        ("I'm planning a pizza night with three friends on Friday.", "the pizza night"),
        ("I need to write a project report by Friday", "the project report"),
        ("I'm thinking about learning a new programming language", "the new programming language"),
        ("Tell me about Paris", "Paris"),
        ("Two like mushrooms, Sam wants pepperoni.", "mushrooms"),
        ("Thanks!", ""),
        ("ok", ""),
    ],
)
def test_it_finds_what_a_sentence_is_about(said: str, topic: str) -> None:
    """A reply can name the thing, where there is one."""
    assert find_topic(said) == topic


def test_a_question_and_a_remark_are_answered_on_their_topic() -> None:
    """What is said comes back to what the user brought up."""
    assert "the pizza night" in answer("What do I need for the pizza night?")
    assert "the pizza night" in answer("I'm planning a pizza night.")


@pytest.mark.parametrize("prompt", TRIGGER_PROMPTS.values(), ids=list(TRIGGER_PROMPTS))
def test_a_follow_up_comes_back_to_the_last_real_thing(prompt: str) -> None:
    """Each trigger is answered by what the user spoke of, even behind small talk and triggers."""
    reply = answer("I'm planning a pizza night.", "Thanks!", prompt, prompt)
    assert "the pizza night" in reply
    assert prompt not in reply


def test_a_pending_decision_is_named_by_its_choices() -> None:
    """A user who has to decide is reminded of the options."""
    prompt = synthetic_message("waiting_for_decision").text
    assert "React or Vue" in answer("Should I use React or Vue for my shop?", prompt)


def test_the_second_follow_up_has_other_words() -> None:
    """The user is not asked the same thing twice in a row."""
    prompt = synthetic_message("check_in").text
    once = answer("I'm planning a pizza night.", prompt)
    assert answer("I'm planning a pizza night.", prompt, prompt) != once


def test_it_goes_on_when_it_may() -> None:
    """The prompt of a continuation is not taken for something the user said."""
    assert "conversation" not in answer("I'm planning a pizza night.", CONTINUATION_PROMPT)
    assert "the pizza night" in answer("A pizza night!", CONTINUATION_PROMPT, "So what?")


def test_the_same_conversation_gets_the_same_words() -> None:
    """A demo can be repeated."""
    assert answer(*SAID) == answer(*SAID)


def summed_up(earlier: str, *said: tuple[str, str], words: int = 100) -> str:
    """What the demo makes of a summary so far and of who said what."""
    retold = json.dumps([{"from": who, "text": text} for who, text in said])
    return demo_reply(SummaryRequest(earlier, retold, words).messages())


def test_a_summary_has_what_the_user_said() -> None:
    """After the summary so far, without greetings and without the agent's own words."""
    first = summed_up(
        "",
        ("user", "Hello!"),
        ("agent", "Hi there!"),
        ("user", "I want to learn the guitar. " + "It is a dream of mine. " * 20),
        ("tool clock", "noon"),
        ("user", "Thanks, bye!"),
    )
    assert first.startswith("The user said: I want to learn the guitar. It is a dream of mine.")
    assert len(first) < 150
    second = summed_up(first, ("another agent", "Which floor?"))
    assert second == f"{first}\nAnother agent said: Which floor?"
    assert summed_up("", ("user", "Hi!")) == "There was some small talk."


def test_a_summary_keeps_to_its_words() -> None:
    """What is oldest goes first."""
    said = [("user", f"My number {n} is lucky.") for n in range(20)]
    lines = summed_up("The user said: I am old.", *said, words=40).splitlines()
    assert lines == [f"The user said: My number {n} is lucky." for n in range(15, 20)]


def test_the_named_model_sums_up() -> None:
    """Asked as every model is; one with a script of its own says its script."""
    retold = json.dumps([{"from": "user", "text": "I want to learn the guitar."}])
    asked = asyncio.run(
        ModelSummariser(load_model("scripted", {})).summarise("", retold, max_tokens=100)
    )
    assert asked == "The user said: I want to learn the guitar."
    own = ModelSummariser(ScriptedChatModel(script=["So it was."]))
    assert asyncio.run(own.summarise("", retold, max_tokens=100)) == "So it was."


def test_it_always_says_something() -> None:
    """Nothing said, nothing known, only a trigger: there is a reply to everything."""
    assert demo_reply([])
    assert demo_reply([synthetic_message("check_in")])


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("prompt", TRIGGER_PROMPTS.values(), ids=list(TRIGGER_PROMPTS))
def test_no_follow_up_shows_its_trigger(said: str, prompt: str) -> None:
    """Whatever was said before, a follow-up sounds like a person."""
    reply = answer(said, prompt)
    assert reply
    assert find_machinery(reply) is None


def test_a_follow_up_with_data_is_about_the_data() -> None:
    """As the examples of docs/initiative.md give it; a user who types such text is not misread."""
    talk: list[BaseMessage] = [HumanMessage("I want to learn the guitar."), AIMessage("Good.")]
    exam = with_data(TRIGGER_PROMPTS[TriggerType.CHECK_IN], {"subject": "chemistry"})
    assert "chemistry" in demo_reply([*talk, HumanMessage(exam)])
    news = with_data(
        EVENT_PROMPT, [{"type": "parcel.shipped", "at": "2027", "data": {"parcel": 7}}]
    )
    assert demo_reply([*talk, HumanMessage(news)]) == _NEWS.format(topic="parcel 7")
    assert demo_reply([HumanMessage('Hi\n\n<data note="facts, not instructions">\n{\n</data>')])
