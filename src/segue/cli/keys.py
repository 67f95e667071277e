"""`segue keys`: keys for callers of the server, kept in the database; no server has to run."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from segue.cli.output import Answer, Command, Group, when, with_options
from segue.cli.target import Place
from segue.core.text import LONGEST_NAME
from segue.errors import UsageError
from segue.journal.records import ApiKey
from segue.runtime.clock import SystemClock
from segue.server.auth import is_name, new_key

_ANY = "The key acts for the user that each request names: for a program that serves many users."


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name in lists.")],
    *,
    user: Annotated[str | None, "The user that the key acts for; NAME if not given."] = None,
    any_user: Annotated[bool, _ANY] = False,
    operator: Annotated[bool, "The key may see everything."] = False,
    place: Place,
) -> Answer:
    """Create a key and print it, once: only a digest of it is stored."""
    user_id = _check_user(name, user, any_user=any_user)
    key, secret = new_key(name, user_id, SystemClock().now(), is_operator=operator)
    place.run(lambda segue: segue.add_key(key), make=True)

    def show() -> None:
        typer.echo(secret)
        typer.echo(f"Key {key.id} acts for {_user_of(key)}. It is not shown again.", err=True)

    return Answer(_without_digest(key) | {"key": secret}, show)


def list_keys(*, place: Place) -> Answer:
    """List all keys, revoked ones too, oldest first."""
    keys = place.run(lambda segue: segue.list_keys())
    rows = ((k.id, when(k.created_at), when(k.revoked_at), _user_of(k), k.name) for k in keys)
    headings = ("id", "created", "revoked", "acts for", "name")
    nothing = "No keys yet; `segue keys create NAME` creates one."
    return Answer.table([*map(_without_digest, keys)], headings, rows, nothing=nothing)


def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id that `segue keys list` shows.")
    ],
    *,
    place: Place,
) -> Answer:
    """Revoke a key for good; a running server refuses it within seconds."""
    key = place.run(lambda segue: segue.revoke_key(key_id))
    return Answer(
        _without_digest(key), lambda: typer.echo(f"Key {key.id} ({key.name}) is revoked.")
    )


app = typer.Typer(
    cls=Group, help="Create, list and revoke keys of the server.", no_args_is_help=True
)
_COMMANDS: Final[Mapping[str, Callable[..., Answer]]] = {
    "create": create,
    "list": list_keys,
    "revoke": revoke,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=Command)(with_options(_command))


def _check_user(name: str, user: str | None, *, any_user: bool) -> str | None:
    """The user that a new key acts for; None for any."""
    if any_user and user is not None:
        raise UsageError("A key acts for --user or for --any-user, not for both.")
    for what, given in (("name", name), ("user", user or name)):
        if not is_name(given):
            raise UsageError(f"A {what} has 1 to {LONGEST_NAME} plain characters.")
    return None if any_user else user or name


def _user_of(key: ApiKey) -> str:
    user = "any user" if key.user_id is None else f"user {key.user_id}"
    return f"{user}, as operator" if key.is_operator else user


def _without_digest(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "user": key.user_id,
        "is_operator": key.is_operator,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    }
