"""Which kind of source something is, told by itself: an address, a SQLite file, JSON lines."""

from pathlib import Path
from typing import Final

from segue.core.errors import NotFoundError, UsageError
from segue.migrate.sources import Source

_ADDRESSES: Final = ("postgresql://", "postgres://")
_SQLITE: Final = b"SQLite format 3\0"
_LINES: Final = frozenset({".jsonl", ".ndjson"})


def open_source(place: str) -> Source:
    """Open a source for reading; whoever asked closes it."""
    from segue.migrate.checkpoints import CheckpointSource  # noqa: PLC0415 - loads LangGraph

    if place.startswith(_ADDRESSES) or any(w.startswith("dbname=") for w in place.split()):
        try:
            from segue.migrate.postgres_checkpoints import PostgresTables  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(
                f"PostgreSQL needs {error.name}; pip install 'segue[postgres]'."
            ) from error
        return CheckpointSource(PostgresTables(place))
    path = Path(place)
    if not path.is_file():
        raise NotFoundError(f"There is no file {place!r}; nor is it a postgresql:// address.")
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    if is_sqlite:
        from segue.migrate.sqlite_checkpoints import SqliteTables  # noqa: PLC0415

        return CheckpointSource(SqliteTables(path))
    if path.suffix in _LINES:
        from segue.migrate.chats import ChatSource  # noqa: PLC0415

        return ChatSource(path)
    raise UsageError(
        f"{place!r} is neither a SQLite file, such as LangGraph's SqliteSaver writes, nor a file "
        "of JSON lines (.jsonl)."
    )
