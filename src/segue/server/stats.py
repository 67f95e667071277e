"""For operators: what follow-ups come to, in numbers. Nothing of what anybody said is in them."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, BaseModel, Field

from segue.core.outcomes import Verdict
from segue.core.triggers import TriggerType
from segue.journal.outcomes import WINDOW
from segue.server.access import SegueHere, operator_of
from segue.server.guard import GuardedRoute
from segue.server.problems import responses

router = APIRouter(
    route_class=GuardedRoute,
    prefix="/api/admin",
    tags=["admin"],
    dependencies=[Depends(operator_of)],
    responses=responses(403),
)
Moment = Annotated[AwareDatetime | None, Query()]
_A_DAY = WINDOW.total_seconds()
Window = Annotated[float, Query(gt=0, le=366 * 86_400, description="In seconds.")]


class RateOut(BaseModel):
    """A share, with the interval that it lies in 95 times of 100."""

    hits: int
    cases: int
    value: float
    low: float
    high: float


class OutcomesOut(BaseModel):
    """What became of the follow-ups of one agent, trigger and variant."""

    agent: str
    trigger: str | None
    variant: str | None = Field(description="Null: no words were chosen for them.")
    total: int
    replied: int
    ignored: int
    pending: int
    stopped: int
    suppressed: int
    held_out: int
    failed: int
    suppressed_by: dict[str, int] = Field(description="By gate.")
    reply_rate: RateOut | None
    median_latency_seconds: float | None
    wrote_unasked: RateOut | None = Field(description="Of those held out: users who wrote anyway.")


class ComparisonOut(BaseModel):
    """One arm against another. Each thread counts once."""

    agent: str
    trigger: str | None
    arm: str
    other: str
    threads: int
    other_threads: int
    share: float
    other_share: float
    difference: float
    low: float
    high: float
    verdict: Verdict
    needed: int | None = Field(description="About how many more threads would tell.")
    sentence: str


class SearchesOut(BaseModel):
    """Whose words follow-ups searched memories with."""

    by_source: dict[str, int]
    fallback_rate: RateOut | None = Field(description="By the summary, or not at all.")
    failed: int


class StatsOut(BaseModel):
    """What follow-ups come to."""

    since: datetime | None
    until: datetime
    window_seconds: float
    outcomes: list[OutcomesOut]
    comparisons: list[ComparisonOut]
    memory: SearchesOut
    unmarked: int = Field(description="Triggers that lost their mark; 0, or a store loses data.")


@router.get("/stats", responses=responses(400))
async def get_stats(
    segue: SegueHere,
    since: Moment = None,
    until: Moment = None,
    agent: str | None = None,
    trigger: TriggerType | None = None,
    window: Window = _A_DAY,
) -> StatsOut:
    """Outcomes of follow-ups by agent, trigger and variant, and which arm does better."""
    found = await segue.stats(
        since=since,
        until=until,
        agent=agent,
        trigger=trigger,
        window=timedelta(seconds=window),
    )
    return StatsOut.model_validate(found.as_json())
