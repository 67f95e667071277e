"""A step of the journal, written once for every database.

A step is a coroutine that awaits nothing but its `Tx`. On SQLite a `Tx` never suspends, so the
writer's thread runs the whole step at once; on PostgreSQL a step may be repeated after a conflict,
so it changes nothing but the database. SQL is written for PostgreSQL, with `:name` for values;
what SQLite spells differently is translated once per text.

    SELECT … FOR UPDATE SKIP LOCKED    locks rows on PostgreSQL; SQLite has locked the file already
    SELECT *, NOTIFY(id, user_id)      wakes watchers of that thread at the commit (PostgreSQL)
    RETURNING id, NOSYNC()             the commit does not wait for the disk (PostgreSQL)
    FROM turns INDEXED BY turns_alive  names the index for SQLite's planner
    id = ANY(:ids), id <> ALL(:ids)    takes a list
    SECONDS(a - b)                     whole seconds between two times
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from importlib import resources
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from segue.errors import ConflictError, NotFoundError

P = ParamSpec("P")
T = TypeVar("T")
# A mapping of columns; `sqlite3.Row` is one in all but name.
Row = Any

WAKE_CHANNEL: Final = "segue_wake"
_MISSING: Final = "A required row is missing. Nothing was written."
_NAME: Final = re.compile(r"(?<![:\w]):([a-z]\w*)")
_NOTIFY: Final = re.compile(r"NOTIFY\(([\w.]+)(?:, ([\w.]+))?\)")
_LOCKS: Final = re.compile(
    r"\bFOR (?:NO KEY )?UPDATE(?: OF [\w, ]+?)?(?: SKIP LOCKED)?(?=\s*(?:\)|$))"
)
_FOR_SQLITE: Final = (
    (_LOCKS, ""),
    (re.compile(r",\s*(?:NOTIFY\([\w., ]+\)|NOSYNC\(\))"), ""),
    (re.compile(r"= ANY\((:\w+)\)"), r"IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"<> ALL\((:\w+)\)"), r"NOT IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"\bleast\("), "min("),
    (re.compile(r"\bgreatest\("), "max("),
    (re.compile(r"\bstrpos\("), "instr("),
    (re.compile(r' COLLATE "C"'), ""),
    (re.compile(r"\boctet_length\((\w+)\)"), r"length(CAST(\1 AS BLOB))"),
    (re.compile(r"\bSECONDS\(([\w. -]+)\)"), r"(\1) / 1000000"),
    # A partial index is used only if its condition is written the same way.
    (re.compile(r"\btrue\b"), "1"),
    (re.compile(r"\bfalse\b"), "0"),
    (re.compile(r"(?<=[\w)])::\w+(?:\[\])?"), ""),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with its values, to run with others."""

    sql: str
    values: dict[str, Any] = field(default_factory=dict)


class Tx(ABC):
    """A transaction under way. Values are Python's own: aware datetimes, timedeltas, lists."""

    @abstractmethod
    async def all(self, sql: str, /, **values: Any) -> list[Row]: ...

    async def find(self, sql: str, /, **values: Any) -> Row | None:
        """The first row, or None."""
        rows = await self.all(sql, **values)
        return rows[0] if rows else None

    async def get(self, sql: str, missing: str = _MISSING, /, **values: Any) -> Row:
        """The first row; `NotFoundError` with the text `missing` if there is none."""
        if (row := await self.find(sql, **values)) is None:
            raise NotFoundError(missing)
        return row

    async def change(self, table: str, row_id: int | str, /, **values: Any) -> Row:
        """Set columns of the row with an id, and return it."""
        columns = ", ".join(f"{name} = :{name}" for name in values)
        sql = f"UPDATE {table} SET {columns} WHERE id = :row_id RETURNING *"
        return await self.get(sql, **values, row_id=row_id)

    @abstractmethod
    async def bounded(self, sql: str, /, **values: Any) -> list[Row]:
        """Rows with a `body`, in order, until their bodies reach `PAGE_BYTES`."""

    @abstractmethod
    async def run(self, sql: str, /, **values: Any) -> int:
        """Returns how many rows were changed."""

    @abstractmethod
    async def together(self, *statements: Statement) -> list[Row]:
        """Run statements that do not depend on each other; the rows of the last one.

        One round trip on PostgreSQL, where each sees the database as it was before all of them.
        Two must not change the same row.
        """

    @abstractmethod
    async def lock(self, name: str) -> None:
        """Hold back other steps that lock this name, until the commit."""

    @abstractmethod
    async def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None: ...

    @abstractmethod
    def words_of(self, user_id: str, text: str | None) -> dict[str, Any]:
        """The columns that index a message for search, if this database has any."""

    @abstractmethod
    def vector(self, numbers: Any) -> Any:
        """An array of numbers as a value."""

    @abstractmethod
    async def search(self, user_id: str, text: str, thread_id: str | None, limit: int) -> list[Row]:
        """Rows of a user's visible messages that match words, best first; `excerpt` is the text
        from the character `start` on.
        """

    @abstractmethod
    async def score_words(
        self, weights: Mapping[str, float], *, agent: str, user: str, average: float, limit: int
    ) -> dict[int, float]:
        """BM25 scores of the best memories of a namespace, by weighted words."""

    @abstractmethod
    async def similarities(
        self, agent_id: str, user_id: str, model: str | None, wanted: Any
    ) -> dict[int, float]:
        """Cosine similarity with every vector of a namespace of the same model and size."""

    @abstractmethod
    async def forget_user(self, user_id: str) -> None:
        """Delete what only this database stores about a user, after their memories."""


