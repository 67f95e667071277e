"""`segue keys`, at the database and without a server."""

import asyncio
import json

import pytest

from segue.journal.records import ApiKey
from segue.server.auth import is_valid, parse_key
from segue.settings import Settings
from segue.stores import open_journal
from tests.cli.conftest import Segue


def stored(database: str) -> list[ApiKey]:
    async def read() -> list[ApiKey]:
        async with open_journal(Settings(database=database)) as journal:
            return await journal.keys.list_all()

    return asyncio.run(read())


def test_a_key_is_made_listed_and_revoked(segue: Segue, database: str) -> None:
    """It is printed once and opens; the list knows it without its secret; revoked, it is shut."""
    place = ("--database", database)
    made = segue("keys", "create", "laptop", "--user", "ann", *place)
    assert made.exit_code == 0, made.stderr
    [words] = made.stdout.splitlines()
    read = parse_key(words)
    assert read is not None
    key_id, secret = read
    [key] = stored(database)
    assert (key.id, key.name, key.user_id, key.is_operator) == (key_id, "laptop", "ann", False)
    assert is_valid(key, secret)

    listed = segue("keys", "list", *place)
    assert key_id in listed.stdout
    assert "user ann" in listed.stdout
    assert secret not in listed.stdout
    [shown] = json.loads(segue("keys", "list", "--json", *place).stdout)
    assert (shown["name"], shown["user"], shown["revoked_at"]) == ("laptop", "ann", None)
    assert "digest" not in shown

    shut = segue("keys", "revoke", key_id, "--json", *place)
    assert shut.exit_code == 0
    assert json.loads(shut.stdout)["revoked_at"] is not None
    [key] = stored(database)
    assert not is_valid(key, secret)
    [shown] = json.loads(segue("keys", "list", "--json", *place).stdout)
    assert shown["revoked_at"] is not None


@pytest.mark.parametrize(
    ("flags", "user", "is_operator"),
    [
        ((), "laptop", False),
        (("--any-user",), None, False),
        (("--user", "ann", "--operator"), "ann", True),
        (("--any-user", "--operator"), None, True),
    ],
)
def test_whom_a_key_speaks_for(
    segue: Segue, flags: tuple[str, ...], user: str | None, is_operator: bool
) -> None:
    """For the user of its name, for a named one, or for any; as an operator or not."""
    made = segue("keys", "create", "laptop", "--json", *flags)
    shown = json.loads(made.stdout)
    assert shown["key"].startswith("sgu_")
    assert (shown["user"], shown["is_operator"]) == (user, is_operator)
    [key] = stored("segue-data")
    assert (key.user_id, key.is_operator) == (user, is_operator)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("create", "x", "--user", "a", "--any-user"), "not for both"),
        (("create", "  "), "1 to 200 plain characters"),
        (("create", "x", "--user", "a\nb"), "1 to 200 plain characters"),
        (("list",), "has no database yet"),
        (("revoke", "abc"), "has no database yet"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    segue: Segue, args: tuple[str, ...], words: str
) -> None:
    """With exit code 2, and nothing is made."""
    result = segue("keys", *args)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert words in line
    assert segue("keys", "list").exit_code == 2  # there is still no database


def test_an_unknown_key_is_not_revoked(segue: Segue) -> None:
    """It says that there is none."""
    segue("keys", "create", "laptop")
    result = segue("keys", "revoke", "abc")
    assert result.exit_code == 2
    assert result.stderr == "Error: There is no key 'abc'.\n"
