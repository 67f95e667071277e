"""A decider that an agent's config can name: it wants a follow-up, always and soon."""

from collections.abc import Sequence
from datetime import timedelta

from segue.agent.decider import Verdict
from segue.core.batch import Batch
from segue.core.decide import Plan
from segue.core.triggers import TriggerType

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
    ) -> Verdict:
        del batch, earlier, interrupted, consecutive
        plan = Plan(TriggerType.CHECK_IN, SOON, "There is always something to say.")
        return Verdict(plan, plan.reason)


always_yes = AlwaysYes()
