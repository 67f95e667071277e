"""`segue serve`: the server, from the settings, until somebody stops it."""

from typing import Annotated

import typer

from segue.cli.options import ConfigFile, Database


def serve(
    *,
    host: Annotated[
        str | None, typer.Option(help="Where to listen; 127.0.0.1 if not set.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="8000 if not set; 0 takes any free one.", min=0, max=65_535),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log each request and each turn, too.")
    ] = False,
    config: ConfigFile = None,
    database: Database = None,
) -> None:
    """Serve the agents of the settings over REST, WebSocket and server-sent events.

    Without settings: one agent with the local model, or a scripted one if that is not installed,
    on SQLite, for this machine alone.
    """
    from segue.cli.opening import read_served_settings, run  # noqa: PLC0415

    log_level = "info" if verbose else None
    settings = read_served_settings(config, database, host=host, port=port, log_level=log_level)
    # Not before: it needs the extra that is asked for there.
    from segue.cli.server_process import serve_until_stopped  # noqa: PLC0415

    raise typer.Exit(run(serve_until_stopped(settings)))
