"""Deciders that an agent's config can name: they want a follow-up, always and soon."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from segue.core.autonomy.decide import Plan
from segue.core.batch import Batch
from segue.core.triggers import TriggerType
from segue.runtime.planning import DeciderResult

SOON = timedelta(minutes=15)


class AlwaysYes:
    """Never has enough."""

    async def decide(
        self,
        batch: Batch,
        earlier: Sequence[Batch] = (),
        *,
        interrupted: bool = False,
        consecutive: int = 0,
    ) -> DeciderResult:
        del batch, earlier, interrupted, consecutive
        plan = Plan(TriggerType.CHECK_IN, SOON, "There is always something to say.")
        return DeciderResult(plan, plan.reason)


always_yes = AlwaysYes()


def bill_is_due(batch: Batch, earlier: Sequence[Batch], **_: Any) -> Plan:
    """Chooses a trigger of the owner's own."""
    del batch, earlier
    return Plan("bill_due", SOON, "A bill is due.")
