"""Push subscriptions: the browsers of a user that show what an agent writes first."""

from dataclasses import asdict, dataclass, field
from datetime import datetime

from segue.journal.rows import Record, readable
from segue.journal.tx import Part, Tx, acts, find, get, insertion, looks, writes

_MOVE = (
    "ON CONFLICT (endpoint) DO UPDATE SET user_id = excluded.user_id, "
    "public_key = excluded.public_key, auth = excluded.auth RETURNING *"
)
_OLDEST = """
    DELETE FROM push_subscriptions WHERE user_id = :user AND id <> :kept AND id NOT IN (
        SELECT id FROM push_subscriptions WHERE user_id = :user ORDER BY id DESC LIMIT :limit)
"""


@dataclass(frozen=True, slots=True)
class PushSubscription(Record):
    """A browser that takes notifications for a user, at the address of its push service.

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
        [row] = await tx.together(insertion("push_subscriptions", _MOVE, **asdict(new)))
        await tx.run(_OLDEST, user=new.user_id, kept=row["id"], limit=limit)
        return PushSubscription.of(row)

    @looks
    async def list_of(self, tx: Tx, user_id: str) -> list[PushSubscription]:
        """Oldest first."""
        sql = "SELECT * FROM push_subscriptions WHERE user_id = :user ORDER BY id"
        return readable(PushSubscription.of, await tx.all(sql, user=user_id))

    @looks
    async def find(self, tx: Tx, subscription_id: int) -> PushSubscription | None:
        row = await find(tx, "SELECT * FROM push_subscriptions WHERE id = :id", id=subscription_id)
        return None if row is None else PushSubscription.of(row)

    @acts
    async def unsubscribe(self, tx: Tx, user_id: str, endpoint: str) -> bool:
        """Whether the user had it."""
        sql = "DELETE FROM push_subscriptions WHERE user_id = :user AND endpoint = :endpoint"
        return bool(await tx.run(sql, user=user_id, endpoint=endpoint))

    @acts
    async def remove(self, tx: Tx, subscription: PushSubscription) -> None:
        """Remove one that its push service ended, unless another user has it by now."""
        sql = "DELETE FROM push_subscriptions WHERE id = :id AND user_id = :user"
        await tx.run(sql, id=subscription.id, user=subscription.user_id)

    @writes
    async def get_key(self, tx: Tx, new: bytes) -> bytes:
        """The private key of all processes; `new` becomes it if there is none yet."""
        unless_known = "ON CONFLICT (id) DO NOTHING"
        await tx.together(insertion("push_keys", unless_known, id=1, private_key=new))
        return bytes(
            (await get(tx, "SELECT private_key FROM push_keys WHERE id = 1"))["private_key"]
        )
