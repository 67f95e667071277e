"""`segue keys`: who may call the server. Works at the database; no server has to run."""

from typing import TYPE_CHECKING, Annotated

import typer

from segue.cli.errors import told_plainly
from segue.cli.help import Command, Group
from segue.cli.options import AsJson, ConfigFile, Database
from segue.cli.output import print_json, print_table, when
from segue.cli.working import with_journal
from segue.core.errors import UsageError

if TYPE_CHECKING:
    from segue.journal.records import ApiKey

app = typer.Typer(cls=Group, help="Make, list and revoke keys of the server.", no_args_is_help=True)

_ANY = "It speaks for whichever user a request names: for a program that serves many."


@app.command(cls=Command)
def create(  # noqa: PLR0913 - they are its options
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called in lists.")],
    *,
    user: Annotated[
        str | None, typer.Option(help="The user it speaks for; the key's name if not given.")
    ] = None,
    any_user: Annotated[bool, typer.Option("--any-user", help=_ANY)] = False,
    operator: Annotated[bool, typer.Option("--operator", help="It may see everything.")] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, once: only a digest of it is kept."""
    from segue.cli.opening import open_journal, read_served_settings, run  # noqa: PLC0415

    settings = read_served_settings(config, database)
    # Not before: it needs the extra that is asked for there.
    from segue.runtime.clock import SystemClock  # noqa: PLC0415
    from segue.server.keys import new_key  # noqa: PLC0415

    with told_plainly():
        user_id = _user(name, user, any_user=any_user)
    key, words = new_key(name, user_id, SystemClock().now(), is_operator=operator)

    async def work() -> None:
        async with open_journal(settings, make=True) as journal:
            await journal.add_key(key)

    run(work())
    if as_json:
        print_json(_shown(key) | {"key": words})
        return
    typer.echo(words)
    typer.echo(f"Key {key.id} speaks for {_whom(key)}. It is not shown again.", err=True)


@app.command(name="list", cls=Command)
def list_keys(
    *, config: ConfigFile = None, database: Database = None, as_json: AsJson = False
) -> None:
    """List all keys, oldest first, also those that were revoked."""
    keys = with_journal(config, database, lambda journal, _: journal.list_keys())
    if as_json:
        print_json([*map(_shown, keys)])
        return
    rows = ((k.id, when(k.created_at), when(k.revoked_at), _whom(k), k.name) for k in keys)
    headings = ("id", "made", "revoked", "speaks for", "name")
    print_table(headings, rows, nothing="There is no key; `segue keys create NAME` makes one.")


@app.command(cls=Command)
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Of `segue keys list`.")],
    *,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Shut a key for good; a running server knows within seconds."""
    from segue.runtime.clock import SystemClock  # noqa: PLC0415

    now = SystemClock().now()
    key = with_journal(config, database, lambda journal, _: journal.revoke_key(key_id, now=now))
    if as_json:
        print_json(_shown(key))
        return
    typer.echo(f"Key {key.id} ({key.name}) opens nothing any more.")


def _user(name: str, user: str | None, *, any_user: bool) -> str | None:
    from segue.server.keys import LONGEST_NAME, is_name  # noqa: PLC0415

    if any_user and user is not None:
        raise UsageError("A key speaks for --user or for --any-user, not for both.")
    for what, given in (("name", name), ("user", user or name)):
        if not is_name(given):
            raise UsageError(f"A {what} has 1 to {LONGEST_NAME} plain characters.")
    return None if any_user else user or name


def _whom(key: "ApiKey") -> str:
    whom = "any user" if key.user_id is None else f"user {key.user_id}"
    return f"{whom}, and is an operator's" if key.is_operator else whom


def _shown(key: "ApiKey") -> dict[str, object]:
    """Without the digest."""
    return {
        "id": key.id,
        "name": key.name,
        "user": key.user_id,
        "is_operator": key.is_operator,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    }
