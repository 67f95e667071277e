"""Notifications: the browsers of a user that show what an agent writes while the page is closed."""

from fastapi import Response

from segue.server.access import CallerDep, SegueDep
from segue.server.middleware import api_router
from segue.server.problems import errors
from segue.server.requests import EndpointIn, SubscriptionIn
from segue.server.responses import PushKeyOut, SubscriptionOut

router = api_router("/push", "notifications")


@router.get("/key", responses=errors(404))
async def get_push_key(segue: SegueDep, _: CallerDep) -> PushKeyOut:
    """The key to subscribe with; 404 if notifications are off."""
    return PushKeyOut(key=await segue.notifier.public_key())


@router.post("/subscriptions", status_code=201)
async def subscribe_push(
    segue: SegueDep, caller: CallerDep, new: SubscriptionIn
) -> SubscriptionOut:
    """Notify this browser, too; the same one again is one. The newest 20 of a user are kept."""
    given = (new.endpoint, new.keys.p256dh, new.keys.auth)
    return SubscriptionOut.of(await segue.notifier.subscribe(caller.user_id, *given))


@router.delete("/subscriptions", status_code=204)
async def unsubscribe_push(segue: SegueDep, caller: CallerDep, browser: EndpointIn) -> Response:
    """Do not notify this browser any more."""
    await segue.notifier.unsubscribe(caller.user_id, browser.endpoint)
    return Response(status_code=204)
