"""Is it there, is it ready, what does it count."""

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from segue.server.access import at_home, running_of
from segue.server.metrics import Metrics
from segue.server.problems import Refusal, responses

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: str


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: responses()[503]})
async def readyz(request: Request) -> Health:
    """Migrations and the self-test are done, and the database takes what is written now."""
    running = running_of(request)
    if not running.is_ready:
        raise Refusal(503, "starting", "The server is starting or stopping.", {"Retry-After": "1"})
    # A write, since a disk that is full can still be read.
    await running.segue.composed.runtime.ids.renew()
    return Health(status="ready")


@router.get("/metrics", include_in_schema=False, dependencies=[Depends(at_home)])
async def metrics(request: Request) -> Response:
    """For Prometheus. No label holds a user, a thread or anybody's words."""
    counted: Metrics = request.app.state.metrics
    running = running_of(request)
    if running.is_ready:
        journal = running.segue.composed.parts.journal
        await counted.count_timers(lambda most: journal.count_timers(limit=most))
    return Response(generate_latest(counted.registry), media_type=CONTENT_TYPE_LATEST)
