"""Health, readiness and metrics."""

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from segue.server.access import lifespan_of, require_local
from segue.server.metrics import Metrics
from segue.server.problems import ApiError, responses

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: str


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: responses()[503]})
async def readyz(request: Request) -> Health:
    """Migrations and the self-test are done, and the database accepts writes."""
    lifespan = lifespan_of(request)
    if not lifespan.is_ready:
        raise ApiError(503, "starting", "The server is starting or stopping.", {"Retry-After": "1"})
    await lifespan.segue.check_writable()
    return Health(status="ready")


@router.get("/metrics", include_in_schema=False, dependencies=[Depends(require_local)])
async def metrics(request: Request) -> Response:
    """For Prometheus. No label contains a user, a thread or a message."""
    found: Metrics = request.app.state.metrics
    lifespan = lifespan_of(request)
    if lifespan.is_ready:
        inspector = lifespan.segue.inspector
        await found.count_timers(lambda most: inspector.count_pending_timers(limit=most))
    return Response(generate_latest(found.registry), media_type=CONTENT_TYPE_LATEST)
