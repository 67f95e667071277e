"""`Notifier`: notifications that browsers show while the page is closed, by Web Push.

It keeps the subscriptions of users, and delivers `push` effects. A browser names the address to
send to, so only addresses of the push services in the settings are taken.
"""

import json
import os
import re
from functools import partial
from typing import Final

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from segue.core.messages import spoken_text
from segue.core.metadata import MessageMetadata
from segue.core.snowflake import parse, to_text
from segue.core.text import one_line
from segue.errors import NotFoundError, UsageError
from segue.journal.effects import Effect
from segue.journal.records import Turn
from segue.journal.registry import PushSubscription
from segue.runtime.delivery import DeliveryError, evidence, post, refusal
from segue.runtime.deps import Deps
from segue.runtime.run import visible_replies
from segue.settings.settings import PushSettings
from segue.web_push import (
    SALT_BYTES,
    authorize,
    encrypt,
    load_private_key,
    new_private_key,
    public_bytes,
    read_auth,
    read_public_key,
    to_base64,
)

# The browsers of one user.
_MOST: Final = 20
_LONGEST_ENDPOINT: Final = 1_000
_TITLE_LENGTH: Final = 80
_BODY_LENGTH: Final = 300
# Seconds that a push service keeps it for a browser that is offline; after a day it is outdated.
_KEPT_FOR: Final = 86_400
# The push service has ended the subscription.
_ENDED: Final = frozenset({404, 410})
_SERVICE: Final = "The push service"
_LABEL: Final = re.compile("[a-z0-9-]{1,63}")


class Notifier:
    def __init__(self, deps: Deps, client: httpx.AsyncClient, settings: PushSettings) -> None:
        self._deps = deps
        self._push = deps.journal.push
        self._client = client
        self._settings = settings
        self._key: EllipticCurvePrivateKey | None = None

    async def public_key(self) -> str:
        """What browsers subscribe with. `NotFoundError` if notifications are off."""
        if not self._settings.services:
            raise NotFoundError("Notifications are off: the setting push.services is empty.")
        return to_base64(public_bytes(await self._load_key()))

    async def subscribe(
        self, user_id: str, endpoint: str, p256dh: str, auth: str
    ) -> PushSubscription:
        """Store or update the subscription of a browser; above the limit, the oldest goes."""
        self._check(endpoint)
        new = PushSubscription(
            self._deps.ids.next(),
            user_id,
            endpoint,
            read_public_key(p256dh),
            read_auth(auth),
            self._deps.clock.now(),
        )
        return await self._push.subscribe(new, limit=_MOST)

    async def unsubscribe(self, user_id: str, endpoint: str) -> bool:
        """Whether the user had it."""
        return await self._push.unsubscribe(user_id, endpoint)

    async def deliver(self, effect: Effect) -> str:
        """Send one notification, unless it was read: the handler of `push` effects."""
        journal = self._deps.journal
        turn = await journal.turns.get(parse(effect.payload["turn"]))
        subscription = await self._push.find(parse(effect.payload["subscription"]))
        if subscription is None or subscription.user_id != turn.user_id:
            return "The browser does not take notifications any more."
        try:
            batch = await journal.messages.load_batch(turn.thread_id, turn.batch)
        except NotFoundError:  # retention
            return "The message is not stored any more."
        replies = visible_replies(turn, batch)
        last = max(MessageMetadata.of(message).position or 0 for message in replies)
        if last <= (await journal.threads.get(turn.thread_id)).read_position:
            return "The user has read it."
        text = " ".join(map(spoken_text, replies))
        return await self._send(subscription, turn, text, last)

    async def _send(
        self, subscription: PushSubscription, turn: Turn, text: str, position: int
    ) -> str:
        try:
            self._check(subscription.endpoint)
        except UsageError as error:
            raise DeliveryError(str(error), retryable=False) from None
        config = self._deps.agent_of(turn.agent_id).config
        shown = {
            "title": one_line(config.name or config.id, _TITLE_LENGTH),
            "body": one_line(text, _BODY_LENGTH),
            "thread": turn.thread_id,
            "position": to_text(position),
        }
        now, key = self._deps.clock.now, await self._load_key()
        body = encrypt(
            json.dumps(shown, ensure_ascii=False).encode(),
            subscription.public_key,
            subscription.auth,
            sender=load_private_key(new_private_key()),
            salt=os.urandom(SALT_BYTES),
        )
        contact, endpoint = self._settings.contact, subscription.endpoint
        headers = {
            "Authorization": authorize(endpoint, key, contact=contact, now=now()),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(_KEPT_FOR),
            # A repetition takes the place of the first one, if that still waits there.
            "Topic": to_text(turn.id),
        }
        response = await post(self._client, endpoint, body, headers, _SERVICE)
        if response.status_code in _ENDED:
            await self._push.remove(subscription)
            return f"{evidence(response, now())}: the browser has ended its subscription."
        if not response.is_success:
            raise refusal(response, now(), _SERVICE)
        return evidence(response, now())

    async def _load_key(self) -> EllipticCurvePrivateKey:
        if self._key is None:
            self._key = load_private_key(await self._push.get_key(new_private_key()))
        return self._key

    def _check(self, endpoint: str) -> None:
        """`UsageError` unless an endpoint is of a known push service; it is not quoted."""
        # The client's own reading of the address: another could see another host.
        try:
            url = httpx.URL(endpoint)
        except httpx.InvalidURL:
            url = httpx.URL()
        is_short = len(endpoint) <= _LONGEST_ENDPOINT and endpoint.isascii()
        if (
            is_short
            and not url.userinfo
            and any(map(partial(_is_of, url), self._settings.services))
        ):
            return
        raise UsageError(
            "endpoint is not an address of a push service in the setting push.services."
        )


def _is_of(url: httpx.URL, service: str) -> bool:
    allowed = httpx.URL(service.replace("*.", ""))
    if (url.scheme, url.port) != (allowed.scheme, allowed.port):
        return False
    if "*." not in service:
        return url.host == allowed.host
    # A resolver or a proxy may read anything else than plain labels as another host.
    below = url.host.removesuffix(f".{allowed.host}")
    return below != url.host and all(map(_LABEL.fullmatch, below.split(".")))
