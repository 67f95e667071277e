"""Which words ask the model to speak first: the fixed prompts, an owner's own, and experiments.

An owner may replace a trigger's prompt, give several to compare, and hold some follow-ups out
to learn what silence does. Nothing is drawn by chance: the same key always gets the same, so that
a repeated step says the same and a record can be checked later.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from segue.core.errors import UsageError
from segue.core.triggers import TRIGGER_PROMPTS, TriggerType, parse_trigger

# The name of a trigger's fixed prompt in records and reports.
DEFAULT_VARIANT: Final = "default"

MAX_WEIGHT: Final = 1_000_000

_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVariant:
    """One of the texts that a trigger may speak with; `weight` is its share against the others."""

    name: str
    """What reports call it."""
    text: str
    """The words that the model reads; no user ever sees them."""
    weight: float = 1.0
    """Its share against the other variants of the trigger."""

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


@dataclass(frozen=True, slots=True)
class ChosenPrompt:
    """The words for one follow-up, and the name of the variant that they are."""

    text: str
    variant: str


def choose_prompt(
    prompts: Mapping[TriggerType, Sequence[PromptVariant]],
    holdout: float,
    trigger: TriggerType | str,
    key: str | int,
) -> ChosenPrompt | None:
    """The prompt for a follow-up, or None for one that is held out and says nothing.

    `key` names what is compared, such as a timer, a thread or a user; one key gets the same as
    long as the prompts and the share stay. A trigger without a prompt of its own has its fixed one.
    """
    kind = parse_trigger(trigger)
    if not 0 <= holdout <= 1:
        raise UsageError(f"The share to hold out is {holdout}; expected 0 to 1.")
    held_out, place = _places(kind, key)
    if held_out < holdout:
        return None
    if not (variants := prompts.get(kind)):
        return ChosenPrompt(TRIGGER_PROMPTS[kind], DEFAULT_VARIANT)
    chosen = _at(place, variants)
    return ChosenPrompt(chosen.text, chosen.name)


def _places(trigger: TriggerType, key: str | int) -> tuple[float, float]:
    """Two places from 0 up to 1 that have nothing to do with each other."""
    digest = hashlib.sha256(f"{trigger.value}\0{key}".encode("utf-8", "surrogatepass")).digest()
    halves = (digest[:_BYTES], digest[_BYTES : 2 * _BYTES])
    # 53 bits are what a float holds, so that the greatest one is still below 1.
    first, second = ((int.from_bytes(half) >> 11) / (1 << 53) for half in halves)
    return first, second


def _at(place: float, variants: Sequence[PromptVariant]) -> PromptVariant:
    left = place * math.fsum(variant.weight for variant in variants)
    for variant in variants:
        left -= variant.weight
        if left < 0:
            return variant
    return variants[-1]  # what rounding left over
