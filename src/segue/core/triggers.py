"""Why a follow-up speaks: the four triggers and the natural prompt of each."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from segue.core.errors import UnknownTrigger


class TriggerType(StrEnum):
    """Why a follow-up speaks."""

    CHECK_IN = "check_in"
    QUESTION_UNANSWERED = "question_unanswered"
    TASK_INCOMPLETE = "task_incomplete"
    WAITING_FOR_DECISION = "waiting_for_decision"


# The model reads these words as if the user had said them, so they name no timer, no trigger
# and no system. Read-only: an agent with prompts of its own passes them, it does not edit these.
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