Step = Callable[[Tx], Coroutine[Any, Any, T]]


class Transactor(Protocol):
    async def transact(self, step: Step[T], *, read_only: bool = False, single: bool = False) -> T:
        """Run a step in a transaction; nothing is written if it raises.

        A `read_only` step sees one snapshot; a `single` statement needs no explicit transaction.
        """
        ...


class Database(Transactor, Protocol):
    def at_one_moment(self) -> AbstractAsyncContextManager[Transactor]:
        """A connection with one snapshot of the database, for long reads."""
        ...

    async def wipe(self) -> None:
        """Remove deleted data from the database's files, as far as it can."""
        ...

    async def wipe_log(self) -> None:
        """The same for the log alone, after a row without full-text index was deleted."""
        ...


class Part:
    """The steps of a journal that belong to one noun. All parts share the journal's database."""

    def __init__(self, db: Database) -> None:
        self.db = db


StepMethod = Callable[Concatenate[Any, Tx, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _runs(step: StepMethod[P, T], *, read_only: bool = False, single: bool = False) -> Method[P, T]:
    @wraps(step)
    async def run(part: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await part.db.transact(
            lambda tx: step(part, tx, *args, **kwargs), read_only=read_only, single=single
        )
        return result

    return run


def writes(step: StepMethod[P, T]) -> Method[P, T]:
    """A method of a `Part` that runs in a transaction."""
    return _runs(step)


def single_write(step: StepMethod[P, T]) -> Method[P, T]:
    """Like `writes`, for a step of a single statement."""
    return _runs(step, single=True)


def reads(step: StepMethod[P, T]) -> Method[P, T]:
    """A method of a `Part` that reads on one snapshot."""
    return _runs(step, read_only=True)


def single_read(step: StepMethod[P, T]) -> Method[P, T]:
    """Like `reads`, for a step of a single statement."""
    return _runs(step, read_only=True, single=True)


def insertion(table: str, more: str = "", **values: Any) -> Statement:
    """An INSERT of one row; the values are named like their columns."""
    names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    return Statement(f"INSERT INTO {table} ({names}) VALUES ({places}) {more}", values)


def check_lease(what: str, row: Row | None, token: int, held: str) -> None:
    """Raise unless the locked row is in the state `held` and has the lease's token."""
    if row is None:
        raise NotFoundError(f"There is no {what}. Nothing was written.")
    if row["state"] != held:
        raise ConflictError(f"{what.capitalize()} is {row['state']}. Nothing was written.")
    if row["token"] != token:
        raise ConflictError(
            f"The lease of {what} now belongs to {row['owner']!r}. Nothing was written."
        )


def migrations(database: str) -> list[str]:
    """The scripts that make the schema, in order."""
    folder = resources.files("segue.journal") / "migrations" / database
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [f.read_text(encoding="utf-8") for f in files]


@lru_cache(maxsize=1_000)
def for_sqlite(sql: str) -> str:
    for pattern, replacement in _FOR_SQLITE:
        sql = pattern.sub(replacement, sql)
    return " ".join(sql.split())


@lru_cache(maxsize=1_000)
def for_postgres(sql: str) -> bytes:
    sql = re.sub(r"INDEXED BY \w+", "", sql).replace("%", "%%")
    sql = _NOTIFY.sub(_notification, sql)
    sql = re.sub(r"\bSECONDS\(([\w. -]+)\)", r"floor(extract(epoch FROM \1))::bigint", sql)
    sql = sql.replace("NOSYNC()", "set_config('synchronous_commit', 'off', true) AS unsynced")
    return _NAME.sub(r"%(\1)s", " ".join(sql.split())).encode()


@lru_cache(maxsize=1_000)
def merged(texts: tuple[str, ...]) -> str:
    """One statement that does the work of several; the values of each get its number."""
    *others, last = (_NAME.sub(rf":\1_{number}", text) for number, text in enumerate(texts))
    parts = ", ".join(f"part_{number} AS ({text})" for number, text in enumerate(others))
    return f"WITH {parts} {last}" if parts else last


def merged_values(statements: tuple[Statement, ...]) -> dict[str, Any]:
    return {
        f"{name}_{number}": value
        for number, statement in enumerate(statements)
        for name, value in statement.values.items()
    }


def _notification(found: re.Match[str]) -> str:
    """Names that are too long for a notification are sent as "", which stands for any thread."""
    names = f"{found[1]} || E'\\n' || {found[2]}" if found[2] else found[1]
    fitting = f"CASE WHEN octet_length({names}) < 8000 THEN {names} ELSE '' END"
    return f"pg_notify('{WAKE_CHANNEL}', {fitting}) AS notified"
