"""The tables as exports and imports read and write them, the same for both databases.

A row is a mapping of Python values by column: times are aware, JSON is parsed, a vector is an
array. State of the running system (leases, wake-up times, node numbers, API keys, drafts) is not
part of it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from segue.core.memory import indexed_words
from segue.journal.records import EffectState, TimerState, TurnState
from segue.journal.rows import UNREADABLE, DamagedError, read_json, read_time
from segue.journal.tx import Transactor, Tx, single_read

Row = Mapping[str, Any]
Key = tuple[Any, ...]

_ROWS: Final = 500
# Larger pages, because the database may sort all names for each page.
_NAMED_ROWS: Final = 5_000


class Form(Enum):
    """What a column holds."""

    TEXT = auto()
    ID = auto()
    IDS = auto()
    NUMBER = auto()
    FLAG = auto()
    TIME = auto()
    JSON = auto()
    VECTOR = auto()
    BYTES = auto()
    # A message: parsed, or as stored, which saves encoding it again.
    BODY = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """`follows`: derived from other columns, so it is written and never read."""

    name: str
    form: Form = Form.TEXT
    nullable: bool = False
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the order of its key. `of_thread`: each row belongs to a thread."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    of_thread: bool = True

    @property
    def read(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.follows)

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)


def _columns(spec: str) -> tuple[Column, ...]:
    """Columns written as `name:form`, with `?` after a nullable and `*` after a derived one."""
    columns = []
    for given in spec.split():
        bare = given.rstrip("?*")
        name, _, form = bare.partition(":")
        marks = given[len(bare) :]
        columns.append(Column(name, Form[(form or "text").upper()], "?" in marks, "*" in marks))
    return tuple(columns)


THREADS: Final = Table(
    "threads",
    ("id",),
    _columns(
        "id agent_id user_id title? title_is_set:flag preview? preview_role? preview_position:id "
        "message_count:number epoch:number last_position:id settings:json created_at:time "
        "updated_at:time read_position:id unread:number changed_position:id"
    ),
    of_thread=False,
)
MESSAGES: Final = Table(
    "messages",
    ("batch", "sequence_num"),
    _columns(
        "position:id message_id* client_message_id? batch:id sequence_num:number batch_type* "
        "parent_batch:id?* agent_id* role* synthetic:flag* trigger_type?* visible:flag* "
        "archived:flag tokens:number* text* body:body created_at:time"
    ),
)
SUMMARIES: Final = Table(
    "summaries",
    ("id",),
    _columns("id:id text first_batch:id last_batch:id batches:ids previous_id:id? created_at:time"),
)
TURNS: Final = Table(
    "turns",
    ("id",),
    _columns(
        "id:id agent_id* user_id* batch:id kind state epoch:number attempts:number queued_at:time "
        "available_at:time shown_at:time? error? payload:json cancel_requested:flag left_open:flag "
        "is_waiting:flag ending:json? end_position:id? held_at:time?* finished_at:time?"
    ),
)
TIMERS: Final = Table(
    "timers",
    ("id",),
    _columns(
        "id:id agent_id* user_id* kind state trigger_type? reason? batch:id? epoch:number "
        "due_at:time expires_at:time? missed payload:json state_reason? wake_at:time?* "
        "created_at:time updated_at:time key? turn_id:id?"
    ),
)
DECISIONS: Final = Table(
    "decisions",
    ("id",),
    _columns("id:id kind outcome reasons:json facts:json timer_id:id? turn_id:id? decided_at:time"),
)
EFFECTS: Final = Table(
    "effects",
    ("id",),
    _columns(
        "id:id kind payload:json dedupe_key state attempts:number due_at:time error? evidence? "
        "wake_at:time?* created_at:time"
    ),
)
STATES: Final = Table("states", ("channel",), _columns("channel form declared value:bytes"))
USERS: Final = Table(
    "users", ("user_id",), _columns("user_id settings:json updated_at:time"), of_thread=False
)
MEMORIES: Final = Table(
    "memories",
    ("id",),
    _columns(
        "id:id agent_id user_id key content metadata:json embedding:vector? embedding_model? "
        "word_count:number* created_at:time updated_at:time"
    ),
    of_thread=False,
)
# The tables of a thread, in the order of an export.
OF_THREAD: Final = (MESSAGES, SUMMARIES, TURNS, TIMERS, DECISIONS, EFFECTS, STATES)

# Leases are not exported; claimed rows are imported as pending.
_AT_REST: Final[Mapping[str, Mapping[str, str]]] = {
    "turns": {TurnState.RUNNING: TurnState.QUEUED.value},
    "timers": {TimerState.CLAIMED: TimerState.PENDING.value},
    "effects": {EffectState.CLAIMED: EffectState.PENDING.value},
}
_WAITING: Final = frozenset({TimerState.PENDING.value, TimerState.POSTPONED.value})


def at_rest(table: Table, row: Row) -> Row:
    """A row without the lease of a running process."""
    state = _AT_REST.get(table.name, {}).get(row.get("state", ""))
    return row if state is None else {**row, "state": state}


def whole(table: Table, row: Row, thread: Row | None) -> Row:
    """A row with the columns that follow from other columns and from its thread."""
    more: dict[str, Any] = {}
    if table.of_thread and thread is not None:
        more = {"agent_id": thread["agent_id"], "user_id": thread["user_id"]}
    if table is TURNS:
        more["held_at"] = row["queued_at"]
    if table in (TIMERS, EFFECTS):
        more["wake_at"] = row["due_at"] if row["state"] in _WAITING else None
    if table is MEMORIES:
        more["word_count"] = len(indexed_words(row["content"]))
    return {**more, **row}


@dataclass(frozen=True, slots=True)
class Whose:
    """A filter for rows: of one thread, of one user, or all."""

    thread_id: str | None = None
    user_id: str | None = None


ALL: Final = Whose()


class Rows:
    """The rows of a database."""

    def __init__(self, db: Transactor) -> None:
        self.db = db

    @single_read
    async def read_rows(
        self,
        tx: Tx,
        table: Table,
        whose: Whose = ALL,
        *,
        after: Key | None = None,
        limit: int = _ROWS,
    ) -> Sequence[Row]:
        """Rows in the order of their key, above the key `after`. Texts are ordered by code point.

        Ends after `limit` rows, or when the page reaches `PAGE_BYTES`.
        """
        conditions, values = ["1 = 1"], dict[str, Any](limit=limit)
        owner = "thread_id" if table.of_thread else "id"
        for column, wanted in ((owner, whose.thread_id), ("user_id", whose.user_id)):
            if wanted is not None:
                conditions.append(f"{column} = :{column}")
                values[column] = wanted
        key = _key(table)
        if after is not None:
            given = {f"after_{number}": value for number, value in enumerate(after)}
            conditions.append(f"({key}) > ({', '.join(f':{name}' for name in given)})")
            values |= given
        names = ", ".join(column.name for column in table.read)
        sql = (
            f"SELECT {names} FROM {table.name} WHERE {' AND '.join(conditions)} "
            f"ORDER BY {key} LIMIT :limit"
        )
        rows = await (tx.bounded if table is MESSAGES else tx.all)(sql, **values)
        return [_to_row(table, row) for row in rows]


def _key(table: Table) -> str:
    """The key's columns, ordered by code point whatever the database's locale is."""
    texts = {column.name for column in table.columns if column.form is Form.TEXT}
    return ", ".join(f'{name} COLLATE "C"' if name in texts else name for name in table.key)


def _to_row(table: Table, row: Any) -> Row:
    try:
        return {column.name: _read_value(column, row[column.name]) for column in table.read}
    except UNREADABLE as error:
        key = "/".join(str(row[name]) for name in table.key)
        raise DamagedError(f"Row {key} of {table.name} cannot be read: {error}.") from error


def _read_value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.form:
        case Form.TIME:
            return read_time(value)
        case Form.FLAG:
            return bool(value)
        case Form.JSON | Form.IDS | Form.BODY:
            return read_json(value)
        case Form.VECTOR:
            import numpy as np  # noqa: PLC0415 - slow to import, and only memories have vectors

            is_raw = isinstance(value, bytes)
            return (np.frombuffer if is_raw else np.asarray)(value, dtype=np.float32)
    return value


async def all_rows(rows: Rows, table: Table, whose: Whose = ALL) -> AsyncIterator[Row]:
    """All rows of a table, a page at a time."""
    after: Key | None = None
    limit = _NAMED_ROWS if table in (THREADS, USERS) else _ROWS
    while page := await rows.read_rows(table, whose, after=after, limit=limit):
        for row in page:
            yield row
        after = table.key_of(page[-1])


async def all_batches(rows: Rows, thread_id: str) -> AsyncIterator[list[Row]]:
    """The rows of a thread's messages, a batch at a time."""
    batch: list[Row] = []
    async for row in all_rows(rows, MESSAGES, Whose(thread_id=thread_id)):
        if batch and batch[0]["batch"] != row["batch"]:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Restored:
    """The number of written rows by table, and the existing threads that were skipped."""

    rows: Mapping[str, int]
    skipped: tuple[str, ...] = ()
