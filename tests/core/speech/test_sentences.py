"""Quotes of a trigger: known by words in a row, and never mistaken for what the user said."""

import pytest

from segue.core.speech.sentences import is_quote
from segue.core.triggers import TRIGGER_PROMPTS

PROMPT = "Ask warmly how the new guitar lessons are going, and keep it short."


@pytest.mark.parametrize(
    "text",
    [
        PROMPT,
        PROMPT.upper(),
        f"The user said: «{PROMPT}»",
        "The user wants me to ask warmly how the NEW guitar goes.",
        "ask\nwarmly -- how... the",
        "\uff21sk warmly how the",  # a full-width A
        *TRIGGER_PROMPTS.values(),
        *(f"Told to {text.lower().rstrip('.')} today" for text in TRIGGER_PROMPTS.values()),
    ],
)
def test_a_few_words_in_a_row_are_a_quote(text: str) -> None:
    """Whatever their case, their punctuation, and what stands around them."""
    assert is_quote(text, [PROMPT, *TRIGGER_PROMPTS.values()], ["Hello there."])


@pytest.mark.parametrize(
    "text",
    ["", "The user plays the guitar.", "Guitar lessons went well.", "Keep it", "😀", "How?"],
)
def test_a_fact_on_the_same_topic_is_not_a_quote(text: str) -> None:
    """What the agent is asked about may well be remembered, in other words."""
    assert not is_quote(text, [PROMPT, *TRIGGER_PROMPTS.values()], [])


def test_what_the_user_said_too_is_the_users() -> None:
    """Somebody who uses the same words as a trigger is remembered with them."""
    said = "I wonder how the new guitar lessons are going."
    fact = "The user wonders how the new guitar lessons are going."
    assert is_quote(fact, [PROMPT], [])
    assert not is_quote(fact, [PROMPT], [said])


def test_a_short_trigger_is_quoted_by_all_of_a_text() -> None:
    """Two words of a prompt are in many a fact."""
    assert is_quote("say hi!", ["Say hi."], [])
    assert not is_quote("The user likes to say hi.", ["Say hi."], [])
    assert not is_quote("say hi!", ["Say hi."], ["Say hi"])
    assert not is_quote("A fact.", [""], [])


def test_a_script_without_spaces_is_compared_by_its_characters() -> None:
    """A sentence of it is one word to those who look for spaces."""
    prompt = "優しく近況を尋ねてください。"
    assert is_quote("ユーザーは優しく近況を尋ねてくださいと言った", [prompt], [])
    assert not is_quote("ユーザーは近況を話した", [prompt], [])
