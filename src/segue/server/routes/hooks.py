"""Events from other services: `POST /api/hooks/{source}`, signed as Standard Webhooks prescribe.

The signature stands for a key: it is checked before the body is parsed. An unknown source and a
wrong signature give the same error.
"""

import json
from typing import Any, Final

from fastapi import APIRouter, Request
from pydantic import ValidationError

from segue.errors import UsageError
from segue.runtime.requests import OutsideEvent
from segue.server.access import SegueDep, settings_of
from segue.server.auth import Caller, RateLimit
from segue.server.middleware import check_parts
from segue.server.problems import ApiError, errors
from segue.server.requests import EventIn
from segue.server.responses import FollowUpOut
from segue.webhooks import verify_standard

router = APIRouter(prefix="/api/hooks", tags=["events"])
_ID: Final = "webhook-id"
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EventIn.model_json_schema()}},
    }
}


@router.post(
    "/{source}",
    status_code=202,
    responses=errors(400, 401, 404, 413, 422, 429, 503),
    openapi_extra=_BODY,
)
async def receive_event(source: str, request: Request, segue: SegueDep) -> FollowUpOut:
    """Report an event that the agent may tell the user about; `webhook-id` makes it once.

    Needs the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    """
    rate: RateLimit = request.app.state.rate
    rate.take(Caller(source[:200], is_operator=False, key="hooks"))
    hook, body = settings_of(request).hooks.get(source), await request.body()
    secret = hook.secret.get_secret_value() if hook else ""
    is_signed = verify_standard(secret, request.headers, body, now=segue.system.deps.clock.now())
    if hook is None or not is_signed:
        raise ApiError(401, "signature", "The source is unknown, or the signature is not valid.")
    event = _parse(body)
    outside = OutsideEvent(
        id=request.headers[_ID],
        type=event.type,
        data=event.data,
        source=source,
        trigger=hook.trigger,
    )
    timer = await segue.wake(
        outside, thread=event.thread_id, user_id=event.user_id, agent_id=hook.agent
    )
    return FollowUpOut.of(timer)


def _parse(body: bytes) -> EventIn:
    check_parts(body)
    try:
        return EventIn.model_validate(json.loads(body.decode("utf-8-sig")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise UsageError(f"{place}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise ApiError(400, "unreadable", "The body is not JSON.") from None
