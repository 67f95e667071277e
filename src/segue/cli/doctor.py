"""`segue doctor`: would it work here, and if not, what has to be done?"""

from typing import Annotated, Final

import typer

from segue.cli.errors import FAILED
from segue.cli.options import AsJson, ConfigFile, Database
from segue.cli.output import print_json

_LIVE = "Also connect to the addresses of models and webhooks; nothing is sent to them."
_MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    *,
    live: Annotated[bool, typer.Option("--live", help=_LIVE)] = False,
    config: ConfigFile = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, database, models, clock and time zones; exit code 1 if anything fails.

    Changes nothing: it applies no migration, and its test message is deleted again.
    """
    from segue.cli.checks import check_all  # noqa: PLC0415
    from segue.cli.opening import run  # noqa: PLC0415

    checks = run(check_all(config, database, is_live=live))
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            mark = typer.style(_MARKS[check.outcome], fg=_COLOURS[check.outcome])
            typer.echo(f"{mark}  {check.name}: {check.detail}")
            if check.fix:
                typer.echo(f"      {check.fix}")
    if any(check.outcome == "fail" for check in checks):
        raise typer.Exit(FAILED)
