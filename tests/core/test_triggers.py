"""The four triggers, their fixed prompts, and the choice among an owner's variants."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from segue import TRIGGER_PROMPTS, TriggerType
from segue.core.triggers import PromptVariant, choose_prompt, parse_trigger
from segue.errors import UnknownTrigger, UsageError

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


KEYS = range(10_000)
WARM = PromptVariant(name="warm", text="Ask how it went.", weight=3)
BRIEF = PromptVariant(name="brief", text="Say hello.", weight=1)
BOTH = {TriggerType.CHECK_IN: (WARM, BRIEF)}


def shares(prompts: Any, holdout: float, trigger: str = "check_in") -> dict[str | None, float]:
    chosen = [choose_prompt(prompts, holdout, trigger, key) for key in KEYS]
    counted = Counter(c.name if c else None for c in chosen)
    return {name: count / len(KEYS) for name, count in counted.items()}


@pytest.mark.parametrize("trigger", TriggerType)
def test_without_a_prompt_of_ones_own_the_fixed_one_speaks(trigger: TriggerType) -> None:
    """An owner who sets nothing gets the four fixed prompts, under the name default."""
    prompts = {} if trigger is TriggerType.CHECK_IN else BOTH
    chosen = choose_prompt(prompts, 0, trigger, "thread-1")
    assert chosen == PromptVariant(name="default", text=TRIGGER_PROMPTS[trigger])


def test_variants_come_by_their_weights() -> None:
    """Three to one, within a percent and a half over ten thousand keys."""
    found = shares(BOTH, 0)
    assert found.keys() == {"warm", "brief"}
    assert found["warm"] == pytest.approx(0.75, abs=0.015)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_held_out_whatever_the_variants(share: float) -> None:
    """The hold-out takes its share of all, and leaves the variants their weights."""
    found = shares(BOTH, share)
    assert found[None] == pytest.approx(share, abs=0.015)
    assert found["warm"] / (1 - found[None]) == pytest.approx(0.75, abs=0.045)


def test_nothing_or_everything_may_be_held_out() -> None:
    """A share of 0 sends all, a share of 1 sends none."""
    assert None not in shares({}, 0)
    assert shares({}, 1) == {None: 1.0}


def test_the_same_key_always_gets_the_same() -> None:
    """A step that is repeated, in another process or years later, says the same words."""
    for keys in (range(12), map(str, range(12))):
        chosen = [choose_prompt(BOTH, 0.25, "check_in", key) for key in keys]
        names = " ".join(c.name if c else "-" for c in chosen)
        assert names == "warm - - warm brief - brief - - warm - brief"


def test_a_larger_hold_out_keeps_those_who_were_held_out() -> None:
    """Who raises the share moves nobody from silence to a prompt."""
    small = {key for key in KEYS if choose_prompt({}, 0.1, "check_in", key) is None}
    large = {key for key in KEYS if choose_prompt({}, 0.2, "check_in", key) is None}
    assert small < large


def test_each_trigger_holds_out_others() -> None:
    """One key is not silent for every trigger because it is for one."""
    held = [
        {key for key in KEYS if choose_prompt({}, 0.5, trigger, key) is None}
        for trigger in TriggerType
    ]
    assert len(held[0] & held[1]) / len(KEYS) == pytest.approx(0.25, abs=0.015)


def test_any_text_may_be_a_key() -> None:
    """Even half an emoji names a user."""
    for key in ("", "\0", "ünï", "\ud83d", -1):
        assert choose_prompt(BOTH, 0, "check_in", key)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "a", "text": " "}, "empty"),
        ({"name": " ", "text": "Hi."}, "name"),
        ({"name": "a", "text": "Hi.", "weight": 0}, "weight"),
        ({"name": "a", "text": "Hi.", "weight": -1}, "weight"),
        ({"name": "a", "text": "Hi.", "weight": 1e7}, "weight"),
        ({"name": "a", "text": "Hi.", "weight": float("nan")}, "weight"),
    ],
)
def test_a_variant_that_cannot_be_meant_is_refused(wrong: dict[str, Any], said: str) -> None:
    """No name, no words and a share of nothing are mistakes."""
    with pytest.raises(UsageError, match=said):
        PromptVariant(**wrong)


def test_an_unknown_trigger_and_an_odd_share_are_refused() -> None:
    """The error says what was expected."""
    with pytest.raises(UnknownTrigger, match="check_in"):
        choose_prompt({}, 0, "birthday", 1)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="0 to 1"):
            choose_prompt({}, share, "check_in", 1)
