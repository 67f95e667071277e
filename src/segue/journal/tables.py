"""The tables as a transfer reads and writes them, the same for both databases.

A row is a mapping of Python values by column: times are aware, JSON is read, a vector is an array.
What is only of the running system (leases, wake-up times, node numbers, keys of the server, the
text so far) is no part of it. Columns that follow from others are written but not read.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from segue.core.words import indexed_words
from segue.journal.records import EffectState, TimerState, TurnState

Row = Mapping[str, Any]
Key = tuple[Any, ...]


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
    # A message: read, or as it is stored, so that nobody writes again what is written.
    BODY = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """`follows`: from other columns, so it is written and never read."""

    name: str
    form: Form = Form.TEXT
    nullable: bool = False
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the order of its key. `of_thread`: its rows belong to a thread each."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    of_thread: bool = True

    @property
    def read(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.follows)

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)


def _id(name: str, **more: bool) -> Column:
    return Column(name, Form.ID, **more)


def _number(name: str, **more: bool) -> Column:
    return Column(name, Form.NUMBER, **more)


def _flag(name: str, **more: bool) -> Column:
    return Column(name, Form.FLAG, **more)


def _time(name: str, **more: bool) -> Column:
    return Column(name, Form.TIME, **more)


def _json(name: str, **more: bool) -> Column:
    return Column(name, Form.JSON, **more)


def _maybe(name: str) -> Column:
    return Column(name, nullable=True)


# Those of a thread's rows, so that questions about an agent or a user need no join.
_AGENT: Final = Column("agent_id", follows=True)
_USER: Final = Column("user_id", follows=True)
_WAKE: Final = _time("wake_at", nullable=True, follows=True)

THREADS: Final = Table(
    "threads",
    ("id",),
    (
        Column("id"),
        Column("agent_id"),
        Column("user_id"),
        _maybe("title"),
        _flag("title_is_set"),
        _maybe("preview"),
        _maybe("preview_role"),
        _id("preview_position"),
        _number("message_count"),
        _number("epoch"),
        _id("last_position"),
        _json("settings"),
        _time("created_at"),
        _time("updated_at"),
    ),
    of_thread=False,
)
MESSAGES: Final = Table(
    "messages",
    ("batch", "sequence_num"),
    (
        _id("position"),
        Column("message_id", follows=True),
        _maybe("client_message_id"),
        _id("batch"),
        _number("sequence_num"),
        Column("batch_type", follows=True),
        _id("parent_batch", nullable=True, follows=True),
        _AGENT,
        Column("role", follows=True),
        _flag("synthetic", follows=True),
        Column("trigger_type", nullable=True, follows=True),
        _flag("visible", follows=True),
        _flag("archived"),
        _number("tokens", follows=True),
        Column("text", follows=True),
        Column("body", Form.BODY),
        _time("created_at"),
    ),
)
SUMMARIES: Final = Table(
    "summaries",
    ("id",),
    (
        _id("id"),
        Column("text"),
        _id("first_batch"),
        _id("last_batch"),
        Column("batches", Form.IDS),
        _id("previous_id", nullable=True),
        _time("created_at"),
    ),
)
TURNS: Final = Table(
    "turns",
    ("id",),
    (
        _id("id"),
        _AGENT,
        _USER,
        _id("batch"),
        Column("kind"),
        Column("state"),
        _number("epoch"),
        _number("attempts"),
        _time("queued_at"),
        _time("available_at"),
        _time("shown_at", nullable=True),
        _maybe("error"),
        _json("payload"),
        _flag("cancel_requested"),
        _flag("left_open"),
        _flag("is_waiting"),
        _json("ending", nullable=True),
        _id("end_position", nullable=True),
        _time("finished_at", nullable=True),
    ),
)
TIMERS: Final = Table(
    "timers",
    ("id",),
    (
        _id("id"),
        _AGENT,
        _USER,
        Column("kind"),
        Column("state"),
        _maybe("trigger_type"),
        _maybe("reason"),
        _id("batch", nullable=True),
        _number("epoch"),
        _time("due_at"),
        _time("expires_at", nullable=True),
        Column("missed"),
        _json("payload"),
        _maybe("state_reason"),
        _WAKE,
        _time("created_at"),
        _time("updated_at"),
    ),
)
DECISIONS: Final = Table(
    "decisions",
    ("id",),
    (
        _id("id"),
        Column("kind"),
        Column("outcome"),
        _json("reasons"),
        _json("facts"),
        _id("timer_id", nullable=True),
        _id("turn_id", nullable=True),
        _time("decided_at"),
    ),
)
EFFECTS: Final = Table(
    "effects",
    ("id",),
    (
        _id("id"),
        Column("kind"),
        _json("payload"),
        Column("dedupe_key"),
        Column("state"),
        _number("attempts"),
        _time("due_at"),
        _maybe("error"),
        _maybe("evidence"),
        _WAKE,
        _time("created_at"),
    ),
)
USERS: Final = Table(
    "users",
    ("user_id",),
    (Column("user_id"), _json("settings"), _time("updated_at")),
    of_thread=False,
)
MEMORIES: Final = Table(
    "memories",
    ("id",),
    (
        _id("id"),
        Column("agent_id"),
        Column("user_id"),
        Column("key"),
        Column("content"),
        _json("metadata"),
        Column("embedding", Form.VECTOR, nullable=True),
        _maybe("embedding_model"),
        _number("word_count", follows=True),
        _time("created_at"),
        _time("updated_at"),
    ),
    of_thread=False,
)
# What belongs to a thread, in the order in which it is told.
OF_THREAD: Final = (MESSAGES, SUMMARIES, TURNS, TIMERS, DECISIONS, EFFECTS)

# Of what somebody had in hand, nobody knows elsewhere: it is to be taken up anew.
_AT_REST: Final[Mapping[str, Mapping[str, str]]] = {
    "turns": {TurnState.RUNNING: TurnState.QUEUED.value},
    "timers": {TimerState.CLAIMED: TimerState.PENDING.value},
    "effects": {EffectState.CLAIMED: EffectState.PENDING.value},
}
_LIVE_TURNS: Final = frozenset({TurnState.QUEUED.value})
_WAITING: Final = frozenset({TimerState.PENDING.value, TimerState.POSTPONED.value})


def at_rest(table: Table, row: Row) -> Row:
    """A row as it is without the process that has it in hand."""
    states = _AT_REST.get(table.name, {})
    if row.get("state") in states:
        return {**row, "state": states[row["state"]]}
    return row


def whole(table: Table, row: Row, thread: Row | None) -> Row:
    """A row with the columns that follow from its others and from its thread."""
    more: dict[str, Any] = {}
    if table.of_thread and thread is not None:
        more = {"agent_id": thread["agent_id"], "user_id": thread["user_id"]}
    if table in (TIMERS, EFFECTS):
        more["wake_at"] = row["due_at"] if row["state"] in _WAITING else None
    if table is MEMORIES:
        more["word_count"] = len(indexed_words(row["content"]))
    return {**more, **row}


def is_live_turn(table: Table, row: Row) -> bool:
    return table is TURNS and row["state"] in _LIVE_TURNS


@dataclass(frozen=True, slots=True)
class Whose:
    """Which rows of a table: of one thread, of one user, or all."""

    thread_id: str | None = None
    user_id: str | None = None


ALL: Final = Whose()


class Rows(Protocol):
    """Where rows are read, page by page."""

    async def read_rows(
        self, table: Table, whose: Whose = ALL, *, after: Key | None = None, limit: int = 500
    ) -> Sequence[Row]:
        """Rows in the order of their key, from above a key on. Texts are ordered by code point."""
        ...


_ROWS: Final = 500
# Names are not indexed by code point everywhere, so each page may cost a look at all of them.
_NAMED_ROWS: Final = 5_000


async def all_rows(rows: Rows, table: Table, whose: Whose = ALL) -> AsyncIterator[Row]:
    """All rows of a table, a page at a time."""
    after: Key | None = None
    limit = _NAMED_ROWS if table in (THREADS, USERS) else _ROWS
    while page := await rows.read_rows(table, whose, after=after, limit=limit):
        for row in page:
            yield row
        after = table.key_of(page[-1])


@dataclass(frozen=True, slots=True)
class Restored:
    """How many rows were written by table, and which threads were there already and left alone."""

    rows: Mapping[str, int]
    skipped: tuple[str, ...] = ()
