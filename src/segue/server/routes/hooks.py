"""Events from other services: `POST /api/hooks/{source}`, signed as Standard Webhooks prescribe.

The signature replaces a key: it is checked before the body is parsed. An unknown source and a wrong
signature give the same error.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from segue.events import OutsideEvent
from segue.server.access import SegueDep, segue_of, settings_of
from segue.server.auth import Caller, RateLimit
from segue.server.middleware import CheckedRequest, operation_id
from segue.server.problems import ApiError, errors
from segue.server.requests import EventIn
from segue.server.responses import FollowUpOut
from segue.server.settings import HookConfig
from segue.webhooks import is_recent, verify_standard

_OLD: Final = (
    "The header webhook-timestamp is missing, or more than five minutes from the server's clock; "
    "send the time in Unix seconds, and sign with it."
)


class _SignedRoute(APIRoute):
    """Checks the signature before the body is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def signed(request: Request) -> Response:
            checked = CheckedRequest(request.scope, request.receive)
            checked.state.hook = await _find_hook(checked)
            return await handle(checked)

        return signed


async def _find_hook(request: Request) -> HookConfig:
    """The source of a signed request. Its rate counts only then: strangers must not use it up."""
    source = request.path_params["source"]
    hook, segue = settings_of(request).hooks.get(source), segue_of(request)
    secret = hook.secret.get_secret_value() if hook else ""
    now = segue.system.deps.clock.now()
    body = await request.body()
    if not is_recent(request.headers, now=now):  # for any source, so it reveals none
        raise ApiError(401, "timestamp", _OLD)
    is_signed = verify_standard(secret, request.headers, body, now=now)
    if hook is None or not is_signed:
        raise ApiError(401, "signature", "The source is unknown, or the signature is not valid.")
    rate: RateLimit = request.app.state.rate
    rate.take(Caller(source, is_operator=False, key="hooks"))
    return hook


router = APIRouter(
    route_class=_SignedRoute,
    generate_unique_id_function=operation_id,
    prefix="/api/hooks",
    tags=["events"],
    responses=errors(400, 401, 403, 404, 409, 413, 422, 429, 503),
)


@router.post("/{source}", status_code=202)
async def receive_event(
    source: str, event: EventIn, request: Request, segue: SegueDep
) -> FollowUpOut:
    """Report an event that the agent may tell the user about; once for each `webhook-id`.

    Needs the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    """
    hook: HookConfig = request.state.hook
    outside = OutsideEvent(
        id=request.headers["webhook-id"],
        type=event.type,
        data=event.data,
        source=source,
        trigger=hook.trigger,
    )
    timer = await segue.wake(
        outside, thread=event.thread_id, user_id=event.user_id, agent_id=hook.agent
    )
    return FollowUpOut.of(timer)
