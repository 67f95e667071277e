"""The four triggers and their fixed prompts."""

import json
import re

import pytest

from segue import TRIGGER_PROMPTS, TriggerType
from segue.core.errors import UnknownTrigger
from segue.core.triggers import parse_trigger

# What a model must not read in a prompt, because it would talk about it.
MACHINERY = re.compile(
    r"trigger|timer|system|autonomous|synthetic|metadata|automat|prompt|message|silence|"
    r"second|minute|instruction|assistant|follow-up request|[\[\]{}<>_:]",
    re.IGNORECASE,
)


def test_the_prompt_for_check_in_is_the_agreed_one() -> None:
    """A check-in asks to go on, in exactly the words of the specification."""
    assert TRIGGER_PROMPTS[TriggerType.CHECK_IN] == "Continue our conversation naturally."


def test_the_prompt_for_question_unanswered_is_the_agreed_one() -> None:
    """An open question is taken up in exactly the words of the specification."""
    assert (
        TRIGGER_PROMPTS[TriggerType.QUESTION_UNANSWERED]
        == "The user asked a question but hasn't responded. Follow up on it."
    )


def test_the_prompt_for_task_incomplete_is_the_agreed_one() -> None:
    """An unfinished task is asked about in exactly the words of the specification."""
    assert (
        TRIGGER_PROMPTS[TriggerType.TASK_INCOMPLETE]
        == "Check in about the incomplete task we discussed."
    )


def test_the_prompt_for_waiting_for_decision_is_the_agreed_one() -> None:
    """An open decision is asked about in exactly the words of the specification."""
    assert (
        TRIGGER_PROMPTS[TriggerType.WAITING_FOR_DECISION]
        == "Follow up on the decision the user needs to make."
    )


def test_there_are_exactly_four_triggers() -> None:
    """The set of triggers is closed: these four strings and no other."""
    assert [trigger.value for trigger in TriggerType] == [
        "check_in",
        "question_unanswered",
        "task_incomplete",
        "waiting_for_decision",
    ]


def test_every_trigger_has_exactly_one_prompt_of_its_own() -> None:
    """No trigger lacks a prompt, no prompt lacks a trigger, and no two share one."""
    assert set(TRIGGER_PROMPTS) == set(TriggerType)
    assert len(set(TRIGGER_PROMPTS.values())) == 4


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_prompt_can_be_looked_up_by_plain_text(trigger: TriggerType) -> None:
    """A trigger type read from JSON finds its prompt without conversion."""
    assert TRIGGER_PROMPTS[json.loads(json.dumps(trigger))] == TRIGGER_PROMPTS[trigger]


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_prompt_mentions_no_machinery(trigger: TriggerType) -> None:
    """A prompt is a plain sentence: no marker, no key, no word about how it came to be."""
    assert MACHINERY.findall(TRIGGER_PROMPTS[trigger]) == []


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_prompt_does_not_name_its_trigger(trigger: TriggerType) -> None:
    """The type stays in metadata; the words alone tell the model what to do."""
    assert trigger.value not in TRIGGER_PROMPTS[trigger]


def test_the_prompts_cannot_be_edited_in_place() -> None:
    """One agent's wording can never leak into another's through the shared table."""
    table: dict[str, str] = TRIGGER_PROMPTS  # type: ignore[assignment]  # the misuse is the point
    with pytest.raises(TypeError):
        table["check_in"] = "Say hello."
    with pytest.raises(TypeError):
        del table["check_in"]
    assert TRIGGER_PROMPTS[TriggerType.CHECK_IN] == "Continue our conversation naturally."


@pytest.mark.parametrize("trigger", TriggerType)
def test_a_trigger_is_known_by_its_text_and_by_itself(trigger: TriggerType) -> None:
    """Configuration gives text, code gives the member; both name the same trigger."""
    assert parse_trigger(trigger.value) is trigger
    assert parse_trigger(trigger) is trigger


@pytest.mark.parametrize(
    "unknown",
    ["agent_decision", "CHECK_IN", " check_in", "check-in", "", None, 1, True, ["check_in"]],
)
def test_an_unknown_trigger_is_refused_with_the_valid_ones(unknown: object) -> None:
    """The error shows what came and lists all that would have been right."""
    with pytest.raises(UnknownTrigger) as refused:
        parse_trigger(unknown)
    assert repr(unknown) in str(refused.value)
    assert "check_in, question_unanswered, task_incomplete, waiting_for_decision" in str(
        refused.value
    )
