"""Triggers: the four reasons for a follow-up, and the prompt of each.

A trigger has one fixed prompt. An agent's owner can set variants, which are chosen by weight, and
a share of follow-ups to hold out.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from segue.errors import UnknownTrigger, UsageError

# The name of a trigger's fixed prompt in records and reports.
DEFAULT_VARIANT: Final = "default"
MAX_WEIGHT: Final = 1_000_000


class TriggerType(StrEnum):
    """Why a follow-up speaks."""

    CHECK_IN = "check_in"
    QUESTION_UNANSWERED = "question_unanswered"
    TASK_INCOMPLETE = "task_incomplete"
    WAITING_FOR_DECISION = "waiting_for_decision"


# The model reads a prompt as the user's message, so it names no timer, no trigger and no system.
# Read-only: an agent with its own prompts passes them and does not edit these.
TRIGGER_PROMPTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        TriggerType.CHECK_IN: "Continue our conversation naturally.",
        TriggerType.QUESTION_UNANSWERED: (
            "The user asked a question but hasn't responded. Follow up on it."
        ),
        TriggerType.TASK_INCOMPLETE: "Check in about the incomplete task we discussed.",
        TriggerType.WAITING_FOR_DECISION: "Follow up on the decision the user needs to make.",
    }
)


def parse_trigger(value: object) -> TriggerType:
    """The trigger named by `value`; raises `UnknownTrigger` listing the valid ones."""
    try:
        return TriggerType(value)  # type: ignore[arg-type]  # the enum itself is the validator
    except ValueError:
        valid = ", ".join(TriggerType)
        raise UnknownTrigger(f"Unknown trigger type {value!r}; valid are: {valid}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVariant:
    """One of several prompts of a trigger; variants are chosen by weight."""

    name: str
    """Its name in reports."""
    text: str
    """The prompt; only the model reads it."""
    weight: float = 1.0
    """Its share relative to the other variants of the trigger."""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise UsageError("A prompt's variant has no name; reports need one.")
        if not self.text.strip():
            raise UsageError(
                f"The prompt of variant {self.name!r} is empty; the model needs words to answer."
            )
        if not 0 < self.weight <= MAX_WEIGHT:
            raise UsageError(
                f"The weight of variant {self.name!r} is {self.weight}; expected more "
                f"than 0 and at most {MAX_WEIGHT:,}."
            )


def choose_prompt(
    prompts: Mapping[TriggerType, Sequence[PromptVariant]],
    holdout: float,
    trigger: TriggerType | str,
    key: str | int,
) -> PromptVariant | None:
    """The prompt for a follow-up, or None if the follow-up is held out.

    `key` names the unit of comparison, such as a timer, a thread or a user. The same key gets the
    same result until the prompts or the share change. Without variants the fixed prompt is used.
    """
    kind = parse_trigger(trigger)
    if not 0 <= holdout <= 1:
        raise UsageError(f"The share to hold out is {holdout}; expected 0 to 1.")
    holdout_place, variant_place = _places(kind, key)
    if holdout_place < holdout:
        return None
    fixed = PromptVariant(name=DEFAULT_VARIANT, text=TRIGGER_PROMPTS[kind])
    return _variant_at(variant_place, prompts.get(kind) or [fixed])


def _places(trigger: TriggerType, key: str | int) -> tuple[float, float]:
    """Two independent numbers from 0 up to 1."""
    digest = hashlib.sha256(f"{trigger.value}\0{key}".encode("utf-8", "surrogatepass")).digest()
    # A float holds 53 bits, so the greatest number is still below 1.
    first, second = ((int.from_bytes(b) >> 11) / (1 << 53) for b in (digest[:8], digest[8:16]))
    return first, second


def _variant_at(place: float, variants: Sequence[PromptVariant]) -> PromptVariant:
    left = place * math.fsum(variant.weight for variant in variants)
    for variant in variants:
        left -= variant.weight
        if left < 0:
            return variant
    return variants[-1]  # rounding can leave a rest
