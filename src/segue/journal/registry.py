"""Users' settings, API keys, push subscriptions, and the node numbers of id generators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from segue.core.snowflake import MAX_ID, MAX_NODE
from segue.errors import ConflictError
from segue.journal.follow_ups import record_decisions
from segue.journal.records import ApiKey, Decision
from segue.journal.rows import (
    Record,
    lease_end,
    merge_settings,
    read_settings,
    readable,
    to_json,
    values_of,
)
from segue.journal.threads import reconsider, thread_of
from segue.journal.tx import Part, Tx, insertion, single_read, single_write, writes

_MOVE = (
    "ON CONFLICT (endpoint) DO UPDATE SET user_id = excluded.user_id, "
    "public_key = excluded.public_key, auth = excluded.auth RETURNING *"
)
_OLDEST = """
    DELETE FROM push_subscriptions WHERE user_id = :user AND id <> :kept AND id NOT IN (
        SELECT id FROM push_subscriptions WHERE user_id = :user AND id <> :kept
        ORDER BY id DESC LIMIT :others)
"""


class Users(Part):
    """A user's settings for all agents: time zone, quiet hours, snooze, opt-out."""

    @single_read
    async def get_settings(self, tx: Tx, user_id: str) -> Mapping[str, Any]:
        """Empty for an unknown user."""
        row = await tx.find("SELECT settings FROM users WHERE user_id = :user", user=user_id)
        return {} if row is None else read_settings(row["settings"])

    @writes
    async def update_settings(
        self,
        tx: Tx,
        user_id: str,
        settings: Mapping[str, Any],
        *,
        now: datetime,
        reconsider_at: datetime | None = None,
        decisions: Sequence[Decision] = (),
    ) -> Mapping[str, Any]:
        """Merge settings into those that are there (null removes one) and return them all.

        With `reconsider_at`, the user's postponed follow-ups can be claimed from then on.
        `decisions` say why, and are recorded in the same step.
        """
        # First, since a decision locks its thread, and threads are locked before their user.
        for decision in decisions:
            await thread_of(tx, decision.thread_id)
        await record_decisions(tx, decisions)
        merged = await merge_user_settings(tx, user_id, settings, now)
        if reconsider_at is not None:
            await reconsider_of_user(tx, user_id, reconsider_at)
        return merged


async def reconsider_of_user(tx: Tx, user_id: str, at: datetime) -> None:
    of_user = "thread_id IN (SELECT id FROM threads WHERE user_id = :whose)"
    await reconsider(tx, of_user, user_id, at)


async def merge_user_settings(
    tx: Tx, user_id: str, settings: Mapping[str, Any], now: datetime
) -> Mapping[str, Any]:
    # Locks the row, even a new one: of two concurrent merges, one waits.
    row = await tx.get(
        "INSERT INTO users (user_id, updated_at) VALUES (:user, :now) ON CONFLICT (user_id) "
        "DO UPDATE SET updated_at = excluded.updated_at RETURNING settings",
        user=user_id,
        now=now,
    )
    merged = to_json(merge_settings(read_settings(row["settings"]), settings))
    sql = "UPDATE users SET settings = :settings WHERE user_id = :user"
    await tx.run(sql, settings=merged, user=user_id)
    return read_settings(merged)


class Keys(Part):
    """API keys of the server's callers."""

    @single_write
    async def add(self, tx: Tx, key: ApiKey) -> None:
        """`ConflictError` if there is one with that id."""
        unless_known = "ON CONFLICT (id) DO NOTHING RETURNING id"
        if not await tx.together(insertion("api_keys", unless_known, **values_of(key))):
            raise ConflictError(f"There is a key {key.id!r} already.")

    @single_read
    async def find(self, tx: Tx, key_id: str) -> ApiKey | None:
        row = await tx.find("SELECT * FROM api_keys WHERE id = :id", id=key_id)
        return None if row is None else ApiKey.of(row)

    @single_read
    async def list_all(self, tx: Tx) -> list[ApiKey]:
        """All keys, revoked ones too, oldest first."""
        rows = await tx.all("SELECT * FROM api_keys ORDER BY created_at, id")
        return [*map(ApiKey.of, rows)]

    @single_write
    async def revoke(self, tx: Tx, key_id: str, *, now: datetime) -> ApiKey:
        """Revoke a key; again: nothing changes. `NotFoundError` if there is none."""
        sql = (
            "UPDATE api_keys SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id RETURNING *"
        )
        row = await tx.get(sql, f"There is no key {key_id!r:.60}.", id=key_id, now=now)
        return ApiKey.of(row)


