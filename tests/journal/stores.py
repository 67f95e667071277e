"""A store by its address, a file's path or a conninfo: through the journal, and past it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from segue.journal.journal import Journal
from segue.journal.postgres import PostgresJournal
from segue.journal.sqlite import SqliteJournal
from segue.journal.tx import Part


def is_file(address: str) -> bool:
    return Path(address).suffix == ".db"


def journal_at(address: str) -> Journal:
    return SqliteJournal(address) if is_file(address) else PostgresJournal(address, pool_size=2)


@contextmanager
def raw(address: str) -> Iterator[sqlite3.Connection | psycopg.Connection]:
    """A connection that commits every statement by itself, unless told to begin a transaction."""
    if is_file(address):
        with closing(sqlite3.connect(address, isolation_level=None)) as connection:
            yield connection
    else:
        with psycopg.connect(address, autocommit=True) as connection:
            yield connection


def ask(address: str, sql: str) -> list[tuple[Any, ...]]:
    with raw(address) as connection:
        return connection.execute(sql).fetchall()


def change(address: str, script: str) -> None:
    with raw(address) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.executescript(script)
        else:
            connection.execute(script)


def steps_of(journal: Journal) -> dict[str, Any]:
    """All steps by part and name, such as `turns.claim`."""
    return {
        f"{part}.{name}": getattr(steps, name)
        for part, steps in vars(journal).items()
        if isinstance(steps, Part)
        for name in dir(steps)
        if not name.startswith("_") and name not in ("db", "matches")
    }
