"""Snowflake ids: 41 bits of milliseconds, 10 bits of node, 12 bits of sequence.

An id sorts by time, names its node and fits a signed 64-bit column. Arithmetic only; the clock and
the lock are in `segue.runtime.ids`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeGuard

from segue.errors import UsageError

# Old chats are imported with their own times, hence the early epoch; 41 bits last until 2079.
EPOCH: Final = datetime(2010, 1, 1, tzinfo=UTC)
NODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12
MAX_NODE: Final = (1 << NODE_BITS) - 1
MAX_ID: Final = (1 << 63) - 1
TEXT_WIDTH: Final = 19

_SHIFT = NODE_BITS + SEQUENCE_BITS
_MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
_MAX_MILLIS = (1 << 41) - 1
_MILLISECOND = timedelta(milliseconds=1)
# A wrong time zone is a matter of hours; a clock that is further ahead is broken.
_AHEAD_AT_MOST: Final = timedelta(days=1)


class SnowflakeSource(Protocol):
    """A source of new ids: each id is higher than the one before."""

    @property
    def node(self) -> int: ...

    def next(self, after: int = 0) -> int: ...


def next_snowflake(last: int, millis: int, node: int) -> int:
    """The lowest id of `node` above `last` that is not older than `millis` since the epoch.

    If the clock stands still or steps back, or sequence numbers run out, the id borrows from the
    millisecond after `last`, so ids always rise.
    """
    base = max(millis, last >> _SHIFT)
    first = (base << _SHIFT) | (node << SEQUENCE_BITS)
    candidate = first if first > last else last + 1
    if candidate > first | _MAX_SEQUENCE:
        base += 1
        candidate = (base << _SHIFT) | (node << SEQUENCE_BITS)
    if base > _MAX_MILLIS:
        raise UsageError(
            f"The time {base} ms after {EPOCH:%Y-%m-%d} does not fit a snowflake (41 bits)."
        )
    return candidate


def millis_of(moment: datetime) -> int:
    """Milliseconds from the epoch to an aware datetime; negative before the epoch."""
    if moment.tzinfo is None:
        raise UsageError(f"{moment!r} has no time zone; pass an aware datetime.")
    return (moment - EPOCH) // _MILLISECOND


def time_of(snowflake: int) -> datetime:
    """The time in an id, in UTC."""
    return EPOCH + (check_snowflake(snowflake) >> _SHIFT) * _MILLISECOND


def latest_id(now: datetime) -> int:
    """The highest id that a working clock can have made: a day from now."""
    return min(((millis_of(now + _AHEAD_AT_MOST) + 1) << _SHIFT) - 1, MAX_ID)


def node_of(snowflake: int) -> int:
    return (check_snowflake(snowflake) >> SEQUENCE_BITS) & MAX_NODE


def is_snowflake(value: object) -> TypeGuard[int]:
    """Whether `value` can be an id; a bool, which Python counts as an int, cannot."""
    return type(value) is int and 0 < value <= MAX_ID


def check_snowflake(value: object, what: str = "id") -> int:
    """The value; `UsageError` that names `what` if it cannot be a snowflake."""
    if is_snowflake(value):
        return value
    raise UsageError(f"The {what} {value!r} is not a snowflake: expected an int in 1..{MAX_ID}.")


def check_node(node: object) -> int:
    if type(node) is int and 0 <= node <= MAX_NODE:
        return node
    raise UsageError(f"The node {node!r} is out of range: expected an int in 0..{MAX_NODE}.")


def to_text(snowflake: int) -> str:
    """Fixed-width decimal text: sorts like the number and is safe in JSON."""
    return f"{check_snowflake(snowflake):0{TEXT_WIDTH}d}"


def parse(text: object) -> int:
    """Read what `to_text` wrote and nothing else: 13 digits are more often a time than an id."""
    if isinstance(text, str) and len(text) == TEXT_WIDTH and text.isascii() and text.isdigit():
        return check_snowflake(int(text))
    raise UsageError(f"{text!r} is not an id: expected exactly {TEXT_WIDTH} digits.")