@dataclass(frozen=True, slots=True)
class PushSubscription(Record):
    """A user's browser that accepts notifications, with its address at a push service.

    The address lets anyone send to it who also has the two keys, so none is shown.
    """

    id: int
    user_id: str
    endpoint: str = field(repr=False)
    public_key: bytes = field(repr=False)
    auth: bytes = field(repr=False)
    created_at: datetime


class Push(Part):
    """A browser belongs to the user who subscribed last with it."""

    @writes
    async def subscribe(self, tx: Tx, new: PushSubscription, *, limit: int) -> PushSubscription:
        """Store a subscription; one with the same endpoint keeps its id and is replaced.

        A user keeps the newest `limit` ones, this one among them.
        """
        [row] = await tx.together(insertion("push_subscriptions", _MOVE, **values_of(new)))
        await tx.run(_OLDEST, user=new.user_id, kept=row["id"], others=limit - 1)
        return PushSubscription.of(row)

    @single_read
    async def list_of(self, tx: Tx, user_id: str) -> list[PushSubscription]:
        """Oldest first."""
        sql = "SELECT * FROM push_subscriptions WHERE user_id = :user ORDER BY id"
        return readable(PushSubscription.of, await tx.all(sql, user=user_id))

    @single_read
    async def find(self, tx: Tx, subscription_id: int) -> PushSubscription | None:
        row = await tx.find("SELECT * FROM push_subscriptions WHERE id = :id", id=subscription_id)
        return None if row is None else PushSubscription.of(row)

    @single_write
    async def unsubscribe(self, tx: Tx, user_id: str, endpoint: str) -> bool:
        """Whether the user had it."""
        sql = "DELETE FROM push_subscriptions WHERE user_id = :user AND endpoint = :endpoint"
        return bool(await tx.run(sql, user=user_id, endpoint=endpoint))

    @single_write
    async def remove(self, tx: Tx, subscription: PushSubscription) -> None:
        """Remove a subscription that its push service ended, unless another user has it now."""
        sql = "DELETE FROM push_subscriptions WHERE id = :id AND user_id = :user"
        await tx.run(sql, id=subscription.id, user=subscription.user_id)

    @writes
    async def get_key(self, tx: Tx, new: bytes) -> bytes:
        """The private key of all processes; `new` becomes it if there is none yet."""
        unless_known = "ON CONFLICT (id) DO NOTHING"
        await tx.together(insertion("push_keys", unless_known, id=1, private_key=new))
        return bytes(
            (await tx.get("SELECT private_key FROM push_keys WHERE id = 1"))["private_key"]
        )


class Nodes(Part):
    """Numbers for id generators, so that two processes never share one."""

    @writes
    async def lease(self, tx: Tx, owner: str, *, now: datetime, lease_for: timedelta) -> int:
        """A free number from 0 to 1023; `ConflictError` if all are taken."""
        # Two processes that start together would find the same number free.
        await tx.lock("nodes")
        rows = await tx.all("SELECT node FROM nodes WHERE lease_until > :now", now=now)
        taken = {row["node"] for row in rows}
        free = next((node for node in range(MAX_NODE + 1) if node not in taken), None)
        if free is None:
            raise ConflictError(f"All {MAX_NODE + 1} node numbers are taken.")
        replace = (
            "ON CONFLICT (node) DO UPDATE "
            "SET owner = excluded.owner, lease_until = excluded.lease_until"
        )
        until = lease_end(now, lease_for)
        await tx.together(insertion("nodes", replace, node=free, owner=owner, lease_until=until))
        return free

    @single_write
    async def extend(
        self, tx: Tx, node: int, owner: str, *, now: datetime, lease_for: timedelta
    ) -> None:
        sql = "UPDATE nodes SET lease_until = :until WHERE node = :node AND owner = :owner"
        if not await tx.run(sql, until=lease_end(now, lease_for), node=node, owner=owner):
            raise ConflictError(f"Node {node} no longer belongs to {owner!r}; lease a new one.")

    @single_write
    async def release(self, tx: Tx, node: int, owner: str) -> None:
        sql = "DELETE FROM nodes WHERE node = :node AND owner = :owner"
        await tx.run(sql, node=node, owner=owner)

    @single_read
    async def last_position(self, tx: Tx, *, latest: int = MAX_ID) -> int:
        """The highest position in the journal up to `latest`, to seed a generator; 0 if none."""
        # A decision's id is not noted in its thread.
        sql = (
            "SELECT greatest("
            "coalesce((SELECT max(last_position) FROM threads WHERE last_position <= :latest), 0), "
            "coalesce((SELECT max(id) FROM decisions WHERE id <= :latest), 0)) AS last"
        )
        return int((await tx.get(sql, latest=latest))["last"])
