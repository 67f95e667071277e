"""The state of a graph between the turns of a thread: a value for each channel.

It is written with the end of a turn, in `turns.finish`. The journal does not look into values.
"""

from collections.abc import Iterator, Mapping

from segue.journal.records import StateValue
from segue.journal.threads import thread_of
from segue.journal.tx import Part, Statement, Tx, insertion, reads

_REPLACE = (
    "ON CONFLICT (thread_id, channel) DO UPDATE "
    "SET form = excluded.form, declared = excluded.declared, value = excluded.value"
)
_FORGET = "DELETE FROM states WHERE thread_id = :thread AND channel = ANY(:channels)"


class States(Part):
    @reads
    async def load(self, tx: Tx, thread_id: str) -> dict[str, StateValue]:
        """The values by channel, as the last turn that ended well left them."""
        await thread_of(tx, thread_id)
        sql = "SELECT * FROM states WHERE thread_id = :thread ORDER BY channel"
        rows = await tx.all(sql, thread=thread_id)
        return {row["channel"]: StateValue.of(row) for row in rows}


def storing_state(thread_id: str, changes: Mapping[str, StateValue | None]) -> Iterator[Statement]:
    """Replace the values of channels; None removes one."""
    for channel, new in changes.items():
        if new is not None:
            values = {"form": new.form, "declared": new.declared, "value": new.value}
            yield insertion("states", _REPLACE, thread_id=thread_id, channel=channel, **values)
    if gone := [channel for channel, new in changes.items() if new is None]:
        yield Statement(_FORGET, {"thread": thread_id, "channels": gone})
